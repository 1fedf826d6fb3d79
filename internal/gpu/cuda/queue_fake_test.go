package cuda

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda/enginetest"
	"github.com/p2pbench/p2pbench/internal/gpu/kernel"
)

// openQueue opens the first GPU and a queue on it.
func openQueue(t *testing.T) (gpu.Device, gpu.Queue, error) {
	t.Helper()
	dev, err := New().Open(fakeUUID0)
	if err != nil {
		t.Fatal(err)
	}
	q, err := dev.(gpu.Launcher).Queue()
	return dev, q, err
}

func TestFakeQueueRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		fake fake
		says []string
	}{
		{
			"old driver",
			fake{cuda: []string{"-DOMIT_MEMOPS"}, env: []string{"FAKE_ARCH=8", "FAKE_DRIVER=11060"}},
			[]string{"need a driver for CUDA 11.7", "this driver is for 11.6", "update the NVIDIA driver"},
		},
		{"device cannot", fake{env: []string{"FAKE_NO_MEMOPS=1"}}, []string{fakeUUID0, "cannot wait for words of 8 bytes", "CUDA 13.0"}},
		{"two addresses", fake{env: []string{"FAKE_NO_REGISTERED=1"}}, []string{fakeUUID0, "pinned memory at the CPU's address"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.fake.on(t, func(t *testing.T) {
				dev, _, err := openQueue(t)
				refused(t, err, append(c.says, "queue: ")...)
				if _, err := dev.Engine("ce"); err != nil {
					t.Errorf("no engine either: %v", err)
				}
				check(t, dev.Close())
			})
		})
	}
}

// A driver without the functions of CUDA 12 does the same by other calls.
func TestFakeQueueOldDriver(t *testing.T) {
	if os.Getenv("P2PBENCH_LIBCUDA") != "" {
		t.Skip("already on another driver")
	}
	out := rerun(t, "^TestHW(Queue|Kernels)", "P2PBENCH_REQUIRE=cuda", "P2PBENCH_LIBNVML="+filepath.Join(t.TempDir(), "missing.so"),
		"P2PBENCH_LIBCUDA="+buildFake(t, "fakecuda", []string{"-DOMIT_RECENT"}), "FAKE_ARCH=8", "FAKE_DRIVER=11070")
	if n := strings.Count(out, "--- PASS: TestHW"); n < 9 {
		t.Errorf("only %d tests passed:\n%s", n, out)
	}
}

// start is a launch as the fake recorded it.
type start struct {
	shape string // name, blocks, threads, shared memory, overlap
	args  []byte
}

