package nccl_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/nccl"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

// Timed by the device, samples are what its clock says, and all of an operation is on the queue before any of it begins.
// Timed by the host, nothing waits for anything.
func TestFakeTimings(t *testing.T) {
	for _, timing := range timings {
		for _, graph := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, graph %v", timing, graph), func(t *testing.T) {
				f := fake{env: []string{"FAKE_ELAPSED_MS=2.5"}}
				var read func() string
				if !child(t) {
					read = f.log(t)
				}
				f.on(t, func(t *testing.T) { timesBy(t, timing, graph) })
				if child(t) {
					return
				}
				want := 0
				if timing == nccl.TimingDevice {
					want = 2 * 4 * (3 + 2) // both ranks post four iterations of three operations, and twice in those of pingpong
				}
				log := read()
				if n := strings.Count(log, "posts to a held stream"); n != want {
					t.Errorf("%d posts to a held stream, want %d:\n%s", n, want, log)
				}
			})
		}
	}
}

func timesBy(t *testing.T, timing string, graph bool) {
	t.Helper()
	team, err := subject(t, nccl.Options{Timing: timing}).Launch(t, 1<<20, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, team)
	if p := team.Paths[0][1]; p.Knobs["timing"] != timing || p.Path != "nccl" {
		t.Errorf("%+v", p)
	}
	for _, op := range transport.Ops {
		b := batch(op, 4096)
		b.Graph = graph
		out, err := team.Run(t.Context(), 0, []int{0, 1}, b)
		if err != nil {
			t.Fatal(err)
		}
		want := []int64{2_500_000, 2_500_000, 2_500_000}
		if op == transport.OpPingPong {
			want = []int64{1_250_000, 1_250_000, 1_250_000}
		}
		if slices.Equal(out.Samples, want) != (timing == nccl.TimingDevice) || len(out.Samples) != len(want) {
			t.Errorf("%s: %v, where the device says %v", op, out.Samples, want)
		}
		if out.Counters["nccl_ctas"] == 0 || !strings.HasPrefix(out.Engine, sendRecv) {
			t.Errorf("%s: %v, %s", op, out.Counters, out.Engine)
		}
	}
	if _, err := team.Finish(t.Context()); err != nil {
		t.Error(err)
	}
}

// Whatever fails, the queue is let go before the communicator is aborted, which would wait for it without end.
func TestFakeTimedRunFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		fake  fake
		graph bool
		class error
		says  string
	}{
		{"send", fake{env: []string{"FAKE_NCCL_FAIL_BYTES=777"}}, false, transporttest.ErrFailed, "size 777: ncclSend: unhandled cuda error (1)"},
		{"group", fake{env: []string{"FAKE_NCCL_FAIL_END_BYTES=777"}}, false, transporttest.ErrFailed, "size 777: ncclGroupEnd: internal error (3)"},
		{"never ends", fake{env: []string{"FAKE_NCCL_HANG_BYTES=777"}}, false, transporttest.ErrHang, "size 777: waited 1."},
		{"graph never ends", fake{env: []string{"FAKE_NCCL_HANG_BYTES=777"}}, true, transporttest.ErrHang, "size 777: waited 1."},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := c.fake
			var read func() string
			if !child(t) {
				read = f.log(t)
			}
			f.on(t, func(t *testing.T) {
				team, err := subject(t, nccl.Options{Timing: nccl.TimingDevice}).Launch(t, 1<<20, time.Second)
				if err != nil {
					t.Fatal(err)
				}
				defer closing(t, team)
				b := batch(transport.OpBidir, 776)
				b.Graph = c.graph
				if _, err := team.Run(t.Context(), 0, []int{0, 1}, b); err != nil {
					t.Fatal(err)
				}
				b.Size = 777
				_, err = team.Run(t.Context(), 0, []int{0, 1}, b)
				t.Log(err)
				if !errors.Is(err, c.class) {
					t.Errorf("got %v, want %v", err, c.class)
				}
				says(t, err, c.says)
			})
			if child(t) {
				return
			}
			if log := read(); strings.Count(log, " abort\n") < 2 || strings.Contains(log, "hangs") {
				t.Errorf("the communicators were not aborted:\n%s", log)
			}
		})
	}
}

