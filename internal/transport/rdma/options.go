package rdma

import (
	"errors"
	"fmt"
	"strings"

	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/pool"
)

// Options are the transport's settings, as package knob reads them.
type Options struct {
	Groups int `json:"groups,omitempty" knob:"groups" default:"0" range:"0..4095" arg:"N" group:"path" help:"groups of connections that share queue pairs, per peer and direction; 0: every connection has its own queue pairs"`
	Depth  int `json:"depth,omitempty" knob:"depth" default:"1" range:"1..64" arg:"N" group:"path" help:"queue-depth multiplier: queues are N times as deep as one connection needs"`
	QPs    int `json:"qps,omitempty" knob:"qps" default:"1" range:"1..256" arg:"N" group:"path" help:"queue pairs per connection, or per group with --groups"`
	Conns  int `json:"conns,omitempty" knob:"conns" default:"16" range:"1..4095" arg:"N" group:"path" help:"connections per peer and direction"`
	Fan    Fan `json:"fan,omitempty" knob:"fan" values:"pair out in" group:"path" help:"pair: rank 0 sends to rank 1; out: rank 0 sends to all other ranks; in: all other ranks send to rank 0 (default of --ranks: 3)"`

	NICs []string `json:"nics,omitempty" knob:"nics" arg:"names" group:"path" help:"RDMA devices, assigned to ranks in turn: mlx5_0,mlx5_1, or mlx5_0:1 to name a port (default: the nearest to each rank's device)"`
	GID  *int     `json:"gid,omitempty" knob:"gid-index" range:"0.." arg:"index" group:"path" help:"GID index; p2pbench doctor lists them (default: RoCE v2 over IPv4 if there is one)"`
	MR   MR       `json:"mr,omitempty" knob:"mr" values:"auto reg dmabuf" group:"path" help:"memory registration: by address, or GPU memory by dma-buf descriptor; auto: dma-buf for GPU memory if available, else by address"`

	CTS         CTS        `json:"cts,omitempty" knob:"cts" values:"fifo pre-granted" free:"true" group:"path" help:"clear-to-send credits: one inline write per message, or all credits of a sample before it starts (default fifo; with --completion memory: pre-granted)"`
	Route       Route      `json:"route,omitempty" knob:"route" values:"imm fifo" of:"completion!=memory" free:"true" group:"path" help:"how the receiver identifies a message's connection: by immediate data, or by the order of receives, which excludes sharing (default imm)"`
	Completion  Completion `json:"completion,omitempty" knob:"completion" values:"write-imm write+imm memory" group:"path" help:"completion detection at the receiver: write with immediate data, a separate empty write with immediate data, or polling the message's last byte (CPU memory only)"`
	Window      int        `json:"window,omitempty" knob:"window" default:"8" range:"1..256" of:"op=stream,bidir" arg:"N" group:"how" help:"messages in flight per connection in stream and bidir"`
	SignalEvery int        `json:"signal_every,omitempty" knob:"signal-every" default:"1" range:"1..256" arg:"N" group:"path" help:"request a completion for every Nth send of a queue pair"`
	Burst       int        `json:"burst,omitempty" knob:"burst" default:"1" range:"1..256" of:"op=latency,pingpong" arg:"N" group:"path" help:"latency, pingpong: back-to-back messages or round trips per barrier, fewer for large messages"`
	Inline      *int       `json:"inline,omitempty" knob:"inline" range:"0.." arg:"bytes" group:"path" help:"largest message that is sent inline, in its work request; 0: none (default 64, or the device's maximum if that is less)"`
	Close       Order      `json:"close,omitempty" knob:"close-order" values:"lifo fifo random" group:"path" help:"order in which connections are closed"`

	// Back adds connections from rank 1 to rank 0, which bidir and pingpong need.
	Back bool `json:"back,omitempty"`
}

// Fan selects the ranks that send and receive.
type Fan string

// The fans.
const (
	Pair   Fan = "pair" // rank 0 to rank 1
	FanOut Fan = "out"  // rank 0 to all others
	FanIn  Fan = "in"   // all others to rank 0
)

// MR selects how memory is registered.
type MR string

// The ways to register memory.
const (
	MRAuto   MR = "auto"   // reg for CPU memory; for GPU memory dmabuf if available, else reg
	MRReg    MR = "reg"    // by address; GPU memory needs a driver module (nvidia_peermem)
	MRDMABuf MR = "dmabuf" // by a descriptor of the GPU memory
)

// CTS selects how the receiver gives clear-to-send credits.
type CTS string

// The ways to give credits.
const (
	CTSFIFO       CTS = "fifo"        // it writes an entry into the sender's FIFO for each message
	CTSPreGranted CTS = "pre-granted" // all credits of a sample at once, as if the NIC gave them
)

// Route selects how the receiver finds the connection and the request of a completion.
type Route string

// The ways to route.
const (
	RouteImm  Route = "imm"  // by the immediate data
	RouteFIFO Route = "fifo" // by the order in which receives were posted
	routeNone Route = "none" // by the address of the message: only with InMemory
)

// Completion selects how the receiver detects that a message is complete.
type Completion string

// The ways to detect completion.
const (
	WriteImm     Completion = "write-imm" // the message's write carries immediate data
	WriteThenImm Completion = "write+imm" // an empty write after it does
	InMemory     Completion = "memory"    // the receiver polls the message's last byte
)

// Order is the order in which connections are closed.
type Order string

// The orders.
const (
	LIFO   Order = "lifo"
	FIFO   Order = "fifo"
	Random Order = "random"
)

// MaxBurst is the maximum number of samples of a burst.
const MaxBurst = 256

// Requests is the maximum number of messages in flight per connection, by which queues are sized.
const Requests = 256

// defaultInline is supported by most devices.
const defaultInline = 64

// settle fills in the defaults and refuses invalid combinations.
func (o Options) settle() (Options, error) {
	if err := knob.Check(nil, &o); err != nil {
		return o, err
	}
	knob.Fill(nil, &o)
	inline := defaultInline
	defaults(&o.Inline, &inline)
	if o.Completion == InMemory {
		defaults(&o.CTS, CTSPreGranted)
		o.Route = routeNone
	}
	defaults(&o.CTS, CTSFIFO)
	defaults(&o.Route, RouteImm)
	switch {
	case o.Route == RouteFIFO && o.Groups > 0 && o.Groups < o.Conns:
		return o, errors.New("--route fifo: a receive of a shared queue pair serves the next message of any connection: use --route imm, or --groups 0")
	case o.Fan != Pair && o.Back:
		return o, fmt.Errorf("--fan %s: messages go in one direction: use --op latency,stream", o.Fan)
	case o.Completion == InMemory && o.CTS != CTSPreGranted:
		return o, fmt.Errorf("--cts %s: with --completion memory a receiver polls a window's last messages only, and returns no credit for single ones: use --cts pre-granted", o.CTS)
	}
	return o, o.feasible()
}

// feasible refuses what would overrun a queue.
func (o Options) feasible() error {
	err := pool.Feasible(o.Conns, o.Groups, o.Window, o.posts(), o.Depth, Requests)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "pool: ")) // the error names flags
	}
	return nil
}

// posts is the number of work requests of a message.
func (o Options) posts() int {
	if o.Completion == WriteThenImm {
		return 2
	}
	return 1
}

func defaults[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}
