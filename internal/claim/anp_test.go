package claim

import (
	"regexp"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/reporttest"
)

func TestGoldenANP(t *testing.T) {
	for _, format := range []string{"table", "md"} {
		text := rendered(t, arms(), format, false)
		reporttest.Golden(t, "preset-anp."+format, text)
		if format == "md" {
			reporttest.CheckMarkdownTables(t, text)
			continue
		}
		for line := range strings.Lines(text) {
			if w := reporttest.Narrow.StringWidth(strings.TrimSuffix(line, "\n")); w > 120 {
				t.Errorf("%d columns: %s", w, line)
			}
		}
	}
}

// arms returns a run of the preset anp-20.
func arms() record.Document {
	d := reporttest.Pooled()
	d.Preset, d.Command = "anp-20", []string{"p2pbench", "rdma", "--preset", "anp-20"}
	d.Cells, d.Exit = d.Cells[5:7], 3
	p, _ := PresetNamed("anp-20")
	for i := range d.Cells {
		c := &d.Cells[i]
		c.Window = 256
		*c = reporttest.Measured(*c, c.SamplesNS)
		for k, baseline := range p.Baselines {
			us := c.Lat.P50 * (1 + float64(k)/100)
			*c = reporttest.Against(*c, baseline.Label, "rdma", reporttest.Sampling(100, us))
			v := &c.Vs[k]
			v.Counters = map[string]uint64{"qps": uint64(64 >> k), "setup_ns": 812345}
			v.Conns, v.Fairness = reporttest.Connections(16, 200, c.Size, us/32)
		}
		c.Vs[1] = record.Vs{Name: c.Vs[1].Name, NA: "the device has too few queue pairs"}
	}
	d.Cells[1].Invalid = reporttest.Ptr("clocks were throttled (rank 1: sw power cap)")
	return d
}

// If only ratios are meaningful, a claim shows its factor but no times.
func TestClaimOfRatios(t *testing.T) {
	claims, err := Find([]string{"anp-20/setup-time"})
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{"the CPU emulates the NIC", ""} {
		test := claims[0].Tests[0]
		c := reporttest.Pooled().Cells[6]
		c.Size = test.Sizes[0]
		c = reporttest.Against(c, test.B.Label, "rdma", reporttest.Sampling(100, 2*c.Lat.P50))
		c.Vs[0].Counters = map[string]uint64{"setup_ns": 900000}
		o := test.Judge(Run{Cells: []record.Cell{c}, OnlyRatios: reason})
		if o.Verdict != Reproduced {
			t.Fatalf("%s: %s", o.Verdict, o.Why)
		}
		text := renderedClaims(t, Document{Schema: Schema, Claims: []Result{claims[0].Conclude([]Outcome{o}, false)}}, "table")
		hidden := regexp.MustCompile(`anp-20/setup-time +4K +- +- +\d`).MatchString(text)
		noted := strings.Contains(strings.Join(strings.Fields(text), " "), "only ratios within one run are meaningful")
		if want := reason != ""; hidden != want || noted != want {
			t.Errorf("%q: times hidden %v, noted %v:\n%s", reason, hidden, noted, text)
		}
	}
}
