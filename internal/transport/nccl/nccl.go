// Package nccl is NCCL's send and receive between two ranks, or around a ring of them: the baseline that users know.
// libnccl.so.2 is looked for at run time; a binary with this package in it starts on a machine without it.
//
// A timed send is: ncclSend on the stream of the device's engine, wait for the stream, wait for the receiver's
// acknowledgement. The end of an ncclSend only says that the source may be used again; that the receiver has the
// payload is known when its stream, and with it its ncclRecv, has ended, which it tells in memory that both share.
// The receive is posted before the sender may start. A window is one group. Nothing is timed before a first byte has
// crossed each way, since NCCL connects two ranks at their first message.
//
//	sender                        shared link                     receiver
//	fill(source, i)                                               check(inbox, i-1)
//	                                                              ncclRecv
//	wait ready >= i        <----- ready = i  <------------------- grant
//	t0; ncclSend; wait stream     ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~>  wait stream
//	wait ack >= i; t1      <----- ack  <------------------------- ack = i
//
// In bidir both ranks do both in one group. In pingpong the two messages follow each other on the stream of each rank,
// without the host between them; the reply says that the message has arrived, and is acknowledged after the sample.
//
// In a ring of two or more ranks each sends a window to the next one and receives one from the one before, all at the
// same time and in one group. There is nothing but bidir. The ranks start an iteration together, from a barrier, and
// each takes its own time until its stream has ended; the longest is the ring's.
//
// Timed by the device, NCCL's calls go on a queue behind a stream wait, which ends when all ranks have put a whole
// operation on theirs; a sample is the time between two events, before the operation and after it, on the rank where it
// is the longest. What it costs the CPU to post the operation, and a word from rank to rank, are not in it.
//
//	each rank               queue
//	fill(source, i)         stream wait; event 0
//	ncclSend, ncclRecv      the operation; event 1
//	barrier; store the word
//	wait for the queue
//	check(inbox, i)
//
// In a batch with graphs, or with the option Graph, a window is captured once and launched as one CUDA graph.
//
// The counter nccl_ctas tells how many thread blocks the largest kernel of a window has on this rank, read from a capture of
// the window. Of a batch with graphs that is the graph that runs. Otherwise it is a capture, never launched, of the
// same calls on a second communicator made like the first: once something was captured on a communicator, NCCL
// records and awaits an event more with every call on it, and what is timed must not pay for being looked at. How many
// CTAs were asked for says little: NCCL makes a power of two of it and leaves some out of short messages. Whether a
// kernel moves a message by the protocol LL or SIMPLE stands in memory of NCCL's own and cannot be told.
//
// P2PBENCH_LIBNCCL names another file to load. NCCL's own environment variables hold; they are reported with the path.
package nccl

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../.. -DP2P_SHARED_HEADERS=0xe05c22da
#include "nccl.h"
*/
import "C"

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/dynlib"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// Options are the baseline's settings, as package knob reads them.
type Options struct {
	CTAs     int    `json:"ctas,omitempty" knob:"ctas" unset:"auto" range:"1..64"` // thread blocks that NCCL may use, and shall; 0: its choice
	Register bool   `json:"register,omitempty" knob:"register"`                    // register the buffers with NCCL, so that it can do without copies of its own
	Graph    bool   `json:"graph,omitempty"`                                       // start every window as one CUDA graph, whatever the batch says
	Timing   string `json:"timing,omitempty" knob:"timing" values:"host device"`
	Ring     bool   `json:"ring,omitempty" knob:"ring"` // each rank sends to the next one; there may be more than two
	// PerMessage makes every message of a window a group of its own, so a kernel of its own; otherwise a window is one.
	PerMessage bool `json:"per_message,omitempty"`
}

// TimingDevice lets the device time what it does, and not the host that posts it.
const TimingDevice = "device"

// MaxCTAs is as many as NCCL can use: it has so many channels, and a thread block serves one.
const MaxCTAs = 64