// A driver whose streams cannot be held cannot time.
func TestFakeCannotHold(t *testing.T) {
	fake{env: []string{"FAKE_NO_MEMOPS=1"}}.on(t, func(t *testing.T) {
		_, err := subject(t, nccl.Options{Timing: nccl.TimingDevice}).Launch(t, 1<<20, 5*time.Second)
		t.Log(err)
		says(t, err, "nccl: open: timing by the device: ", gpu.ErrUnsupported.Error())
		team, err := subject(t, nccl.Options{}).Launch(t, 1<<20, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		closing(t, team)
	})
}

// A ring of three: each window arrives at the next rank, who knows what the one before sends.
func TestFakeRing(t *testing.T) {
	for _, timing := range timings {
		t.Run(timing, func(t *testing.T) {
			f := fake{env: []string{"FAKE_DEVICES=3", "P2PBENCH_REQUIRE=cuda,nccl"}}
			if !child(t) {
				out := f.rerun(t, "^TestHWRing$/^"+timing+"$")
				if !strings.Contains(out, "--- PASS: TestHWRing/"+timing) {
					t.Errorf("no ring:\n%s", out)
				}
			}
			f.on(t, func(t *testing.T) { passes(t, timing) })
		})
	}
}

func passes(t *testing.T, timing string) {
	t.Helper()
	s := ring(t, nccl.Options{Timing: timing, CTAs: 4})
	team, err := s.Launch(t, 1<<20, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, team)
	if p := team.Paths[0][2]; len(s.Ranks) != 3 || p.Knobs["ring"] != "true" || p.Knobs["timing"] != timing {
		t.Errorf("%d ranks, %+v", len(s.Ranks), p)
	}
	b := batch(transport.OpBidir, 4096)
	b.Window = 4
	out, err := team.Run(t.Context(), 0, s.Ranks, b)
	if err != nil {
		t.Fatal(err)
	}
	if out.Counters["messages"] != 3*4*4 || out.Counters["nccl_ctas"] != 4 || out.Engine != sendRecv {
		t.Errorf("%v, %s", out.Counters, out.Engine)
	}
	_, err = team.Run(t.Context(), 0, s.Ranks, batch(transport.OpLatency, 4096))
	if !errors.Is(err, transporttest.ErrFailed) {
		t.Errorf("got %v, want a refusal", err)
	}
	says(t, err, `operation "latency": a ring has only bidir`)
}

// In a ring a payload that is wrong, or a rank that dies, is named as between two.
func TestFakeRingFails(t *testing.T) {
	for _, timing := range timings {
		t.Run(timing, func(t *testing.T) {
			fake{env: []string{"FAKE_DEVICES=3", "FAKE_NCCL_SPOIL_BYTES=777"}}.on(t, func(t *testing.T) {
				ringFails(t, timing, batch(transport.OpBidir, 777), "bidir, size 777, iteration 0, message 0: offset 776 expected")
				long := batch(transport.OpBidir, 776)
				long.Iters = 1 << 24
				ringFails(t, timing, long, "rank 1: killed by signal 9")
			})
		})
	}
}

// ringFails runs a batch, in which rank 1 is killed if it lasts.
func ringFails(t *testing.T, timing string, b transport.Batch, text string) {
	t.Helper()
	s := ring(t, nccl.Options{Timing: timing})
	team, err := s.Launch(t, 4096, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, team)
	if b.Iters > 1000 {
		time.AfterFunc(100*time.Millisecond, func() { team.Kill(1) })
	}
	_, err = team.Run(t.Context(), 0, s.Ranks, b)
	t.Log(err)
	says(t, err, text)
}

// What a held queue cannot take is refused before it is held.
func TestFakeWindowTooLong(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		o := nccl.Options{Timing: nccl.TimingDevice, PerMessage: true}
		team, err := subject(t, o).Launch(t, 1<<20, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer closing(t, team)
		b := batch(transport.OpStream, 64)
		b.Window, b.Warmup, b.Iters = 256, 0, 2
		if _, err := team.Run(t.Context(), 0, []int{0, 1}, b); err != nil {
			t.Errorf("256 calls: %v", err)
		}
		b.Window = 257
		_, err = team.Run(t.Context(), 0, []int{0, 1}, b)
		says(t, err, "a window of 257 calls is more than the 256")
	})
}
