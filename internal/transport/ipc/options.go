package ipc

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// Options are the path's knobs. The zero value of each means its default; a knob that the path does not have must be
// left at it.
type Options struct {
	Path        string         `json:"path,omitempty"`         // one of Paths; "": auto
	Engine      string         `json:"engine,omitempty"`       // "auto", or a name the device knows
	Handle      gpu.HandleKind `json:"handle,omitempty"`       // "auto", or a kind the device knows
	Completion  string         `json:"completion,omitempty"`   // one of Completions; "": done-seq
	ExportCache string         `json:"export_cache,omitempty"` // direct, handshake: one of ExportCaches; "": allocation
	Open        string         `json:"open,omitempty"`         // direct, handshake: one of Opens; "": eager, lazy
	Publish     string         `json:"publish,omitempty"`      // direct: one of Publishes; "": dedupe
	Cache       string         `json:"cache,omitempty"`        // get: one of Caches; "": sender
	CacheSize   *int           `json:"cache_size,omitempty"`   // get: handles kept; nil: DefaultCacheSize
	Buffers     string         `json:"buffers,omitempty"`      // one of the patterns of ParseBuffers; "": same
	Wake        string         `json:"wake,omitempty"`         // a value of ParseWake; "": spin
	Streams     int            `json:"streams,omitempty"`      // streams that a copy is split over; 0: one
	Relay       Relay          `json:"relay,omitzero"`
	SameProcess bool           `json:"same_process,omitempty"` // direct: both ranks are threads of one process
	// Fault makes a rank misbehave on purpose: one of Faults. For tests.
	Fault string `json:"fault,omitempty"`
	// Start is where sequence numbers and ring indexes begin, so that tests reach their wrap.
	Start uint64 `json:"start,omitempty"`
}

// Relay are the knobs of the path through CPU memory.
type Relay struct {
	Mode  string `json:"mode,omitempty"`  // one of Relays; "": pooled
	Chunk uint64 `json:"chunk,omitempty"` // pooled: most bytes that move at a time, a multiple of 4096; 0: DefaultRelayChunk
	Depth int    `json:"depth,omitempty"` // pooled: chunks in flight; 0: DefaultRelayDepth
}

// The values of the knobs. The first of each is its default.
var (
	Paths        = []string{"auto", "direct", "handshake", "relay", "get"}
	Handles      = []gpu.HandleKind{gpu.HandleAuto, gpu.HandleLegacy, gpu.HandleVMM, gpu.HandleFabric, gpu.HandleMemFD}
	Completions  = []string{"done-seq", "ring-ack"}
	ExportCaches = []string{"allocation", "pointer", "off"}
	Opens        = []string{"eager", "lazy", "per-call"}
	Publishes    = []string{"dedupe", "always"}
	Caches       = []string{"sender", "off", "dual"}
	Relays       = []string{"pooled", "fresh"}
)

// Faults are the ways in which a rank misbehaves on purpose.
var Faults = []string{
	FaultMute, FaultNoValidation, FaultEvictInFlight, FaultDieBeforeAck, FaultDieBeforeDone, FaultNoSegment,
	FaultStutter,
}

// The faults.
const (
	FaultMute          = "mute"            // rank 1 never says that it has the done_seq channel
	FaultNoValidation  = "no-validation"   // get: the cache takes an address for an allocation
	FaultEvictInFlight = "evict-in-flight" // get: the cache evicts what a message on its way uses
	FaultDieBeforeAck  = "die-before-ack"  // rank 1 is killed between seeing a message and acknowledging it
	FaultDieBeforeDone = "die-before-done" // rank 0 is killed between its copy and saying so
	FaultNoSegment     = "no-segment"      // relay fresh: the system gives no shared memory
	FaultStutter       = "stutter"         // every seventh descriptor finds the socket full at first
)

// Defaults and limits.
const (
	DefaultCacheSize  = 16
	MaxCacheSize      = 1024
	DefaultRelayChunk = 2 << 20
	DefaultRelayDepth = 4
	maxRelayDepth     = 16
	maxPool           = 256 << 20 // bytes of a direction's chunks
	maxBuffers        = 2048
	maxStreams        = 8
)

// Buffers is which of its exported buffers a rank uses for message n.
type Buffers struct {
	Allocations int    // message n lies in allocation n % Allocations …
	Slices      int    // … or in slice n % Slices of the only one
	Realloc     string // "", "same" or "overlap": before each iteration the allocation is freed and made anew
}

// Regions is how many times the largest batch's bytes the pattern needs.
func (b Buffers) Regions() int {
	if b.Realloc == "overlap" {
		return 2
	}
	return max(b.Allocations, b.Slices)
}

