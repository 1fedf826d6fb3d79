// Package nccl is the NCCL baseline: ncclSend and ncclRecv between two ranks, or around a ring of ranks. libnccl.so.2
// is loaded at run time; a binary that contains this package starts on a machine without it.
//
// A timed send is: ncclSend on the stream of the device's engine, wait for the stream, wait for the receiver's
// acknowledgement. The end of an ncclSend only means that the source may be reused. The receiver has the payload when
// its own stream, which contains the ncclRecv, has finished; it then acknowledges in memory that both ranks share. The
// receive is posted before the sender may start. A window is one group. Before anything is timed, a byte is sent in
// each direction, because NCCL connects two ranks at their first message.
//
//	sender                        shared memory                   receiver
//	fill(source, i)                                               check(inbox, i-1)
//	                                                              ncclRecv
//	wait ready >= i        <----- ready = i  <------------------- credit
//	t0; ncclSend; wait stream     ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~>  wait stream
//	wait ack >= i; t1      <----- ack  <------------------------- ack = i
//
// In bidir both ranks send and receive in one group. In pingpong the two messages are consecutive on the stream of each
// rank, without the host between them; the reply implies that the message has arrived, and is acknowledged after the
// sample.
//
// In a ring of two or more ranks, each rank sends a window to the next rank and receives a window from the previous
// one, at the same time and in one group. A ring supports bidir only. The ranks start an iteration together, at a
// barrier, and each measures the time until its stream has finished; the longest time is the sample.
//
// Timed by the device, NCCL's calls are enqueued behind a stream wait, which ends when all ranks have enqueued the
// whole operation. A sample is the time between two events, before and after the operation, on the rank where that time
// is longest. It does not include the CPU time to post the operation, nor any message between the hosts.
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
// The counter nccl_ctas is the number of thread blocks of the largest kernel of a window on this rank, read from a
// capture of the window. In a batch with graphs that is the graph that runs. Otherwise it is a capture, never launched,
// of the same calls on a second communicator, the twin: after a capture on a communicator, NCCL records and awaits one
// more event with every call on it, so a capture on the timed communicator would slow it down. The requested number of
// CTAs is not the number used: NCCL rounds it to a power of two and uses fewer for short messages. Whether a kernel
// uses the protocol LL or SIMPLE for a message is known to NCCL only.
//
// P2PBENCH_LIBNCCL names another file to load. NCCL's own environment variables apply; they are recorded in the knobs.
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
	CTAs     int    `json:"ctas,omitempty" knob:"ctas" unset:"auto" range:"1..64"` // minimum and maximum number of thread blocks; 0: NCCL chooses
	Register bool   `json:"register,omitempty" knob:"register"`                    // register the buffers with NCCL, so that it can avoid internal copies
	Graph    bool   `json:"graph,omitempty"`                                       // start every window as one CUDA graph, even if the batch does not ask for it
	Timing   string `json:"timing,omitempty" knob:"timing" values:"host device"`
	Ring     bool   `json:"ring,omitempty" knob:"ring"` // each rank sends to the next one; there may be more than two
	// PerMessage makes every message of a window its own group, and so its own kernel; otherwise a window is one group.
	PerMessage bool `json:"per_message,omitempty"`
}

// TimingDevice selects timing by the device's events instead of the host's clock.
const TimingDevice = "device"

// MaxCTAs is the number of NCCL's channels, each of which one thread block serves.
const MaxCTAs = 64

// minVersion is the oldest NCCL that accepts the struct nccl_config of libnccl.h.
const minVersion = C.NCCL_CONFIG_VERSION

type nccl struct{ o Options }

// New makes the transport. An impossible number of CTAs or an unknown timing is an error.
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

// Accepts refuses operations other than bidir in a ring, and windows with too many calls behind a stream wait.
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
	// dies while it holds multicast objects can make the GPUs of a shared host unusable.
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

// version formats ncclGetVersion's number. NCCL before 2.9 encodes it differently.
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

// settings returns the environment variables that NCCL reads.
func settings() map[string]string {
	out := map[string]string{}
	for _, kv := range os.Environ() {
		if name, value, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(name, "NCCL_") {
			out[name] = value
		}
	}
	return out
}
