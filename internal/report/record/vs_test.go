package record

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Counters and knobs of a baseline survive writing and reading; without them the keys are absent.
func TestCountersOfABaseline(t *testing.T) {
	vs := []Vs{
		{Name: "nccl:4", Counters: map[string]uint64{"nccl_ctas": 4}, Knobs: map[string]string{"ctas": "4"}},
		{Name: "memcpy"},
	}
	var b bytes.Buffer
	if err := Write(&b, Document{Cells: []Cell{{Op: "latency", Transport: "ipc", Vs: vs}}}); err != nil {
		t.Fatal(err)
	}
	_, baselines, _ := strings.Cut(b.String(), `"vs": [`)
	if n := strings.Count(baselines, `"counters"`) + strings.Count(baselines, `"knobs"`); n != 2 {
		t.Errorf("%d keys of two baselines, want those of the first:\n%s", n, baselines)
	}
	d, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(vs, d.Cells[0].Vs); diff != "" {
		t.Error(diff)
	}
}
