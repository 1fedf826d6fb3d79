package pool_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/transport/rdma/pool"
)

const (
	groups = 4
	conns  = 16
)

// anp is how ANP #20 shares.
var anp = pool.Spec{Groups: groups, QPs: 1, Depth: 2, Requests: 256}

func with(s pool.Spec, groups, qps int) pool.Spec {
	s.Groups, s.QPs = groups, qps
	return s
}

// Groups take turns. The first connection of each makes its queue pair, the others use it.
func TestGroupsTakeTurns(t *testing.T) {
	e := newEnds(t, anp)
	for i, c := range e.connects(conns) {
		for end := range c {
			if got, want := c[end].Group(), i%groups; got != want {
				t.Errorf("end %d: connection %d is in group %d, want %d", end, i, got, want)
			}
			if got, want := c[end].Primary(), i < groups; got != want {
				t.Errorf("end %d: connection %d is primary: %t, want %t", end, i, got, want)
			}
		}
	}
	e.counts(pool.Counts{QPs: groups, CQs: groups, Comms: conns, References: conns})
	if e.nics[0].connects != groups {
		t.Errorf("%d queue pairs were connected, want %d: a secondary connects nothing", e.nics[0].connects, groups)
	}
}

// The claim of ANP #20: connections of four queue pairs each against four that all share.
func TestSharingSavesQPs(t *testing.T) {
	alone := newEnds(t, with(anp, 0, 4))
	alone.connects(conns)
	alone.counts(pool.Counts{QPs: 4 * conns, CQs: conns, Comms: conns, References: 4 * conns})

	shared := newEnds(t, with(anp, 1, 4))
	shared.connects(conns)
	shared.counts(pool.Counts{QPs: 4, CQs: 1, Comms: conns, References: 4 * conns})
}

func TestNothingShared(t *testing.T) {
	e := newEnds(t, pool.Spec{QPs: 2, Requests: 256})
	seen := map[any]bool{}
	all := e.connects(3)
	for _, c := range all {
		for end := range c {
			if !c[end].Primary() || c[end].Group() != -1 {
				t.Errorf("end %d: primary %t, group %d, want a primary in none", end, c[end].Primary(), c[end].Group())
			}
			seen[c[end].CQ()] = true
			for _, q := range c[end].QPs() {
				seen[q] = true
			}
		}
	}
	if want := 2 * 3 * (2 + 1); len(seen) != want {
		t.Errorf("%d objects, want %d", len(seen), want)
	}
	e.close(all[0])
	e.usable(all[1:]...)
	e.counts(pool.Counts{QPs: 4, CQs: 2, Comms: 2, References: 4})
}

// Whatever is below 0 names no group.
func TestNoGroupNamed(t *testing.T) {
	for groups, want := range map[int]int{0: -1, 4: 0} {
		e := newEnds(t, with(anp, groups, 1))
		c := e.prepare(-7)
		e.finish(c)
		if c[0].Group() != want || c[1].Group() != want {
			t.Errorf("%d groups: in groups %d and %d, want %d", groups, c[0].Group(), c[1].Group(), want)
		}
	}
}

// A group that is named does not depend on whose turn it is, but counts for the turns that follow.
func TestNamedGroup(t *testing.T) {
	e := newEnds(t, anp)
	var got []int
	for _, group := range []int{3, 3, -1, -1, 0, -1} {
		c := e.prepare(group)
		e.finish(c)
		got = append(got, c[0].Group())
	}
	if want := []int{3, 3, 2, 3, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("groups %v, want %v", got, want)
	}
	e.counts(pool.Counts{QPs: 4, CQs: 4, Comms: 6, References: 6})
}

// The turn is told by the connections there are, not by those there were.
func TestTurnAfterClose(t *testing.T) {
	e := newEnds(t, anp)
	all := e.connects(6) // groups 0 1 2 3 0 1
	e.close(all[4])
	if c := e.connect(); c[0].Group() != 1 {
		t.Errorf("group %d with five connections there, want 1", c[0].Group())
	}
	e.close(all[2]) // the only one of group 2
	if c := e.connect(); c[0].Group() != 1 || c[0].Primary() {
		t.Errorf("group %d, primary %t", c[0].Group(), c[0].Primary())
	}
	if c := e.connect(); c[0].Group() != 2 || !c[0].Primary() {
		t.Errorf("group %d, primary %t, want a new primary of group 2", c[0].Group(), c[0].Primary())
	}
}

