// Package transporttest is the conformance suite for transports.
//
// It runs one process per rank, by the same workers as the command. A test package that uses it calls [Main] from
// TestMain, because the workers are processes of the test binary.
package transporttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda"
	"github.com/p2pbench/p2pbench/internal/gpu/fault"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// Drivers are the kinds of device that transports are tested on.
func Drivers() map[string]gpu.Driver {
	return map[string]gpu.Driver{host.Kind: host.Driver(), "cuda": cuda.New()}
}

// Main runs the tests, or a worker if the binary was started as one. build makes the transport under test from its
// options.
func Main(m *testing.M, build func(options json.RawMessage) (transport.Transport, error)) {
	if len(os.Args) == 2 && os.Args[1] == "worker" {
		drivers := Drivers() // one per process: devices can access each other only if the same driver opened them
		os.Exit(worker.Serve(worker.Factory{
			Device:    func(i gpu.Info, inject string) (gpu.Device, error) { return open(drivers[i.Kind], i, inject) },
			Transport: func(_ string, options json.RawMessage) (transport.Transport, error) { return build(options) },
		}))
	}
	os.Exit(m.Run())
}

func open(driver gpu.Driver, i gpu.Info, inject string) (gpu.Device, error) {
	d, err := driver.Open(i.UUID)
	if err != nil || inject == "" {
		return d, err
	}
	f, err := fault.Parse(inject)
	return fault.Wrap(d, f), err
}

// Arm makes an arm from a transport's name and options.
func Arm(t *testing.T, name string, options any) worker.Arm {
	t.Helper()
	b, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	return worker.Arm{Name: name, Transport: name, Options: b}
}

// Require returns the devices of d. If there are fewer than n it skips the test, or fails it if the environment
// variable P2PBENCH_REQUIRE, a list such as "cuda,nccl", names the kind.
func Require(t *testing.T, d gpu.Driver, n int) []gpu.Info {
	t.Helper()
	infos, err := d.Devices()
	if err == nil && len(infos) >= n {
		return infos
	}
	why := fmt.Sprintf("needs %d %s device(s), there are %d (%v)", n, d.Kind(), len(infos), err)
	for required := range strings.SplitSeq(os.Getenv("P2PBENCH_REQUIRE"), ",") {
		if required == d.Kind() {
			t.Fatal(why)
		}
	}
	t.Skip(why)
	return nil
}

// Subject is a transport under test between two devices.
type Subject struct {
	Arm       worker.Arm
	Devices   []gpu.Info
	Ranks     []int  // ranks that run a batch
	Free      uint64 // bytes that may be allocated on each device; messages above 4 GiB are tested if they fit
	Graph     bool   // the engine can record a window
	MaxSize   uint64 // bytes of the largest message; 0: no limit
	MinSize   uint64 // bytes of the smallest message
	SkipLarge bool   // skip messages above 4 GiB, which another subject of the same transport covers
}

// Run runs the whole suite.
func Run(t *testing.T, s Subject) {
	t.Run("sizes", s.sizes)
	t.Run("offsets", s.offsets)
	t.Run("windows", s.windows)
	t.Run("checks", s.checks)
	if !s.SkipLarge {
		t.Run("beyond 4 GiB", s.large)
	}
	t.Run("corruption", s.corruption)
	t.Run("impossible batch", s.impossible)
	t.Run("peer killed", s.killed)
	t.Run("leaves nothing", s.leavesNothing)
	if s.Graph {
		t.Run("recorded windows", s.graph)
	}
}

// Errors of a run, for a transport's own tests.
var (
	ErrHang   = worker.ErrHang
	ErrFailed = worker.ErrFailed
)

// Launch starts workers for batches up to region bytes, for a transport's own tests. The caller closes the team.
func (s Subject) Launch(t *testing.T, region uint64, timeout time.Duration) (*worker.Team, error) {
	t.Helper()
	return worker.Launch(t.Context(), s.config(t, region, timeout))
}

func (s Subject) config(t *testing.T, region uint64, timeout time.Duration) worker.Config {
	t.Helper()
	return worker.Config{
		Run: fmt.Sprintf("test-%d-%d", os.Getpid(), time.Now().UnixNano()), Devices: s.Devices,
		Arms: []worker.Arm{s.Arm}, Region: region, Timeout: timeout, Stderr: t.Output(),
	}
}

// team starts workers for batches up to region bytes.
func (s Subject) team(t *testing.T, region uint64, change func(*worker.Config)) *worker.Team {
	t.Helper()
	cfg := s.config(t, region, 30*time.Second)
	if change != nil {
		change(&cfg)
	}
	team, err := worker.Launch(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := team.Close(); err != nil {
			t.Error(err)
		}
	})
	return team
}