// ParseBuffers reads same, rotate:K, slices:M, realloc-same or realloc-overlap.
func ParseBuffers(s string) (Buffers, error) {
	kind, count, counted := strings.Cut(s, ":")
	b := Buffers{Allocations: 1, Slices: 1}
	n, err := strconv.Atoi(count)
	switch {
	case !counted && (s == "" || s == "same"):
	case !counted && s == "realloc-same":
		b.Realloc = "same"
	case !counted && s == "realloc-overlap":
		b.Realloc = "overlap"
	case kind == "rotate" && err == nil && n >= 1 && n <= maxBuffers:
		b.Allocations = n
	case kind == "slices" && err == nil && n >= 1 && n <= maxBuffers:
		b.Slices = n
	default:
		return Buffers{}, fmt.Errorf("--buffers %s: use same, rotate:K, slices:M (1 to %d), realloc-same or realloc-overlap", s, maxBuffers)
	}
	return b, nil
}

// ParseWake reads spin, yield, sleep:DURATION or adaptive.
func ParseWake(s string) (abi.Wake, error) {
	const adaptiveNap = 50 * time.Microsecond
	mode, nap, timed := strings.Cut(s, ":")
	d, err := time.ParseDuration(nap)
	switch {
	case !timed && (s == "" || s == "spin"):
		return abi.Wake{Mode: abi.WakeSpin}, nil
	case !timed && s == "yield":
		return abi.Wake{Mode: abi.WakeYield}, nil
	case !timed && s == "adaptive":
		return abi.Wake{Mode: abi.WakeAdaptive, Nap: adaptiveNap}, nil
	case mode == "sleep" && err == nil && d > 0 && d <= 100*time.Millisecond:
		return abi.Wake{Mode: abi.WakeSleep, Nap: d}, nil
	}
	return abi.Wake{}, fmt.Errorf("--wake %s: use spin, yield, adaptive or sleep:D with D up to 100ms, such as sleep:50us", s)
}

// knob is one of the options that are words.
type knob struct {
	name  string
	value *string
	known []string
	paths []string // that have it; nil: all
}

func (o *Options) knobsOf() []knob {
	return []knob{
		{"path", &o.Path, Paths, nil},
		{"completion", &o.Completion, Completions, nil},
		{"export-cache", &o.ExportCache, ExportCaches, []string{"direct", "handshake"}},
		{"open", &o.Open, Opens, []string{"direct", "handshake"}},
		{"publish", &o.Publish, Publishes, []string{"direct"}},
		{"cache", &o.Cache, Caches, []string{"get"}},
		{"relay", &o.Relay.Mode, Relays, []string{"relay"}},
		{"inject", &o.Fault, append([]string{""}, Faults...), nil},
	}
}

func (k knob) on(path string) bool { return k.paths == nil || slices.Contains(k.paths, path) }

// settle fills in the defaults of the path and refuses what cannot be.
func (o Options) settle() (Options, error) {
	o.Path = o.settlePath()
	for _, k := range o.knobsOf() {
		switch {
		case *k.value == "":
		case !slices.Contains(k.known, *k.value):
			return o, fmt.Errorf("--%s %s: use one of %s", k.name, *k.value, strings.Join(k.known, ", "))
		case !k.on(o.Path):
			return o, fmt.Errorf("--path %s has no --%s: it belongs to %s", o.Path, k.name, strings.Join(k.paths, " and "))
		}
	}
	if o.Handle != "" && !slices.Contains(Handles, o.Handle) {
		return o, fmt.Errorf("--handle %s: use one of %v", o.Handle, Handles)
	}
	if err := o.check(); err != nil {
		return o, err
	}
	o.defaults()
	return o, nil
}

// defaults gives every knob that the path has its default.
func (o *Options) defaults() {
	if o.Path == "handshake" && o.Open == "" {
		o.Open = "lazy" // there is nothing to open before a message asks
	}
	for _, k := range o.knobsOf() {
		if *k.value == "" && k.on(o.Path) {
			*k.value = k.known[0]
		}
	}
	if o.Handle == "" {
		o.Handle = gpu.HandleAuto
	}
	if o.Wake == "" {
		o.Wake = "spin"
	}
	if o.Relay.Mode != "pooled" {
		return
	}
	if o.Relay.Chunk == 0 {
		o.Relay.Chunk = DefaultRelayChunk
	}
	if o.Relay.Depth == 0 {
		o.Relay.Depth = DefaultRelayDepth
	}
}