// Whatever tells peers apart keeps their queue pairs and their turns apart.
func TestKey(t *testing.T) {
	w := newWorld()
	p := newPool(t, w.nic("mlx5_0"), with(anp, 2, 1), w.nic("mlx5_1"))
	base := pool.Peer{Process: "10.88.0.2:4000"}
	port, host, nic, remote := base, base, base, base
	port.Process = "10.88.0.2:4001" // another process behind one address
	host.Process = "10.88.0.3:4000"
	nic.NIC = 1
	remote.RemoteNIC = 1
	seen := map[pool.QP]string{}
	prepare := func(name string, peer pool.Peer, dir pool.Dir) *pool.Comm {
		c, err := p.Prepare(peer, dir, -1)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return c
	}
	all := []struct {
		name string
		peer pool.Peer
		dir  pool.Dir
	}{
		{"base", base, pool.Send},
		{"other direction", base, pool.Recv},
		{"other process", port, pool.Send},
		{"other host", host, pool.Send},
		{"other NIC here", nic, pool.Send},
		{"other NIC there", remote, pool.Send},
	}
	for _, a := range all {
		c := prepare(a.name, a.peer, a.dir)
		if other, ok := seen[c.QPs()[0]]; ok || !c.Primary() || c.Group() != 0 {
			t.Errorf("%s: primary %t in group %d, queue pair of %q: want its own in group 0", a.name, c.Primary(), c.Group(), other)
		}
		seen[c.QPs()[0]] = a.name
		if got, want := c.CQ().(*cq).n.name, fmt.Sprintf("mlx5_%d", a.peer.NIC); got != want {
			t.Errorf("%s: made on %s, want %s", a.name, got, want)
		}
	}
	for _, a := range all { // group 1
		prepare(a.name, a.peer, a.dir)
	}
	for _, a := range all {
		c := prepare(a.name, a.peer, a.dir)
		if got := seen[c.QPs()[0]]; got != a.name || c.Primary() {
			t.Errorf("%s: primary %t, queue pair of %q: want to share its own", a.name, c.Primary(), got)
		}
	}
}

func TestPrepareRefuses(t *testing.T) {
	there := pool.Peer{Process: "10.88.0.2:4000"}
	for name, c := range map[string]struct {
		groups int
		peer   pool.Peer
		dir    pool.Dir
		group  int
		qps    int
		want   string
	}{
		"no process":       {4, pool.Peer{}, pool.Send, -1, 1, "a peer without a name of its process"},
		"NIC above":        {4, pool.Peer{Process: "p", NIC: 1}, pool.Send, -1, 1, "NIC 1: there are 1, from 0 on"},
		"NIC below":        {4, pool.Peer{Process: "p", NIC: -1}, pool.Send, -1, 1, "NIC -1: there are 1, from 0 on"},
		"remote NIC below": {4, pool.Peer{Process: "p", RemoteNIC: -1}, pool.Send, -1, 1, "NIC -1 of the peer"},
		"direction":        {4, there, "both", -1, 1, `direction "both": want "send" or "recv"`},
		"no such group":    {4, there, pool.Send, 4, 1, "group 4: there are 4, from 0 on"},
		"group unshared":   {0, there, pool.Send, 0, 1, "group 0, but nothing is shared: leave it out, or use --groups 1"},
		"no queue pairs":   {4, there, pool.Send, -1, 0, "0 queue pairs: want 1 to 65536"},
		"too many":         {4, there, pool.Send, -1, 65537, "65537 queue pairs: want 1 to 65536"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newWorld().nic("nic")
			p := newPool(t, n, with(anp, c.groups, 1))
			_, err := p.PrepareQPs(c.peer, c.dir, c.group, c.qps)
			if err == nil || !strings.HasPrefix(err.Error(), "pool: prepare: "+c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if p.Counts() != (pool.Counts{}) || len(n.cqs) != 0 {
				t.Errorf("counts %+v, %d completion queues after it", p.Counts(), len(n.cqs))
			}
		})
	}
}

