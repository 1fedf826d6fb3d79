package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs/verbstest"
)

// lasting are cells that last some time, of every path and of what is slow around a message.
var lasting = []struct {
	name string
	args []string
	// libraries prepares what the machine lacks.
	libraries func(*testing.T) []string
}{
	{"direct", []string{"ipc", "--path", "direct", "--sizes", "1M"}, nil},
	{"realloc", []string{"ipc", "--buffers", "realloc-overlap", "--sizes", "1M"}, nil},
	{"relay fresh", []string{"ipc", "--relay", "fresh", "--sizes", "1M"}, nil},
	{"get", []string{"ipc", "--path", "get", "--buffers", "rotate:3", "--sizes", "1M"}, nil},
	{"sendrecv", []string{"sendrecv", "--variant", "put", "--sizes", "1M"}, nil},
	{"sendrecv auto", []string{"sendrecv", "--sizes", "64K"}, nil},
	{"sendrecv persistent", []string{"sendrecv", "--variant", "put", "--launch", "persistent", "--sizes", "64K"}, nil},
	{"rdma", []string{"rdma", "--conns", "1", "--sizes", "64K"}, func(t *testing.T) []string {
		t.Helper()
		return verbstest.Env(verbstest.Build(t))
	}},
}

// A cell that lasts so long spends it on samples: of the messages that it sends, the warm-up alone is none, and that
// comes once, whatever path they take. Beside a baseline some come again, but no more than there are samples.
func TestDurationIsMeasured(t *testing.T) {
	for _, c := range lasting {
		for _, op := range []string{"latency", "stream"} {
			t.Run(c.name+" "+op, func(t *testing.T) {
				cmd := newCommand(t, append(c.args, "--device", "host", "--op", op, "-w", "4", "-D", "100ms", "--format", "json")...)
				if c.libraries != nil {
					cmd.Env = append(cmd.Env, c.libraries(t)...)
				}
				cmd.begin(t)
				if code := cmd.end(t); code != exitOK {
					t.Fatalf("exit code %d: %s", code, cmd.stderr.String())
				}
				cell := document(t, cmd.stdout.String()).Cells[0]
				messages := cell.Counters["payload_bytes"] / cell.Size / uint64(cell.Window)
				if uint64(cell.N+cell.Warmup) != messages {
					t.Errorf("%d samples of %d iterations: want a warm-up of %d once", cell.N, messages, cell.Warmup)
				}
			})
		}
	}
	t.Run("nccl", func(t *testing.T) {
		lib := fakeNCCL(t)
		cmd := newCommand(t, "ipc", "--device", "cuda", "--engine", "ce", "--sizes", "64K", "--op", "latency", "--vs", "nccl",
			"-w", "4", "-D", "300ms", "--format", "json")
		cmd.Env = append(cmd.Env, "P2PBENCH_LIBCUDA="+lib, "P2PBENCH_LIBNCCL="+lib)
		cmd.begin(t)
		if code := cmd.end(t); code != exitOK {
			t.Fatalf("exit code %d: %s", code, cmd.stderr.String())
		}
		v := document(t, cmd.stdout.String()).Cells[0].Vs[0]
		if uint64(2*v.N+4) < v.Counters["messages"] {
			t.Errorf("%d samples of %d messages: most were warm-up", v.N, v.Counters["messages"])
		}
	})
}

// BenchmarkDuration shows what part of -D is samples: of the messages, and of the time, checks by sample included.
func BenchmarkDuration(b *testing.B) {
	const lasts = time.Second
	for _, c := range lasting {
		if c.libraries != nil {
			continue // the speed of a fake library is meaningless
		}
		b.Run(c.name, func(b *testing.B) {
			var samples, messages, busy float64
			for b.Loop() {
				var out bytes.Buffer
				args := append(c.args, "--device", "host", "--op", "latency", "-c", "sample", "-D", lasts.String(), "--format", "json")
				if code := run(args, &out, os.Stderr); code != exitOK {
					b.Fatalf("%v: exit code %d", args, code)
				}
				d, err := record.Read(&out)
				if err != nil {
					b.Fatal(err)
				}
				cell := d.Cells[0]
				samples += float64(cell.N)
				messages += float64(cell.Counters["payload_bytes"] / cell.Size)
				busy += cell.Lat.Mean / 1e6 * float64(cell.N)
			}
			b.ReportMetric(samples/messages, "samples/message")
			b.ReportMetric(busy/(lasts.Seconds()*float64(b.N)), "s/s")
		})
	}
}
