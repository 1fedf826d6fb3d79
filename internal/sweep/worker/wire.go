// Package worker runs one process per rank: it launches them by re-executing this binary, talks to them, watches
// them and sees to it that none is left.
//
// Parent and worker speak JSON, one message a line, over an inherited Unix socket (descriptor 3). Each request has
// one reply; the worker never speaks unasked.
//
//	        init            connect            run*            finish
//	start ────────▶ opened ─────────▶ connected ────▶ connected ────▶ finished ──▶ exit 0
//	  │ Opened        │ Connected        │ Ran            │ Finished
//	  └───────────────┴──── Failed ──────┴────────────────┴──▶ the parent stops everyone
//
// A worker whose socket reaches its end exits at once, whatever it is doing: a parent that dies takes its workers
// with it. A progress page (descriptor 4, a memfd) shows what each rank is doing while it is deep in a timed loop,
// and carries the parent's order to stop back to it.
package worker

import (
	"encoding/json"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// Arm is one transport with its options: what a cell is measured with.
type Arm struct {
	Name      string          `json:"name"` // as users write it: "ipc", "memcpy"
	Transport string          `json:"transport"`
	Options   json.RawMessage `json:"options,omitempty"`
	// Regions is how many times the largest batch's bytes each rank's device holds for this arm; 0: two, one to send
	// from and one to receive into.
	Regions int `json:"regions,omitempty"`
}

// request is one-of: exactly one field is set.
type request struct {
	Init    *initRequest    `json:"init,omitempty"`
	Connect *connectRequest `json:"connect,omitempty"`
	Run     *runRequest     `json:"run,omitempty"`
	Finish  *finishRequest  `json:"finish,omitempty"`
}

// reply is one-of: exactly one field is set.
type reply struct {
	Opened    *openedReply    `json:"opened,omitempty"`
	Connected *connectedReply `json:"connected,omitempty"`
	Ran       *ranReply       `json:"ran,omitempty"`
	Finished  *finishedReply  `json:"finished,omitempty"`
	Failed    *failedReply    `json:"failed,omitempty"`
}

type initRequest struct {
	Run     string        `json:"run"`
	Rank    int           `json:"rank"`
	Devices []gpu.Info    `json:"devices"`
	Arms    []Arm         `json:"arms"`
	Region  uint64        `json:"region"`
	Timeout time.Duration `json:"timeout"`
	CPUs    []int         `json:"cpus"`  // by rank, to pin the timing thread to; -1: do not
	Yield   bool          `json:"yield"` // fewer CPUs, or less CPU time, than ranks
	Inject  string        `json:"inject,omitempty"`
	Started int64         `json:"started"` // CLOCK_MONOTONIC_RAW ns when the parent launched the process
}

type openedReply struct {
	Opened
	Addresses [][]byte `json:"addresses"` // by arm
}

// Opened is what a worker reports of its start.
type Opened struct {
	Device    gpu.Info    `json:"device"`     // as this process sees it
	ProcessUS float64     `json:"process_us"` // launch until the first request was read
	DeviceUS  float64     `json:"device_us"`  // opening the device
	CPU       int         `json:"cpu"`        // the CPU the timing thread is pinned to, -1 if it is not
	Clock     string      `json:"clock"`
	Overhead  float64     `json:"overhead_ns"`
	Health    *gpu.Health `json:"health,omitempty"` // the latest before the first batch
	Warnings  []string    `json:"warnings,omitempty"`
}

type connectRequest struct {
	Addresses [][][]byte `json:"addresses"` // by arm, then rank
}

type connectedReply struct {
	Paths []transport.Path `json:"paths"` // by arm
	// Health is read again here: connecting may have moved bytes.
	Health *gpu.Health `json:"health,omitempty"`
}

type runRequest struct {
	Arm   int             `json:"arm"`
	Batch transport.Batch `json:"batch"`
}

type ranReply struct {
	Result  transport.Result `json:"result"`
	Samples []int64          `json:"samples"`
	Health  *gpu.Health      `json:"health,omitempty"`
	// Counters are the endpoint's, since it connected.
	Counters map[string]uint64 `json:"counters,omitempty"`
}

type finishRequest struct{}

type finishedReply struct {
	CPUSeconds float64 `json:"cpu_seconds"` // user and system time of the process
}

// failedReply carries an error across: its class and, for corruption, its figures.
type failedReply struct {
	Class   string                  `json:"class"`
	Text    string                  `json:"text"`
	Corrupt *transport.CorruptError `json:"corrupt,omitempty"`
}