// starts reads the launches so far.
func starts(t *testing.T) []start {
	t.Helper()
	text, err := os.ReadFile(os.Getenv("FAKE_LAUNCHES"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var list []start
	for line := range strings.Lines(string(text)) {
		i := strings.LastIndexByte(line, ' ')
		args, err := hex.DecodeString(strings.TrimSpace(line[i:]))
		if err != nil || len(args) == 0 {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, start{line[:i], args})
	}
	return list
}

// pattern returns bytes that differ between launches, more than any argument has.
func pattern(seed byte) []byte {
	b := make([]byte, 1024)
	for i := range b {
		b[i] = seed + byte(i*7)
	}
	return b
}

// TestFakeQueueStarts starts every kernel that sends and receives, behind a stream wait, recorded and not.
func TestFakeQueueStarts(t *testing.T) {
	for _, c := range []struct {
		name    string
		flags   []string
		env     []string
		overlap string
		kernels int
	}{
		{"sm_90", nil, nil, "1", 7},
		{"sm_80", nil, []string{"FAKE_ARCH=8"}, "0", 5},
		{"no choice of launch", []string{"-DOMIT_RECENT"}, nil, "0", 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := "FAKE_LAUNCHES=" + filepath.Join(t.TempDir(), "launches")
			fake{cuda: c.flags, env: append(c.env, log)}.on(t, func(t *testing.T) {
				r := newRig(t, New(), 0)
				words := r.words()
				q := r.queue()
				var want []start
				gate := uint64(0)
				for i, name := range r.dev.(*Device).image.Kernels {
					if !strings.HasPrefix(name, "p2p_sr_") {
						continue
					}
					shared := uint32(0)
					if strings.HasSuffix(name, "_bulk") {
						shared = 192 << 10
					}
					k, err := q.Find(name, shared)
					done(t, err)
					l := enginetest.KernelLaunch{Kernel: k, CTAs: uint32(1 + i%4), Threads: 64, Shared: shared, Args: pattern(byte(i))}
					gate++
					done(t, q.Await(addressOf(&words[0]), gate), q.Start(l))
					l.Overlap, l.Args = true, pattern(byte(100+i))
					done(t, q.Start(l))
					if got := starts(t); len(got) != len(want) {
						t.Errorf("%s: runs before the gate is open", name)
					}
					words[0].Store(gate)
					done(t, q.RecordBegin(), q.Start(l), q.RecordEnd(), q.Replay(), q.Replay(), q.Wait(r.ctx))
					shape := fmt.Sprintf("%s %d 64 %d ", name, 1+i%4, shared)
					want = append(want, start{shape + "0", pattern(byte(i))})
					want = append(want, slices.Repeat([]start{{shape + c.overlap, pattern(byte(100 + i))}}, 3)...)
				}
				if len(want) != 4*c.kernels {
					t.Errorf("%d starts, want 4 of each of %d kernels", len(want), c.kernels)
				}
				same := func(a, b start) bool { return a.shape == b.shape && bytes.HasPrefix(b.args, a.args) }
				if got := starts(t); !slices.EqualFunc(got, want, same) {
					t.Errorf("got  %.60q\nwant %.60q", fmt.Sprint(got), fmt.Sprint(want))
				}
			})
		})
	}
}

func TestFakeQueueStartFails(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		r := newRig(t, New(), 0)
		q := r.queue()
		k, err := q.Find(kernel.SendrecvWS, 0)
		done(t, err)
		l := enginetest.KernelLaunch{Kernel: k, CTAs: 4, Threads: 2048, Args: pattern(0)}
		reports(t, q.Start(l), "cuLaunchKernel of 4 x 2048 threads, 0 bytes of shared memory", "(701)")
		l.Threads, l.CTAs = 64, uint32(5)
		invalid(t, q.Start(l), "more thread blocks")
		l.CTAs, l.Shared = 1, 100<<10 // more than find was told
		reports(t, q.Start(l), "cuLaunchKernel of 1 x 64 threads, 102400 bytes", "(1)")
		_, err = q.Find(kernel.SendrecvWS, 1<<20)
		reports(t, err, "cuFuncSetAttribute p2p_sr_ws, 1048576 bytes of shared memory", "(1)")
		l.Shared = 0
		done(t, q.Start(l), q.Wait(r.ctx))
	})
}

// If a recording cannot contain waits for words, the error names the call, at once and at the end of the recording, and
// the queue remains usable.
func TestFakeQueueRecordingRefused(t *testing.T) {
	fake{env: []string{"FAKE_NO_MEMOP_CAPTURE=1"}}.on(t, func(t *testing.T) {
		r := newRig(t, New(), 0)
		b, words := r.alloc(8192), r.words()
		q := r.queue()
		r.fill(b.Addr(), 4096, 1, 0)
		for call, put := range map[string]func() error{
			"cuStreamWaitValue64_v2":  func() error { return q.Await(addressOf(&words[0]), 1) },
			"cuStreamWriteValue64_v2": func() error { return q.Write(addressOf(&words[0]), 1) },
		} {
			done(t, q.RecordBegin(), q.Copy(b.Addr()+4096, b.Addr(), 4096))
			reports(t, put(), call+" while recording", "(900)")
			reports(t, q.Copy(b.Addr()+4096, b.Addr(), 4096), "cuMemcpyAsync", "(901)")
			err := q.RecordEnd()
			reports(t, err, call+" while recording", "(900)")
			if !errors.Is(err, abi.ErrDevice) {
				t.Error(err)
			}
			invalid(t, q.Replay(), "nothing was recorded")
			words[0].Store(0)
			done(t, put())
			words[0].Store(1)
			done(t, q.Wait(r.ctx))
		}
		done(t, q.RecordBegin(), q.Copy(b.Addr()+4096, b.Addr(), 4096), q.RecordEnd(), q.Replay(), q.Wait(r.ctx))
		r.expect(b.Addr()+4096, 4096, 1, "a recording after those that failed")
	})
}

