package rdma

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/pool"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs"
)

func pointer(n int) *int { return &n }

// TestSettle: what cannot be is refused in one line that says what to use.
func TestSettle(t *testing.T) {
	for _, c := range []struct {
		o    Options
		says []string // nothing: it is accepted
	}{
		{Options{}, nil},
		{Options{Groups: 16}, nil},
		{Options{Groups: 4, Depth: 2, QPs: 256, SignalEvery: Requests}, nil},
		{Options{Conns: 1, Window: Requests}, nil},
		{Options{Groups: 16, Route: RouteFIFO}, nil},
		{Options{Conns: pool.MaxComms}, nil},
		{Options{GID: pointer(0), Inline: pointer(0)}, nil},
		{Options{Conns: 64, Groups: 1, Window: 8, Depth: 2}, nil},
		{Options{Completion: InMemory, Groups: 4, Fan: FanIn}, nil},
		{Options{Completion: InMemory, CTS: CTSPreGranted, Burst: MaxBurst}, nil},
		{Options{Burst: 2}, nil},
		{Options{Groups: 17}, []string{"--groups 17 with --conns 16", "use --groups 16 or fewer"}},
		{Options{Groups: -1}, []string{"--groups -1: want 0 to 4095"}},
		{Options{Conns: -1}, []string{"--conns -1: want 1 to 4095"}},
		{Options{Conns: pool.MaxComms + 1}, []string{"--conns 4096: want 1 to 4095"}},
		{Options{QPs: -1}, []string{"--qps -1: want 1 to 256"}},
		{Options{QPs: 257}, []string{"--qps 257: want 1 to 256"}},
		{Options{Depth: -1}, []string{"--depth -1: want 1 to 64"}},
		{Options{Depth: 300}, []string{"--depth 300: want 1 to 64"}},
		{Options{Window: -1}, []string{"--window -1: want 1 to 256"}},
		{Options{Window: Requests + 1}, []string{"--window 257: want 1 to 256"}},
		{Options{Window: Requests, Completion: WriteThenImm}, []string{"W·posts = 256·2 = 512", "R = 256", "use --window 128 or less"}},
		{Options{Conns: 64, Groups: 1}, []string{
			"ceil(64/1)·8·1 = 512", "R·D = 256·1 = 256", "--groups 2 or more", "--depth 2 or more", "--window 4 or less",
		}},
		{Options{SignalEvery: -1}, []string{"--signal-every -1: want 1 to 256"}},
		{Options{SignalEvery: 257}, []string{"--signal-every 257: want 1 to 256"}},
		{Options{Inline: pointer(-1)}, []string{"--inline -1: want 0 or more"}},
		{Options{GID: pointer(-1)}, []string{"--gid-index -1: want 0 or more"}},
		{Options{Groups: 4, Route: RouteFIFO}, []string{"--route fifo", "use --route imm, or --groups 0"}},
		{Options{Fan: FanOut, Back: true}, []string{"--fan out: messages go in one direction", "--op latency,stream"}},
		{Options{Fan: "all"}, []string{"--fan all: use pair, out or in"}},
		{Options{MR: "odp"}, []string{"--mr odp: use auto, reg or dmabuf"}},
		{Options{CTS: "offload"}, []string{"--cts offload: use fifo or pre-granted"}},
		{Options{Route: "tag"}, []string{"--route tag: use imm or fifo"}},
		{Options{Completion: "send"}, []string{"--completion send: use write-imm, write+imm or memory"}},
		{Options{Completion: InMemory, CTS: CTSFIFO}, []string{"--cts fifo: with --completion memory", "use --cts pre-granted"}},
		{Options{Completion: InMemory, Route: RouteImm}, []string{"--route imm: it has no effect with --completion memory"}},
		{Options{Completion: InMemory, Route: RouteFIFO}, []string{"--route fifo: it has no effect with --completion memory", "leave one of them out"}},
		{Options{Route: "none"}, []string{"--route none: use imm or fifo"}},
		{Options{Burst: -1}, []string{"--burst -1: want 1 to 256"}},
		{Options{Burst: MaxBurst + 1}, []string{"--burst 257: want 1 to 256"}},
		{Options{Close: "any"}, []string{"--close-order any: use lifo, fifo or random"}},
	} {
		text, err := json.Marshal(c.o)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(string(text), func(t *testing.T) {
			path, err := New(c.o)
			holds(t, err, c.says...)
			if (err == nil) != (path != nil) {
				t.Errorf("%v with %v", path, err)
			}
			if err != nil && strings.HasPrefix(err.Error(), "pool") {
				t.Errorf("%v names a package to who named a flag", err)
			}
		})
	}
}

// TestDefaults are what the help says.
func TestDefaults(t *testing.T) {
	got, err := Options{}.settle()
	want := Options{
		Depth: 1, QPs: 1, Conns: 16, Window: 8, Fan: Pair, MR: MRAuto, CTS: CTSFIFO, Route: RouteImm, Completion: WriteImm,
		SignalEvery: 1, Burst: 1, Inline: pointer(64), Close: LIFO,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = Options{Completion: InMemory}.settle()
	want.Completion, want.CTS, want.Route = InMemory, CTSPreGranted, routeNone
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("in memory: %+v, %v", got, err)
	}
}

