package protocoltest_test

import (
	"fmt"
	"testing"

	pt "github.com/p2pbench/p2pbench/internal/transport/sendrecv/protocoltest"
)

// explored is a plan that must pass under every schedule.
type explored struct {
	name string
	plan pt.Plan
}

// plan is launches with one thread a role and copies in two pieces.
func plan(preemptions int, windows ...[]pt.Launch) pt.Plan {
	return pt.Plan{Launches: drained(windows...), Threads: 1, Preemptions: preemptions, Pieces: 2}
}

func withThreads(n int, p pt.Plan) pt.Plan { p.Threads = n; return p }

func from(start uint64, p pt.Plan) pt.Plan { p.Start = start; return p }

// resident makes one kernel of a plan. Its arguments apply to all messages, so all messages of a window have the
// credits and the drain of the first one.
func resident(p pt.Plan) pt.Plan {
	p.Resident = true
	for i := range p.Launches {
		if l := &p.Launches[i]; l.Slot > 0 {
			l.Side = p.Launches[i-1].Side
		}
	}
	return p
}

func aborted(p pt.Plan) pt.Plan { p.Abort = true; return p }

// unbounded is more preemptions than the plans have points.
const unbounded = 1000

// Counters are wider than 32 bits, and flags wrap one before that.
const (
	wordWrap  = 1<<32 - 2
	flagWraps = 1<<32 - 1
)

func stagedCases() []explored {
	var all []explored
	for stages := uint32(1); stages <= 3; stages++ {
		for steps := uint32(1); steps <= 4; steps++ {
			name := fmt.Sprintf("%d stages %d steps", stages, steps)
			all = append(all,
				explored{name, plan(unbounded, times(3, one(forwards.staged(16*steps, 1, 16, stages))))},
				explored{name + " both ways", plan(2, times(2, one(bothWays.staged(16*steps, 1, 16, stages))))})
		}
	}
	return append(all,
		explored{"odd end", plan(unbounded, times(2, one(forwards.staged(37, 1, 16, 2))))},
		explored{"two blocks", plan(3, times(2, one(forwards.staged(64, 2, 16, 2))))},
		explored{"two blocks both ways", plan(0, times(2, one(bothWays.staged(64, 2, 16, 1))))},
		explored{"three blocks", plan(1, times(2, one(forwards.staged(96, 3, 16, 2))))},
		explored{"blocks without a share", plan(1, one(bothWays.staged(16, 3, 16, 1)), one(bothWays.staged(40, 2, 16, 1)),
			one(bothWays.staged(0, 3, 16, 1)))},
		explored{"two threads", withThreads(2, plan(3, times(2, one(forwards.staged(64, 1, 32, 1)))))},
		explored{"two threads both ways", withThreads(2, plan(2, times(2, one(bothWays.staged(64, 1, 32, 1)))))},
		explored{"two threads two blocks", withThreads(2, plan(2, times(2, one(forwards.staged(128, 2, 32, 1)))))},
		explored{"ping-pong", plan(3, times(2, one(pingPong.staged(64, 1, 16, 2))))},
		explored{"ping-pong two blocks", plan(1, times(2, one(pingPong.staged(96, 2, 16, 2))))},
		explored{"resident", resident(plan(unbounded, times(2, window(3, forwards.staged(32, 1, 16, 2)))))},
		explored{"resident both ways", resident(plan(2, times(2, window(2, bothWays.staged(32, 1, 16, 1)))))},
		explored{"resident two threads", withThreads(2, resident(plan(2, window(3, forwards.staged(64, 1, 32, 1)))))},
		explored{"beyond 32 bits", from(wordWrap, plan(unbounded, times(2, one(forwards.staged(64, 1, 16, 3)))))},
	)
}

func putCases() []explored {
	return []explored{
		{"one by one", plan(unbounded, times(4, one(forwards.put(32, 1))))},
		{"both ways", plan(3, times(3, one(bothWays.put(32, 1))))},
		{"window", plan(unbounded, times(2, window(3, forwards.put(32, 1))))},
		{"window both ways", plan(2, times(2, window(2, bothWays.put(32, 1))))},
		{"two blocks", plan(3, times(2, window(2, forwards.put(64, 2))))},
		{"blocks without a share", plan(1, window(2, bothWays.put(16, 2)), window(2, bothWays.put(32, 2)), one(bothWays.put(0, 2)))},
		{"two threads", withThreads(2, plan(2, times(2, window(2, forwards.put(64, 1)))))},
		{"ping-pong", plan(3, times(3, one(pingPong.put(32, 1))))},
		{"resident", resident(plan(unbounded, times(3, window(3, forwards.put(32, 1)))))},
		{"resident both ways", resident(plan(2, times(2, window(2, bothWays.put(32, 1)))))},
		{"resident two threads", withThreads(2, resident(plan(2, times(2, window(2, forwards.put(64, 1))))))},
		{"beyond 32 bits", from(wordWrap, plan(unbounded, times(2, window(2, forwards.put(32, 1)))))},
	}
}

