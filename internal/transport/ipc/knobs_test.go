package ipc_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/ipc"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

// variants are the paths that move bytes in ways of their own; each passes the whole suite.
var variants = map[string]ipc.Options{
	"handshake":            {Path: "handshake"},
	"handshake, all costs": {Path: "handshake", Completion: "ring-ack", Open: "per-call", ExportCache: "off"},
	"ring-ack":             {Completion: "ring-ack"},
	"relay pooled":         {Path: "relay", Relay: ipc.Relay{Chunk: 1 << 20, Depth: 3}},
	"relay fresh":          {Path: "relay", Relay: ipc.Relay{Mode: "fresh"}},
	"get":                  {Path: "get"},
	"get, dual cache":      {Path: "get", Cache: "dual"},
	"same process":         {SameProcess: true},
}

func TestHostVariants(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	for name, o := range variants {
		t.Run(name, func(t *testing.T) { transporttest.Run(t, subject(t, infos[0], infos[0], o)) })
	}
}

func subject(t *testing.T, a, b gpu.Info, o ipc.Options) transporttest.Subject {
	t.Helper()
	s := transporttest.Subject{Arm: transporttest.Arm(t, "ipc", o), Devices: []gpu.Info{a, b}, Ranks: []int{0, 1}}
	if o.SameProcess {
		s.Ranks = []int{0}
	}
	return s
}

// measure runs the batches one after the other and returns what was counted.
func measure(t *testing.T, s transporttest.Subject, batches ...transport.Batch) map[string]uint64 {
	t.Helper()
	var region, first uint64
	for _, b := range batches {
		region = max(region, b.Region())
	}
	team, err := s.Launch(t, region, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := team.Close(); err != nil {
			t.Error(err)
		}
	}()
	var counters map[string]uint64
	for _, b := range batches {
		b.First = first
		first += uint64(b.Warmup + b.Iters)
		out, err := team.Run(t.Context(), 0, s.Ranks, b)
		if err != nil {
			t.Fatalf("%+v: %v", b, err)
		}
		counters = out.Counters
	}
	return counters
}

func messages(op transport.Op, size uint64, window, iters int) transport.Batch {
	return transport.Batch{Op: op, Size: size, Window: window, Iters: iters, Seed: 3, Check: transport.CheckFull}
}

func intPtr(n int) *int { return &n }