// must runs a batch and checks samples, counters and the number of bytes verified.
func (s Subject) must(t *testing.T, team *worker.Team, b transport.Batch) {
	t.Helper()
	out, err := team.Run(t.Context(), 0, s.Ranks, b)
	if err != nil {
		t.Fatalf("%+v: %v", b, err)
	}
	if len(out.Samples) != b.Iters {
		t.Errorf("%+v: %d samples, want %d", b, len(out.Samples), b.Iters)
	}
	for i, ns := range out.Samples {
		if ns <= 0 {
			t.Errorf("%+v: sample %d lasted %d ns", b, i, ns)
		}
	}
	for name := range out.Counters {
		if !slices.ContainsFunc(team.Paths[0][0].Counters, func(c transport.Counter) bool { return c.Name == name }) {
			t.Errorf("the counter %s is not described", name)
		}
	}
	messages := uint64(b.Warmup+b.Iters) * uint64(b.Window)
	if b.Op == transport.OpBidir || b.Op == transport.OpPingPong {
		messages *= 2
	}
	if want := messages * b.Size; b.Check == transport.CheckFull && out.Checked != want {
		t.Errorf("%+v: %d payload bytes were checked, want %d", b, out.Checked, want)
	}
}

func batch(op transport.Op, size uint64) transport.Batch {
	b := transport.Batch{Op: op, Size: size, Window: 1, Warmup: 2, Iters: 5, Seed: 7, Check: transport.CheckFull}
	if op == transport.OpStream || op == transport.OpBidir {
		b.Window = 4
	}
	return b
}

// oneOfMany is a batch of a test that runs many batches on one team. The short form has fewer messages.
func oneOfMany(op transport.Op, size uint64) transport.Batch {
	b := batch(op, size)
	if testing.Short() {
		b.Warmup, b.Iters = 1, 3
	}
	return b
}

// possible returns the sizes that the transport supports.
func (s Subject) possible(sizes []uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(sizes), func(size uint64) bool { return size < s.MinSize })
}

func (s Subject) sizes(t *testing.T) {
	sizes := []uint64{0, 1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 65, 511, 513, 4095, 4096, 65537, 1 << 20, 1<<20 + 1, 3000001}
	team := s.team(t, batch(transport.OpStream, 3000001).Region(), nil)
	first := uint64(0)
	for _, op := range transport.Ops {
		for _, size := range s.possible(sizes) {
			if testing.Short() && op != transport.OpLatency && (size == 1<<20 || size == 3000001) {
				continue // 1<<20+1 is sent by every operation
			}
			b := oneOfMany(op, size)
			b.First = first
			s.must(t, team, b)
			first += 7
		}
	}
}

func (s Subject) offsets(t *testing.T) {
	b := batch(transport.OpBidir, 70001)
	b.Offset = 513
	team := s.team(t, b.Region(), nil)
	for _, off := range []uint64{1, 2, 3, 4, 8, 13, 16, 64, 513} {
		for _, size := range []uint64{1, 17, 4096, 70001} {
			b := oneOfMany(transport.OpBidir, size)
			b.Offset = off
			s.must(t, team, b)
		}
	}
}

func (s Subject) windows(t *testing.T) {
	team := s.team(t, 64*4096, nil)
	for _, w := range []int{1, 2, 3, 8, 64} {
		for _, op := range []transport.Op{transport.OpStream, transport.OpBidir} {
			b := batch(op, 4000)
			b.Window = w
			s.must(t, team, b)
		}
	}
}

func (s Subject) checks(t *testing.T) {
	team := s.team(t, 8<<20, nil)
	for _, c := range []struct {
		check transport.Check
		sizes []uint64
	}{
		{transport.CheckOff, []uint64{0, 5000}},
		{transport.CheckSample, []uint64{0, 1, 64, 65, 5000, 1<<20 + 3}},
		{transport.CheckFull, []uint64{0, 5000}}, // the other sizes are those of `sizes`
	} {
		for _, op := range transport.Ops {
			for _, size := range s.possible(c.sizes) {
				b := oneOfMany(op, size)
				b.Check = c.check
				s.must(t, team, b)
			}
		}
	}
}

