package pool

import "fmt"

// Spec determines how connections share objects, and the sizes of the objects.
type Spec struct {
	Groups   int // per peer and direction; 0: nothing is shared
	QPs      int // queue pairs of a connection
	Depth    int // entries of a shared queue, in multiples of those of one connection; 1 without sharing
	Requests int // maximum in flight per connection
	Limits   Limits
}

// Limits are the smallest limits of the devices. 0: none.
type Limits struct {
	CQE   int // entries of a completion queue
	QPWRs int // work requests of a send queue or a receive queue
}

// most limits the factors of products, so that they do not overflow.
const most = 1 << 16

type count struct {
	name               string
	value, least, most int
}

func checkCounts(counts ...count) error {
	for _, c := range counts {
		if c.value < c.least || c.value > c.most {
			return fmt.Errorf("%s %d: want %d to %d", c.name, c.value, c.least, c.most)
		}
	}
	return nil
}

func (s Spec) check() error {
	return checkCounts(
		count{"--groups", s.Groups, 0, most},
		count{"--qps", s.QPs, 1, most},
		count{"--depth", s.Depth, min(s.Groups, 1), most},
		count{"requests", s.Requests, 1, most},
	)
}

// Sizes are the entries of a queue pair's queues.
type Sizes struct{ SendWRs, RecvWRs int }

// Sizing is the sizes of objects: with R requests, Q queue pairs and depth D, a completion queue has 3·R·Q·D entries, a
// send queue 2·R·D and a receive queue R·D, or fewer if the device's limits are lower.
type Sizing struct {
	CQE int // entries of a completion queue
	Sizes
	Clamped []Clamp // sizes reduced to the device's limit
}

// Clamp is a size that was reduced to the device's limit.
type Clamp struct {
	What          string
	Wanted, Limit int
}

// String describes the clamp.
func (c Clamp) String() string {
	return fmt.Sprintf("%s of %d entries instead of %d, which is the most that the device allows", c.What, c.Limit, c.Wanted)
}

// Sizes returns the sizes of the objects of a connection with Spec.QPs queue pairs.
func (p *Pool) Sizes() Sizing { return p.spec.sizes(p.spec.QPs) }

func (s Spec) sizes(qps int) Sizing {
	depth := s.Depth
	if s.Groups == 0 {
		depth = 1
	}
	var out Sizing
	clamp := func(what string, wanted, limit int) int {
		if limit <= 0 || wanted <= limit {
			return wanted
		}
		out.Clamped = append(out.Clamped, Clamp{What: what, Wanted: wanted, Limit: limit})
		return limit
	}
	out.CQE = clamp("completion queue", 3*s.Requests*qps*depth, s.Limits.CQE)
	out.SendWRs = clamp("send queue", 2*s.Requests*depth, s.Limits.QPWRs)
	out.RecvWRs = clamp("receive queue", s.Requests*depth, s.Limits.QPWRs)
	return out
}

// Feasible refuses numbers that would overrun a receive queue, which with endless retries stalls without an error. Of
// conns connections, ceil(conns/groups) share a queue; each has window messages of posts work requests in flight; the
// queue holds requests·depth. Without groups none is shared and the depth is not used. If Sizing has clamped the
// receive queue to RecvWRs, call it with depth 1 and RecvWRs requests.
func Feasible(conns, groups, window, posts, depth, requests int) error {
	err := checkCounts(
		count{"--conns", conns, 1, MaxComms},
		count{"--groups", groups, 0, most},
		count{"--window", window, 1, most},
		count{"posts", posts, 1, most},
		count{"--depth", depth, min(groups, 1), most},
		count{"requests", requests, 1, most},
	)
	switch {
	case err != nil:
		return fmt.Errorf("pool: %w", err)
	case groups > conns:
		return fmt.Errorf("pool: --groups %d with --conns %d: there are fewer connections than groups: use --groups %d or fewer",
			groups, conns, conns)
	case groups == 0 && window*posts > requests:
		return fmt.Errorf("pool: --groups 0: a receive queue would overrun: W·posts = %d·%d = %d, but must be ≤ R = %d: use %s",
			window, posts, window*posts, requests, smallerWindow(requests, posts))
	case groups == 0:
		return nil
	}
	sharing, room := ceil(conns, groups), requests*depth
	need := sharing * window * posts
	if need <= room {
		return nil
	}
	change := fmt.Sprintf("--depth %d or more, or %s", ceil(need, requests), smallerWindow(room, sharing*posts))
	if each := room / (window * posts); each > 0 {
		change = fmt.Sprintf("--groups %d or more, %s", ceil(conns, each), change)
	}
	return fmt.Errorf("pool: --groups %d: a receive queue would overrun: ceil(C/G)·W·posts = ceil(%d/%d)·%d·%d = %d, but must be ≤ R·D = %d·%d = %d: use %s",
		groups, conns, groups, window, posts, need, requests, depth, room, change)
}

func ceil(n, by int) int { return (n + by - 1) / by }

// smallerWindow names the window that fits room work requests, if each message takes the given number.
func smallerWindow(room, message int) string {
	if room < message {
		return "fewer posts for a message"
	}
	return fmt.Sprintf("--window %d or less", room/message)
}
