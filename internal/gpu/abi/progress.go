package abi

/*
#include "p2p.h"
static void progress_at(struct p2p_progress *p, int phase) {
	atomic_store(&p->phase, (uint32_t)phase);
	atomic_fetch_add(&p->beat, 1);
}
static void progress_abort(struct p2p_progress *p) { atomic_store(&p->abort, 1); }
static void progress_read(struct p2p_progress *p, uint32_t *phase, uint32_t *waiting, uint64_t v[5]) {
	*phase = atomic_load(&p->phase);
	*waiting = atomic_load(&p->waiting);
	v[0] = atomic_load(&p->size);
	v[1] = atomic_load(&p->iter);
	v[2] = atomic_load(&p->beat);
	v[3] = atomic_load(&p->want);
	v[4] = atomic_load(&p->have);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ProgressBytes is the size of one rank's progress page entry.
const ProgressBytes = C.sizeof_struct_p2p_progress

// Phase is the phase of a rank's run.
type Phase int

// The phases of a rank.
const (
	PhaseStart   Phase = C.P2P_PHASE_START
	PhaseOpen    Phase = C.P2P_PHASE_OPEN
	PhaseConnect Phase = C.P2P_PHASE_CONNECT
	PhaseIdle    Phase = C.P2P_PHASE_IDLE
	PhaseBarrier Phase = C.P2P_PHASE_BARRIER
	PhaseWarmup  Phase = C.P2P_PHASE_WARMUP
	PhaseTimed   Phase = C.P2P_PHASE_TIMED
	PhaseClose   Phase = C.P2P_PHASE_CLOSE
	PhasePrepare Phase = C.P2P_PHASE_PREPARE
)

func (p Phase) String() string {
	names := [...]string{"start", "open", "connect", "idle", "barrier", "warm-up", "timed", "close", "prepare"}
	if p < 0 || int(p) >= len(names) {
		return fmt.Sprintf("phase %d", int(p))
	}
	return names[p]
}

// Progress is one rank's entry of the page that the parent shares with its workers.
type Progress struct{ c *C.struct_p2p_progress }

// State is a reading of a rank's entry.
type State struct {
	Phase      Phase
	Waiting    string // what the rank waits for; "" if it does not wait
	Size, Iter uint64
	Beat       uint64 // grows whenever the rank makes progress
	Want, Have uint64 // value that the wait needs, value last read
}

func (s State) String() string {
	t := fmt.Sprintf("phase %s, size %d, iteration %d", s.Phase, s.Size, s.Iter)
	if s.Waiting != "" {
		t += fmt.Sprintf(", waiting for %s (want %d, have %d)", s.Waiting, s.Want, s.Have)
	}
	return t
}

// At sets the phase.
func (p *Progress) At(phase Phase) { C.progress_at(p.c, C.int(phase)) }

// Abort makes the rank's waits return with an error.
func (p *Progress) Abort() { C.progress_abort(p.c) }

// Read returns the rank's state.
func (p *Progress) Read() State {
	var phase, waiting C.uint32_t
	var v [5]C.uint64_t
	C.progress_read(p.c, &phase, &waiting, &v[0])
	names := map[C.uint32_t]string{
		C.P2P_WAIT_READY: "the receiver's credit", C.P2P_WAIT_DONE: "the sender's completion",
		C.P2P_WAIT_ACK: "the receiver's acknowledgement", C.P2P_WAIT_COPY: "the copy engine",
		C.P2P_WAIT_RANKS: "the other ranks",
	}
	return State{
		Phase: Phase(phase), Waiting: names[waiting], Size: uint64(v[0]), Iter: uint64(v[1]), Beat: uint64(v[2]),
		Want: uint64(v[3]), Have: uint64(v[4]),
	}
}

// Page is the memory of the entries of all ranks, a memfd.
type Page struct {
	mem  []byte
	File *os.File // inherited by workers; nil in a worker
}

// NewPage creates a page for n ranks.
func NewPage(n int) (*Page, error) {
	fd, err := unix.MemfdCreate("p2pbench-progress", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("abi: progress page: memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "progress")
	if err := f.Truncate(int64(n) * ProgressBytes); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("abi: progress page: %w", err)
	}
	p, err := MapPage(f, n)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	p.File = f
	return p, nil
}

// MapPage maps the page for n ranks from f.
func MapPage(f *os.File, n int) (*Page, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, n*ProgressBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("abi: progress page: mmap: %w", err)
	}
	return &Page{mem: mem}, nil
}

// Rank returns the entry of rank r.
func (p *Page) Rank(r int) *Progress {
	return &Progress{c: (*C.struct_p2p_progress)(unsafe.Pointer(&p.mem[r*ProgressBytes]))}
}

// Close unmaps the page.
func (p *Page) Close() error {
	err := unix.Munmap(p.mem)
	if p.File != nil {
		err = errors.Join(err, p.File.Close())
	}
	return err
}
