package pool_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/transport/rdma/pool"
)

func TestOfferTravels(t *testing.T) {
	w := newWorld()
	p := newPool(t, w.nic("a"), with(anp, 2, 2), w.nic("b"))
	peer := pool.Peer{NIC: 1, Process: "10.88.0.2:4000", RemoteNIC: 3}
	var offers []pool.Offer
	for range 3 {
		c, err := p.Prepare(peer, pool.Recv, -1)
		if err != nil {
			t.Fatal(err)
		}
		offers = append(offers, c.Offer())
	}
	addresses := [][]byte{[]byte("b/1.1"), []byte("b/2.2")}
	if got, want := offers[2], (pool.Offer{ID: 3, Group: 0, Dir: pool.Recv, NIC: 1, RemoteNIC: 3, QPs: addresses}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if !offers[1].Primary || offers[1].Group != 1 {
		t.Errorf("%+v, want the primary of group 1", offers[1])
	}
	text, err := json.Marshal(offers)
	if err != nil {
		t.Fatal(err)
	}
	var got []pool.Offer
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, offers) {
		t.Errorf("%+v arrived, want %+v", got, offers)
	}
}

// What no end offers is refused where it is read, and where it is used.
func TestOfferRefused(t *testing.T) {
	for want, change := range map[string]func(*pool.Offer){
		"id 0: want 1 to 4095":         func(o *pool.Offer) { o.ID = 0 },
		"id 4096: want 1 to 4095":      func(o *pool.Offer) { o.ID = 4096 },
		"group -2":                     func(o *pool.Offer) { o.Group = -2 },
		`direction "up"`:               func(o *pool.Offer) { o.Dir = "up" },
		"NICs -1 and 0":                func(o *pool.Offer) { o.NIC = -1 },
		"NICs 0 and -1":                func(o *pool.Offer) { o.RemoteNIC = -1 },
		"a secondary without a group":  func(o *pool.Offer) { o.Group, o.Primary = -1, false },
		"0 queue pairs: want 1 to":     func(o *pool.Offer) { o.QPs = nil },
		"65537 queue pairs: want 1 to": func(o *pool.Offer) { o.QPs = make([][]byte, 65537) },
		"queue pair 1 has no address":  func(o *pool.Offer) { o.QPs[1] = nil },
	} {
		t.Run(want, func(t *testing.T) {
			e := newEnds(t, with(anp, 1, 2))
			c := e.prepare(-1)
			offer := c[1].Offer()
			change(&offer)
			err := c[0].Finish(offer)
			if want := "pool: finish connection 1: offer: " + want; err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			text, err := json.Marshal(offer)
			if err != nil {
				t.Fatal(err)
			}
			var read pool.Offer
			err = json.Unmarshal(text, &read)
			if want := "pool: offer: " + want; err == nil || !strings.HasPrefix(err.Error(), want) || read.ID != 0 {
				t.Errorf("%v, %+v, want %q", err, read, want)
			}
			e.finish(c) // nothing has changed
			e.usable(c)
		})
	}
}

// An Offer that is not from the other end of the connection is refused with what differs, before anything is connected.
func TestEndsDiffer(t *testing.T) {
	for want, change := range map[string]func(*pool.Offer){
		"group 0 here, 1 there:":                          func(o *pool.Offer) { o.Group = 1 },
		"group 0 here, none there:":                       func(o *pool.Offer) { o.Group = -1 },
		"direction send here, send there:":                func(o *pool.Offer) { o.Dir = pool.Send },
		"NIC of this end 0 here, 2 there:":                func(o *pool.Offer) { o.RemoteNIC = 2 },
		"NIC of the other end 0 here, 1 there:":           func(o *pool.Offer) { o.NIC = 1 },
		"role primary here, secondary there:":             func(o *pool.Offer) { o.Primary = false },
		"queue pairs 2 here, 1 there:":                    func(o *pool.Offer) { o.QPs = o.QPs[:1] },
		"group 0 here, 1 there; queue pairs 2 here, 1 th": func(o *pool.Offer) { o.Group, o.QPs = 1, o.QPs[:1] },
	} {
		t.Run(want, func(t *testing.T) {
			e := newEnds(t, with(anp, 2, 2))
			c := e.prepare(-1)
			offer := c[1].Offer()
			change(&offer)
			err := c[0].Finish(offer)
			if want := "pool: finish connection 1: the ends differ: " + want; err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			if e.nics[0].connects != 0 || c[0].Ready() == nil {
				t.Errorf("%d queue pairs were connected, ready: %v", e.nics[0].connects, c[0].Ready())
			}
			e.finish(c)
			e.usable(c)
		})
	}
}