// A secondary's queue pair q is the group's q modulo how many it has, whatever its own number.
func TestOwnNumberOfQPs(t *testing.T) {
	e := newEnds(t, with(anp, 1, 3))
	primary := e.connect()
	slots := primary[0].QPs()
	for _, c := range []struct {
		qps  int
		want []int
	}{
		{1, []int{0}},
		{2, []int{0, 1}},
		{3, []int{0, 1, 2}},
		{4, []int{0, 1, 2, 0}},
		{8, []int{0, 1, 2, 0, 1, 2, 0, 1}},
	} {
		before := e.pool[0].Counts().References
		s := e.prepareQPs(0, c.qps)
		e.finish(s)
		e.usable(s)
		var got []int
		for _, q := range s[0].QPs() {
			got = append(got, slices.Index(slots, q))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d queue pairs are the primary's %v, want %v", c.qps, got, c.want)
		}
		if s[0].CQ() != primary[0].CQ() {
			t.Errorf("%d queue pairs: not the primary's completion queue", c.qps)
		}
		if got, want := e.pool[0].Counts().References-before, min(c.qps, 3); got != want {
			t.Errorf("%d queue pairs: %d references, want %d: one to each that it uses", c.qps, got, want)
		}
	}
}

// A connection counts once for the turns, however often it uses the group's first queue pair.
func TestTurnsOfConnectionsWithMoreQPs(t *testing.T) {
	e := newEnds(t, with(anp, 2, 1))
	e.connects(2)
	var got []int
	for range 4 {
		c := e.prepareQPs(-1, 2)
		e.finish(c)
		got = append(got, c[0].Group())
	}
	if want := []int{0, 1, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("groups %v, want %v", got, want)
	}
}

// A queue pair goes with its last reference, while its neighbours and the completion queue stay.
func TestLastReferenceDestroys(t *testing.T) {
	e := newEnds(t, with(anp, 1, 4))
	primary := e.connect()
	kept := primary[0].QPs()[:2]
	small := e.prepareQPs(0, 2)
	e.finish(small)
	e.counts(pool.Counts{QPs: 4, CQs: 1, Comms: 2, References: 6})
	e.close(primary)
	e.counts(pool.Counts{QPs: 2, CQs: 1, Comms: 1, References: 2})
	e.usable(small)

	again := e.connect() // four of its own on the two that are left
	if got, want := again[0].QPs(), []pool.QP{kept[0], kept[1], kept[0], kept[1]}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	e.close(small)
	e.usable(again)
	e.close(again)
	e.counts(pool.Counts{})
}

// Bulk set-up: everything is prepared, exchanged, and then finished in any order.
func TestFinishInAnyOrder(t *testing.T) {
	for name, order := range closeOrders {
		t.Run(name, func(t *testing.T) {
			e := newEnds(t, with(anp, 2, 3))
			var all []conn
			var offers [2][]pool.Offer
			for range 9 {
				c := e.prepare(-1)
				all = append(all, c)
				for end := range c {
					offers[end] = append(offers[end], c[end].Offer())
				}
			}
			finished := map[*pool.Comm]bool{}
			for end := range offers {
				for _, i := range order(len(all)) {
					c := all[i][end]
					if err := c.Finish(offers[1-end][i]); err != nil {
						t.Fatal(err)
					}
					finished[c] = true
					for j := range all {
						want := finished[all[j][end]] && finished[all[j%2][end]] // and its primary
						if err := all[j][end].Ready(); (err == nil) != want {
							t.Fatalf("end %d, connection %d: %v, want ready %t", end, j, err, want)
						}
					}
				}
			}
			e.usable(all...)
			if e.nics[0].connects != 2*3 || e.nics[1].connects != 2*3 {
				t.Errorf("%d and %d queue pairs were connected, want 6", e.nics[0].connects, e.nics[1].connects)
			}
		})
	}
}

