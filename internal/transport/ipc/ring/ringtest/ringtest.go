// Package ringtest gives Go tests and benchmarks access to ring.h, control messages through shared memory. Package ipc
// calls the C functions directly.
package ringtest

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../../../.. -DP2P_SHARED_HEADERS=0x4c1fc60f
#include "transport/ipc/ring/ring.h"

static uint64_t put_some(struct p2p_ring_writer *w, const struct p2p_message *m, uint64_t n) {
	uint64_t k = 0;
	while (k < n && p2p_ring_put(w, &m[k]))
		k++;
	return k;
}

static uint64_t get_some(struct p2p_ring_reader *d, struct p2p_message *m, uint64_t n) {
	uint64_t k = 0;
	while (k < n && p2p_ring_get(d, &m[k]))
		k++;
	return k;
}

// One thread: put and get, n times. Returns how many messages came back as they went.
static uint64_t turns(struct p2p_ring_writer *w, struct p2p_ring_reader *d, uint64_t n) {
	struct p2p_message out = {.type = 1}, in = {.type = 0};
	uint64_t k = 0;
	for (; k < n; k++) {
		out.seq = k;
		if (!p2p_ring_put(w, &out) || !p2p_ring_get(d, &in) || in.seq != k)
			break;
	}
	return k;
}

// Called between two polls. Returns 0 if the deadline has passed.
static int idle(uint64_t *polls, uint64_t deadline_ns) {
	p2p_relax();
	if ((++*polls & 4095) != 0)
		return 1;
	sched_yield();
	return p2p_raw_ns() < deadline_ns;
}

// One of two threads: n messages there and back. The first one sends before it receives. The time of round trip k in
// ns, one reading of the clock included, goes to sample k % len. Returns how many round trips were made before the
// deadline.
static uint64_t round_trips(struct p2p_ring_writer *w, struct p2p_ring_reader *d, uint64_t n, int first,
			    uint64_t timeout_ns, int64_t *samples, uint64_t len) {
	struct p2p_message m = {.type = 1};
	uint64_t k = 0, polls = 0, before = p2p_raw_ns(), deadline_ns = before + timeout_ns;
	for (; k < n; k++) {
		m.seq = k;
		if (first && !p2p_ring_put(w, &m))
			break;
		while (!p2p_ring_get(d, &m))
			if (!idle(&polls, deadline_ns))
				return k;
		if (m.seq != k || (!first && !p2p_ring_put(w, &m)))
			break;
		if (len == 0)
			continue;
		uint64_t now = p2p_raw_ns();
		samples[k % len] = (int64_t)(now - before);
		before = now;
	}
	return k;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Entries is how many messages a ring holds.
const Entries = C.P2P_RING_ENTRIES

const bytes = C.sizeof_struct_p2p_ring

// Message is a struct p2p_message, field by field.
type Message struct {
	Type, Flags                                    uint32
	Seq, Tag, Size, Base, Offset, Address, Version uint64
	Handle                                         Handle
}

// Handle is a struct p2p_handle, field by field.
type Handle struct {
	Kind       uint32
	FD         int32
	Length, ID uint64
	Opaque     [64]byte
}

var _ [C.sizeof_struct_p2p_message]byte = [unsafe.Sizeof(Message{})]byte{} // the same size, or this does not compile

// Ring is a mapping of a struct p2p_ring in a memfd. The methods of a ring and its ends are the functions of ring.h,
// which says what they do.
type Ring struct {
	file *os.File
	mem  []byte
}

// New makes a ring of zeroed memory.
func New() (*Ring, error) {
	fd, err := unix.MemfdCreate("p2pbench-ring", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("ring: memfd_create: %w", err)
	}
	return mapped(fd)
}

// Again maps the same ring once more, as another process does.
func (r *Ring) Again() (*Ring, error) {
	fd, err := unix.FcntlInt(r.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("ring: dup: %w", err)
	}
	return mapped(fd)
}

// mapped owns fd.
func mapped(fd int) (*Ring, error) {
	f := os.NewFile(uintptr(fd), "ring")
	if err := f.Truncate(bytes); err != nil {
		return nil, errors.Join(fmt.Errorf("ring: %w", err), f.Close())
	}
	mem, err := unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ring: mmap: %w", err), f.Close())
	}
	return &Ring{file: f, mem: mem}, nil
}

// Close unmaps the ring; its ends must be idle.
func (r *Ring) Close() error { return errors.Join(unix.Munmap(r.mem), r.file.Close()) }

func (r *Ring) c() *C.struct_p2p_ring { return (*C.struct_p2p_ring)(unsafe.Pointer(&r.mem[0])) }

// Start is p2p_ring_start.
func (r *Ring) Start(at uint32) { C.p2p_ring_start(r.c(), C.uint32_t(at)) }

// Writer is a struct p2p_ring_writer.
type Writer struct{ c C.struct_p2p_ring_writer }

// Writer is p2p_ring_writer_init.
func (r *Ring) Writer() *Writer {
	w := new(Writer)
	C.p2p_ring_writer_init(&w.c, r.c())
	return w
}

// Put puts messages until the ring is full, and says how many.
func (w *Writer) Put(ms ...Message) int {
	return int(C.put_some(&w.c, (*C.struct_p2p_message)(unsafe.Pointer(unsafe.SliceData(ms))), C.uint64_t(len(ms))))
}

// Reader is a struct p2p_ring_reader.
type Reader struct{ c C.struct_p2p_ring_reader }

// Reader is p2p_ring_reader_init.
func (r *Ring) Reader() *Reader {
	d := new(Reader)
	C.p2p_ring_reader_init(&d.c, r.c())
	return d
}

// Peek is p2p_ring_peek.
func (d *Reader) Peek() bool { return C.p2p_ring_peek(&d.c) != 0 }

// Get gets messages until ms is full or the ring empty, and says how many.
func (d *Reader) Get(ms []Message) int {
	return int(C.get_some(&d.c, (*C.struct_p2p_message)(unsafe.Pointer(unsafe.SliceData(ms))), C.uint64_t(len(ms))))
}

// Turns puts and gets n times on one thread, without leaving C, and says how often that went well.
func Turns(w *Writer, d *Reader, n int) int { return int(C.turns(&w.c, &d.c, C.uint64_t(n))) }

// RoundTrips is one of two threads between which a message goes there and back n times, without leaving C; the first
// one begins. It says how many it made before the deadline, and leaves the times in ns of the latest ones in samples.
func RoundTrips(w *Writer, d *Reader, n int, first bool, timeout time.Duration, samples []int64) int {
	var begin C.int
	if first {
		begin = 1
	}
	return int(C.round_trips(&w.c, &d.c, C.uint64_t(n), begin, C.uint64_t(timeout),
		(*C.int64_t)(unsafe.Pointer(unsafe.SliceData(samples))), C.uint64_t(len(samples))))
}
