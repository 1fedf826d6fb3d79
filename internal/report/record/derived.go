package record

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
)

// Rates returns the rates that follow from the median of samples of a window of messages: GB/s of one direction, GB/s
// of all concurrent windows, both nil for size 0, and messages per second and direction. together is the number of
// concurrent windows.
func Rates(size uint64, window, together int, p50US float64) (perDir, sum *float64, rate float64) {
	if p50US <= 0 {
		return nil, nil, 0
	}
	rate = float64(window) / (p50US / 1e6)
	if size == 0 {
		return nil, nil, rate
	}
	bw := rate * float64(size) / 1e9
	all := float64(together) * bw
	return &bw, &all, rate
}

// together returns the number of concurrent windows of the cell: in bidir one per rank, in a fan one per rank except
// rank 0.
func (c Cell) together() int {
	switch fan := c.Knobs["fan"]; {
	case c.Op == "bidir":
		return c.Ranks
	case c.Op == "stream" && (fan == "out" || fan == "in"):
		return c.Ranks - 1
	}
	return 1
}

// checkRates compares the rates with those that follow from the median.
func (c Cell) checkRates() error {
	perDir, sum, rate := Rates(c.Size, c.Window, c.together(), c.Lat.P50)
	for _, f := range []struct {
		name        string
		given, want *float64
	}{{"bw_GBps_per_dir", c.BWPerDir, perDir}, {"bw_GBps_sum", c.BWSum, sum}, {"msg_rate", &c.MsgRate, &rate}} {
		if err := checkDerived(f.name, f.given, f.want); err != nil {
			return err
		}
	}
	return nil
}

func (v Vs) checkRates(c Cell) error {
	perDir, _, _ := Rates(c.Size, c.Window, 1, v.Lat.P50)
	if err := checkDerived("bw_GBps_per_dir", v.BWPerDir, perDir); err != nil {
		return err
	}
	return checkDerived("ratio", v.Ratio, v.ratio(c))
}

// ratio returns the baseline's median ÷ the cell's; nil if one has none.
func (v Vs) ratio(c Cell) *float64 {
	if v.NA != "" || c.Lat.P50 <= 0 {
		return nil
	}
	ratio := v.Lat.P50 / c.Lat.P50
	return &ratio
}

func checkDerived(name string, given, want *float64) error {
	switch {
	case given == nil && want == nil:
		return nil
	case given != nil && want != nil && near(*given, *want):
		return nil
	}
	return fmt.Errorf("%s is %s, expected %s from size, window and p50", name, figure(given), figure(want))
}

func figure(v *float64) string {
	if v == nil {
		return "null"
	}
	return strconv.FormatFloat(*v, 'g', -1, 64)
}

// checkPayload checks payload_bytes, checked_bytes and verified for consistency with the samples.
func (c Cell) checkPayload() error {
	least := c.sampledBytes()
	if sent, ok := c.Counters["payload_bytes"]; ok && sent < least {
		return fmt.Errorf("counters: payload_bytes is %d, fewer than the %d of the samples", sent, least)
	}
	compared, counted := c.Counters["checked_bytes"]
	switch check := c.Knobs["check"]; {
	case c.Verified == nil && counted:
		return errors.New("verified is null, but counters have checked_bytes")
	case c.Verified == nil:
		return nil
	case !counted || compared == 0 && least > 0:
		return errors.New("verified, but counters have no checked_bytes")
	case check == "off":
		return errors.New("verified, but the check is off in knobs")
	case check == "full" && compared < least:
		return fmt.Errorf("counters: checked_bytes is %d with a full check, fewer than the %d of the samples", compared, least)
	}
	return nil
}

// sampledBytes returns the payload of the samples in one direction, at most math.MaxUint64.
func (c Cell) sampledBytes() uint64 {
	bytes := c.Size
	for _, factor := range []int{c.N, c.Window} {
		over, low := bits.Mul64(bytes, uint64(factor))
		if over != 0 {
			return 1<<64 - 1
		}
		bytes = low
	}
	return bytes
}

// checkKnobs compares path and engine with the knobs that set them, unless the knob is auto.
func (c Cell) checkKnobs() error {
	for _, f := range []struct{ name, ran string }{{"path", c.Path}, {"engine", c.Engine}} {
		if set := c.Knobs[f.name]; set != "" && set != "auto" && set != f.ran {
			return fmt.Errorf("%s is %q, and %q in knobs", f.name, f.ran, set)
		}
	}
	return nil
}

// Exit codes that follow from cells.
const (
	exitOK      = 0
	exitCorrupt = 5
)

// checkExit checks that the exit code of the run agrees with the cell.
func (c Cell) checkExit(code int) error {
	corrupt := c.Verified != nil && !*c.Verified
	for _, v := range c.Vs {
		corrupt = corrupt || v.Verified != nil && !*v.Verified
	}
	switch {
	case corrupt && code != exitCorrupt:
		return fmt.Errorf("not verified, but exit is %d, expected %d", code, exitCorrupt)
	case c.Invalid != nil && code == exitOK:
		return fmt.Errorf("invalid, but exit is %d", code)
	}
	return nil
}