func TestReadySaysWhatIsMissing(t *testing.T) {
	e := newEnds(t, with(anp, 1, 1))
	primary, secondary := e.prepare(0), e.prepare(0)
	expect := func(c *pool.Comm, want string) {
		t.Helper()
		if got := message(c.Ready()); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	expect(primary[0], "pool: connection 1 is not ready: it is not finished")
	if err := secondary[0].Finish(secondary[1].Offer()); err != nil {
		t.Fatal(err)
	}
	expect(secondary[0], "pool: connection 2 is not ready: its primary, connection 1, is not finished")
	if err := primary[0].Finish(primary[1].Offer()); err != nil {
		t.Fatal(err)
	}
	expect(primary[0], "")
	expect(secondary[0], "")
	expect(secondary[1], "pool: connection 2 is not ready: it is not finished")
	e.close(secondary)
	expect(secondary[0], "pool: connection 2 is not ready: it is closed")
}

// Secondaries of a primary that never connected say so, those that had finished and those that had not; and nobody can
// join them.
func TestPrimaryLost(t *testing.T) {
	closed := func(e *ends, primary conn) string {
		if err := primary[0].Close(); err != nil {
			e.t.Fatal(err)
		}
		return "the primary, connection 1, was closed before it was connected"
	}
	failed := func(e *ends, primary conn) string {
		e.nics[0].failConnect = 2
		err := primary[0].Finish(primary[1].Offer())
		if want := "pool: finish connection 1: connect queue pair 1: no route"; message(err) != want || !errors.Is(err, errConnect) {
			e.t.Errorf("%v, want %q", err, want)
		}
		return "the primary, connection 1, failed: connect queue pair 1: no route"
	}
	failedAndClosed := func(e *ends, primary conn) string {
		want := failed(e, primary)
		closed(e, primary)
		return want
	}
	for name, lose := range map[string]func(*ends, conn) string{"closed": closed, "failed": failed, "failed and closed": failedAndClosed} {
		t.Run(name, func(t *testing.T) {
			e := newEnds(t, with(anp, 1, 2))
			primary, early, late := e.prepare(0), e.prepare(0), e.prepare(0)
			if err := early[0].Finish(early[1].Offer()); err != nil {
				t.Fatal(err)
			}
			cause := lose(e, primary)
			if got, want := message(early[0].Ready()), "pool: connection 2 is not ready: "+cause; got != want {
				t.Errorf("%q, want %q", got, want)
			}
			if got, want := message(late[0].Finish(late[1].Offer())), "pool: finish connection 3: "+cause; got != want {
				t.Errorf("%q, want %q", got, want)
			}
			_, err := e.pool[0].Prepare(peerOf(0), pool.Send, 0)
			left := e.pool[0].Counts().Comms
			if got, want := message(err), fmt.Sprintf("pool: prepare: group 0: %s: close its other connections first, %d are left", cause, left); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			for _, c := range []conn{late, early, primary} {
				e.close(c)
			}
			e.counts(pool.Counts{})
			e.connect()
		})
	}
}

// A primary that cannot connect is not tried again: some of its queue pairs are connected, others are not.
func TestFailedPrimaryStaysFailed(t *testing.T) {
	e := newEnds(t, with(anp, 0, 2))
	c := e.prepare(-1)
	e.nics[0].failConnect = 2
	if err := c[0].Finish(c[1].Offer()); !errors.Is(err, errConnect) {
		t.Fatalf("%v, want %v", err, errConnect)
	}
	if err := c[0].Finish(c[1].Offer()); !errors.Is(err, errConnect) {
		t.Errorf("%v, want that it failed", err)
	}
	e.close(c)
	e.counts(pool.Counts{})
}

func TestFinishOnce(t *testing.T) {
	e := newEnds(t, anp)
	c := e.prepare(-1)
	offer := c[1].Offer()
	e.finish(c)
	if got, want := message(c[0].Finish(offer)), "pool: finish connection 1: it is finished already"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	e.usable(c)
	e.close(c)
	if got, want := message(c[0].Finish(offer)), "pool: finish connection 1: it is closed"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// What cannot be made leaves nothing behind, and takes no id and no turn.
func TestFailureWhileMaking(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(*nic)
		want string
		is   error
	}{
		"completion queue": {func(n *nic) { n.failCQ = errMake }, "completion queue of 6144 entries: no more queue pairs", errMake},
		"first queue pair": {func(n *nic) { n.failQP = 1 }, "queue pair 1 of 4: no more queue pairs", errMake},
		"third queue pair": {func(n *nic) { n.failQP = 3 }, "queue pair 3 of 4: no more queue pairs", errMake},
		"and the undoing":  {func(n *nic) { n.failQP, n.closeErr = 3, errConnect }, "queue pair 3 of 4: no more queue pairs\nqueue pair 0: no route\nqueue pair 1: no route\ncompletion queue: no route", errConnect},
		"last queue pair":  {func(n *nic) { n.failQP = 4 }, "queue pair 4 of 4: no more queue pairs", errMake},
	} {
		t.Run(name, func(t *testing.T) {
			for _, groups := range []int{2, 0} {
				e := newEnds(t, with(anp, groups, 4))
				n := e.nics[0]
				c.fail(n)
				_, err := e.pool[0].Prepare(peerOf(0), pool.Send, -1)
				want := "pool: prepare: " + c.want
				if groups == 0 {
					want = strings.Replace(want, "6144", "3072", 1)
				}
				if message(err) != want || !errors.Is(err, c.is) {
					t.Errorf("%v, want %q", err, want)
				}
				e.counts(pool.Counts{})
				n.failCQ, n.closeErr = nil, nil
				if c := e.connect(); c[0].ID() != 1 || c[0].Group() > 0 {
					t.Errorf("the next is connection %d in group %d, want the first", c[0].ID(), c[0].Group())
				}
			}
		})
	}
}

// Objects that do not close are given up all the same, and each is named.
func TestCloseErrorsAreJoined(t *testing.T) {
	e := newEnds(t, with(anp, 1, 2))
	a, b := e.connect(), e.connect()
	e.nics[0].closeErr = errMake
	if err := a[0].Close(); err != nil {
		t.Errorf("nothing was destroyed, but %v", err)
	}
	err := b[0].Close()
	const want = "pool: close connection 2: queue pair 0: no more queue pairs\nqueue pair 1: no more queue pairs\ncompletion queue: no more queue pairs"
	if message(err) != want || !errors.Is(err, errMake) {
		t.Errorf("%v, want %q", err, want)
	}
	if err := b[0].Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if got := e.pool[0].Counts(); got != (pool.Counts{}) {
		t.Errorf("%+v are left", got)
	}
	if err := e.pool[0].Close(); err != nil {
		t.Error(err)
	}
}

// A second Close takes nothing from those that share.
func TestSecondClose(t *testing.T) {
	e := newEnds(t, with(anp, 1, 1))
	all := e.connects(3)
	for range 3 {
		e.close(all[1])
	}
	e.counts(pool.Counts{QPs: 1, CQs: 1, Comms: 2, References: 2})
	e.usable(all[0], all[2])
	c := all[1][0]
	if c.CQ() != nil || len(c.QPs()) != 0 || len(c.Offer().QPs) != 0 {
		t.Errorf("a closed connection still has %v, %v and offers %v", c.CQ(), c.QPs(), c.Offer())
	}
}

func TestPoolClose(t *testing.T) {
	e := newEnds(t, anp)
	all := e.connects(3)
	e.close(all[0])
	for range 2 {
		if got, want := message(e.pool[0].Close()), "pool: close: connections left: 2: close them first"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	e.usable(all[1:]...)
	extra := e.connect() // it is still open
	for _, c := range []conn{all[1], all[2], extra} {
		e.close(c)
	}
	for range 2 {
		if err := e.pool[0].Close(); err != nil {
			t.Error(err)
		}
	}
	_, err := e.pool[0].Prepare(peerOf(0), pool.Send, -1)
	if got, want := message(err), "pool: prepare: the pool is closed"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// SetupNS is Prepare and Finish, and not what the exchange took.
func TestSetupNS(t *testing.T) {
	const work = 200 * time.Microsecond
	busy := func() {
		for start := time.Now(); time.Since(start) < work; {
			continue
		}
	}
	e := newEnds(t, with(anp, 1, 1))
	e.nics[0].onCall = busy
	for i, least := range []time.Duration{work, 0} { // a primary works in both calls, a secondary in none
		start := time.Now()
		c, err := e.pool[0].Prepare(peerOf(0), pool.Send, 0)
		outer := time.Since(start)
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Duration(c.SetupNS()); got < least || got > outer {
			t.Errorf("connection %d: %v after Prepare, want %v to %v", i, got, least, outer)
		}
		far, err := e.pool[1].Prepare(peerOf(1), pool.Recv, 0)
		if err != nil {
			t.Fatal(err)
		}
		busy()
		start = time.Now()
		if err := c.Finish(far.Offer()); err != nil {
			t.Fatal(err)
		}
		outer += time.Since(start)
		if got := time.Duration(c.SetupNS()); got < 2*least || got > outer {
			t.Errorf("connection %d: %v after Finish, want %v to %v", i, got, 2*least, outer)
		}
	}
}
