package worker

import (
	"slices"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// grace is how much longer than a rank's own deadlines the parent waits: a rank that can still speak says more about
// its hang than the parent can see.
const grace = 2 * time.Second

// watchdog notices when no rank has made progress for too long.
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

// progressed resets the clock.
func (w *watchdog) progressed() { w.since = time.Now() }

// stuck reports whether nothing has moved for longer than the limit.
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