// The direction is both ends': a receiver that meets a receiver is refused too.
func TestTwoReceivers(t *testing.T) {
	e := newEnds(t, anp)
	a, err := e.pool[0].Prepare(peerOf(0), pool.Recv, -1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.pool[1].Prepare(peerOf(1), pool.Recv, -1)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Finish(b.Offer()); err == nil || !strings.Contains(err.Error(), "direction recv here, recv there") {
		t.Errorf("%v", err)
	}
}

// Ends that closed different connections notice: one has a primary where the other has a secondary.
func TestEndsOutOfStep(t *testing.T) {
	e := newEnds(t, with(anp, 1, 1))
	c := e.connect()
	if err := c[0].Close(); err != nil {
		t.Fatal(err)
	}
	next := e.prepare(-1)
	for end, want := range []string{"role primary here, secondary there", "role secondary here, primary there"} {
		if err := next[end].Finish(next[1-end].Offer()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("end %d: %v, want %q", end, err, want)
		}
	}
}

// A secondary whose queue pairs at the other end are not its primary's is refused, whichever of the two finishes first.
func TestSecondaryOfAnotherPrimary(t *testing.T) {
	setup := func(t *testing.T) (e *ends, primary, secondary conn, wrong pool.Offer) {
		e = newEnds(t, with(anp, 1, 2))
		primary, secondary = e.prepare(0), e.prepareQPs(0, 3)
		wrong = secondary[1].Offer()
		wrong.QPs[1], wrong.QPs[2] = wrong.QPs[0], wrong.QPs[1]
		return e, primary, secondary, wrong
	}
	const differ = `queue pair 1 there is 6e6963312f312e33, but its primary's is connected to 6e6963312f322e34`
	t.Run("primary first", func(t *testing.T) {
		e, primary, secondary, wrong := setup(t)
		e.finish(primary)
		err := secondary[0].Finish(wrong)
		if want := "pool: finish connection 2: " + differ; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		e.finish(secondary)
		e.usable(primary, secondary)
	})
	t.Run("secondary first", func(t *testing.T) {
		e, primary, secondary, wrong := setup(t)
		if err := secondary[0].Finish(wrong); err != nil {
			t.Fatal(err)
		}
		err := primary[0].Finish(primary[1].Offer())
		if want := "pool: finish connection 1: its secondary, connection 2, was given other addresses: " + differ; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if e.nics[0].connects != 0 || primary[0].Ready() == nil || secondary[0].Ready() == nil {
			t.Errorf("%d queue pairs were connected", e.nics[0].connects)
		}
		if err := secondary[0].Close(); err != nil {
			t.Fatal(err)
		}
		e.finish(primary) // nobody disagrees any more
		e.usable(primary)
	})
	t.Run("wrap around", func(t *testing.T) {
		e, primary, secondary, _ := setup(t)
		e.finish(primary)
		wrong := secondary[1].Offer()
		wrong.QPs[2] = wrong.QPs[1]
		if err := secondary[0].Finish(wrong); err == nil || !strings.Contains(err.Error(), "queue pair 2 there is ") {
			t.Errorf("%v, want queue pair 2 to be refused", err)
		}
	})
}

// An Offer is kept: what the caller does with its memory afterwards does not matter.
func TestOfferIsKept(t *testing.T) {
	e := newEnds(t, with(anp, 1, 1))
	primary, secondary := e.prepare(0), e.prepare(0)
	offer := primary[1].Offer()
	if err := primary[0].Finish(offer); err != nil {
		t.Fatal(err)
	}
	clear(offer.QPs[0])
	if err := secondary[0].Finish(secondary[1].Offer()); err != nil {
		t.Error(err)
	}
}

// Whatever arrives, an Offer is refused, or it is from the other end as far as that can be seen: then it is read as it
// was written. Nothing is connected to what no end offered.
func FuzzOffer(f *testing.F) {
	f.Add([]byte(`{"id":1,"group":0,"dir":"recv","nic":0,"remote_nic":0,"primary":true,"qps":["bmljMS8xLjI="]}`))
	f.Add([]byte(`{"id":9,"group":-1,"dir":"send","nic":0,"remote_nic":0,"primary":true,"qps":["AA==","AQ=="]}`))
	f.Add([]byte(`{"id":2,"group":0,"dir":"recv","nic":0,"remote_nic":0,"primary":false,"qps":[""]}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"ID":4095,"Group":1e9,"qps":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var o pool.Offer
		if err := json.Unmarshal(text, &o); err != nil {
			if !reflect.DeepEqual(o, pool.Offer{}) {
				t.Errorf("refused with %v, but read as %+v", err, o)
			}
			return
		}
		if o.ID < 1 || o.ID > pool.MaxComms || len(o.QPs) == 0 || o.Dir != pool.Send && o.Dir != pool.Recv {
			t.Errorf("%+v was not refused", o)
		}
		again, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var back pool.Offer
		if err := json.Unmarshal(again, &back); err != nil || !reflect.DeepEqual(back, o) {
			t.Errorf("%+v, read again: %+v, %v", o, back, err)
		}
		e := newEnds(t, with(anp, 1, 1))
		c := e.prepare(-1)
		right := c[1].Offer()
		right.ID = o.ID
		if !reflect.DeepEqual(o.QPs, right.QPs) {
			e.nics[0].failConnect = 1 // an address is the Maker's to judge
		}
		if err := c[0].Finish(o); (err == nil) != reflect.DeepEqual(o, right) {
			t.Errorf("%+v: %v", o, err)
		}
	})
}