// Every knob must show in the counters what it is there for. The allocations are large enough to be shared at first
// sight; 40 messages each.
var knobs = []struct {
	name string
	o    ipc.Options
	want map[string]uint64
}{
	{"direct: one export, one open", ipc.Options{Path: "direct"}, map[string]uint64{
		"path_direct": 40, "published": 2, "exports": 2, "opens": 2, "closes": 0, "control_msgs": 2,
	}},
	{"lazy: opened by the first message, by the sender only", ipc.Options{Open: "lazy"}, map[string]uint64{
		"opens": 1, "closes": 0,
	}},
	{"per-call: opened and closed for every message", ipc.Options{Open: "per-call"}, map[string]uint64{
		"opens": 40, "closes": 40, "mapped_bytes": 0,
	}},
	{"publish always: an open for each publication, and no mapping left over", ipc.Options{Open: "lazy", Publish: "always"}, map[string]uint64{
		"published": 40, "opens": 40, "closes": 39,
	}},
	{"dedupe: nothing changed, nothing is published", ipc.Options{Open: "lazy", Publish: "dedupe"}, map[string]uint64{
		"published": 0, "opens": 1,
	}},
	{"ring-ack: two messages more for each operation", ipc.Options{Path: "direct", Completion: "ring-ack"}, map[string]uint64{
		"control_msgs": 2 + 80,
	}},
	{"handshake: a question and an answer for each message", ipc.Options{Path: "handshake"}, map[string]uint64{
		"path_handshake": 40, "control_msgs": 80, "exports": 1, "hits": 39, "misses": 1, "opens": 1,
	}},
	{"export cache off: an export for each message", ipc.Options{Path: "handshake", ExportCache: "off"}, map[string]uint64{
		"exports": 40, "hits": 0, "misses": 40, "opens": 1,
	}},
	{"slices, by allocation: one export", ipc.Options{Path: "handshake", Buffers: "slices:4"}, map[string]uint64{
		"exports": 1, "hits": 39, "opens": 1,
	}},
	{"slices, by pointer: an export for each slice, one mapping", ipc.Options{Path: "handshake", ExportCache: "pointer", Buffers: "slices:4"}, map[string]uint64{
		"exports": 4, "hits": 36, "opens": 1,
	}},
	{"rotate: a mapping for each allocation", ipc.Options{Path: "direct", Open: "lazy", Buffers: "rotate:5"}, map[string]uint64{
		"opens": 5, "closes": 0,
	}},
	{"realloc: the old mapping is closed", ipc.Options{Path: "direct", Open: "lazy", Buffers: "realloc-same"}, map[string]uint64{
		"published": 40, "exports": 40, "opens": 40, "closes": 39, "moved_buffers": 0,
	}},
	{"get: one open, then the address travels", ipc.Options{Path: "get"}, map[string]uint64{
		"path_get": 40, "misses": 1, "hits": 39, "direct": 39, "opens": 1, "exports": 1, "evictions": 0, "stale": 0,
	}},
	{"get, no cache: everything for each message", ipc.Options{Path: "get", Cache: "off"}, map[string]uint64{
		"exports": 40, "opens": 40, "closes": 40, "mapped_bytes": 0,
	}},
	{"get, cache of size 0: the same", ipc.Options{Path: "get", CacheSize: intPtr(0)}, map[string]uint64{
		"exports": 40, "opens": 40, "closes": 40,
	}},
	{"get, dual: handles travel, mappings stay", ipc.Options{Path: "get", Cache: "dual"}, map[string]uint64{
		"exports": 1, "opens": 1, "hits": 39, "direct": 0,
	}},
	{"get, as many allocations as entries: all hits", ipc.Options{CacheSize: intPtr(4), Buffers: "rotate:4"}, map[string]uint64{
		"misses": 4, "hits": 36, "evictions": 0, "opens": 4,
	}},
	{"get, one more allocation than entries: all misses", ipc.Options{CacheSize: intPtr(4), Buffers: "rotate:5"}, map[string]uint64{
		"misses": 40, "hits": 0, "evictions": 36, "opens": 40,
	}},
	{"get, slices of one allocation: one entry", ipc.Options{Path: "get", Buffers: "slices:6"}, map[string]uint64{
		"misses": 1, "opens": 1, "direct": 39,
	}},
	{"get, realloc at the same address: stale entries, new mappings", ipc.Options{Path: "get", Buffers: "realloc-same"}, map[string]uint64{
		"stale": 39, "misses": 40, "opens": 40, "overlap_deletes": 0,
	}},
	{"get, overlapping realloc: overlap deletes", ipc.Options{Path: "get", Buffers: "realloc-overlap"}, map[string]uint64{
		"stale": 0, "misses": 40, "overlap_deletes": 39, "opens": 40, "moved_buffers": 0,
	}},
	{"relay", ipc.Options{Path: "relay"}, map[string]uint64{"path_relay": 40, "control_msgs": 0}},
	{"same process: nothing to export or open", ipc.Options{SameProcess: true}, map[string]uint64{"path_direct": 40, "control_msgs": 0}},
}

func TestCounters(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	for _, c := range knobs {
		t.Run(c.name, func(t *testing.T) {
			counted(t, measure(t, subject(t, infos[0], infos[0], c.o), messages(transport.OpLatency, 1<<20+1, 1, 40)), c.want)
		})
	}
}

func counted(t *testing.T, got, want map[string]uint64) {
	t.Helper()
	for name, n := range want {
		if have, ok := got[name]; !ok || have != n {
			t.Errorf("%s: got %d (there: %v), want %d; all: %v", name, have, ok, n, got)
		}
	}
}

// A small allocation is not shared before it was used once.
func TestGetBouncesAtFirstSight(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	got := measure(t, subject(t, infos[0], infos[0], ipc.Options{Path: "get", Buffers: "rotate:3"}), messages(transport.OpLatency, 100, 1, 30))
	if got["bounced"] != 3 || got["misses"] != 3 || got["direct"] != 24 {
		t.Errorf("want the first message of each allocation through CPU memory: %v", got)
	}
}

// Patterns, completion and window in all operations: every byte is compared.
func TestPatterns(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	for _, path := range []string{"direct", "handshake", "get"} {
		for _, buffers := range []ipc.Buffers{"rotate:3", "slices:3", "realloc-same", "realloc-overlap"} {
			t.Run(path+" "+string(buffers), func(t *testing.T) {
				measure(t, subject(t, infos[0], infos[0], ipc.Options{Path: path, Buffers: buffers, Completion: "ring-ack"}), everyOp(4)...)
			})
		}
	}
	for _, wake := range []ipc.Wake{"yield", "sleep:50us", "adaptive"} {
		t.Run(string(wake), func(t *testing.T) {
			measure(t, subject(t, infos[0], infos[0], ipc.Options{Path: "handshake", Wake: wake}), everyOp(4)...)
		})
	}
}

