package fault_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/abi/abitest"
	"github.com/p2pbench/p2pbench/internal/gpu/autotune/autotunetest"
	"github.com/p2pbench/p2pbench/internal/gpu/fault"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]fault.Fault{
		"flip=0:0":                    {},
		"flip=3:4096":                 {What: fault.Flip, Copy: 3, Offset: 4096},
		"flip=18446744073709551615:1": {What: fault.Flip, Copy: 1<<64 - 1, Offset: 1},
		"kill=0":                      {What: fault.Kill},
		"drop=3":                      {What: fault.Drop, Copy: 3},
		"stale=1":                     {What: fault.Stale, Copy: 1},
		"late":                        {What: fault.Late},
		"slow=15":                     {What: fault.Slow, Copy: 15},
		"kill=18446744073709551615":   {What: fault.Kill, Copy: 1<<64 - 1},
	} {
		if got, err := fault.Parse(s); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", "flip", "flip=", "flip=1", "flip=:", "flip=1:", "flip=:1", "flip=-1:0", "flip=1:-1", "flip=1:2:3", "flip=a:b",
		"flop=1:2", "flip=1.5:0", "Flip=1:2", " flip=1:2", "flip=18446744073709551616:0",
		"kill", "kill=", "kill=:", "kill=1:", "kill=1:2", "kill=-1", "kill=+1", "kill=a", "Kill=1", "kill 1", "=1",
		"drop", "drop=1:2", "stale=", "stale=a", "late=", "late=1", "late:1",
	} {
		got, err := fault.Parse(s)
		if err == nil || !strings.Contains(err.Error(), "want flip=COPY:OFFSET, kill=COPY, drop=COPY, stale=FILL") {
			t.Errorf("%q: %+v, %v; want a refusal that shows both forms", s, got, err)
		}
	}
}