// minVersion is the oldest NCCL whose configuration of a communicator is the one in libnccl.h.
const minVersion = C.NCCL_CONFIG_VERSION

type nccl struct{ o Options }

// New makes the transport. A number of CTAs that NCCL cannot have is an error, and so is an unknown timing.
func New(o Options) (transport.Transport, error) {
	if err := knob.Check(nil, &o); err != nil {
		return nil, fmt.Errorf("nccl: %w", err)
	}
	knob.Fill(nil, &o)
	return &nccl{o: o}, nil
}

func (*nccl) Ranks(n int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
}

// Accepts refuses what a ring has not, and windows of more calls than wait on a queue.
func (t *nccl) Accepts(_ []gpu.Info, b transport.Batch) error { return t.o.accepts(b) }

func (t *nccl) Probe(devices []gpu.Info) error {
	switch {
	case t.o.Ring && len(devices) < 2:
		return unsupported("%d ranks: a ring has two or more", len(devices))
	case !t.o.Ring && len(devices) != 2:
		return unsupported("%d ranks: it runs between two, or around a ring", len(devices))
	}
	for i, d := range devices {
		if d.Kind != "cuda" {
			return unsupported("a %s device: it moves bytes between NVIDIA GPUs only", d.Kind)
		}
		if first := slices.IndexFunc(devices, d.Same); first != i {
			return unsupported("ranks %d and %d on %s: NCCL refuses two ranks on one GPU, give each its own", first, i, d.UUID)
		}
	}
	_, err := library()
	return err
}

var (
	libnccl = dynlib.Library{
		Name: "NCCL", Files: []string{"libnccl.so.2", "libnccl.so"}, Variable: "P2PBENCH_LIBNCCL",
		Advice: "install NCCL " + version(minVersion) + " or newer (libnccl2 from NVIDIA's apt or yum repository, or " +
			"pip install nvidia-nccl-cu13 with P2PBENCH_LIBNCCL=…/nvidia/nccl/lib/libnccl.so.2)",
	}
	loaded dynlib.Once[string]
)

// library loads NCCL and returns its version.
func library() (string, error) {
	v, err := loaded.Do(load)
	if err != nil {
		return "", fmt.Errorf("nccl: %w", err)
	}
	return v, nil
}

func load() (string, error) {
	// NVLink multicast (NVLS) does nothing for messages between two ranks, yet NCCL would set it up; a program that
	// dies holding multicast objects can put the GPUs of a host that others share out of service.
	if _, set := os.LookupEnv("NCCL_NVLS_ENABLE"); !set {
		if err := os.Setenv("NCCL_NVLS_ENABLE", "0"); err != nil {
			return "", err
		}
	}
	if _, err := libnccl.Open(unsafe.Pointer(&C.nccl_library)); err != nil {
		return "", err
	}
	var v C.int
	if rc := C.ncclGetVersion(&v); rc != C.NCCL_OK {
		return "", fmt.Errorf("ncclGetVersion: %s (%d): %w", C.GoString(C.ncclGetErrorString(rc)), int(rc), gpu.ErrUnsupported)
	}
	if v < minVersion {
		return "", libnccl.TooOld("this is NCCL", version(int(v)), version(minVersion), "update it, or name another with P2PBENCH_LIBNCCL")
	}
	return version(int(v)), nil
}

// version writes ncclGetVersion's number the usual way; before 2.9 it was counted otherwise.
func version(v int) string {
	if v < 10000 {
		return fmt.Sprintf("%d.%d.%d", v/1000, v%1000/100, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v%10000/100, v%100)
}

// unsupported makes an error of this package that wraps gpu.ErrUnsupported.
func unsupported(format string, args ...any) error {
	return fmt.Errorf("nccl: "+format+": %w", append(args, gpu.ErrUnsupported)...)
}

// settings are the environment variables that NCCL sees.
func settings() map[string]string {
	out := map[string]string{}
	for _, kv := range os.Environ() {
		if name, value, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(name, "NCCL_") {
			out[name] = value
		}
	}
	return out
}
