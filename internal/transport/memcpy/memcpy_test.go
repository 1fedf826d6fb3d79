package memcpy_test

import (
	"encoding/json"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
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
		return memcpy.New(o), nil
	})
}

func subject(t *testing.T, engine string, devices []gpu.Info, free uint64, graph bool) transporttest.Subject {
	t.Helper()
	return transporttest.Subject{
		Arm: transporttest.Arm(t, "memcpy", memcpy.Options{Engine: engine}), Devices: devices, Ranks: []int{0}, Free: free,
		Graph: graph,
	}
}

func TestHost(t *testing.T) {
	infos := transporttest.Require(t, host.Driver(), 1)
	// Four buffers beyond 4 GiB in one process are left to the GPU.
	transporttest.Run(t, subject(t, "cpu-memcpy", []gpu.Info{infos[0], infos[0]}, 0, false))
}

// TestHWCUDA runs the suite between two GPUs, or within one.
func TestHWCUDA(t *testing.T) {
	infos := transporttest.Require(t, cuda.New(), 1)
	devices := []gpu.Info{infos[0], infos[len(infos)-1]}
	transporttest.Run(t, subject(t, "", devices, infos[0].Memory*9/10, true))
}
