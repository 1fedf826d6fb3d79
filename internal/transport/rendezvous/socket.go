package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hello is the encoding of a message. It is sent with up to two file descriptors: that of the shared memory (rank 0
// only), then that of the message.
type hello struct {
	Run     string `json:"run"`
	Payload []byte `json:"payload"`
	HasFD   bool   `json:"has_fd"`
	fd      int    // descriptor to send; not set on receive
}

// maxHello is an upper bound of the encoded length of a hello.
const maxHello = 4096

// listener is rank 0's socket in the abstract namespace, which ends with the process.
type listener struct {
	l       *net.UnixListener
	name    string
	user    int           // user ID of accepted peers
	timeout time.Duration // wait for the hello of one connection before the next is accepted
}

func listen(run string, user int) (*listener, error) {
	name := "@p2pbench-" + run
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return &listener{l: l, name: name, user: user, timeout: helloTimeout}, nil
}

func (s *listener) Close() error { return s.l.Close() }

// swap waits for the peer, receives its hello and replies with own and the descriptor of the memory. It returns the
// peer's message and a descriptor of the connection.
func (s *listener) swap(ctx context.Context, own hello, memory int) (Message, int, error) {
	defer bound(ctx, s.l)()
	for {
		c, err := s.l.AcceptUnix()
		if err != nil {
			return Message{}, -1, fmt.Errorf("wait for the peer: %w", ended(ctx, err))
		}
		theirs, fds, err := s.serve(ctx, c, own, memory)
		if errors.Is(err, errStranger) {
			_ = c.Close()
			continue
		}
		if err != nil {
			_ = c.Close()
			return Message{}, -1, err
		}
		return finish(c, theirs, fds)
	}
}

// finish returns the received message and a descriptor of the connection, and closes c.
func finish(c *net.UnixConn, h hello, fds []int) (Message, int, error) {
	defer func() { _ = c.Close() }()
	m, err := message(h, fds)
	if err != nil {
		return Message{}, -1, err
	}
	socket, err := descriptor(c)
	if err != nil {
		closeFD(m.FD)
		return Message{}, -1, err
	}
	return m, socket, nil
}

// descriptor returns a duplicate of the connection's descriptor.
func descriptor(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd, derr := -1, error(nil)
	if err := raw.Control(func(own uintptr) { fd, derr = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return -1, err
	}
	if derr != nil {
		return -1, fmt.Errorf("keep the connection: %w", derr)
	}
	return fd, nil
}

// errStranger means that the peer does not belong to this run.
var errStranger = errors.New("not a rank of this run")

// errDropped means that the kernel dropped received descriptors because of a limit.
var errDropped = errors.New("file descriptors were dropped: raise the limit of open files (ulimit -n)")

// helloTimeout is how long rank 0 waits for the hello of a connection.
const helloTimeout = 5 * time.Second

func (s *listener) serve(ctx context.Context, c *net.UnixConn, own hello, memory int) (hello, []int, error) {
	if err := checkUser(c, s.user); err != nil {
		return hello{}, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	theirs, fds, err := receive(ctx, c)
	if err != nil && !errors.Is(err, errDropped) {
		return hello{}, nil, errors.Join(err, errStranger) // a rank sends a valid hello at once
	}
	if err != nil {
		return hello{}, nil, err
	}
	if theirs.Run != own.Run {
		closeAll(fds)
		return hello{}, nil, fmt.Errorf("run %q: %w", theirs.Run, errStranger)
	}
	if err := send(ctx, c, own, memory); err != nil {
		closeAll(fds)
		return hello{}, nil, err
	}
	return theirs, fds, nil
}

// dial connects to rank 0, a process of user, and exchanges hellos. It returns rank 0's message, the descriptor of the
// memory and that of the connection.
func dial(ctx context.Context, name string, user int, own hello) (Message, int, int, error) {
	theirs, fds, c, err := ask(ctx, name, user, own)
	if err != nil {
		return Message{}, -1, -1, err
	}
	if len(fds) == 0 {
		_ = c.Close()
		return Message{}, -1, -1, errors.New("rank 0 sent no shared memory")
	}
	m, socket, err := finish(c, theirs, fds[1:])
	if err != nil {
		closeFD(fds[0])
		return Message{}, -1, -1, err
	}
	return m, fds[0], socket, nil
}

// ask connects and exchanges hellos.
func ask(ctx context.Context, name string, user int, own hello) (_ hello, _ []int, _ *net.UnixConn, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unixpacket", name)
	if err != nil {
		return hello{}, nil, nil, err
	}
	c := conn.(*net.UnixConn)
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	if err := checkUser(c, user); err != nil {
		return hello{}, nil, nil, err
	}
	if err := send(ctx, c, own, -1); err != nil {
		return hello{}, nil, nil, err
	}
	theirs, fds, err := receive(ctx, c)
	return theirs, fds, c, err
}

// message makes a Message from a hello and the descriptors received with it.
func message(h hello, fds []int) (Message, error) {
	m := Message{Payload: h.Payload, FD: -1}
	switch {
	case h.HasFD && len(fds) == 1:
		m.FD = fds[0]
	case h.HasFD:
		closeAll(fds)
		return Message{}, fmt.Errorf("received %d file descriptors with the message, want 1", len(fds))
	default:
		closeAll(fds)
	}
	return m, nil
}

// checkUser returns errStranger if the peer is not a process of that user: whoever gets a handle can write to the
// memory.
func checkUser(c *net.UnixConn, user int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if cerr != nil {
		return fmt.Errorf("peer's credentials: %w", cerr)
	}
	if int(cred.Uid) != user {
		return fmt.Errorf("peer runs as user %d: %w", cred.Uid, errStranger)
	}
	return nil
}

func send(ctx context.Context, c *net.UnixConn, h hello, memory int) error {
	var fds []int
	if memory >= 0 {
		fds = append(fds, memory)
	}
	if h.HasFD = h.fd >= 0; h.HasFD {
		fds = append(fds, h.fd)
	}
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	defer bound(ctx, c)()
	var rights []byte
	if len(fds) > 0 {
		rights = syscall.UnixRights(fds...)
	}
	_, _, err = c.WriteMsgUnix(b, rights, nil)
	return ended(ctx, err)
}

// bound makes operations on c fail when ctx ends, until free is called.
func bound(ctx context.Context, c interface{ SetDeadline(time.Time) error }) (free func() bool) {
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(deadline)
	}
	return context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
}

// ended returns the cause of ctx's cancellation if ctx was cancelled, and err otherwise.
func ended(ctx context.Context, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return context.Cause(ctx)
	}
	return err
}

func receive(ctx context.Context, c *net.UnixConn) (hello, []int, error) {
	defer bound(ctx, c)()
	b := make([]byte, maxHello)
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return hello{}, nil, fmt.Errorf("hello from the peer: %w", ended(ctx, err))
	}
	fds, err := rights(oob[:oobn])
	if err != nil {
		return hello{}, nil, err
	}
	var h hello
	err = json.Unmarshal(b[:n], &h)
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = errDropped
	}
	if err != nil {
		closeAll(fds)
		return hello{}, nil, fmt.Errorf("hello from the peer: %w", err)
	}
	return h, fds, nil
}

func rights(oob []byte) ([]int, error) {
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("control message: %w", err)
	}
	var all []int
	for i := range msgs {
		fds, err := syscall.ParseUnixRights(&msgs[i])
		if err != nil {
			closeAll(all)
			return nil, fmt.Errorf("control message: %w", err)
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
		}
		all = append(all, fds...)
	}
	return all, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		closeFD(fd)
	}
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}
