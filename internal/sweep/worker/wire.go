// Package worker runs one process per rank: it starts them by re-executing this binary, exchanges messages with them,
// supervises them, and leaves none running.
//
// Parent and worker exchange JSON, one message per line, over an inherited Unix socket (descriptor 3). The worker sends
// one reply to each request and nothing else.
//
//	        init            connect            run*            finish
//	start ────────▶ opened ─────────▶ connected ────▶ connected ────▶ finished ──▶ exit 0
//	  │ Opened        │ Connected        │ Ran            │ Finished
//	  └───────────────┴──── Failed ──────┴────────────────┴──▶ the parent stops everyone
//
// A worker exits as soon as its socket is closed, even in a timed loop, so workers do not outlive the parent. A
// progress page (descriptor 4, a memfd) shows the state of each rank during a timed loop and holds the flag by which
// the parent aborts it.
package worker

import (
	"encoding/json"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// Arm is a transport with its options. A cell measures one or more arms.
type Arm struct {
	Name      string          `json:"name"` // as users write it: "ipc", "memcpy"
	Transport string          `json:"transport"`
	Options   json.RawMessage `json:"options,omitempty"`
	// Regions is the number of buffers of the largest batch's size that each rank's device holds for this arm; 0: two,
	// one for sending and one for receiving.
	Regions int `json:"regions,omitempty"`
}

// request has exactly one field set.
type request struct {
	Init    *initRequest    `json:"init,omitempty"`
	Connect *connectRequest `json:"connect,omitempty"`
	Run     *runRequest     `json:"run,omitempty"`
	Finish  *finishRequest  `json:"finish,omitempty"`
}

// reply has exactly one field set.
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
	CPUs    []int         `json:"cpus"`  // by rank: CPU of the timing thread; -1: not pinned
	Yield   bool          `json:"yield"` // waits yield the CPU, since ranks share CPUs
	Inject  string        `json:"inject,omitempty"`
	Started int64         `json:"started"` // CLOCK_MONOTONIC_RAW ns when the parent launched the process
}

type openedReply struct {
	Opened
	Addresses [][]byte `json:"addresses"` // by arm
}

// Opened is a worker's report after opening its device.
type Opened struct {
	Device    gpu.Info    `json:"device"`     // as opened in the worker
	ProcessUS float64     `json:"process_us"` // from the launch to the first request
	DeviceUS  float64     `json:"device_us"`  // time to open the device
	CPU       int         `json:"cpu"`        // CPU of the timing thread; -1: not pinned
	Clock     string      `json:"clock"`
	Overhead  float64     `json:"overhead_ns"`
	Health    *gpu.Health `json:"health,omitempty"` // latest reading before the first batch
	Warnings  []string    `json:"warnings,omitempty"`
}

type connectRequest struct {
	Addresses [][][]byte `json:"addresses"` // by arm, then rank
}

type connectedReply struct {
	Paths []transport.Path `json:"paths"` // by arm
	// Health is read again, because connecting may transfer bytes over the link.
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
	// Counters are the endpoint's counters since it connected.
	Counters map[string]uint64 `json:"counters,omitempty"`
}

type finishRequest struct{}

type finishedReply struct {
	CPUSeconds float64 `json:"cpu_seconds"` // user and system time of the process
}

// failedReply is an error: its class, its text, the arm that could not be opened or connected (0: the first, or no arm)
// and, for corruption, the details.
type failedReply struct {
	Class   string                  `json:"class"`
	Arm     int                     `json:"arm,omitempty"`
	Text    string                  `json:"text"`
	Corrupt *transport.CorruptError `json:"corrupt,omitempty"`
}