// settlePath takes a knob that only one path has for the wish to have that path.
func (o *Options) settlePath() string {
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
	if _, err := ParseBuffers(o.Buffers); err != nil {
		return err
	}
	if _, err := ParseWake(o.Wake); err != nil {
		return err
	}
	patterned := !o.plain()
	engine, _, _ := strings.Cut(o.Engine, ":")
	switch {
	case o.Path == "handshake" && o.Open == "eager":
		return errors.New("--open eager: the handshake learns of a buffer when a message asks for it: use lazy or per-call")
	case o.Path == "relay" && slices.Contains([]string{"sm", "bulk", "proxy"}, engine):
		return fmt.Errorf("--path relay copies between a GPU and CPU memory, which is not %s's work: use --engine ce", o.Engine)
	case o.Path == "relay" && o.Handle != "" && o.Handle != gpu.HandleAuto:
		return fmt.Errorf("--handle %s: the relay shares no device memory: leave it out", o.Handle)
	case o.Path == "relay" && patterned:
		return fmt.Errorf("--buffers %s: the relay shares no device memory, so there is nothing to show: use direct, handshake or get", o.Buffers)
	case o.SameProcess && o.Path != "direct":
		return fmt.Errorf("--path %s between threads of one process: --same-process belongs to direct", o.Path)
	case o.SameProcess && (o.Handle != "" && o.Handle != gpu.HandleAuto || o.ExportCache+o.Open+o.Publish != "" || patterned):
		return errors.New("--same-process hands the pointer over: there is no handle, and nothing to export or open")
	case o.CacheSize != nil && (*o.CacheSize < 0 || *o.CacheSize > MaxCacheSize):
		return fmt.Errorf("--cache-size %d: want 0 (off) to %d", *o.CacheSize, MaxCacheSize)
	case o.CacheSize != nil && o.Cache == "off":
		return errors.New("--cache off keeps nothing: leave out --cache-size")
	case o.CacheSize != nil && o.Path != "get":
		return fmt.Errorf("--path %s has no --cache-size: it belongs to get", o.Path)
	case o.Streams < 0 || o.Streams > maxStreams:
		return fmt.Errorf("--streams %d: want 1 to %d", o.Streams, maxStreams)
	case o.Streams > 1 && !slices.Contains([]string{"", "auto", gpu.EngineCE}, o.Engine):
		return fmt.Errorf("--streams %d: only the copy engine is split, not %s: use --engine ce", o.Streams, o.Engine)
	case o.Relay.Mode == "fresh" && (o.Relay.Chunk != 0 || o.Relay.Depth != 0):
		return errors.New("--relay fresh moves a message in one piece: --relay-chunk and --relay-depth belong to pooled")
	case o.Relay.Chunk%4096 != 0:
		return fmt.Errorf("--relay-chunk %d: want a multiple of 4096", o.Relay.Chunk)
	case o.Relay.Depth < 0 || o.Relay.Depth > maxRelayDepth:
		return fmt.Errorf("--relay-depth %d: want 1 to %d", o.Relay.Depth, maxRelayDepth)
	case max(o.Relay.Chunk, 1)*uint64(max(o.Relay.Depth, DefaultRelayDepth)) > maxPool:
		return fmt.Errorf("--relay-chunk × --relay-depth: a pool of %d MiB, want at most %d MiB",
			o.Relay.Chunk*uint64(max(o.Relay.Depth, DefaultRelayDepth))>>20, maxPool>>20)
	}
	return o.checkFault()
}

// checkFault refuses a fault that could not strike: a run that it leaves alone would prove nothing.
func (o *Options) checkFault() error {
	patterned := !o.plain()
	for _, f := range []struct {
		fault string
		ok    bool
		needs string
	}{
		{FaultNoValidation, o.Path == "get" && patterned && o.Cache != "off", "--path get --buffers realloc-same"},
		{FaultEvictInFlight, o.Path == "get" && patterned && o.Cache != "off", "--path get --buffers rotate:K with fewer than K --cache-size"},
		{FaultNoSegment, o.Relay.Mode == "fresh", "--relay fresh"},
		{FaultDieBeforeDone, o.Path != "get" && o.Relay.Mode != "fresh", "a path on which the sender says that it is done: direct, handshake or relay pooled"},
		{FaultMute, o.Completion != "ring-ack", "--completion done-seq"},
	} {
		if o.Fault == f.fault && !f.ok {
			return fmt.Errorf("--inject %s: needs %s", f.fault, f.needs)
		}
	}
	return nil
}

// EngineName is the engine to open on the device, "auto" where it is to be chosen.
func (o Options) EngineName() string {
	switch {
	case o.Streams > 1:
		return fmt.Sprintf("%s:%d", gpu.EngineCE, o.Streams)
	case o.Engine == "":
		return "auto"
	}
	return o.Engine
}

// resolve is what "auto" means between devices that do, or do not, reach each other's memory.
func (o Options) resolve(reaches bool) (Options, error) {
	o.Path = "relay"
	if reaches {
		o.Path = "direct"
	}
	if err := o.check(); err != nil {
		return o, fmt.Errorf("the devices do not reach each other's memory: %w", err)
	}
	o.defaults()
	return o, nil
}

// Recordable says why a window cannot be started as one unit, a CUDA graph; nil: it can. All that a message needs has to
// be known beforehand.
func (o Options) Recordable() error {
	if o.settlePath() == "auto" {
		o.Path = "direct"
	}
	o, err := o.settle()
	if err != nil {
		return err
	}
	if o.Path != "direct" || o.Open != "eager" || o.Publish != "dedupe" || !o.plain() {
		return errors.New("a graph is recorded beforehand: it needs --path direct with --open eager, --publish dedupe and --buffers same")
	}
	return nil
}

func (o Options) cacheSize() int {
	switch {
	case o.Cache == "off":
		return 0
	case o.CacheSize == nil:
		return DefaultCacheSize
	}
	return *o.CacheSize
}

func (o Options) wake() abi.Wake {
	w, _ := ParseWake(o.Wake) // was checked
	return w
}

// plain reports whether all messages use one buffer that stays.
func (o Options) plain() bool { return o.Buffers == "" || o.Buffers == "same" }
