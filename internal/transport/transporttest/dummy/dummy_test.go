package dummy_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/sweep"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest/dummy"
)

func TestMain(m *testing.M) { transporttest.Main(m, dummy.New) }

// measure runs the dummy with itself as the baseline, as the command runs any transport.
func measure(t *testing.T) record.Document {
	t.Helper()
	device := transporttest.Require(t, host.Driver(), 1)[0]
	other := transporttest.Arm(t, "dummy", dummy.Options{Colour: "blue"})
	other.Name = "other"
	plan, err := sweep.Expand(sweep.Spec{
		Subject: transporttest.Arm(t, "dummy", dummy.Options{Colour: "red"}), Baselines: []worker.Arm{other},
		Devices: []gpu.Info{device, device}, Ops: []transport.Op{transport.OpLatency}, Sizes: []uint64{1 << 10, 4 << 10},
		Iters: 20, Warmup: 2, Check: transport.CheckFull, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	team, err := worker.Launch(t.Context(), worker.Config{
		Run: fmt.Sprintf("dummy-%d", os.Getpid()), Devices: plan.Ranks, Arms: plan.Arms, Region: plan.Region,
		Timeout: 30 * time.Second, Stderr: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := team.Close(); err != nil {
			t.Error(err)
		}
	}()
	doc, err := sweep.Job{
		Plan: plan, Team: team, Opened: team.Opened, Paths: team.Paths, Ranks: [][]int{{0, 1}, {0, 1}},
		Link: gpu.Link{Type: "wire"}, Began: time.Now(),
	}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// Every view of a run and of its file has the counters, with labels and units, the knobs and the notes of a transport
// that no other package refers to.
func TestViews(t *testing.T) {
	doc := measure(t)
	var file bytes.Buffer
	if err := record.Write(&file, doc); err != nil {
		t.Fatal(err)
	}
	read, err := record.Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]record.Document{"run": doc, "file": read} {
		t.Run(name, func(t *testing.T) {
			table(t, view(t, d, "table"))
			table(t, view(t, d, "md"))
			document(t, view(t, d, "json"))
			rows(t, view(t, d, "csv"))
		})
	}
}

func view(t *testing.T, d record.Document, format string) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.Render(&b, d, format, report.Options{Wide: true}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Four blocks of 5 samples per cell, after 2, 1, 1 and 1 iterations of warm-up: 25 messages on each of 2 ranks.
const messages = 25

// table has what both cells counted together, or what there was.
func table(t *testing.T, text string) {
	t.Helper()
	text = strings.Join(strings.Fields(text), " ")
	for _, want := range []string{
		`dummy, path belt, engine copy, CPU memory, conveyor belt, completion receiver`,
		`colour=red`,
		`copies made 50 \([0-9.]+ µs each\), holding 2M, largest 1K to 4K, least per rank 4K, other largest 1K to 4K `,
		`belt:? it runs on the spot`,
		`other:? .*largest`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %s in: %s", want, text)
		}
	}
	for _, unwanted := range []string{"link wire,", "refusals", "held_bytes"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("%s in: %s", unwanted, text)
		}
	}
}

// document has the values of each cell and what they mean.
func document(t *testing.T, text string) {
	t.Helper()
	var d record.Document
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	described := map[string]record.Counter{}
	for _, c := range d.Transports["dummy"].Counters {
		described[c.Name] = c
	}
	if got, want := described["held_bytes"], (record.Counter{Name: "held_bytes", Kind: "gauge", Unit: "bytes", Label: "holding"}); got != want {
		t.Errorf("described as %+v, want %+v", got, want)
	}
	for i, c := range d.Cells {
		want := map[string]uint64{
			"messages": 2 * messages, "copies": messages, "refusals": 0, "held_bytes": 2 << 20, "largest_bytes": c.Size, "rank_bytes": 4096,
			"payload_bytes": messages * c.Size, "checked_bytes": messages * c.Size,
		}
		for name := range c.Counters {
			if _, ok := described[name]; !ok {
				t.Errorf("%s is not described", name)
			}
		}
		delete(c.Counters, "copy_ns")
		if !maps.Equal(c.Counters, want) {
			t.Errorf("cell %d has %v, want %v", i, c.Counters, want)
		}
		if v := c.Vs[0]; v.Transport != "dummy" || v.Knobs["colour"] != "blue" || v.Counters["copies"] != messages {
			t.Errorf("cell %d: its baseline is of %s, with %v and %v", i, v.Transport, v.Knobs, v.Counters)
		}
	}
}

// rows have a column for each counter and knob.
func rows(t *testing.T, text string) {
	t.Helper()
	all, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range all[1:] {
		got := map[string]string{}
		for k, name := range all[0] {
			got[name] = row[k]
		}
		for name, want := range map[string]string{
			"transport": "dummy", "counter_copies": fmt.Sprint(messages), "counter_largest_bytes": []string{"1024", "4096"}[i],
			"vs_other_counter_held_bytes": "2097152", "knob_colour": "red",
		} {
			if got[name] != want {
				t.Errorf("row %d: %s is %q, want %q", i, name, got[name], want)
			}
		}
	}
}