// A wait for a queue that does not complete ends at the deadline, or when the parent sets the abort flag. The device
// closes what is open, without waiting if that fails.
func TestFakeQueueWaits(t *testing.T) {
	fake{leaves: true}.on(t, func(t *testing.T) {
		r := newRig(t, New(), 0)
		words := r.words()
		queue, err := r.dev.(gpu.Launcher).Queue()
		done(t, err)
		q := enginetest.NewQueue(queue.Table())
		page, err := abi.NewPage(1)
		done(t, err)
		defer func() { check(t, page.Close()) }()
		done(t, q.Await(addressOf(&words[0]), 1))
		for _, yield := range []bool{false, true} {
			ctx := abi.NewCtx(page, 0, 100*time.Millisecond, yield)
			if err := q.Wait(ctx); !errors.Is(err, abi.ErrTimeout) {
				t.Error(err)
			}
			if s := page.Rank(0).Read(); s.Waiting == "" {
				t.Errorf("the watchdog sees %q", s)
			}
			ctx.Close()
		}
		words[0].Store(1)
		ctx := abi.NewCtx(page, 0, time.Hour, false)
		defer ctx.Close()
		done(t, q.Wait(ctx))
		page.Rank(0).Abort()
		done(t, q.Await(addressOf(&words[0]), 2))
		if err := q.Wait(ctx); !errors.Is(err, abi.ErrAborted) {
			t.Error(err)
		}
		if err := r.dev.Close(); !errors.Is(err, abi.ErrTimeout) {
			t.Error(err)
		}
		check(t, queue.Close())
		words[0].Store(2)
	})
}

// Opening a queue tests whether streams really continue when a word is written.
func TestFakeQueueTriesItself(t *testing.T) {
	fake{env: []string{"FAKE_MEMOPS_HANG=1"}, leaves: true}.on(t, func(t *testing.T) {
		dev, _, err := openQueue(t)
		if !errors.Is(err, abi.ErrTimeout) {
			t.Error(err)
		}
		reports(t, err, "cuda: queue: waited")
		check(t, dev.Close())
	})
}

// The driver returns times in ms.
func TestFakeQueueElapsed(t *testing.T) {
	for ms, want := range map[string]uint64{"0": 0, "0.0012346": 1235, "0.000512": 512, "1000": 1e9, "-0.001": 0} {
		t.Run(ms, func(t *testing.T) {
			fake{env: []string{"FAKE_ELAPSED_MS=" + ms}}.on(t, func(t *testing.T) {
				dev, q, err := openQueue(t)
				if want == 0 && ms != "0" {
					reports(t, err, "queue: elapsed: the second event is before the first")
					check(t, dev.Close())
					return
				}
				done(t, err)
				x := enginetest.NewQueue(q.Table())
				done(t, x.Event(1), x.Event(3), x.Wait(within(t, time.Minute)))
				if ns, err := x.Elapsed(1, 3); ns != want || err != nil {
					t.Errorf("%d ns, %v; want %d", ns, err, want)
				}
				check(t, dev.Close())
			})
		})
	}
}

