package cuda

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

const shareBytes = 4<<20 + 4096

// TestHWShare exports memory to another process, which maps it on another GPU where there is one, looks at it and
// writes to it with every engine.
func TestHWShare(t *testing.T) {
	if h := os.Getenv("P2PBENCH_TEST_HANDLE"); h != "" {
		importShared(t, h)
		return
	}
	r := newRig(t, New(), 0)
	for _, kind := range r.dev.Handles() {
		t.Run(string(kind), func(t *testing.T) {
			b, err := r.dev.Alloc(shareBytes, kind)
			if err != nil {
				t.Fatal(err)
			}
			r.fill(b.Addr(), shareBytes, 1, 0)
			start := time.Now()
			h, err := b.Export()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("export: %v", time.Since(start))
			runImporter(t, h, h.FD)
			for i := range r.dev.Engines() {
				part := uint64(i) << 20
				r.expect(b.Addr()+uintptr(part), 1<<20-100, 100+part, "written by the other process's engine %d", i)
			}
			check(t, b.Close())
			check(t, b.Close())
		})
	}
}

// runImporter runs this test again in another process, with the handle. It closes the file descriptor.
func runImporter(t *testing.T, h any, fd int) {
	t.Helper()
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+name+"$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), "P2PBENCH_TEST_HANDLE="+string(text))
	if fd >= 0 {
		f := os.NewFile(uintptr(fd), "memory")
		defer func() { check(t, f.Close()) }()
		cmd.ExtraFiles = []*os.File{f}
	}
	out, err := cmd.CombinedOutput()
	t.Logf("importer:\n%s", out)
	if err != nil || !strings.Contains(string(out), "importer is done") {
		t.Fatalf("importer: %v", err)
	}
}

func importShared(t *testing.T, text string) {
	h := gpu.Handle{FD: -1}
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		t.Fatal(err)
	}
	h.FD = -1
	if h.Kind == gpu.HandleVMM {
		h.FD = 3
	}
	drv := New()
	r := newRig(t, drv, min(1, len(visible(t, drv))-1))
	start := time.Now()
	b, err := r.dev.Import(h)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("import on GPU %d: %v", r.dev.Info().Index, time.Since(start))
	r.expect(b.Addr(), shareBytes, 1, "written by the exporter")
	src := r.alloc(1 << 20)
	for i, name := range r.dev.Engines() {
		part := uint64(i) << 20
		r.fill(src.Addr(), 1<<20-100, 100+part, 0)
		r.copy(r.engine(name), b.Addr()+uintptr(part), src.Addr(), 1<<20-100)
	}
	if _, err := b.Export(); err == nil {
		t.Error("imported memory can be exported")
	}
	check(t, b.Close())
	check(t, b.Close())
	fmt.Println("importer is done")
}

// A process that opens its own legacy handle must be told what is wrong.
func TestHWImportOwnHandle(t *testing.T) {
	r := newRig(t, New(), 0)
	h, err := r.alloc(1 << 20).Export()
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.dev.Import(h)
	if err == nil {
		check(t, b.Close())
		t.Skip("this driver opens a process's own handles")
	}
	t.Log(err)
	if !strings.Contains(err.Error(), "exported by this very process") {
		t.Errorf("the error does not say why: %v", err)
	}
}

func TestHWHealth(t *testing.T) {
	drv := New()
	r := newRig(t, drv, 0)
	t.Logf("%+v", r.dev.Info())
	h, err := r.dev.(gpu.Monitor).Health()
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(h)
	t.Logf("%s", text)
	if h.SMClockMHz == nil || *h.SMClockMHz < 100 || *h.SMClockMHz > 5000 {
		t.Error("SM clock is absent or absurd")
	}
	if h.TemperatureC == nil || *h.TemperatureC > 120 {
		t.Error("temperature is absent or absurd")
	}
	if h.PowerW != nil && *h.PowerW > 5000 {
		t.Error("power is absurd")
	}
}

// TestHWLinkCounters sends a known amount to the other GPU and looks for it in the link counters.
func TestHWLinkCounters(t *testing.T) {
	drv := New()
	r, peer := newRig(t, drv, 0), newRig(t, drv, 1)
	before, err := r.dev.(gpu.Monitor).Health()
	if err != nil {
		t.Fatal(err)
	}
	if before.LinkTxBytes == nil {
		t.Skip("this machine does not count NVLink bytes")
	}
	const n, times = 64 << 20, 64
	src, dst := r.alloc(n), peer.alloc(n)
	r.fill(src.Addr(), n, abi.PayloadKey(1, n, 1, 1), 0)
	for range times {
		r.copy(r.ce, dst.Addr(), src.Addr(), n)
	}
	time.Sleep(100 * time.Millisecond)
	after, err := r.dev.(gpu.Monitor).Health()
	if err != nil {
		t.Fatal(err)
	}
	sent := *after.LinkTxBytes - *before.LinkTxBytes
	t.Logf("sent %d bytes, counted %d (%.3f)", n*times, sent, float64(sent)/(n*times))
	if sent < n*times*9/10 || sent > n*times*3/2 {
		t.Error("the counters do not see what was sent")
	}
}
