package cuda

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

func TestFakeHealth(t *testing.T) {
	const all = `{"sm_clock_mhz":1980,"max_sm_clock_mhz":1985,"mem_clock_mhz":3201,"temperature_c":31,"power_w":76.5,` +
		`"ecc_uncorrected":3,"throttle":["sw-power-cap","hw-thermal"]`
	for _, c := range []struct {
		name string
		fake fake
		want string
	}{
		{"all", fake{}, all + `,"link_tx_bytes":40960,"link_rx_bytes":81920}`},
		{"older driver", fake{nvml: []string{"-DOLD"}}, all + `,"link_tx_bytes":40960,"link_rx_bytes":81920}`},
		{"links one by one", fake{env: []string{"FAKE_COUNTERS=links"}}, all + `,"link_tx_bytes":40960,"link_rx_bytes":81920}`},
		{"no counters", fake{env: []string{"FAKE_COUNTERS=none"}}, all + `}`},
		{"next to nothing", fake{nvml: []string{"-DBARE"}}, `{}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.fake.on(t, func(t *testing.T) {
				r := newRig(t, New(), 0)
				h, err := r.dev.(gpu.Monitor).Health()
				if err != nil {
					t.Fatal(err)
				}
				if got, _ := json.Marshal(h); string(got) != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
			})
		})
	}
}

func TestFakeWithoutNVML(t *testing.T) {
	for name, f := range map[string]fake{
		"missing":     {noNVML: true},
		"not started": {env: []string{"FAKE_NVML_INIT=9"}},
	} {
		t.Run(name, func(t *testing.T) {
			f.on(t, func(t *testing.T) {
				drv := New()
				a, b := newRig(t, drv, 0), newRig(t, drv, 1)
				_, err := a.dev.(gpu.Monitor).Health()
				refused(t, err)
				if os.Getenv("FAKE_NVML_INIT") != "" {
					reports(t, err, "nvmlInit_v2: Driver Not Loaded (9)")
				}
				l := drv.Link(a.dev.Info(), b.dev.Info())
				if l.Type != "PCIe" || !l.Peer || !strings.Contains(l.Detail, "NVLink unknown") {
					t.Errorf("%+v", l)
				}
				if d := a.dev.Info().Driver; !strings.HasSuffix(d, "(CUDA 13.0)") {
					t.Errorf("driver %q", d)
				}
			})
		})
	}
}

// NVML that fails to initialise may succeed later.
func TestFakeNVMLStartsLater(t *testing.T) {
	fake{env: []string{"FAKE_NVML_INIT=9"}}.on(t, func(t *testing.T) {
		dev := newRig(t, New(), 0).dev.(gpu.Monitor)
		_, err := dev.Health()
		refused(t, err, "Driver Not Loaded (9)")
		check(t, os.Unsetenv("FAKE_NVML_INIT"))
		_, err = dev.Health()
		check(t, err)
	})
}

func TestFakeLink(t *testing.T) {
	for _, c := range []struct {
		env  string
		want gpu.Link
	}{
		{"FAKE_NVLINK=switch", gpu.Link{Type: "NVLink", Count: 4, Peer: true, Counted: true, Detail: "4 × NVLink 4, 26.562 GB/s each"}},
		{"FAKE_NVLINK=other", gpu.Link{Type: "NVLink", Count: 2, Peer: true, Counted: true, Detail: "2 × NVLink 4, 26.562 GB/s each"}},
		{"FAKE_NVLINK=none", gpu.Link{Type: "PCIe", Peer: true}},
	} {
		t.Run(c.env, func(t *testing.T) {
			fake{env: []string{c.env}}.on(t, func(t *testing.T) {
				drv := New()
				list := visible(t, drv)
				if l := drv.Link(list[0], list[1]); l != c.want {
					t.Errorf("got %+v, want %+v", l, c.want)
				}
				if l := drv.Link(list[1], list[1]); l != (gpu.Link{Type: "same GPU", Peer: true}) {
					t.Errorf("to itself: %+v", l)
				}
				gone := list[1]
				gone.UUID = "GPU-gone"
				if l := drv.Link(list[0], gone); l.Peer || !strings.Contains(l.Detail, "GPU-gone") {
					t.Errorf("to nowhere: %+v", l)
				}
				dev := newRig(t, drv, 0).dev
				err := dev.StoresLines(list[1])
				if c.want.Type == "NVLink" && err != nil {
					t.Errorf("lines by NVLink: %v", err)
				}
				if c.want.Type != "NVLink" && (!errors.Is(err, gpu.ErrUnsupported) || !strings.Contains(err.Error(), "no NVLink")) {
					t.Errorf("lines by PCIe: %v", err)
				}
				if err := dev.StoresLines(gone); !errors.Is(err, gpu.ErrUnsupported) {
					t.Errorf("lines to nowhere: %v", err)
				}
			})
		})
	}
}
