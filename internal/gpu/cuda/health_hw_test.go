package cuda

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi/abitest"
)

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

// TestHWLinkCounters sends a known number of bytes to the other GPU and compares it with the link counters.
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
	r.fill(src.Addr(), n, abitest.PayloadKey(1, n, 1, 1), 0)
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