// Every failure names its call, and everything is released, which fake.on checks.
func TestFakeQueueFailures(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		r := newRig(t, New(), 0)
		b := r.alloc(4096)
		q := r.queue()
		word := b.Addr()
		ctx := within(t, time.Minute)
		k, err := q.Find(kernel.SendrecvPut, 0)
		done(t, err, q.Event(0), q.Event(1), q.Wait(ctx))
		open := func() error {
			q, err := r.dev.(gpu.Launcher).Queue()
			if err == nil {
				check(t, q.Close())
			}
			return err
		}
		find := func() error { _, err := q.Find(kernel.SendrecvPut, 1000); return err }
		kernels := func() error { _, err := r.dev.(gpu.Inspector).Kernels(); return err }
		record := func() error { return errors.Join(q.RecordBegin(), q.Copy(b.Addr(), b.Addr()+1024, 100), q.RecordEnd()) }
		elapsed := func() error { _, err := q.Elapsed(0, 1); return err }
		done(t, record())
		l := enginetest.KernelLaunch{Kernel: k, CTAs: 1, Threads: 32, Args: pattern(0)}
		for _, c := range []struct {
			function string
			do       func() error
		}{
			{"cuCtxSetCurrent", open},
			{"cuStreamCreateWithPriority", open},
			{"cuEventCreate", open},
			{"cuMemAlloc_v2", open},
			{"cuMemHostAlloc", open},
			{"cuEventRecord", open},
			{"cuStreamWriteValue64_v2", open},
			{"cuStreamWaitValue64_v2", open},
			{"cuMemcpyAsync", open},
			{"cuStreamQuery", open},
			{"cuEventElapsedTime", open},
			{"cuModuleGetFunction", find},
			{"cuFuncLoad", find},
			{"cuFuncSetAttribute", find},
			{"cuModuleGetFunction", kernels},
			{"cuFuncLoad", kernels},
			{"cuFuncGetAttribute", kernels},
			{"cuStreamBeginCapture_v2", record},
			{"cuMemcpyAsync", record},
			{"cuGraphInstantiateWithFlags", record},
			{"cuGraphUpload", record},
			{"cuGraphLaunch", q.Replay},
			{"cuLaunchKernel", func() error { return q.Start(l) }},
			{"cuStreamWaitValue64_v2", func() error { return errors.Join(q.Write(word, 1), q.Await(word, 1)) }},
			{"cuStreamWriteValue64_v2", func() error { return q.Write(word, 1) }},
			{"cuEventRecord", func() error { return errors.Join(q.Event(0), q.Event(1)) }},
			{"cuEventElapsedTime", elapsed},
			{"cuStreamQuery", func() error { return q.Wait(ctx) }},
			{"cuCtxSetCurrent", func() error { return q.Wait(ctx) }},
		} {
			function := c.function
			if function == "cuEventElapsedTime" {
				function = "cuEventElapsedTime_v2"
			}
			reports(t, failing(t, function, 2, c.do), c.function, "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory")
			done(t, c.do(), q.Wait(ctx))
		}
		refused(t, failing(t, "cuStreamWaitValue64_v2", 801, open), "queue: cuStreamWaitValue64_v2")
	})
}

// The fake driver reports spilled registers; tests on hardware find real ones.
func TestFakeKernels(t *testing.T) {
	fake{env: []string{"FAKE_LOCAL=16"}}.on(t, func(t *testing.T) {
		dev, q, err := openQueue(t)
		done(t, err)
		list, err := dev.(gpu.Inspector).Kernels()
		done(t, err)
		for _, k := range list {
			want := gpu.Kernel{Name: k.Name, Registers: 40, Local: 16, Threads: 512, Target: "sm_90"}
			if k != want || !strings.HasPrefix(k.Name, "p2p_") {
				t.Errorf("%+v", k)
			}
		}
		check(t, dev.Close())
		check(t, q.Close())
		if q.Table() != nil {
			t.Error("a closed queue has a table")
		}
		if _, err := dev.(gpu.Inspector).Kernels(); err == nil {
			t.Error("Kernels works on a closed device")
		}
		if _, err := dev.(gpu.Launcher).Queue(); err == nil {
			t.Error("Queue works on a closed device")
		}
	})
}
