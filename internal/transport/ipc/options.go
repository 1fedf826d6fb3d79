package ipc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/knob"
)

// Options are the path's settings, as package knob reads them; its functions Check and Fill implement the tags.
type Options struct {
	Path        string         `json:"path,omitempty" knob:"path" values:"auto direct handshake relay get" group:"path" help:"see below; auto: direct if the devices can access each other's memory, else relay"`
	Engine      string         `json:"engine,omitempty" knob:"engine" default:"auto" arg:"name" group:"path" help:"copy method; cuda: ce[:STREAMS], sm[:CTAS], bulk[:CTAS], proxy[:CTAS]; host: cpu, cpu-memcpy, cpu-nt; auto: the fastest at each size"`
	Handle      gpu.HandleKind `json:"handle,omitempty" knob:"handle" values:"auto legacy vmm-fd fabric memfd" of:"path!=relay same-process!=true" arg:"kind" group:"path" help:"memory handle; cuda: legacy, vmm-fd or fabric; host: memfd"`
	Completion  string         `json:"completion,omitempty" knob:"completion" values:"done-seq ring-ack" group:"path" help:"how a rank signals a completion: by a sequence number in shared memory, or by a ring message"`
	Wake        Wake           `json:"wake,omitempty" knob:"wake" default:"spin" arg:"how" group:"path" help:"how a rank waits for the other one: spin, yield, adaptive, or sleep:DURATION such as sleep:50us"`
	Streams     int            `json:"streams,omitempty" knob:"streams" range:"1..8" of:"engine=auto,ce" arg:"N" group:"path" help:"split each copy over up to N streams of the copy engine, at least 1 MiB each (default 1)"`
	Buffers     Buffers        `json:"buffers,omitempty" knob:"buffers" default:"same" of:"path!=relay same-process!=true" arg:"pattern" group:"path" help:"buffers that messages use in turn: same, rotate:K, slices:M, realloc-same or realloc-overlap"`
	ExportCache string         `json:"export_cache,omitempty" knob:"export-cache" values:"allocation pointer off" of:"path=direct,handshake same-process!=true" group:"path" help:"direct, handshake: cache exported handles per allocation, per pointer, or not at all"`
	Open        string         `json:"open,omitempty" knob:"open" values:"eager lazy per-call" of:"path=direct,handshake same-process!=true" group:"path" help:"direct, handshake: when handles are mapped: before the timed part (direct only), at first use, or for every window (handshake's default: lazy)"`
	Publish     string         `json:"publish,omitempty" knob:"publish" values:"dedupe always" of:"path=direct same-process!=true" group:"path" help:"direct: publish a buffer only if it has changed, or before every iteration"`
	SameProcess bool           `json:"same_process,omitempty" knob:"same-process" of:"path=direct" group:"path" help:"direct: run both ranks as threads of one process, which use the pointer without a handle"`
	Cache       string         `json:"cache,omitempty" knob:"cache" values:"sender off dual" of:"path=get" group:"path" help:"get: handle cache at the sender, none, or one at each rank"`
	CacheSize   *int           `json:"cache_size,omitempty" knob:"cache-size" default:"16" range:"0..1024" of:"path=get cache!=off" arg:"handles" group:"path" help:"get: capacity of the cache; 0: off"`
	Relay       Relay          `json:"relay,omitzero"`
	// Fault is one of Faults, or empty: the rank misbehaves on purpose, for tests.
	Fault string `json:"fault,omitempty"`
	// Start is the first sequence number and ring index, so that tests reach the wrap-around.
	Start uint64 `json:"start,omitempty"`
}

// Relay are the settings of the path through CPU memory.
type Relay struct {
	Mode  string    `json:"mode,omitempty" knob:"relay" values:"pooled fresh" of:"path=relay" group:"path" help:"relay: buffers in CPU memory: a pinned pool with pipelined chunks, or a new pageable segment per message"`
	Chunk knob.Size `json:"chunk,omitempty" knob:"relay-chunk" default:"2M" range:"4K.." of:"path=relay relay=pooled" group:"path" help:"relay pooled: maximum size of a chunk, a multiple of 4K"`
	Depth int       `json:"depth,omitempty" knob:"relay-depth" default:"4" range:"1..16" of:"path=relay relay=pooled" arg:"chunks" group:"path" help:"relay pooled: chunks in flight"`
}

// Faults are the ways in which a rank misbehaves on purpose.
var Faults = []string{
	FaultMute, FaultNoValidation, FaultEvictInFlight, FaultDieBeforeAck, FaultDieBeforeDone, FaultNoSegment,
	FaultStutter,
}

