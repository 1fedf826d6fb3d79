package pool_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/transport/rdma/pool"
)

func TestSizes(t *testing.T) {
	const r = 256
	for name, c := range map[string]struct {
		spec pool.Spec
		want pool.Sizing
	}{
		"nothing shared": {
			pool.Spec{QPs: 1, Requests: r},
			pool.Sizing{CQE: 768, Sizes: pool.Sizes{SendWRs: 512, RecvWRs: 256}},
		},
		"nothing shared, four queue pairs": {
			pool.Spec{QPs: 4, Requests: r, Depth: 1},
			pool.Sizing{CQE: 3072, Sizes: pool.Sizes{SendWRs: 512, RecvWRs: 256}},
		},
		"nothing shared has no depth": {
			pool.Spec{QPs: 1, Requests: r, Depth: 8},
			pool.Sizing{CQE: 768, Sizes: pool.Sizes{SendWRs: 512, RecvWRs: 256}},
		},
		"four groups, depth 2": {
			pool.Spec{Groups: 4, QPs: 1, Requests: r, Depth: 2},
			pool.Sizing{CQE: 1536, Sizes: pool.Sizes{SendWRs: 1024, RecvWRs: 512}},
		},
		"four queue pairs, depth 4": {
			pool.Spec{Groups: 1, QPs: 4, Requests: r, Depth: 4},
			pool.Sizing{CQE: 12288, Sizes: pool.Sizes{SendWRs: 2048, RecvWRs: 1024}},
		},
		"as much as the device allows": {
			pool.Spec{Groups: 4, QPs: 1, Requests: r, Depth: 2, Limits: pool.Limits{CQE: 1536, QPWRs: 1024}},
			pool.Sizing{CQE: 1536, Sizes: pool.Sizes{SendWRs: 1024, RecvWRs: 512}},
		},
		"more than the device allows": {
			pool.Spec{Groups: 4, QPs: 1, Requests: r, Depth: 2, Limits: pool.Limits{CQE: 1535, QPWRs: 511}},
			pool.Sizing{CQE: 1535, Sizes: pool.Sizes{SendWRs: 511, RecvWRs: 511}, Clamped: []pool.Clamp{
				{What: "completion queue", Wanted: 1536, Limit: 1535},
				{What: "send queue", Wanted: 1024, Limit: 511},
				{What: "receive queue", Wanted: 512, Limit: 511},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newWorld().nic("nic")
			p := newPool(t, n, c.spec)
			if got := p.Sizes(); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if _, err := p.Prepare(peerOf(0), pool.Send, -1); err != nil {
				t.Fatal(err)
			}
			if len(n.depths) != 1 || n.depths[0] != c.want.CQE {
				t.Errorf("completion queues of %d entries were made, want one of %d", n.depths, c.want.CQE)
			}
			for _, s := range n.sizes {
				if s != c.want.Sizes {
					t.Errorf("a queue pair of %+v was made, want %+v", s, c.want.Sizes)
				}
			}
		})
	}
}

// A primary with its own number of queue pairs has a completion queue for that number.
func TestSizesOfOwnQPs(t *testing.T) {
	n := newWorld().nic("nic")
	p := newPool(t, n, pool.Spec{Groups: 1, QPs: 1, Depth: 2, Requests: 256})
	if _, err := p.PrepareQPs(peerOf(0), pool.Send, 0, 4); err != nil {
		t.Fatal(err)
	}
	if want := 3 * 256 * 4 * 2; n.depths[0] != want {
		t.Errorf("a completion queue of %d entries for 4 queue pairs, want %d", n.depths[0], want)
	}
}

func TestClampInWords(t *testing.T) {
	got := pool.Clamp{What: "send queue", Wanted: 1024, Limit: 511}.String()
	if want := "send queue of 511 entries instead of 1024, which is the most that the device allows"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSpecRefused(t *testing.T) {
	good := pool.Spec{Groups: 4, QPs: 1, Depth: 2, Requests: 256}
	for want, change := range map[string]func(*pool.Spec){
		"":                                   func(*pool.Spec) {},
		"pool: --groups -1: want 0 to 65536": func(s *pool.Spec) { s.Groups = -1 },
		"pool: --qps 0: want 1 to 65536":     func(s *pool.Spec) { s.QPs = 0 },
		"pool: --depth 0: want 1 to 65536":   func(s *pool.Spec) { s.Depth = 0 },
		"pool: requests 0: want 1 to 65536":  func(s *pool.Spec) { s.Requests = 0 },
		"pool: --qps 65537: want 1 to 65536": func(s *pool.Spec) { s.QPs = 65537 },
		"pool: --depth -1: want 0 to 65536":  func(s *pool.Spec) { s.Groups, s.Depth = 0, -1 },
	} {
		s := good
		change(&s)
		_, err := pool.New(newWorld().nic("nic"), s)
		if got := message(err); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestFeasible(t *testing.T) {
	for _, c := range []struct {
		conns, groups, window, posts, depth, requests int
		want                                          string // "": feasible
	}{
		{16, 4, 8, 1, 2, 256, ""},  // the default
		{16, 1, 8, 1, 1, 256, ""},  // 128 ≤ 256
		{16, 1, 16, 1, 1, 256, ""}, // 256 ≤ 256: just so
		{
			16, 1, 17, 1, 1, 256,
			"pool: --groups 1: a receive queue would overrun: ceil(C/G)·W·posts = ceil(16/1)·17·1 = 272, but must be ≤ R·D = 256·1 = 256: " +
				"use --groups 2 or more, --depth 2 or more, or --window 16 or less",
		},
		{16, 2, 17, 1, 1, 256, ""},
		{16, 1, 17, 1, 2, 256, ""},
		// 17 connections on 16 groups: two share one.
		{
			17, 16, 8, 32, 1, 256,
			"pool: --groups 16: a receive queue would overrun: ceil(C/G)·W·posts = ceil(17/16)·8·32 = 512, but must be ≤ R·D = 256·1 = 256: " +
				"use --groups 17 or more, --depth 2 or more, or --window 4 or less",
		},
		{17, 17, 8, 32, 1, 256, ""},
		// Not even one connection a group would fit.
		{
			4, 2, 300, 1, 1, 256,
			"pool: --groups 2: a receive queue would overrun: ceil(C/G)·W·posts = ceil(4/2)·300·1 = 600, but must be ≤ R·D = 256·1 = 256: " +
				"use --depth 3 or more, or --window 128 or less",
		},
		{
			4, 1, 1, 100, 1, 256,
			"pool: --groups 1: a receive queue would overrun: ceil(C/G)·W·posts = ceil(4/1)·1·100 = 400, but must be ≤ R·D = 256·1 = 256: " +
				"use --groups 2 or more, --depth 2 or more, or fewer posts for a message",
		},
		{16, 0, 256, 1, 1, 256, ""},
		{16, 0, 8, 32, 0, 256, ""},
		// Without groups depth does not help.
		{
			16, 0, 257, 1, 8, 256,
			"pool: --groups 0: a receive queue would overrun: W·posts = 257·1 = 257, but must be ≤ R = 256: use --window 256 or less",
		},
		{
			16, 0, 1, 257, 8, 256,
			"pool: --groups 0: a receive queue would overrun: W·posts = 1·257 = 257, but must be ≤ R = 256: use fewer posts for a message",
		},
		{
			4, 8, 8, 1, 1, 256,
			"pool: --groups 8 with --conns 4: there are fewer connections than groups: use --groups 4 or fewer",
		},
		{
			4, 5, 8, 1, 1, 256,
			"pool: --groups 5 with --conns 4: there are fewer connections than groups: use --groups 4 or fewer",
		},
		{4, 4, 8, 1, 1, 256, ""},
		{0, 0, 8, 1, 1, 256, "pool: --conns 0: want 1 to 4095"},
		{4, -1, 8, 1, 1, 256, "pool: --groups -1: want 0 to 65536"},
		{4, 1, 0, 1, 1, 256, "pool: --window 0: want 1 to 65536"},
		{4, 1, 8, 0, 1, 256, "pool: posts 0: want 1 to 65536"},
		{4, 1, 8, 1, 0, 256, "pool: --depth 0: want 1 to 65536"},
		{4, 1, 8, 1, 1, 0, "pool: requests 0: want 1 to 65536"},
		{4096, 1, 1, 1, 65536, 256, "pool: --conns 4096: want 1 to 4095"},
		{4095, 1, 1, 1, 65536, 256, ""},
	} {
		err := pool.Feasible(c.conns, c.groups, c.window, c.posts, c.depth, c.requests)
		if got := message(err); got != c.want {
			t.Errorf("Feasible(%d, %d, %d, %d, %d, %d):\n got %q\nwant %q",
				c.conns, c.groups, c.window, c.posts, c.depth, c.requests, got, c.want)
		}
	}
}

// Each change that Feasible proposes is enough, and nothing less is.
func TestFeasibleAdvice(t *testing.T) {
	try := func(conns, groups, window, posts, depth int) error {
		return pool.Feasible(conns, groups, window, posts, depth, 64)
	}
	advice := func(text, flag string) (n int, ok bool) {
		_, after, ok := strings.Cut(text, flag+" ")
		if ok {
			if _, err := fmt.Sscan(after, &n); err != nil {
				t.Fatalf("%q: no number after %s", text, flag)
			}
		}
		return n, ok
	}
	seen := map[string]int{}
	for conns := 1; conns <= 20; conns++ {
		for groups := 0; groups <= conns; groups++ {
			for _, window := range []int{1, 3, 8, 40, 100} {
				for _, posts := range []int{1, 2, 9, 70} {
					for depth := 1; depth <= 3; depth++ {
						err := try(conns, groups, window, posts, depth)
						if err == nil {
							continue
						}
						_, use, _ := strings.Cut(err.Error(), ": use ")
						check := func(flag string, enough, less error) {
							seen[flag]++
							if enough != nil || less == nil {
								t.Fatalf("%v: with %s as it says: %v; with one less: %v", err, flag, enough, less)
							}
						}
						if n, ok := advice(use, "--groups"); ok {
							check("--groups", try(conns, n, window, posts, depth), try(conns, n-1, window, posts, depth))
						}
						if n, ok := advice(use, "--depth"); ok {
							check("--depth", try(conns, groups, window, posts, n), try(conns, groups, window, posts, n-1))
						}
						if n, ok := advice(use, "--window"); ok {
							check("--window", try(conns, groups, n, posts, depth), try(conns, groups, n+1, posts, depth))
						}
					}
				}
			}
		}
	}
	if seen["--groups"] == 0 || seen["--depth"] == 0 || seen["--window"] == 0 {
		t.Errorf("proposals: %v, want some of each", seen)
	}
}

// What Feasible says to ask where the device clamps the receive queue.
func TestFeasibleWhereClamped(t *testing.T) {
	p := newPool(t, newWorld().nic("nic"), pool.Spec{Groups: 1, QPs: 1, Depth: 4, Requests: 256, Limits: pool.Limits{QPWRs: 512}})
	if err := pool.Feasible(16, 1, 40, 1, 4, 256); err != nil {
		t.Fatalf("640 requests in a receive queue of 1024: %v", err)
	}
	if err := pool.Feasible(16, 1, 40, 1, 1, p.Sizes().RecvWRs); err == nil {
		t.Error("640 requests in a receive queue of 512 were not refused")
	}
}