// TestRegion: a burst has places for its messages, as long as they are small; a batch always has its own.
func TestRegion(t *testing.T) {
	for _, c := range []struct {
		batch uint64
		burst int
		want  uint64
	}{
		{0, 1, 1},
		{512, 1, 512},
		{512, 100, 51200},
		{1 << 20, 10, 10 << 20},
		{1 << 20, 200, burstBytes},
		{1 << 30, 200, 1 << 30},
	} {
		if got := (Options{Burst: c.burst}).region(c.batch); got != c.want {
			t.Errorf("burst %d of batches of %d: %d bytes, want %d", c.burst, c.batch, got, c.want)
		}
	}
}

func TestWays(t *testing.T) {
	for _, c := range []struct {
		o       Options
		ranks   int
		ways    []rankPair
		comms   int
		regions int
	}{
		{Options{Fan: Pair, Conns: 5}, 2, []rankPair{{0, 1}}, 5, 2},
		{Options{Fan: Pair, Conns: 5, Back: true}, 2, []rankPair{{0, 1}, {1, 0}}, 10, 2},
		{Options{Fan: FanOut, Conns: 5}, 4, []rankPair{{0, 1}, {0, 2}, {0, 3}}, 15, 2},
		{Options{Fan: FanIn, Conns: 5}, 4, []rankPair{{1, 0}, {2, 0}, {3, 0}}, 15, 4},
		{Options{Fan: FanIn, Conns: 5}, 2, []rankPair{{1, 0}}, 5, 2},
	} {
		if got := c.o.rankPairs(c.ranks); !reflect.DeepEqual(got, c.ways) {
			t.Errorf("%s of %d: %v, want %v", c.o.Fan, c.ranks, got, c.ways)
		}
		if got := c.o.comms(c.ranks); got != c.comms {
			t.Errorf("%s of %d: %d connections of a rank, want %d", c.o.Fan, c.ranks, got, c.comms)
		}
		if got := c.o.Regions(c.ranks); got != c.regions {
			t.Errorf("%s of %d: %d regions of a rank, want %d", c.o.Fan, c.ranks, got, c.regions)
		}
	}
}

// TestFit: what the device's limits leave of the queues, and whether the messages under way fit in.
func TestFit(t *testing.T) {
	for _, c := range []struct {
		name   string
		o      Options
		limits verbs.Limits
		want   queues
		says   []string // nothing: it fits
	}{
		{"no limit", Options{}, verbs.Limits{CQE: 1 << 20, QPWRs: 1 << 14}, queues{512, 256}, nil},
		{"deeper", Options{Groups: 4, Depth: 2}, verbs.Limits{CQE: 1 << 20, QPWRs: 1 << 14}, queues{1024, 512}, nil},
		{"deeper, unshared", Options{Depth: 2}, verbs.Limits{CQE: 1 << 20, QPWRs: 1 << 14}, queues{1024, 512}, nil},
		{"several queue pairs", Options{QPs: 4}, verbs.Limits{CQE: 1 << 20, QPWRs: 1 << 14}, queues{512, 256}, nil},
		{"few completions", Options{Groups: 4}, verbs.Limits{CQE: 300, QPWRs: 1 << 14}, queues{200, 100}, nil},
		{"few completions for several", Options{QPs: 4}, verbs.Limits{CQE: 300, QPWRs: 1 << 14}, queues{50, 25}, nil},
		{"few requests", Options{Groups: 4}, verbs.Limits{CQE: 1 << 20, QPWRs: 64}, queues{64, 64}, nil},
		{"as few receives as fit", Options{Conns: 4, Groups: 1, Window: 5}, verbs.Limits{CQE: 60, QPWRs: 1 << 14}, queues{40, 20}, nil},
		{
			"a receive too few",
			Options{Conns: 4, Groups: 1, Window: 5},
			verbs.Limits{CQE: 59, QPWRs: 1 << 14},
			queues{39, 19},
			[]string{
				"20 messages in flight, of 4 connections with 5 each", "39 sends and 19 receives",
				"completion queue of 59 entries", "a smaller --window, or more --groups",
			},
		},
		{
			"sends too few for two posts",
			Options{Conns: 1, Window: 16, Completion: WriteThenImm},
			verbs.Limits{CQE: 1 << 20, QPWRs: 40},
			queues{40, 40},
			[]string{"16 messages in flight, of 1 connections with 16 each", "40 sends", "use a smaller --window: "},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := c.o.settle()
			if err != nil {
				t.Fatal(err)
			}
			p, err := pool.New(nil, o.spec(c.limits))
			if err != nil {
				t.Fatal(err)
			}
			if got := o.queues(p.Sizes()); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			err = o.fit(p.Sizes())
			holds(t, err, c.says...)
			if err != nil && !errors.Is(err, gpu.ErrUnsupported) {
				t.Errorf("%v does not say that this machine cannot", err)
			}
			// Whatever completes fits in the completion queue, also where it could not be as long as was wanted.
			if q := o.queues(p.Sizes()); o.QPs*(q.sends+q.receives) > p.Sizes().CQE {
				t.Errorf("%d queue pairs with %+v overrun a completion queue of %d", o.QPs, q, p.Sizes().CQE)
			}
		})
	}
}

// TestManyQueuePairs: a work request has room for so many.
func TestManyQueuePairs(t *testing.T) {
	m := &maker{qps: make([]*queuePair, maxQPs)}
	_, err := m.NewQP(nil, pool.Sizes{})
	holds(t, err, "65536 queue pairs", "--qps", "--conns")
}