func llCases() []explored {
	return []explored{
		{"more than slots", plan(unbounded, times(6, one(forwards.ll(32, 1))))},
		{"both ways", plan(3, times(4, one(bothWays.ll(16, 1))))},
		{"sizes", plan(3, one(bothWays.ll(32, 1)), one(bothWays.ll(1, 1)), one(bothWays.ll(9, 1)), one(bothWays.ll(31, 1)))},
		{"three lines", plan(unbounded, times(3, one(forwards.ll(24, 1))))},
		{"two blocks", plan(2, times(4, one(forwards.ll(32, 2))))},
		{"blocks without a share", plan(2, one(forwards.ll(16, 3)), one(forwards.ll(40, 3)), one(forwards.ll(16, 2)),
			one(forwards.ll(0, 2)), one(forwards.ll(48, 3)))},
		{"two threads", withThreads(2, plan(3, times(4, one(forwards.ll(32, 1)))))},
		{"two threads both ways", withThreads(2, plan(1, times(3, one(bothWays.ll(32, 1)))))},
		{"ping-pong", plan(3, times(4, one(pingPong.ll(16, 1))))},
		{"resident", resident(plan(unbounded, times(2, window(3, forwards.ll(32, 1)))))},
		{"resident two threads", withThreads(2, resident(plan(2, window(5, forwards.ll(32, 1)))))},
		{"resident both ways", resident(plan(3, window(5, bothWays.ll(16, 1))))},
		{"resident both ways two threads", withThreads(2, resident(plan(1, window(4, bothWays.ll(32, 1)))))},
		{"resident ping-pong", resident(plan(3, times(5, one(pingPong.ll(16, 1)))))},
		{"resident ping-pong in bursts", resident(plan(3, times(2, window(3, pingPong.ll(16, 1)))))},
		{"resident, then one way", resident(plan(3, one(bothWays.ll(16, 1)), times(4, one(forwards.ll(16, 1)))))},
		{"flag wraps", from(flagWraps-1, plan(unbounded, times(5, one(forwards.ll(32, 1)))))},
		{"flag wraps again", from(2*flagWraps-2, plan(unbounded, times(6, one(forwards.ll(16, 1)))))},
	}
}

func ll128Cases() []explored {
	return []explored{
		{"more than slots", plan(unbounded, times(6, one(forwards.ll128(130, 1))))},
		{"more than a line", plan(unbounded, times(2, one(forwards.ll128(190, 1))))},
		{"a whole line", plan(unbounded, times(2, one(forwards.ll128(120, 1))))},
		{"flag not payload", withThreads(2, plan(1, one(forwards.ll128(239, 1))))},
		{"both ways", plan(3, times(4, one(bothWays.ll128(16, 1))))},
		{"sizes", plan(3, one(bothWays.ll128(120, 1)), one(bothWays.ll128(1, 1)), one(bothWays.ll128(121, 1)), one(bothWays.ll128(119, 1)))},
		{"two blocks", plan(2, times(4, one(forwards.ll128(256, 2))))},
		{"blocks without a share", plan(2, one(forwards.ll128(16, 3)), one(forwards.ll128(140, 3)), one(forwards.ll128(0, 2)))},
		{"two threads", withThreads(2, plan(3, times(4, one(forwards.ll128(130, 1)))))},
		{"ping-pong", plan(3, times(4, one(pingPong.ll128(130, 1))))},
		{"resident", resident(plan(unbounded, times(2, window(3, forwards.ll128(130, 1)))))},
		{"resident ping-pong", resident(plan(3, times(2, window(3, pingPong.ll128(16, 1)))))},
		{"flag beyond 32 bits", from(flagWraps-1, plan(unbounded, times(5, one(forwards.ll128(130, 1)))))},
		{"both kinds of line", plan(3, one(bothWays.ll(32, 1)), one(bothWays.ll128(130, 1)), one(bothWays.ll(16, 1)), one(bothWays.ll128(32, 1)))},
	}
}

