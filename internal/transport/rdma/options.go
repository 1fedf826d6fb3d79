package rdma

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/p2pbench/p2pbench/internal/transport/rdma/pool"
)

// Options are how messages go. The zero value of a field is its default.
type Options struct {
	Groups int `json:"groups,omitempty"` // of connections that share queue pairs, for each peer and direction; 0: none is shared
	Depth  int `json:"depth,omitempty"`  // queues are so many times as deep as one connection needs; 1
	QPs    int `json:"qps,omitempty"`    // queue pairs of a connection; 1
	Conns  int `json:"conns,omitempty"`  // connections to a peer in each direction that is used; 16
	Window int `json:"window,omitempty"` // messages of a connection under way, 1 to Requests; 8
	Fan    Fan `json:"fan,omitempty"`    // who sends to whom; pair
	// Back makes connections from rank 1 to rank 0 too, which bidir and pingpong need.
	Back bool `json:"back,omitempty"`

	NICs []string `json:"nics,omitempty"` // device of each rank, taken in turns, "mlx5_0" or "mlx5_0:1" with a port; the nearest
	GID  *int     `json:"gid,omitempty"`  // index in each port's table; nil: the one that most likely reaches others
	MR   MR       `json:"mr,omitempty"`   // how memory is registered; auto

	CTS         CTS    `json:"cts,omitempty"`          // how the receiver lets messages come; fifo
	Route       Route  `json:"route,omitempty"`        // how the receiver knows whose a message is; imm
	Notify      Notify `json:"notify,omitempty"`       // how it hears of one; write-imm
	SignalEvery int    `json:"signal_every,omitempty"` // of so many work requests of a queue pair one reports its completion; 1
	Train       int    `json:"train,omitempty"`        // samples of latency and pingpong that follow each other before the ranks meet again, fewer where they are large; 1
	Inline      *int   `json:"inline,omitempty"`       // messages of at most so many bytes travel in their work request; nil: 64, 0: none
	Close       Order  `json:"close,omitempty"`        // the order in which connections are closed; lifo
}

// Fan says who sends to whom.
type Fan string

// The fans.
const (
	Pair   Fan = "pair" // rank 0 to rank 1
	FanOut Fan = "out"  // rank 0 to all others
	FanIn  Fan = "in"   // all others to rank 0
)

// MR says how memory is registered.
type MR string

// The ways to register memory.
const (
	MRAuto   MR = "auto"   // reg for CPU memory; dmabuf for a GPU's, and reg where there is none
	MRReg    MR = "reg"    // by its address; a GPU's driver must know RDMA devices (nvidia_peermem)
	MRDMABuf MR = "dmabuf" // by a descriptor of the GPU's memory
)

// CTS says how the receiver lets messages come ("clear to send").
type CTS string

// The ways to let messages come.
const (
	CTSFIFO       CTS = "fifo"        // it writes an entry into the sender's FIFO for each message
	CTSPreGranted CTS = "pre-granted" // all of a sample's messages at once, as if the NIC granted them
)

// Route says how the receiver finds the connection and the request that a completion belongs to.
type Route string

// The ways to route.
const (
	RouteImm  Route = "imm"  // by the immediate data
	RouteFIFO Route = "fifo" // by the order in which receives were posted
	routeNone Route = "none" // by the place of the message: with InMemory, and only then
)

// Notify says how the receiver hears of a message.
type Notify string

// The ways to notify.
const (
	WriteImm     Notify = "write-imm" // the message's write carries the immediate data
	WriteThenImm Notify = "write+imm" // an empty write behind it does
	InMemory     Notify = "memory"    // nothing does: it looks at the message's last byte
)

// Order is an order.
type Order string

// The orders.
const (
	LIFO   Order = "lifo"
	FIFO   Order = "fifo"
	Random Order = "random"
)

// Train is how many samples a train has at most.
const Train = 256

// Requests is how many messages a connection can have under way: what queues are sized by.
const Requests = 256