// The faults.
const (
	FaultMute          = "mute"            // rank 1 never confirms the done_seq channel
	FaultNoValidation  = "no-validation"   // get: the cache does not notice that an address belongs to a new allocation
	FaultEvictInFlight = "evict-in-flight" // get: the cache evicts entries that messages in flight use
	FaultDieBeforeAck  = "die-before-ack"  // rank 1 is killed between seeing a message and acknowledging it
	FaultDieBeforeDone = "die-before-done" // rank 0 is killed between its copy and signalling completion
	FaultNoSegment     = "no-segment"      // relay fresh: allocation of shared memory fails
	FaultStutter       = "stutter"         // every seventh descriptor finds the socket full at first
)

// Limits.
const (
	maxPool    = 256 << 20 // bytes of a direction's chunks
	maxBuffers = 2048
)

// Buffers is the pattern by which messages use a rank's exported buffers in turn: same, rotate:K, slices:M,
// realloc-same or realloc-overlap.
type Buffers string

// Check refuses an unknown pattern.
func (b Buffers) Check() error {
	_, err := b.pattern()
	return err
}

// Regions is the memory that the pattern needs, in multiples of the largest batch's bytes.
func (b Buffers) Regions() int {
	p, _ := b.pattern() // checked by settle
	if p.realloc == "overlap" {
		return 2
	}
	return max(p.allocations, p.slices)
}

// plain reports whether all messages use one buffer that is never reallocated.
func (b Buffers) plain() bool { return b == "" || b == "same" }

// pattern determines the buffer that message n uses.
type pattern struct {
	allocations int    // message n uses allocation n % allocations
	slices      int    // or slice n % slices of the only allocation
	realloc     string // "", or "same" or "overlap": the allocation is freed and allocated again before each iteration
}

func (b Buffers) pattern() (pattern, error) {
	kind, count, counted := strings.Cut(string(b), ":")
	p := pattern{allocations: 1, slices: 1}
	n, err := strconv.Atoi(count)
	switch {
	case b.plain():
	case b == "realloc-same":
		p.realloc = "same"
	case b == "realloc-overlap":
		p.realloc = "overlap"
	case counted && kind == "rotate" && err == nil && n >= 1 && n <= maxBuffers:
		p.allocations = n
	case counted && kind == "slices" && err == nil && n >= 1 && n <= maxBuffers:
		p.slices = n
	default:
		return p, fmt.Errorf("use same, rotate:K, slices:M (1 to %d), realloc-same or realloc-overlap", maxBuffers)
	}
	return p, nil
}

// Wake is how a rank waits for another: spin, yield, adaptive or sleep:DURATION.
type Wake string

// Check refuses an unknown value.
func (w Wake) Check() error {
	_, err := w.abi()
	return err
}

func (w Wake) abi() (abi.Wake, error) {
	const adaptiveNap = 50 * time.Microsecond
	mode, nap, timed := strings.Cut(string(w), ":")
	d, err := time.ParseDuration(nap)
	switch {
	case w == "" || w == "spin":
		return abi.Wake{Mode: abi.WakeSpin}, nil
	case w == "yield":
		return abi.Wake{Mode: abi.WakeYield}, nil
	case w == "adaptive":
		return abi.Wake{Mode: abi.WakeAdaptive, Nap: adaptiveNap}, nil
	case timed && mode == "sleep" && err == nil && d > 0 && d <= 100*time.Millisecond:
		return abi.Wake{Mode: abi.WakeSleep, Nap: d}, nil
	}
	return abi.Wake{}, errors.New("use spin, yield, adaptive or sleep:D with D up to 100ms, such as sleep:50us")
}

// settle fills in the defaults of the path and refuses invalid combinations.
func (o Options) settle() (Options, error) {
	o.Path = o.PathName()
	if o.Fault != "" && !slices.Contains(Faults, o.Fault) {
		return o, fmt.Errorf("--inject %s: use one of %s", o.Fault, strings.Join(Faults, ", "))
	}
	if err := o.check(); err != nil {
		return o, err
	}
	if o.Path != "auto" { // else resolve does it
		o.fill()
	}
	return o, nil
}

// fill sets every unset setting of the path to its default.
func (o *Options) fill() {
	if o.Path == "handshake" && o.Open == "" {
		o.Open = "lazy" // nothing can be mapped before the first request
	}
	if o.Path == "relay" && o.Relay.Mode == "" {
		o.Relay.Mode = "pooled"
	}
	knob.Fill(nil, o)
}

