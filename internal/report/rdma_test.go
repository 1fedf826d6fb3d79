package report

import (
	"regexp"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/report/claim"
	"github.com/p2pbench/p2pbench/internal/report/record"
)

// rdmaKnobs are those of a run over two NICs.
func rdmaKnobs() map[string]string {
	return map[string]string{
		"check": "full", "seed": "1", "groups": "4", "depth": "2", "qps": "1", "conns": "16", "inflight": "8", "fan": "pair",
		"nics": "mlx5_0,mlx5_1", "gid": "10.88.0.1 (RoCE v2, index 3)", "mtu": "4096", "cts": "fifo", "route": "imm", "notify": "write-imm",
		"signal-every": "1", "inline": "64", "close-order": "lifo", "mr": "dmabuf", "soft": "false",
	}
}

// connections are n of them, each a little slower than the one before; the last one has few messages.
func connections(n, messages int, size uint64, us float64) (conns []record.Connection, fairness *float64) {
	var rates []float64
	for i := range n {
		slower := 1 + float64(i)/50
		c := record.Connection{Conn: i, Messages: uint64(messages), P50: us * slower, P99: 3 * us * slower, Max: 9 * us * slower}
		rate := 1 / (us * slower)
		rates = append(rates, rate)
		if size > 0 {
			c.GBps = ptr(float64(size) * rate / 1e3)
		}
		conns = append(conns, c)
	}
	return conns, record.Jain(rates)
}

// pooled is a run over RDMA: latency, and windows over 16 connections that share 4 queue pairs, of the largest of which
// each has too few messages for a p99.
func pooled() record.Document {
	d := gpus()
	d.Cells, d.Exit = nil, 0
	d.Warnings = []string{"send queue of 512 entries instead of 1024, which is the most that the device allows"}
	d.Command = []string{"p2pbench", "rdma", "--groups", "4", "--depth", "2"}
	d.Env.Link = &record.Link{Type: "NVLink", Count: 18}
	for _, op := range []string{"latency", "stream"} {
		for i, size := range []uint64{0, 8, 64 << 10, 8 << 20} {
			window, n := 1, 1000
			if op == "stream" {
				window, n = []int{2048, 2048, 2048, 32}[i], []int{128, 128, 16, 10}[i]
			}
			us := 3 + float64(size)*float64(window)/45_000
			c := ipc(op, size, window, n, us)
			c.Transport, c.Path, c.Engine, c.Knobs = "rdma", "write-imm", "rdma", rdmaKnobs()
			c.Counters = payload(size*uint64(window*n), map[string]uint64{
				"messages": uint64(window * n), "grants": uint64(window * n), "misroutes": 0, "rnr": 2,
				"retries": 0, "nic_bytes": (size + 60) * uint64(window*n), "qps": 4, "cqs": 4, "mrs": 2, "comms": 16, "queue_bytes": 688128,
				"setup_ns": 812345, "setup_shared_ns": 1250, "inline": 64,
			})
			c.Conns, c.Fairness = connections(16, window*n/16, size, us/float64(window)*8)
			d.Cells = append(d.Cells, c)
		}
	}
	return d
}

// fanned is a fan of three over a NIC that the CPU plays.
func fanned() record.Document {
	d := host()
	d.Env.Ranks = append(d.Env.Ranks, d.Env.Ranks[1])
	d.Env.Ranks[2].Rank = 2
	d.Cells, d.Command = nil, []string{"p2pbench", "rdma", "--fan", "in"}
	c := pooled().Cells[6]
	c.Device, c.Ranks, c.Knobs = "host", 3, rdmaKnobs()
	c.Knobs["soft"], c.Knobs["fan"], c.Knobs["nics"] = "true", "in", "rxe0,rxe1"
	c.BWSum = ptr(2 * *c.BWPerDir)
	d.Cells = append(d.Cells, c)
	return d
}