// defaultInline is what most devices carry in a work request.
const defaultInline = 64

// settle fills in the defaults, and refuses what cannot be.
func (o Options) settle() (Options, error) {
	defaults(&o.Depth, 1)
	defaults(&o.QPs, 1)
	defaults(&o.Conns, 16)
	defaults(&o.Window, 8)
	defaults(&o.SignalEvery, 1)
	defaults(&o.Train, 1)
	inline := defaultInline
	defaults(&o.Inline, &inline)
	route := o.Route
	if o.Notify == InMemory {
		defaults(&o.CTS, CTSPreGranted)
	}
	for _, err := range []error{
		choose("--fan", &o.Fan, Pair, FanOut, FanIn),
		choose("--mr", &o.MR, MRAuto, MRReg, MRDMABuf),
		choose("--cts", &o.CTS, CTSFIFO, CTSPreGranted),
		choose("--route", &o.Route, RouteImm, RouteFIFO),
		choose("--notify", &o.Notify, WriteImm, WriteThenImm, InMemory),
		choose("--close-order", &o.Close, LIFO, FIFO, Random),
	} {
		if err != nil {
			return o, err
		}
	}
	switch {
	case o.SignalEvery < 1 || o.SignalEvery > Requests:
		return o, fmt.Errorf("--signal-every %d: want 1 to %d", o.SignalEvery, Requests)
	case *o.Inline < 0:
		return o, fmt.Errorf("--inline %d: want 0 or more bytes", *o.Inline)
	case o.Window < 1 || o.Window > Requests:
		return o, fmt.Errorf("--window %d: want 1 to %d messages of a connection under way", o.Window, Requests)
	case o.GID != nil && *o.GID < 0:
		return o, fmt.Errorf("--gid-index %d: want 0 or more", *o.GID)
	case o.Route == RouteFIFO && o.Groups > 0 && o.Groups < o.Conns:
		return o, errors.New("--route fifo: a receive of a shared queue pair serves whichever connection's message comes next: use --route imm, or --groups 0")
	case o.Fan != Pair && o.Back:
		return o, fmt.Errorf("--fan %s: messages go one way: use --op latency,stream", o.Fan)
	case o.Train < 1 || o.Train > Train:
		return o, fmt.Errorf("--train %d: want 1 to %d", o.Train, Train)
	}
	if o.Notify == InMemory {
		if err := o.inMemory(route); err != nil {
			return o, err
		}
		o.Route = routeNone
	}
	return o, o.feasible()
}

// inMemory refuses what takes a completion at the receiver, where it has none. route is what was asked for.
func (o Options) inMemory(route Route) error {
	switch {
	case o.CTS != CTSPreGranted:
		return fmt.Errorf("--cts %s: with --notify memory a receiver looks for a window's last messages only, and lets no single one come: use --cts pre-granted", o.CTS)
	case route != "":
		return fmt.Errorf("--route %s: with --notify memory there are no completions to route: leave it out", route)
	}
	return nil
}

// feasible refuses what would overrun a queue.
func (o Options) feasible() error {
	if o.QPs < 1 || o.QPs > 256 {
		return fmt.Errorf("--qps %d: want 1 to 256", o.QPs)
	}
	if o.Depth < 1 || o.Depth > 64 {
		return fmt.Errorf("--depth %d: want 1 to 64", o.Depth)
	}
	err := pool.Feasible(o.Conns, o.Groups, o.Window, o.posts(), o.Depth, Requests)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "pool: ")) // the user named flags, and no package
	}
	return nil
}

// posts is how many work requests a message is.
func (o Options) posts() int {
	if o.Notify == WriteThenImm {
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

func choose[T ~string](flag string, p *T, known ...T) error {
	defaults(p, known[0])
	if slices.Contains(known, *p) {
		return nil
	}
	return fmt.Errorf("%s %s: use one of %v", flag, *p, known)
}