// Changes from one message to the next one.
func changeCases() []explored {
	strides := [][]pt.Launch{one(bothWays.staged(32, 1, 16, 2)), one(bothWays.staged(32, 1, 8, 2)), one(bothWays.staged(32, 1, 32, 1))}
	return []explored{
		{"stride", plan(2, strides...)},
		{"stride one way", plan(unbounded, one(forwards.staged(64, 1, 16, 2)), one(forwards.staged(64, 1, 32, 2)),
			one(forwards.staged(64, 1, 8, 3)))},
		{"stages", plan(unbounded, one(forwards.staged(64, 1, 16, 3)), one(forwards.staged(64, 1, 16, 1)),
			one(forwards.staged(64, 1, 16, 2)))},
		{"blocks", plan(3, one(forwards.staged(32, 1, 16, 2)), one(forwards.staged(64, 2, 16, 2)), one(forwards.staged(16, 1, 16, 2)))},
		{"stride with two blocks", plan(1, one(forwards.staged(64, 2, 16, 2)), one(forwards.staged(64, 2, 8, 2)))},
		{"stride and fewer blocks", plan(3, one(forwards.staged(64, 2, 16, 2)), one(forwards.staged(64, 1, 64, 1)))},
		{"stride after fewer blocks", plan(3, one(forwards.staged(64, 2, 16, 2)), one(forwards.staged(16, 1, 16, 2)),
			one(forwards.staged(64, 1, 64, 1)))},
		{"stride with two blocks both ways", plan(0, one(bothWays.staged(32, 2, 16, 1)), one(bothWays.staged(32, 2, 8, 2)))},
		{"stride with two threads", withThreads(2, plan(0, one(forwards.staged(64, 2, 32, 1)), one(forwards.staged(64, 2, 16, 2))))},
		{"variant", plan(3, one(bothWays.staged(32, 1, 16, 2)), one(bothWays.put(32, 1)), one(bothWays.ll(16, 1)),
			one(bothWays.staged(32, 1, 16, 2)))},
		{"variant, stride", plan(1, one(forwards.staged(64, 2, 16, 2)), one(forwards.put(16, 1)), one(forwards.staged(64, 2, 32, 1)),
			one(forwards.ll(32, 2)), one(forwards.staged(64, 2, 8, 2)))},
		{"direction", plan(3, one(forwards.staged(32, 1, 16, 1)), one(backwards.staged(32, 1, 16, 1)), one(bothWays.staged(16, 1, 16, 1)),
			one(forwards.put(16, 1)), one(backwards.put(16, 1)), one(backwards.ll(16, 1)), one(forwards.ll(16, 1)))},
		{"direction, stride", plan(2, one(forwards.staged(32, 1, 16, 2)), one(backwards.staged(32, 1, 32, 1)),
			one(bothWays.staged(32, 1, 8, 2)))},
	}
}

// After an abort no thread waits, and no incomplete message is accepted.
func abortCases() []explored {
	return []explored{
		{"staged", aborted(plan(2, times(2, one(forwards.staged(48, 1, 16, 2)))))},
		{"staged two threads", withThreads(2, aborted(plan(2, times(2, one(forwards.staged(64, 1, 32, 1))))))},
		{"put", aborted(plan(2, window(2, bothWays.put(32, 1))))},
		{"ll", aborted(plan(2, times(4, one(forwards.ll(16, 1)))))},
		{"ll128", aborted(plan(2, times(4, one(forwards.ll128(130, 1)))))},
		{"ll two threads", withThreads(2, aborted(plan(2, times(3, one(forwards.ll(32, 1))))))},
	}
}

func cases() map[string][]explored {
	return map[string][]explored{
		"staged": stagedCases(), "put": putCases(), "ll": llCases(), "ll128": ll128Cases(), "change": changeCases(), "abort": abortCases(),
	}
}

func TestEverySchedule(t *testing.T) {
	all := cases()
	for _, group := range []string{"staged", "put", "ll", "ll128", "change", "abort"} {
		for _, c := range all[group] {
			t.Run(group+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				r := pt.Explore(c.plan)
				if r.Failed != "" {
					t.Fatalf("%s\nthe schedule:\n%s", r.Failed, r.Trace)
				}
				t.Logf("%d schedules", r.Executions)
			})
		}
	}
}
