package worker

import (
	"slices"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// grace is how much longer than a rank's own deadlines the parent waits: the error of a rank that can still reply says
// more than the parent's.
const grace = 2 * time.Second

// watchdog detects that no rank has made progress for longer than limit.
type watchdog struct {
	limit  time.Duration
	ticker *time.Ticker
	since  time.Time
	beats  []uint64
}

func newWatchdog(timeout time.Duration) *watchdog {
	return &watchdog{limit: timeout + grace, ticker: time.NewTicker(500 * time.Millisecond), since: time.Now()}
}

func (w *watchdog) tick() <-chan time.Time { return w.ticker.C }

func (w *watchdog) stop() { w.ticker.Stop() }

// progressed restarts the time limit.
func (w *watchdog) progressed() { w.since = time.Now() }

// stuck reports whether no rank's beat has changed for longer than the limit.
func (w *watchdog) stuck(states []abi.State) bool {
	beats := make([]uint64, len(states))
	for i, s := range states {
		beats[i] = s.Beat
	}
	if !slices.Equal(beats, w.beats) {
		w.beats = beats
		w.progressed()
	}
	return time.Since(w.since) > w.limit
}
