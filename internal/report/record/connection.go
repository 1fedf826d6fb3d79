package record

import (
	"errors"
	"fmt"
)

// Connection holds the statistics of one connection in a cell's samples. The times of its messages, from post to
// completion at the sender, come from a histogram with a relative error of at most 1/32.
type Connection struct {
	Rank     int      `json:"rank"` // the sender
	Conn     int      `json:"conn"` // index among the sender's connections
	Messages uint64   `json:"messages"`
	P50      float64  `json:"p50_us"` // nearest-rank
	P99      float64  `json:"p99_us"`
	Max      float64  `json:"max_us"`
	GBps     *float64 `json:"GBps"` // payload over the time until its last completion in each sample; null for size 0
}

// Times sets the times from a histogram in ascending order.
func (c *Connection) Times(bins []Bin) {
	d := Distribution(bins)
	c.P50, c.P99, c.Max = micros(d.Percentile(50)), micros(d.Percentile(99)), micros(d.Percentile(100))
}

// Jain returns Jain's fairness index of shares: (Σx)² ÷ (n·Σx²). It is 1 if all shares are equal, 1/n if one share is
// everything, and nil if all shares are zero.
func Jain(shares []float64) *float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return nil
	}
	index := sum * sum / (float64(len(shares)) * squares)
	return &index
}

// checkConnections checks the figures of connections and their fairness index for consistency. The rates are
// proportional to GBps if size is not 0.
func checkConnections(size uint64, conns []Connection, fairness *float64) error {
	var rates []float64
	for i, c := range conns {
		if c.GBps != nil {
			rates = append(rates, *c.GBps)
		}
		switch {
		case c.Rank < 0 || c.Conn < 0:
			return fmt.Errorf("conns[%d]: rank %d, conn %d: negative", i, c.Rank, c.Conn)
		case c.P50 < 0 || c.P50 > c.P99 || c.P99 > c.Max:
			return fmt.Errorf("conns[%d]: p50_us, p99_us and max_us are not in ascending order", i)
		case c.GBps != nil && *c.GBps < 0:
			return fmt.Errorf("conns[%d]: GBps: %v is negative", i, *c.GBps)
		}
	}
	switch {
	case fairness == nil:
		return nil
	case len(conns) == 0:
		return errors.New("jain_fairness without conns")
	case !between(1/float64(len(conns)), *fairness, 1):
		return fmt.Errorf("jain_fairness: %v is not between 1/%d and 1", *fairness, len(conns))
	case size > 0 && len(rates) == len(conns):
		if want := Jain(rates); want == nil || !near(*fairness, *want) {
			return fmt.Errorf("jain_fairness is %v, expected %s from GBps", *fairness, figure(want))
		}
	}
	return nil
}
