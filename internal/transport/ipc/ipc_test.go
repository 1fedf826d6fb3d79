package ipc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/ipc"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

func TestMain(m *testing.M) {
	transporttest.Main(m, func(options json.RawMessage) (transport.Transport, error) {
		var o ipc.Options
		if err := json.Unmarshal(options, &o); err != nil {
			return nil, err
		}
		tr, err := ipc.New(o)
		return choosing{tr}, err
	})
}

// chooses names, in the environment, the ranks whose device leaves the engine to a trial, as GPUs do.
const chooses = "P2PBENCH_TEST_CHOOSES"

// apart says, in the environment, that the devices do not reach each other's memory.
const apart = "P2PBENCH_TEST_APART"

// choosing is the transport over such devices.
type choosing struct{ transport.Transport }

func (c choosing) Open(ctx context.Context, env transport.Env) (transport.Endpoint, error) {
	if os.Getenv(apart) != "" {
		env.Device = lonely{env.Device}
	}
	if strings.Contains(os.Getenv(chooses), strconv.Itoa(env.Rank)) {
		env.Device = chooser{env.Device}
	}
	return c.Transport.Open(ctx, env)
}

type chooser struct{ gpu.Device }

func (c chooser) Candidates() []string { return c.Engines() }

type lonely struct{ gpu.Device }

func (lonely) Reaches(gpu.Info) bool { return false }

// Between devices that do not reach each other auto is the relay, with its own limits, and says so.
func TestAutoBetweenDevicesApart(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	t.Setenv(apart, "1")
	got := measure(t, subject(t, infos[0], infos[0], ipc.Options{}), everyOp(4)...)
	if got["path_relay"] == 0 || got["path_direct"] != 0 {
		t.Errorf("went another way: %v", got)
	}
	for _, o := range []ipc.Options{{Buffers: "rotate:2"}, {SameProcess: true}} {
		team, err := subject(t, infos[0], infos[0], o).Launch(t, 4096, 20*time.Second)
		if err == nil {
			_ = team.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "the devices do not reach each other's memory") {
			t.Errorf("%+v: got %v, want a refusal", o, err)
		}
	}
}

// Engines may be there to be tried out at one end only; the ranks still do the same.
func TestOneRankChooses(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	for _, who := range []string{"0", "1", "0 1"} {
		t.Setenv(chooses, who)
		for _, o := range []ipc.Options{{Path: "direct"}, {Open: "lazy", Buffers: "rotate:3"}, {Path: "handshake"}, {Path: "get"}, {Path: "relay"}} {
			t.Run(who+" "+o.Path+o.Open, func(t *testing.T) {
				measure(t, subject(t, infos[0], infos[0], o), everyOp(4)...)
			})
		}
	}
}

func TestHost(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	d, err := host.Driver().Open(infos[0].UUID)
	if err != nil {
		t.Fatal(err)
	}
	free, err := d.Free()
	if err != nil {
		t.Fatal(err)
	}
	for i, engine := range d.Engines() {
		if i > 0 {
			free = 0 // one engine's worth of touching gigabytes is enough
		}
		t.Run(engine, func(t *testing.T) {
			transporttest.Run(t, transporttest.Subject{
				Arm: transporttest.Arm(t, "ipc", ipc.Options{Engine: engine}), Devices: []gpu.Info{infos[0], infos[0]}, Ranks: []int{0, 1}, Free: free,
			})
		})
	}
}

// TestHWCUDA runs the suite on GPUs: on two when there are two, else both ranks share one.
func TestHWCUDA(t *testing.T) {
	infos := transporttest.Require(t, cuda.New(), 1)
	devices := []gpu.Info{infos[0], infos[len(infos)-1]}
	engines := []string{"auto", "ce", "sm", "proxy"}
	if infos[0].Arch >= "sm_90" {
		engines = append(engines, "bulk")
	}
	for _, engine := range engines {
		records := engine != "auto" && engine != "proxy"
		for _, handle := range []gpu.HandleKind{gpu.HandleLegacy, gpu.HandleVMM} {
			t.Run(fmt.Sprintf("%s %s", engine, handle), func(t *testing.T) {
				transporttest.Run(t, transporttest.Subject{
					Arm: transporttest.Arm(t, "ipc", ipc.Options{Engine: engine, Handle: handle}), Devices: devices, Ranks: []int{0, 1},
					Free: infos[0].Memory * 9 / 10, Graph: records,
				})
			})
		}
	}
}

func TestUnknownPath(t *testing.T) {
	if _, err := ipc.New(ipc.Options{Path: "tunnel"}); err == nil || !strings.Contains(err.Error(), "auto, direct") {
		t.Errorf("got %v, want the known paths named", err)
	}
}

func TestProbe(t *testing.T) {
	tr, err := ipc.New(ipc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cpu, gpuInfo := gpu.Info{Kind: "host"}, gpu.Info{Kind: "cuda"}
	for _, c := range []struct {
		devices []gpu.Info
		ok      bool
	}{
		{[]gpu.Info{cpu, cpu}, true},
		{[]gpu.Info{gpuInfo, gpuInfo}, true},
		{[]gpu.Info{cpu, gpuInfo}, false},
		{[]gpu.Info{cpu}, false},
		{[]gpu.Info{cpu, cpu, cpu}, false},
	} {
		err := tr.Probe(c.devices)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, gpu.ErrUnsupported) {
			t.Errorf("%v: %v", c.devices, err)
		}
	}
}