func TestParseSlow(t *testing.T) {
	for _, s := range []string{"slow", "slow=", "slow=a", "slow=-1", "slow=0", "slow=10001"} {
		if got, err := fault.Parse(s); err == nil || !strings.Contains(err.Error(), "want slow=PERCENT, from 1 to 10000") {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
}

// Copies by a device that is three times as slow are sound, take longer than those of the device within, and are counted.
func TestSlow(t *testing.T) {
	const bytes, copies, times = 1 << 20, 20, 3
	inner, x := newDevice(t), newCtx(t)
	took := func(d gpu.Device) time.Duration {
		e, err := d.Engine("cpu")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close() }()
		source, inbox := make([]byte, bytes), make([]byte, bytes)
		if err := e.Table().Fill(x, at(source), bytes, 7, 0); err != nil {
			t.Fatal(err)
		}
		best := time.Hour // of several: what another process takes is no part of it
		for range copies {
			began := time.Now()
			if err := e.Table().Copy(x, at(inbox), at(source), bytes); err != nil {
				t.Fatal(err)
			}
			best = min(best, time.Since(began))
		}
		if m, err := e.Table().Check(x, at(inbox), bytes, 7, 0); err != nil || m.Count > 0 {
			t.Errorf("%v, %+v", err, m)
		}
		return best
	}
	slow := fault.Wrap(inner, fault.Fault{What: fault.Slow, Copy: 100 * (times - 1)})
	if a, b := took(inner), took(slow); 2*b < times*a {
		t.Errorf("%v, and %v when %d times as slow", a, b, times)
	}
	if n := slow.(interface{ Struck() uint64 }).Struck(); n != copies {
		t.Errorf("struck %d times, want %d", n, copies)
	}
}

func newDevice(t *testing.T) gpu.Device {
	t.Helper()
	infos, err := host.Driver().Devices()
	if err != nil {
		t.Fatal(err)
	}
	d, err := host.Driver().Open(infos[0].UUID)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func newCtx(t *testing.T) *abi.Ctx {
	t.Helper()
	page, err := abi.NewPage(1)
	if err != nil {
		t.Fatal(err)
	}
	x := abi.NewCtx(page, 0, time.Minute, false)
	t.Cleanup(func() { x.Close(); _ = page.Close() })
	return x
}

func at(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Exactly one byte of one copy differs, at the requested offset.
func TestFlip(t *testing.T) {
	inner, x := newDevice(t), newCtx(t)
	for _, f := range []fault.Fault{{Copy: 0, Offset: 0}, {Copy: 2, Offset: 999}, {Copy: 3, Offset: 500}, {Copy: 1, Offset: 1000}, {Copy: 9, Offset: 0}} {
		e, err := fault.Wrap(inner, f).Engine("cpu")
		if err != nil {
			t.Fatal(err)
		}
		g := e.Table()
		source, inbox := make([]byte, 1000), make([]byte, 1000)
		for i := range uint64(4) {
			key := abitest.PayloadKey(1, 1000, i, 0)
			if err := g.Fill(x, at(source), 1000, key, 0); err != nil {
				t.Fatal(err)
			}
			if err := g.Copy(x, at(inbox), at(source), 1000); err != nil {
				t.Fatal(err)
			}
			m, err := g.Check(x, at(inbox), 1000, key, 0)
			if err != nil {
				t.Fatal(err)
			}
			if hit := i == f.Copy && f.Offset < 1000; hit != (m.Count == 1) || m.Count > 1 || hit && m.Offset != f.Offset {
				t.Errorf("%+v: copy %d: %+v", f, i, m)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := fault.Wrap(inner, fault.Fault{}).Engine("warp"); err == nil {
		t.Error("an unknown engine stays unknown")
	}
}

const (
	killBytes = 10000
	killInbox = "P2PBENCH_TEST_KILL_INBOX" // the file into which the process that is killed copies
	copies    = 3                          // before the last
)

// The process is killed after half of a message; earlier messages are complete.
func TestKill(t *testing.T) {
	if path := os.Getenv(killInbox); path != "" {
		copyUntilKilled(t, path)
		return
	}
	path := filepath.Join(t.TempDir(), "inbox")
	if err := os.WriteFile(path, make([]byte, killBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKill$")
	cmd.Env = append(os.Environ(), killInbox+"="+path)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("the process lived on: %v\n%s", err, out)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != unix.SIGKILL {
		t.Fatalf("%v, want SIGKILL\n%s", err, out)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := append(bytes.Repeat([]byte{copies + 1}, killBytes/2), bytes.Repeat([]byte{copies}, killBytes/2)...)
	if !bytes.Equal(got, want) {
		t.Errorf("the inbox holds %d bytes of the last message, and %d of the one before; want half and half",
			bytes.Count(got, want[:1]), bytes.Count(got, want[killBytes-1:]))
	}
}

// copyUntilKilled runs in a separate process.
func copyUntilKilled(t *testing.T, path string) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	inbox, err := unix.Mmap(int(f.Fd()), 0, killBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	x := newCtx(t)
	e, err := fault.Wrap(newDevice(t), fault.Fault{What: fault.Kill, Copy: copies}).Engine("cpu")
	if err != nil {
		t.Fatal(err)
	}
	message := make([]byte, killBytes)
	if err := e.Table().Fill(x, at(message), killBytes, 1, 0); err != nil {
		t.Fatal(err)
	}
	for i := range copies + 1 {
		copy(message, bytes.Repeat([]byte{byte(i + 1)}, killBytes))
		if err := e.Table().Copy(x, at(inbox), at(message), killBytes); err != nil {
			t.Fatal(err)
		}
	}
}

// scripted is a device with one scripted engine.
type scripted struct {
	gpu.Device
	engine *autotunetest.Engine
}

func (s scripted) Engine(string) (gpu.Engine, error) { return s.engine, nil }

// A wrapped engine has marks exactly if the engine within has them.
func TestMarks(t *testing.T) {
	m := autotunetest.NewMachine(autotunetest.Trouble{})
	defer m.Close()
	inner := m.Engine("slow", autotunetest.Cost{})
	e, err := fault.Wrap(scripted{engine: inner}, fault.Fault{Copy: 100}).Engine("slow")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	g, source, inbox := e.Table(), make([]byte, 8), make([]byte, 8)
	if !autotunetest.Marks(g) {
		t.Fatal("the marks of the engine within are lost")
	}
	for _, mark := range []uint32{0, 15} {
		if err := errors.Join(autotunetest.Start(g, at(inbox), at(source), 8), autotunetest.Mark(g, mark)); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []bool{false, true} {
		for _, mark := range []uint32{0, 15} {
			if yes, err := autotunetest.Reached(g, mark); err != nil || yes != want {
				t.Errorf("mark %d reached: %v, %v; want %v", mark, yes, err, want)
			}
		}
		inner.Complete()
	}
	cpu, err := fault.Wrap(newDevice(t), fault.Fault{}).Engine("cpu")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cpu.Close() }()
	if autotunetest.Marks(cpu.Table()) {
		t.Error("an engine without marks got some")
	}
}

// plain is a device without optional interfaces.
type plain struct{ gpu.Device }

// inspected is a device that is a gpu.Inspector.
type inspected struct{ gpu.Device }

func (inspected) Kernels() ([]gpu.Kernel, error) { return []gpu.Kernel{{Name: "p2p_sr_ws"}}, nil }

// The wrapper supports the optional interfaces of the device within.
func TestQueueAndKernels(t *testing.T) {
	inner := newDevice(t)
	queue := func(d gpu.Device) (gpu.Queue, error) { return fault.Wrap(d, fault.Fault{}).(gpu.Launcher).Queue() }
	kernels := func(d gpu.Device) ([]gpu.Kernel, error) {
		return fault.Wrap(d, fault.Fault{}).(gpu.Inspector).Kernels()
	}
	q, err := queue(inner)
	if err != nil || q.Table().CTAs() == 0 {
		t.Fatalf("%v; want the queue of the device within", err)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	if k, err := kernels(inspected{inner}); err != nil || len(k) != 1 || k[0].Name != "p2p_sr_ws" {
		t.Errorf("%+v, %v; want the kernels of the device within", k, err)
	}
	if _, err := queue(plain{inner}); !errors.Is(err, gpu.ErrUnsupported) || !strings.Contains(err.Error(), "host device runs no kernels") {
		t.Errorf("a queue of a device that has none: %v", err)
	}
	if _, err := kernels(plain{inner}); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("kernels of a device that tells of none: %v", err)
	}
}