func everyOp(window int) []transport.Batch {
	return []transport.Batch{
		messages(transport.OpLatency, 3001, 1, 20), messages(transport.OpStream, 3001, window, 10),
		messages(transport.OpBidir, 3001, window, 10), messages(transport.OpPingPong, 3001, 1, 20),
	}
}

// A window of more messages than the rings hold, both ways at once.
func TestWindowBeyondTheRing(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	for _, o := range []ipc.Options{{Path: "handshake"}, {Path: "get"}, {Path: "get", Cache: "off"}, {Path: "relay", Relay: ipc.Relay{Chunk: 4096, Depth: 2}}} {
		t.Run(o.Path+" "+o.Cache, func(t *testing.T) {
			measure(t, subject(t, infos[0], infos[0], o), messages(transport.OpBidir, 512, 3000, 3), messages(transport.OpStream, 512, 4096, 2))
		})
	}
}

// A socket that is full for a moment delays descriptors, and changes the order of nothing.
func TestStutter(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	for _, o := range []ipc.Options{
		{Path: "handshake", ExportCache: "off"},
		{Path: "handshake", Buffers: "rotate:3"},
		{Path: "get", Cache: "off"},
		{Path: "get", Cache: "dual", Buffers: "rotate:20"},
		{Path: "relay", Relay: ipc.Relay{Mode: "fresh"}},
	} {
		o.Fault = ipc.FaultStutter
		t.Run(o.Path+" "+o.Cache+o.ExportCache+string(o.Buffers), func(t *testing.T) {
			measure(t, subject(t, infos[0], infos[0], o), everyOp(200)...)
		})
	}
}

// A cache by pointer keeps one handle for each buffer, however many messages lie in it, in whatever cells.
func TestPointerCacheInWindows(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	o := ipc.Options{Path: "handshake", ExportCache: "pointer", Buffers: "slices:3"}
	if got := measure(t, subject(t, infos[0], infos[0], o), everyOp(500)...); got["exports"] != 6 {
		t.Errorf("three slices of each rank: %v", got)
	}
}

// A message of no bytes at the very end of a buffer is a message of that buffer.
func TestNothingAtTheEnd(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	for _, path := range []string{"direct", "handshake", "relay", "get"} {
		b := messages(transport.OpLatency, 0, 1, 5)
		b.Offset = 4096
		measure(t, subject(t, infos[0], infos[0], ipc.Options{Path: path}), b)
	}
}

// Sequence numbers of 64 bits and ring indexes of 32 go on counting beyond their last value.
func TestWrap(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	for _, o := range []ipc.Options{
		{Path: "direct"},
		{Path: "direct", Completion: "ring-ack"},
		{Path: "handshake"},
		{Path: "get"},
		{Path: "relay"},
		{Path: "relay", Relay: ipc.Relay{Mode: "fresh"}},
		{SameProcess: true},
	} {
		o.Start = ^uint64(0) - 9
		t.Run(fmt.Sprintf("%s %s %s", o.Path, o.Completion, o.Relay.Mode), func(t *testing.T) {
			measure(t, subject(t, infos[0], infos[0], o), everyOp(4)...)
		})
	}
}

// Re-registering a buffer 10,000 times leaves no mapping behind.
func TestRebinds(t *testing.T) {
	n := 10000
	if testing.Short() {
		n = 1000
	}
	infos := transporttest.Require(t, host.Driver(), 1)
	for _, o := range []ipc.Options{{Open: "lazy", Publish: "always"}, {Open: "eager", Publish: "always"}, {Path: "get", Buffers: "realloc-same"}} {
		t.Run(o.Path+o.Open, func(t *testing.T) {
			got := measure(t, subject(t, infos[0], infos[0], o), messages(transport.OpLatency, 64, 1, n))
			if got["opens"] < uint64(n-1) || got["opens"]-got["closes"] > 2 || got["mapped_bytes"] > 1<<20 {
				t.Errorf("after %d rebinds: %v", n, got)
			}
		})
	}
}