// PathName is the path that the options select, by name or by a setting that only one path has; "auto" if it is chosen
// later.
func (o Options) PathName() string {
	switch {
	case o.Path != "" && o.Path != "auto":
		return o.Path
	case o.Cache != "" || o.CacheSize != nil:
		return "get"
	case o.Relay != (Relay{}):
		return "relay"
	case o.Open != "" || o.Publish != "" || o.ExportCache != "" || o.SameProcess:
		return "direct"
	}
	return "auto"
}

func (o *Options) check() error {
	if err := knob.Check(nil, o); err != nil {
		return err
	}
	engine, _, _ := strings.Cut(o.Engine, ":")
	switch {
	case o.Path == "handshake" && o.Open == "eager":
		return errors.New("--open eager: path handshake learns of a buffer only from the reply to a request: use lazy or per-call")
	case o.Path == "relay" && slices.Contains([]string{"sm", "bulk", "proxy"}, engine):
		return fmt.Errorf("--path relay copies between a GPU and CPU memory, which --engine %s cannot: use --engine ce", o.Engine)
	case o.Streams != 0 && strings.HasPrefix(o.Engine, "ce:"):
		return fmt.Errorf("--streams %d: --engine %s sets the number of streams: leave one of them out", o.Streams, o.Engine)
	case o.Cache == "dual" && o.CacheSize != nil && *o.CacheSize == 0:
		return errors.New("--cache-size 0: --cache dual needs at least one entry: use --cache off")
	case o.Relay.Chunk%4096 != 0:
		return fmt.Errorf("--relay-chunk %s: want a multiple of 4K", o.Relay.Chunk)
	}
	pooled := *o
	pooled.Path = "relay"
	pooled.fill()
	if pool := uint64(pooled.Relay.Chunk) * uint64(pooled.Relay.Depth); pool > maxPool {
		return fmt.Errorf("--relay-chunk × --relay-depth: a pool of %d MiB, want at most %d MiB", pool>>20, maxPool>>20)
	}
	return o.checkFault()
}

// checkFault refuses a fault that cannot occur with the other settings: such a run would prove nothing.
func (o *Options) checkFault() error {
	patterned := !o.Buffers.plain()
	for _, f := range []struct {
		fault string
		ok    bool
		needs string
	}{
		{FaultNoValidation, o.Path == "get" && patterned && o.Cache != "off", "--path get --buffers realloc-same"},
		{FaultEvictInFlight, o.Path == "get" && patterned && o.Cache != "off", "--path get --buffers rotate:K with fewer than K --cache-size"},
		{FaultNoSegment, o.Relay.Mode == "fresh", "--relay fresh"},
		{FaultDieBeforeDone, o.Path != "get" && o.Relay.Mode != "fresh", "a path on which the sender signals completion: direct, handshake or relay pooled"},
		{FaultMute, o.Completion != "ring-ack", "--completion done-seq"},
	} {
		if o.Fault == f.fault && !f.ok {
			return fmt.Errorf("--inject %s: needs %s", f.fault, f.needs)
		}
	}
	return nil
}

// EngineName is the engine to open on the device; "auto": autotune chooses.
func (o Options) EngineName() string {
	switch {
	case o.Streams > 1:
		return fmt.Sprintf("%s:%d", gpu.EngineCE, o.Streams)
	case o.Engine == "":
		return "auto"
	}
	return o.Engine
}

// resolve replaces path "auto", for devices that can or cannot access each other's memory.
func (o Options) resolve(reaches bool) (Options, error) {
	o.Path = "relay"
	if reaches {
		o.Path = "direct"
	}
	if err := o.check(); err != nil {
		return o, fmt.Errorf("the devices do not reach each other's memory: %w", err)
	}
	o.fill()
	return o, nil
}

// Recordable returns why a window cannot be recorded as a CUDA graph; nil: it can. All addresses must be known before
// the batch.
func (o Options) Recordable() error {
	if o.PathName() == "auto" {
		o.Path = "direct"
	}
	o, err := o.settle()
	if err != nil {
		return err
	}
	if o.Path != "direct" || o.Open != "eager" || o.Publish != "dedupe" || !o.Buffers.plain() {
		return errors.New("a graph is recorded before the batch: it needs --path direct with --open eager, --publish dedupe and --buffers same")
	}
	return nil
}

// cacheSize is the capacity of the cache, in handles.
func (o Options) cacheSize() int {
	if o.CacheSize == nil {
		return 0 // --cache off, or another path
	}
	return *o.CacheSize
}

// handle is the kind of memory to open on the device.
func (o Options) handle() gpu.HandleKind { return cmp.Or(o.Handle, gpu.HandleAuto) }

// wait is how a rank waits.
func (o Options) wait() abi.Wake {
	w, _ := o.Wake.abi() // checked by settle
	return w
}
