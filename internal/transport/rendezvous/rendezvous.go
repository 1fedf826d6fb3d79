// Package rendezvous connects two ranks of one host: they exchange one message each, which may carry a file descriptor,
// and map shared memory for their control words.
//
// Rank 0 listens on a Unix socket in the abstract namespace and creates the memory, a memfd; rank 1 dials. After the
// exchange the transport may send more descriptors over the socket. Nothing has a name in a file system, so nothing is
// left behind.
//
// Each transport defines the content of the messages and the layout of the memory.
package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Message is what each rank sends to the other.
type Message struct {
	Payload []byte // at most maxPayload bytes
	FD      int    // file descriptor sent with the payload; -1: none. The receiver closes it
}

// maxPayload is the maximum length of a Payload, in bytes.
const maxPayload = 2048

// Conn is one rank's end of the connection.
type Conn struct {
	run    string
	server *listener // rank 0 only
	mem    []byte    // shared, once connected
	socket int       // to the other rank; -1 before Connect
	user   int       // user ID that the other rank must have
}

// Open makes a rank's end; rank 0 starts to listen. run is unique on this host.
func Open(run string, rank int) (*Conn, error) {
	l := &Conn{run: run, socket: -1, user: os.Geteuid()}
	if rank != 0 {
		return l, nil
	}
	var err error
	if l.server, err = listen(run, l.user); err != nil {
		return nil, fmt.Errorf("rendezvous: %w", err)
	}
	return l, nil
}

type address struct {
	Socket string `json:"socket,omitempty"`
}

// Address returns the data that rank 1 needs from rank 0, as JSON.
func (l *Conn) Address() []byte {
	var a address
	if l.server != nil {
		a.Socket = l.server.name
	}
	b, _ := json.Marshal(a) // cannot fail: strings only
	return b
}

// Connect exchanges messages with the other rank and maps the shared memory, which is zero. server is rank 0's Address;
// ctx needs a deadline. The caller keeps ownership of own.FD.
func (l *Conn) Connect(ctx context.Context, server []byte, own Message, bytes int) (Message, error) {
	theirs, err := l.connect(ctx, server, own, bytes)
	if err != nil {
		return Message{FD: -1}, fmt.Errorf("rendezvous: %w", err)
	}
	return theirs, nil
}

func (l *Conn) connect(ctx context.Context, server []byte, own Message, bytes int) (Message, error) {
	if len(own.Payload) > maxPayload {
		return Message{}, fmt.Errorf("message of %d bytes: want at most %d", len(own.Payload), maxPayload)
	}
	if l.server != nil {
		return l.serve(ctx, own, bytes)
	}
	var a address
	if err := json.Unmarshal(server, &a); err != nil {
		return Message{}, fmt.Errorf("address of rank 0: %w", err)
	}
	theirs, fd, socket, err := dial(ctx, a.Socket, l.user, hello{Run: l.run, Payload: own.Payload, fd: own.FD})
	if err != nil {
		return Message{}, err
	}
	l.socket = socket
	defer closeFD(fd)
	return theirs, l.share(fd, bytes, theirs)
}

// serve is rank 0's part.
func (l *Conn) serve(ctx context.Context, own Message, bytes int) (Message, error) {
	fd, err := newMemory(bytes)
	if err != nil {
		return Message{}, err
	}
	defer closeFD(fd)
	theirs, socket, err := l.server.swap(ctx, hello{Run: l.run, Payload: own.Payload, fd: own.FD}, fd)
	if err != nil {
		return Message{}, err
	}
	l.socket = socket
	return theirs, l.share(fd, bytes, theirs)
}

// share maps the memory of fd. On error it closes the descriptor of the peer's message.
func (l *Conn) share(fd, bytes int, theirs Message) error {
	mem, err := unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		closeFD(theirs.FD)
		return fmt.Errorf("mmap: %w", err)
	}
	l.mem = mem
	return nil
}

// newMemory creates the memory for the control words.
func newMemory(bytes int) (int, error) {
	fd, err := unix.MemfdCreate("p2pbench-rendezvous", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(bytes)); err != nil {
		closeFD(fd)
		return -1, fmt.Errorf("size of the memfd: %w", err)
	}
	return fd, nil
}

// Memory returns the shared memory; nil before Connect and after Close.
func (l *Conn) Memory() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(l.mem)) }

// Socket returns the Unix seqpacket socket to the other rank, over which more descriptors may be sent; -1 before
// Connect and after Close.
func (l *Conn) Socket() int { return l.socket }

// Close unmaps the memory, closes the connection and stops listening. A second Close does nothing.
func (l *Conn) Close() error {
	var errs []error
	if l.server != nil {
		errs = append(errs, l.server.Close())
		l.server = nil
	}
	if l.mem != nil {
		errs = append(errs, unix.Munmap(l.mem))
		l.mem = nil
	}
	closeFD(l.socket)
	l.socket = -1
	return errors.Join(errs...)
}