// Without the channel's confirmation both ranks tell by ring messages, and still finish.
func TestMutePeer(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	s := subject(t, infos[0], infos[0], ipc.Options{Path: "direct", Fault: ipc.FaultMute})
	team, err := s.Launch(t, 64<<10, 4*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = team.Close() }()
	for r, paths := range team.Paths[0] {
		if paths.Knobs["completion"] != "ring-ack" || len(paths.Warnings) != 1 || !strings.Contains(paths.Warnings[0], "never confirmed") {
			t.Errorf("rank %d: %+v", r, paths)
		}
	}
	for _, b := range everyOp(4) {
		if _, err := team.Run(t.Context(), 0, s.Ranks, b); err != nil {
			t.Fatalf("%s: %v", b.Op, err)
		}
	}
}

type fault struct {
	name string
	o    ipc.Options
	b    transport.Batch
	want string
}

// A cache that takes an address for an allocation, or gives up what is still on its way, delivers wrong bytes without
// any error: only the comparison of the payload sees it.
var silent = []fault{
	{
		"no validation",
		ipc.Options{Path: "get", Buffers: "realloc-same", Fault: ipc.FaultNoValidation},
		messages(transport.OpLatency, 2<<20, 1, 50), "data corruption: ipc get/",
	},
	{
		"eviction in flight",
		ipc.Options{Path: "get", CacheSize: intPtr(1), Buffers: "rotate:2", Fault: ipc.FaultEvictInFlight},
		messages(transport.OpStream, 2<<20, 4, 5), "data corruption: ipc get/",
	},
}

var loud = []fault{
	{"killed before the ack", ipc.Options{Fault: ipc.FaultDieBeforeAck}, messages(transport.OpLatency, 64, 1, 50), "rank 1: killed by signal 9"},
	{"killed before done", ipc.Options{Fault: ipc.FaultDieBeforeDone}, messages(transport.OpLatency, 64, 1, 50), "rank 0: killed by signal 9"},
	{
		"no memory for a segment",
		ipc.Options{Path: "relay", Relay: ipc.Relay{Mode: "fresh"}, Fault: ipc.FaultNoSegment},
		messages(transport.OpLatency, 64, 1, 50), "relay: memfd_create of a segment of 64 bytes: No space left on device",
	},
}

// Faults end a run, and the message says what happened; without them the same runs end well.
func TestFaults(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	for _, c := range slices.Concat(silent, loud) {
		t.Run(c.name, func(t *testing.T) {
			s := subject(t, infos[0], infos[0], c.o)
			team, err := s.Launch(t, c.b.Region(), 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = team.Close() }()
			if _, err = team.Run(t.Context(), 0, s.Ranks, c.b); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			c.o.Fault = ""
			measure(t, subject(t, infos[0], infos[0], c.o), c.b)
		})
	}
}

