package record

import (
	"errors"
	"fmt"
	"math"
)

// maxN is the maximum number of samples of a cell: more than a run of hours takes, and small enough for exact ranks.
const maxN = 1 << 40

// check returns an error for the first inconsistency that no run can produce. Text from the document is quoted.
func (d Document) check() error {
	if d.Exit < 0 || d.Exit > 255 {
		return fmt.Errorf("exit: %d is not an exit code", d.Exit)
	}
	if err := CheckCells(d.Cells); err != nil {
		return err
	}
	for i, c := range d.Cells {
		if err := c.checkExit(d.Exit); err != nil {
			return c.at(i, err)
		}
	}
	return nil
}

// CheckCells returns an error for the first inconsistency in the cells that no run can produce.
func CheckCells(cells []Cell) error {
	for i, c := range cells {
		if c.Op == "" || c.Transport == "" {
			return fmt.Errorf("cells[%d]: op and transport must be named", i)
		}
		if err := c.check(); err != nil {
			return c.at(i, err)
		}
	}
	return nil
}

// at adds the cell to an error.
func (c Cell) at(i int, err error) error {
	return fmt.Errorf("cells[%d] (%q %q, size %d): %w", i, c.Transport, c.Op, c.Size, err)
}

func (c Cell) check() error {
	least := 0
	if c.N > 0 {
		least = 1
	}
	for _, f := range []struct {
		name         string
		value, least int
	}{{"ranks", c.Ranks, least}, {"window", c.Window, least}, {"iters", c.Iters, least}, {"warmup", c.Warmup, 0}} {
		if f.value < f.least {
			return fmt.Errorf("%s: %d, want at least %d", f.name, f.value, f.least)
		}
	}
	if err := checkFigures(c.N, c.Lat, c.SamplesNS, c.Histogram); err != nil {
		return err
	}
	if err := checkPositive([]named{
		{"bw_GBps_per_dir", c.BWPerDir},
		{"bw_GBps_sum", c.BWSum},
		{"msg_rate", &c.MsgRate},
		{"skew_us", &c.SkewUS},
		{"cold.export_us", c.Cold.ExportUS},
		{"cold.open_us", c.Cold.OpenUS},
		{"cold.connect_us", c.Cold.ConnectUS},
		{"cold.first_us", c.Cold.FirstUS},
	}); err != nil {
		return err
	}
	for _, check := range []func() error{c.checkRates, c.checkPayload, c.checkKnobs} {
		if err := check(); err != nil {
			return err
		}
	}
	if err := checkConnections(c.Size, c.Conns, c.Fairness); err != nil {
		return err
	}
	for i, v := range c.Vs {
		if err := v.check(c); err != nil {
			return fmt.Errorf("vs[%d] (%q): %w", i, v.Name, err)
		}
	}
	return nil
}

// check checks a baseline for consistency with itself and with the cell.
func (v Vs) check(c Cell) error {
	switch {
	case v.Name == "":
		return errors.New("name is missing")
	case v.NA != "" && v.N != 0:
		return fmt.Errorf("has %d samples, but is n/a (%q)", v.N, v.NA)
	case v.NA != "" && v.Verified != nil:
		return fmt.Errorf("is verified, but n/a (%q)", v.NA)
	}
	if err := checkFigures(v.N, v.Lat, v.SamplesNS, v.Histogram); err != nil {
		return err
	}
	if err := checkPositive([]named{{"bw_GBps_per_dir", v.BWPerDir}, {"ratio", v.Ratio}}); err != nil {
		return err
	}
	if err := v.checkRates(c); err != nil {
		return err
	}
	return checkConnections(c.Size, v.Conns, v.Fairness)
}

type named struct {
	name  string
	value *float64
}

func checkPositive(figures []named) error {
	for _, f := range figures {
		if f.value != nil && *f.value < 0 {
			return fmt.Errorf("%s: %v is negative", f.name, *f.value)
		}
	}
	return nil
}

// checkFigures checks a cell's summary for consistency, also with the samples if the document has them.
func checkFigures(n int, lat Latency, samples []int64, bins []Bin) error {
	if n < 0 || n > maxN {
		return fmt.Errorf("n: %d is not between 0 and %d", n, maxN)
	}
	if n == 0 && lat != (Latency{}) {
		return errors.New("n is 0, but lat_us has figures")
	}
	if lat.Min < 0 || lat.Min > lat.P50 || lat.P50 > lat.P90 || lat.P90 > lat.P99 || lat.P99 > lat.P999 || lat.P999 > lat.Max {
		return errors.New("lat_us: min, p50, p90, p99, p999 and max are not in ascending order")
	}
	if !between(lat.Min, lat.Mean, lat.Max) {
		return errors.New("lat_us: mean is not between min and max")
	}
	if len(samples) > 0 && len(bins) > 0 {
		return errors.New("both samples_ns and histogram_ns: want one of them")
	}
	if err := checkSamples(n, samples); err != nil {
		return err
	}
	if err := checkBins(n, bins); err != nil {
		return err
	}
	if len(samples) > 0 && !same(lat, Summarise(samples)) || len(bins) > 0 && !same(lat, Distribution(bins).Summary()) {
		return errors.New("lat_us is not the summary of the samples")
	}
	return nil
}

func checkSamples(n int, samples []int64) error {
	if len(samples) > 0 && len(samples) != n {
		return fmt.Errorf("n is %d, but samples_ns has %d", n, len(samples))
	}
	for i, ns := range samples {
		if ns < 0 {
			return fmt.Errorf("samples_ns[%d]: %d is negative", i, ns)
		}
	}
	return nil
}

func checkBins(n int, bins []Bin) error {
	left := int64(n)
	for i, b := range bins {
		if b.NS < 0 || b.Count < 1 || i > 0 && b.NS <= bins[i-1].NS {
			return fmt.Errorf("histogram_ns[%d]: values must ascend from 0 and counts be at least 1", i)
		}
		if left -= b.Count; left < 0 {
			break // before the sum can overflow
		}
	}
	if len(bins) > 0 && left != 0 {
		return fmt.Errorf("n is %d, but the counts of histogram_ns have another sum", n)
	}
	return nil
}

// same compares with a tolerance for the rounding of decimals by other writers.
func same(a, b Latency) bool {
	return near(a.Min, b.Min) && near(a.P50, b.P50) && near(a.P90, b.P90) && near(a.P99, b.P99) &&
		near(a.P999, b.P999) && near(a.Max, b.Max) && near(a.Mean, b.Mean)
}

const rounding = 1e-9 // relative

func near(a, b float64) bool { return math.Abs(a-b) <= rounding*max(a, b) }

func between(lo, v, hi float64) bool { return lo <= v && v <= hi || near(lo, v) || near(v, hi) }
