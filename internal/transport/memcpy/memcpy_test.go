package memcpy_test

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/autotune/autotunetest"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/memcpy"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

func TestMain(m *testing.M) {
	transporttest.Main(m, func(options json.RawMessage) (transport.Transport, error) {
		var o memcpy.Options
		if err := json.Unmarshal(options, &o); err != nil {
			return nil, err
		}
		return memcpy.New(o)
	})
}

func subject(t *testing.T, o memcpy.Options, devices []gpu.Info, free uint64, graph bool) transporttest.Subject {
	t.Helper()
	return transporttest.Subject{
		Arm: transporttest.Arm(t, "memcpy", o), Devices: devices, Ranks: []int{0}, Free: free, Graph: graph,
	}
}

func TestHost(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	// Four buffers beyond 4 GiB in one process are left to the GPU.
	devices := []gpu.Info{infos[0], infos[0]}
	transporttest.Run(t, subject(t, memcpy.Options{Engine: "cpu-memcpy"}, devices, 0, false))
}

// The whole suite again, timed by the device, windows recorded and not.
func TestHostTimedByDevice(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	devices := []gpu.Info{infos[0], infos[0]}
	transporttest.Run(t, subject(t, memcpy.Options{Timing: memcpy.TimingDevice}, devices, 0, true))
}

// hidden is a device that has no queues.
type hidden struct{ gpu.Device }

// What cannot be timed is refused by name.
func TestRefuses(t *testing.T) {
	for _, c := range []struct {
		o    memcpy.Options
		says string
	}{
		{memcpy.Options{Timing: "sundial"}, "memcpy: --timing sundial: use host or device"},
		{memcpy.Options{Timing: memcpy.TimingDevice, Engine: "cpu-nt"}, "memcpy: --engine cpu-nt: it applies to --timing host"},
	} {
		if _, err := memcpy.New(c.o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.says)
		}
	}
}

// A device without queues cannot time.
func TestNoQueues(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	device, err := host.Driver().Open(infos[0].UUID)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, device)
	devices := []gpu.Info{infos[0], infos[0]}
	tr, err := memcpy.New(memcpy.Options{Timing: memcpy.TimingDevice})
	if err == nil {
		err = tr.Probe(devices)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = tr.Open(t.Context(), transport.Env{Devices: devices, Device: hidden{device}, Region: 4096})
	if want := "memcpy: open: timing by the device: a host device has no queues"; !errors.Is(err, gpu.ErrUnsupported) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// What a held queue cannot take is refused before it is held; as a graph it goes.
func TestWindowTooLong(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	s := subject(t, memcpy.Options{Timing: memcpy.TimingDevice}, []gpu.Info{infos[0], infos[0]}, 0, true)
	team, err := s.Launch(t, 1<<20, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, team)
	b := transport.Batch{Op: transport.OpStream, Size: 64, Window: 513, Iters: 2, Check: transport.CheckFull, Graph: true}
	if _, err := team.Run(t.Context(), 0, []int{0}, b); err != nil {
		t.Errorf("as a graph: %v", err)
	}
	b.Graph = false
	if _, err := team.Run(t.Context(), 0, []int{0}, b); err == nil || !strings.Contains(err.Error(), "a window of 513 copies is more than the 512") {
		t.Errorf("513 copies: %v", err)
	}
}

// scripted is a device whose engines are those of a script, in the order in which they are opened.
type scripted struct {
	gpu.Device
	engines []gpu.Engine
}

func (d *scripted) Engine(string) (gpu.Engine, error) {
	e := d.engines[0]
	d.engines = d.engines[1:]
	return e, nil
}

// A copy that fails on the thread that copies back ends the batch as one of the other direction does.
func TestCopyBackFails(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	device, err := host.Driver().Open(infos[0].UUID)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, device)
	page, err := abi.NewPage(1)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, page)
	ctx := abi.NewCtx(page, 0, 20*time.Second, false)
	defer ctx.Close()
	m := autotunetest.NewMachine(autotunetest.Trouble{})
	defer m.Close()
	d := &scripted{Device: device}
	for way := range 2 {
		e := m.Engine("scripted", autotunetest.Cost{Fail: way == 1})
		e.Synchronous()
		d.engines = append(d.engines, e)
	}
	tr, err := memcpy.New(memcpy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ep, err := tr.Open(t.Context(), transport.Env{
		Devices: []gpu.Info{infos[0], infos[0]}, Device: d, Wait: ctx, CPUs: []int{-1, -1}, Region: 4096,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, ep)
	if err := ep.Connect(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	b := transport.Batch{Op: transport.OpBidir, Window: 1, Iters: 3, Check: transport.CheckOff}
	if _, err := ep.Run(t.Context(), b, make([]int64, b.Iters)); !errors.Is(err, abi.ErrDevice) || !strings.Contains(err.Error(), "a scripted failure") {
		t.Errorf("got %v, want the failure of the copy back", err)
	}
}

// Who timed stands with the path.
func TestKnob(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	for timing, want := range map[string]string{"": "host", "host": "host", memcpy.TimingDevice: "device"} {
		s := subject(t, memcpy.Options{Timing: timing}, []gpu.Info{infos[0], infos[0]}, 0, true)
		team, err := s.Launch(t, 4096, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if p := team.Paths[0][0]; p.Knobs["timing"] != want || p.Path != "memcpy" || p.Engine != "cpu" {
			t.Errorf("timing %q: %+v", timing, p)
		}
		closing(t, team)
	}
}

func closing(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestHWCUDA runs the suite between two GPUs, or within one.
func TestHWCUDA(t *testing.T) {
	infos := transporttest.Require(t, cuda.New(), 1)
	devices := []gpu.Info{infos[0], infos[len(infos)-1]}
	for _, timing := range knob.Words(&memcpy.Options{}, "timing") {
		t.Run(timing, func(t *testing.T) {
			transporttest.Run(t, subject(t, memcpy.Options{Timing: timing}, devices, infos[0].Memory*9/10, true))
		})
	}
}

// TestHWTimings compares what the device says of an operation with what the host says of it: the host's part is in the
// one and not in the other.
func TestHWTimings(t *testing.T) {
	infos := transporttest.Require(t, cuda.New(), 1)
	devices := []gpu.Info{infos[0], infos[len(infos)-1]}
	const most = 1 << 20
	p50 := map[string]func(transport.Batch) int64{}
	for _, timing := range knob.Words(&memcpy.Options{}, "timing") {
		team, err := subject(t, memcpy.Options{Timing: timing}, devices, 0, true).Launch(t, most, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer closing(t, team)
		p50[timing] = func(b transport.Batch) int64 {
			out, err := team.Run(t.Context(), 0, []int{0}, b)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(out.Samples)
			return out.Samples[len(out.Samples)/2]
		}
	}
	for _, op := range transport.Ops {
		for _, size := range []uint64{4 << 10, most} {
			b := transport.Batch{Op: op, Size: size, Window: 1, Warmup: 20, Iters: 101, Seed: 7, Check: transport.CheckSample}
			byHost, byDevice := p50["host"](b), p50[memcpy.TimingDevice](b)
			t.Logf("%s of %d bytes: %d ns by the host, %d ns by the device", op, size, byHost, byDevice)
			if byDevice <= 0 || 2*byDevice > 3*byHost {
				t.Errorf("%s of %d bytes: %d ns by the device, %d ns by the host", op, size, byDevice, byHost)
			}
		}
	}
}