// Eight processes that pair up at the same time do not get in each other's way.
func TestManyPairsAtOnce(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s := subject(t, infos[0], infos[0], ipc.Options{Path: "handshake"})
			team, err := s.Launch(t, 64<<10, 30*time.Second)
			if err != nil {
				t.Error(err)
				return
			}
			for _, b := range everyOp(4) {
				if _, err := team.Run(t.Context(), 0, s.Ranks, b); err != nil {
					t.Error(err)
				}
			}
			if err := team.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// What cannot be is refused before anything is started, in a line that says what would be right.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o    ipc.Options
		want string // "": accepted
	}{
		{ipc.Options{}, ""},
		{ipc.Options{Cache: "dual"}, ""},
		{ipc.Options{Relay: ipc.Relay{Mode: "fresh"}}, ""},
		{ipc.Options{Engine: "ce", Streams: 2}, ""},
		{ipc.Options{Wake: "sleep:1ms"}, ""},
		{ipc.Options{Completion: "telepathy"}, "--completion telepathy: use done-seq or ring-ack"},
		{ipc.Options{Path: "relay", Open: "lazy"}, "--open lazy: it applies to --path direct or handshake, not to relay"},
		{ipc.Options{Path: "direct", Cache: "off"}, "--cache off: it applies to --path get, not to direct"},
		{ipc.Options{Path: "direct", CacheSize: intPtr(4)}, "--cache-size 4: it applies to --path get"},
		{ipc.Options{Path: "get", Publish: "always"}, "--publish always: it applies to --path direct"},
		{ipc.Options{Path: "handshake", Open: "eager"}, "--open eager: path handshake learns"},
		{ipc.Options{CacheSize: intPtr(-1)}, "--cache-size -1: want 0 to 1024"},
		{ipc.Options{CacheSize: intPtr(1025)}, "--cache-size 1025: want"},
		{ipc.Options{Buffers: "rotate:0"}, "--buffers rotate:0: use same, rotate:K"},
		{ipc.Options{Buffers: "rotate"}, "--buffers rotate: use"},
		{ipc.Options{Buffers: "same:2"}, "--buffers same:2: use"},
		{ipc.Options{Path: "relay", Buffers: "rotate:2"}, "--buffers rotate:2: it has no effect with --path relay"},
		{ipc.Options{Wake: "sleep"}, "--wake sleep: use spin"},
		{ipc.Options{Wake: "sleep:0s"}, "--wake sleep:0s: use spin"},
		{ipc.Options{Wake: "sleep:1h"}, "up to 100ms"},
		{ipc.Options{Streams: 9}, "--streams 9: want 1 to 8"},
		{ipc.Options{Engine: "sm", Streams: 2}, "--streams 2: it applies to --engine auto or ce, not to sm"},
		{ipc.Options{Path: "relay", Engine: "sm:4"}, "which --engine sm:4 cannot: use --engine ce"},
		{ipc.Options{Relay: ipc.Relay{Mode: "fresh", Depth: 2}}, "--relay-depth 2: it applies to --relay pooled, not to fresh"},
		{ipc.Options{Relay: ipc.Relay{Chunk: 1000}}, "--relay-chunk 1000: want 4K or more"},
		{ipc.Options{Relay: ipc.Relay{Chunk: 5000}}, "--relay-chunk 5000: want a multiple of 4K"},
		{ipc.Options{Relay: ipc.Relay{Depth: 17}}, "--relay-depth 17: want 1 to 16"},
		{ipc.Options{Relay: ipc.Relay{Chunk: 128 << 20}}, "a pool of 512 MiB, want at most 256 MiB"},
		{ipc.Options{Path: "relay", Handle: gpu.HandleMemFD}, "--handle memfd: it has no effect with --path relay"},
		{ipc.Options{Cache: "off", CacheSize: intPtr(4)}, "--cache-size 4: it has no effect with --cache off"},
		{ipc.Options{Path: "direct", Fault: ipc.FaultNoValidation}, "--inject no-validation: needs --path get"},
		{ipc.Options{Path: "get", Fault: ipc.FaultEvictInFlight}, "--inject evict-in-flight: needs --path get --buffers"},
		{ipc.Options{Path: "relay", Fault: ipc.FaultNoSegment}, "--inject no-segment: needs --relay fresh"},
		{ipc.Options{Path: "get", Fault: ipc.FaultDieBeforeDone}, "--inject die-before-done: needs"},
		{ipc.Options{Completion: "ring-ack", Fault: ipc.FaultMute}, "--inject mute: needs --completion done-seq"},
		{ipc.Options{Path: "relay", SameProcess: true}, "--same-process: it applies to --path direct"},
		{ipc.Options{SameProcess: true, Open: "lazy"}, "--open lazy: it has no effect with --same-process"},
		{ipc.Options{Cache: "dual", CacheSize: intPtr(0)}, "--cache-size 0: --cache dual needs at least one entry"},
		{ipc.Options{Engine: "ce:2", Streams: 2}, "--streams 2: --engine ce:2 sets the number"},
		{ipc.Options{Handle: "paper"}, "--handle paper: use auto, legacy"},
		{ipc.Options{Fault: "gremlin"}, "--inject gremlin: use one of"},
	} {
		_, err := ipc.New(c.o)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got %v, want %q", c.o, err, c.want)
		}
	}
}

// Every path names the knobs that are in force, and only those that it has.
func TestKnobsOfPaths(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	for path, want := range map[string][]string{
		"direct":    {"buffers", "completion", "engine", "export-cache", "handle", "handle_why", "open", "path", "publish", "wake"},
		"handshake": {"buffers", "completion", "engine", "export-cache", "handle", "handle_why", "open", "path", "wake"},
		"relay":     {"completion", "engine", "path", "relay", "relay-chunk", "relay-depth", "wake"},
		"get":       {"buffers", "cache", "cache-size", "completion", "engine", "handle", "handle_why", "path", "wake"},
	} {
		s := subject(t, infos[0], infos[0], ipc.Options{Path: path})
		team, err := s.Launch(t, 4096, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Sorted(maps.Keys(team.Paths[0][0].Knobs)); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
		if err := team.Close(); err != nil {
			t.Error(err)
		}
	}
}