// arms is a run of the preset anp-20.
func arms() record.Document {
	d := pooled()
	d.Preset, d.Command = "anp-20", []string{"p2pbench", "rdma", "--preset", "anp-20"}
	d.Cells, d.Exit = d.Cells[5:7], 3
	p, _ := claim.PresetNamed("anp-20")
	for i := range d.Cells {
		c := &d.Cells[i]
		c.Window = 256
		*c = measured(*c, c.SamplesNS)
		for k, beside := range p.Beside {
			us := c.Lat.P50 * (1 + float64(k)/100)
			*c = against(*c, beside.Label, "rdma", sampling(100, us))
			v := &c.Vs[k]
			v.Counters = map[string]uint64{"qps": uint64(64 >> k), "setup_ns": 812345}
			v.Conns, v.Fairness = connections(16, 200, c.Size, us/32)
		}
		c.Vs[1] = record.Vs{Name: c.Vs[1].Name, NA: "the device has too few queue pairs"}
	}
	d.Cells[1].Invalid = ptr("clocks were held down (rank 1: sw power cap)")
	return d
}

func TestGoldenRDMA(t *testing.T) {
	for name, d := range map[string]record.Document{"rdma": pooled(), "rdma-fan": fanned(), "preset-anp": arms()} {
		for _, format := range Formats {
			if name == "rdma" || format == "table" || format == "md" {
				golden(t, name+"."+format, rendered(t, d, format, Options{}))
			}
		}
		checkMarkdownTables(t, rendered(t, d, "md", Options{}))
		for line := range strings.Lines(rendered(t, d, "table", Options{})) {
			if w := narrow.StringWidth(strings.TrimSuffix(line, "\n")); w > 120 {
				t.Errorf("%s: %d columns: %s", name, w, line)
			}
		}
	}
}

// A fan's sum is of all of its pairs, and the table says so.
func TestFanTable(t *testing.T) {
	text := rendered(t, fanned(), "table", Options{})
	for _, want := range []string{"fan in of 3 ranks", "GB/s sum = of all of them", "GB/s/dir +GB/s sum", "soft-RoCE"} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
}

// A connection with fewer than 100 messages has no p99, and its table says so.
func TestConnectionWithoutTail(t *testing.T) {
	d := pooled()
	d.Cells = d.Cells[7:]
	text := rendered(t, d, "table", Options{})
	_, table, _ := strings.Cut(text, "connections:")
	if !regexp.MustCompile(`8M +16 +\S+ +\S+\* `).MatchString(table) || !strings.Contains(text, "* p99 of fewer than 100 samples is the maximum") {
		t.Errorf("no star in:\n%s", text)
	}
}

// One connection has nothing to be compared with, and a single message under way neither.
func TestNoConnectionTable(t *testing.T) {
	d := pooled()
	d.Cells = d.Cells[:4] // latency
	if text := rendered(t, d, "table", Options{}); strings.Contains(text, "connections:") {
		t.Errorf("latency has a table of connections:\n%s", text)
	}
	d = pooled()
	for i := range d.Cells {
		d.Cells[i].Conns = d.Cells[i].Conns[:1]
	}
	if text := rendered(t, d, "table", Options{}); strings.Contains(text, "connections:") {
		t.Errorf("one connection has a table:\n%s", text)
	}
}

// Where the CPU plays the NIC, a claim shows its factor and no time.
func TestSoftClaim(t *testing.T) {
	claims, err := claim.Find([]string{"anp-20/setup-time"})
	if err != nil {
		t.Fatal(err)
	}
	for _, soft := range []string{"true", "false"} {
		test := claims[0].Tests[0]
		c := pooled().Cells[6]
		c.Size = test.Sizes[0]
		c.Knobs["soft"] = soft
		c = against(c, test.B.Label, "rdma", sampling(100, 2*c.Lat.P50))
		c.Vs[0].Counters = map[string]uint64{"setup_ns": 900000}
		o := test.Judge(claim.Run{Cells: []record.Cell{c}})
		if o.Verdict != claim.Reproduced {
			t.Fatalf("%s: %s", o.Verdict, o.Why)
		}
		text := renderedClaims(t, claim.Document{Schema: claim.Schema, Claims: []claim.Result{claims[0].Conclude([]claim.Outcome{o}, false)}}, "table")
		hidden := regexp.MustCompile(`anp-20/setup-time +4K +- +- +\d`).MatchString(text)
		noted := strings.Contains(strings.Join(strings.Fields(text), " "), "only ratios within one run mean anything")
		if want := soft == "true"; hidden != want || noted != want {
			t.Errorf("soft %s: times hidden %v, noted %v:\n%s", soft, hidden, noted, text)
		}
	}
}