func (s Subject) large(t *testing.T) {
	if s.MaxSize > 0 {
		_, err := s.team(t, 4096, nil).Run(t.Context(), 0, s.Ranks, batch(transport.OpLatency, s.MaxSize+1))
		if !errors.Is(err, worker.ErrFailed) || !strings.Contains(err.Error(), fmt.Sprint("at most ", s.MaxSize)) {
			t.Errorf("%d bytes: got %v, want an error that names the maximum", s.MaxSize+1, err)
		}
		return
	}
	if testing.Short() {
		t.Skip("-short: writes 9 GB of memory")
	}
	b := batch(transport.OpLatency, 4<<30+12345)
	if s.Free < 5*b.Region() {
		t.Skipf("needs %d bytes of memory, %d are free", 5*b.Region(), s.Free)
	}
	b.Warmup, b.Iters = 0, 1
	s.must(t, s.team(t, b.Region(), nil), b)
}

// corruption flips one byte of one message: the run must end with an error that names the message and the offset.
func (s Subject) corruption(t *testing.T) {
	for _, c := range []struct {
		op             transport.Op
		check          transport.Check
		at, iter, slot uint64
		size, offset   uint64
	}{
		{transport.OpLatency, transport.CheckFull, 3, 3, 0, 4096, 0},
		{transport.OpLatency, transport.CheckFull, 6, 6, 0, 1 << 20, 1<<20 - 1},
		{transport.OpLatency, transport.CheckFull, 0, 0, 0, 1, 0},
		{transport.OpLatency, transport.CheckSample, 6, 6, 0, 1 << 20, 777777},
		{transport.OpPingPong, transport.CheckFull, 2, 2, 0, 65537, 65536},
		{transport.OpStream, transport.CheckFull, 4*2 + 3, 2, 3, 4097, 4001},
		{transport.OpBidir, transport.CheckFull, 4 * 1, 1, 0, 4097, 17},
	} {
		t.Run(fmt.Sprintf("%s %s %d+%d", c.op, c.check, c.size, c.offset), func(t *testing.T) {
			b := batch(c.op, c.size)
			b.Check = c.check
			team := s.team(t, b.Region(), func(cfg *worker.Config) {
				cfg.Inject = fmt.Sprintf("flip=%d:%d", c.at, c.offset)
			})
			_, err := team.Run(t.Context(), 0, s.Ranks, b)
			if !errors.Is(err, worker.ErrCorrupt) {
				t.Fatalf("a flipped byte was not detected: %v", err)
			}
			want := fmt.Sprintf("%s, size %d, iteration %d, message %d: offset %d expected", c.op, c.size, c.iter, c.slot, c.offset)
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got %q, want it to name %q", err, want)
			}
		})
	}
}

func (s Subject) impossible(t *testing.T) {
	for name, change := range map[string]func(*transport.Batch){
		"beyond the buffers": func(b *transport.Batch) { b.Size = 1 << 30 },
		"unknown operation":  func(b *transport.Batch) { b.Op = "sideways" },
	} {
		t.Run(name, func(t *testing.T) {
			b := batch(transport.OpLatency, 64)
			team := s.team(t, b.Region(), nil)
			change(&b)
			if _, err := team.Run(t.Context(), 0, s.Ranks, b); !errors.Is(err, worker.ErrFailed) {
				t.Errorf("got %v, want a refusal", err)
			}
		})
	}
}

// killed kills the last participating rank during a batch that would last for hours.
func (s Subject) killed(t *testing.T) {
	b := batch(transport.OpLatency, 8)
	b.Iters = 1 << 24
	team := s.team(t, b.Region(), nil)
	victim := s.Ranks[len(s.Ranks)-1]
	time.AfterFunc(200*time.Millisecond, func() { team.Kill(victim) })
	_, err := team.Run(t.Context(), 0, s.Ranks, b)
	if !errors.Is(err, worker.ErrCrash) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d: killed by signal 9", victim)) {
		t.Errorf("got %v, want the killed rank named", err)
	}
}

// leavesNothing checks that opening and closing leaves no file descriptor open.
func (s Subject) leavesNothing(t *testing.T) {
	once := func() {
		team := s.team(t, 8192, nil)
		s.must(t, team, batch(transport.OpBidir, 1000))
		if _, err := team.Finish(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := team.Close(); err != nil {
			t.Error(err)
		}
	}
	once() // Go's runtime opens descriptors on first use
	before := descriptors(t)
	once()
	if after := descriptors(t); len(after) > len(before) {
		t.Errorf("open before: %v, after: %v", before, after)
	}
}

// descriptors lists the open file descriptors of this process.
func descriptors(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			out = append(out, e.Name()+" "+to)
		}
	}
	return out
}

func (s Subject) graph(t *testing.T) {
	team := s.team(t, 16*4096, nil)
	for _, op := range transport.Ops {
		for _, size := range []uint64{1, 100, 4096} {
			b := batch(op, size)
			b.Graph = true
			s.must(t, team, b)
		}
	}
}
