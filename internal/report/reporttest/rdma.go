package reporttest

import "github.com/p2pbench/p2pbench/internal/report/record"

// RDMAKnobs returns the knobs of a run over two NICs.
func RDMAKnobs() map[string]string {
	return map[string]string{
		"check": "full", "seed": "1", "groups": "4", "depth": "2", "qps": "1", "conns": "16", "window": "8", "fan": "pair",
		"nics": "mlx5_0,mlx5_1", "gid": "10.88.0.1 (RoCE v2, index 3)", "mtu": "4096", "cts": "fifo", "route": "imm", "completion": "write-imm",
		"signal-every": "1", "inline": "64", "close-order": "lifo", "mr": "dmabuf", "soft": "false",
	}
}

// Connections returns n connections, each slightly slower than the one before; the last one has few messages.
func Connections(n, messages int, size uint64, us float64) (conns []record.Connection, fairness *float64) {
	var rates []float64
	for i := range n {
		slower := 1 + float64(i)/50
		c := record.Connection{Conn: i, Messages: uint64(messages), P50: us * slower, P99: 3 * us * slower, Max: 9 * us * slower}
		rate := 1 / (us * slower)
		rates = append(rates, rate)
		if size > 0 {
			c.GBps = Ptr(float64(size) * rate / 1e3)
		}
		conns = append(conns, c)
	}
	return conns, record.Jain(rates)
}

// Pooled is a run over RDMA: latency, and windows over 16 connections that share 4 queue pairs. The largest window has
// too few messages per connection for a p99.
func Pooled() record.Document {
	d := GPUs()
	d.Cells, d.Exit = nil, 0
	d.Warnings = []string{"send queue of 512 entries instead of 1024, which is the most that the device allows"}
	d.Command = []string{"p2pbench", "rdma", "--groups", "4", "--depth", "2"}
	d.Env.Link = &record.Link{Type: "NVLink", Count: 18}
	d.Transports = map[string]record.Transport{"rdma": rdma()}
	for _, op := range []string{"latency", "stream"} {
		for i, size := range []uint64{0, 8, 64 << 10, 8 << 20} {
			window, n := 1, 1000
			if op == "stream" {
				window, n = []int{2048, 2048, 2048, 32}[i], []int{128, 128, 16, 10}[i]
			}
			us := 3 + float64(size)*float64(window)/45_000
			c := IPC(op, size, window, n, us)
			c.Transport, c.Path, c.Engine, c.Knobs = "rdma", "write-imm", "rdma", RDMAKnobs()
			c.Counters = Payload(size*uint64(window*n), map[string]uint64{
				"messages": uint64(window * n), "grants": uint64(window * n), "misroutes": 0, "rnr": 2,
				"retries": 0, "nic_bytes": (size + 60) * uint64(window*n), "qps": 4, "cqs": 4, "mrs": 2, "comms": 16, "queue_bytes": 688128,
				"setup_ns": 812345, "setup_shared_ns": 1250, "inline": 64,
			})
			c.Conns, c.Fairness = Connections(16, window*n/16, size, us/float64(window)*8)
			d.Cells = append(d.Cells, c)
		}
	}
	return d
}

// Fanned is a fan of three ranks over a NIC that the CPU emulates.
func Fanned() record.Document {
	d := Host()
	d.Env.Ranks = append(d.Env.Ranks, d.Env.Ranks[1])
	d.Env.Ranks[2].Rank = 2
	d.Cells, d.Command = nil, []string{"p2pbench", "rdma", "--fan", "in"}
	soft := rdma()
	soft.Over, soft.OnlyRatios = []string{"NIC rxe0,rxe1", "soft-RoCE"}, "the CPU emulates the NIC (soft-RoCE)"
	d.Transports = map[string]record.Transport{"rdma": soft}
	c := Pooled().Cells[6]
	c.Device, c.Ranks, c.Knobs = "host", 3, RDMAKnobs()
	c.Knobs["soft"], c.Knobs["fan"], c.Knobs["nics"] = "true", "in", "rxe0,rxe1"
	c.BWSum = Ptr(2 * *c.BWPerDir)
	d.Cells = append(d.Cells, c)
	return d
}

// rdma returns the description of a transport over NICs.
func rdma() record.Transport {
	t := record.Transport{
		Over:  []string{"NIC mlx5_0,mlx5_1", "GID 10.88.0.1 (RoCE v2, index 3)", "MTU 4096"},
		Notes: []record.Note{{Label: "vendor", Text: "not available: what takes a vendor's NIC"}},
	}
	for _, name := range []string{"grants", "misroutes", "rnr", "retries"} {
		t.Counters = append(t.Counters, record.Counter{Name: name, Kind: "count", Label: name})
	}
	t.Counters = append(t.Counters, record.Counter{Name: "nic_bytes", Kind: "count", Unit: "bytes", Label: "nic_bytes"})
	for _, name := range []string{"qps", "cqs", "mrs", "comms"} {
		t.Counters = append(t.Counters, record.Counter{Name: name, Kind: "max", Label: name})
	}
	t.Counters = append(t.Counters,
		record.Counter{Name: "queue_bytes", Kind: "max", Unit: "bytes", Label: "queues of"},
		record.Counter{Name: "setup_ns", Kind: "max", Unit: "ns", Label: "set-up of a connection"},
		record.Counter{Name: "setup_shared_ns", Kind: "max", Unit: "ns", Label: "of one that shares"},
		record.Counter{Name: "inline", Kind: "max", Unit: "bytes", Label: "inline up to"})
	return t
}
