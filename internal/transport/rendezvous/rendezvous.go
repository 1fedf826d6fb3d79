// Package rendezvous is what two ranks of one host share before they can measure anything: a word with each other, in which
// file descriptors travel too, and a piece of memory for their control words.
//
// Rank 0 listens on a Unix socket in the abstract namespace and makes the memory, a memfd; rank 1 dials. Each sends
// the other one message; after that the socket is the transport's, for more descriptors. Nothing has a name in a file system and nothing can be left behind.
//
// The package does not know what the message says or how the memory is laid out: that is each transport's own.
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

// Message is what each rank tells the other.
type Message struct {
	Payload []byte // at most maxPayload bytes
	FD      int    // travels beside the payload; -1: none. A received one is the receiver's to close
}

// maxPayload is how long a Payload may be.
const maxPayload = 2048

// Conn is one rank's end.
type Conn struct {
	run    string
	server *listener // rank 0's, until it has connected
	mem    []byte    // shared, once connected
	socket int       // to the other rank, once connected; -1
	user   int       // whose process the other rank must be
}

// Open starts a rank's end; rank 0 listens from here on. run is unique on this host.
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

// Address is rank 0's, which rank 1 needs. It is JSON.
func (l *Conn) Address() []byte {
	var a address
	if l.server != nil {
		a.Socket = l.server.name
	}
	b, _ := json.Marshal(a) // cannot fail: strings only
	return b
}

// Connect swaps messages with the other rank and maps the shared memory, zeroed at first. server is rank 0's Address;
// ctx needs a deadline. own.FD stays the caller's.
func (l *Conn) Connect(ctx context.Context, server []byte, own Message, bytes int) (Message, error) {
	theirs, err := l.connect(ctx, server, own, bytes)
	if err != nil {
		return Message{FD: -1}, fmt.Errorf("rendezvous: %w", err)
	}
	return theirs, nil
}

func (l *Conn) connect(ctx context.Context, server []byte, own Message, bytes int) (Message, error) {
	if len(own.Payload) > maxPayload {
		return Message{}, fmt.Errorf("message of %d bytes, at most %d fit", len(own.Payload), maxPayload)
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

// share maps the memory behind fd. When it cannot, the peer's message is of no use any more.
func (l *Conn) share(fd, bytes int, theirs Message) error {
	mem, err := unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		closeFD(theirs.FD)
		return fmt.Errorf("mmap: %w", err)
	}
	l.mem = mem
	return nil
}

// newMemory makes the memory of the control words.
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

// Memory is the shared memory, nil before Connect and after Close.
func (l *Conn) Memory() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(l.mem)) }

// Socket is a descriptor of the connection to the other rank, a Unix seqpacket socket over which more descriptors may
// travel; -1 before Connect and after Close.
func (l *Conn) Socket() int { return l.socket }

// Close unmaps the memory, hangs up and stops listening. A second Close does nothing.
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
