package verbs_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs"
)

func TestHWDevices(t *testing.T) {
	for _, d := range devices(t) {
		t.Logf("%+v, libibverbs %s", d, verbs.Version())
		p := d.Ports[active(d)-1]
		if p.MTU < 256 || p.MTU > 4096 || p.MTU&(p.MTU-1) != 0 || p.Rate <= 0 || d.NUMA < -1 || d.Firmware == "" {
			t.Errorf("%+v", d)
		}
		if !slices.IsSortedFunc(p.GIDs, func(a, b verbs.GID) int { return a.Index - b.Index }) {
			t.Errorf("%v are not in order", p.GIDs)
		}
		best, err := d.DefaultGID(p.Number)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range p.GIDs {
			at, err := d.GIDAt(p.Number, g.Index)
			if err != nil || at != g || g.Value == [16]byte{} {
				t.Errorf("index %d: %v, %v, want %v", g.Index, at, err, g)
			}
			if strings.HasPrefix(d.Name, "rxe") && g.Netdev == "" { // of others, some have interfaces that are elsewhere
				t.Errorf("%v of no interface", g)
			}
			if p.LinkLayer == "Ethernet" && g.Type == verbs.TypeRoCEv2 && g.Addr().Is4() && !best.Addr().Is4() {
				t.Errorf("chose %v where there is %v", best, g)
			}
		}
		_, err = d.GIDAt(p.Number, 9999)
		says(t, err, "no GID at index 9999", best.String())
		_, err = d.Port(99)
		says(t, err, d.Name+": no port 99: it has ports 1 to ")
	}
	_, err := verbs.Open("nosuch")
	says(t, err, `no RDMA device "nosuch"`, devices(t)[0].Name)
}

// Two queue pairs of one device, and of two devices where there are two.
func TestHWTransfers(t *testing.T) {
	found := devices(t)
	for _, names := range slices.Compact([]int{0, len(found) - 1}) {
		a, b := found[0], found[names]
		t.Run(a.Name+" to "+b.Name, func(t *testing.T) {
			s := spec{QPSpec: verbs.QPSpec{Inline: 64}}
			x, y := pair(t, a, b, s)
			x.state(t, "RTS")
			t.Run("write", func(t *testing.T) { writes(t, x, y) })
			t.Run("immediate", func(t *testing.T) { immediates(t, x, y); immediates(t, y, x) })
			t.Run("inline", func(t *testing.T) { inlines(t, x, y) })
			t.Run("read", func(t *testing.T) { reads(t, x, y) })
			t.Run("unsignalled", func(t *testing.T) { unsignalled(t, x, y) })
		})
	}
}

// A completion at the sender's end says that the bytes are there, whatever their number.
func writes(t *testing.T, x, y *end) {
	for i, n := range []uint32{1, 7, 8, 9, 512, 513, 4096, 4097, 1 << 20} {
		fill(x.mem, byte(i))
		clear(y.mem)
		x.post(t, x.write(y.card(), 0, n))
		if c := x.succeed(t, 1)[0]; c.Recv {
			t.Errorf("a send completed as %+v", c)
		}
		if !bytes.Equal(x.mem[:n], y.mem[:n]) || bytes.Contains(y.mem[n:], []byte{1}) {
			t.Errorf("%d bytes did not arrive as they are", n)
		}
	}
}

// An immediate arrives once, after the bytes, with their number, and takes a receive.
func immediates(t *testing.T, x, y *end) {
	y.receive(t, 100, 101, 102)
	fill(x.mem, 3)
	clear(y.mem)
	for i, n := range []uint32{0, 8, 65536} {
		x.post(t, x.imm(y.card(), 0, n, 0xabcd0000|n+uint32(i)))
		c := y.succeed(t, 1)[0]
		if !c.Recv || c.ID != 100+uint64(i) || c.Imm != 0xabcd0000|n+uint32(i) || c.Bytes != n || c.QP != y.qp.Number() {
			t.Errorf("%d bytes: %+v", n, c)
		}
		if !bytes.Equal(x.mem[:n], y.mem[:n]) {
			t.Errorf("the immediate of %d bytes came before them", n)
		}
		x.succeed(t, 1)
	}
	x.nothing(t)
	y.nothing(t)
}

// Inline bytes are taken at the call, and need no key.
func inlines(t *testing.T, x, y *end) {
	if x.qp.Inline() < 8 {
		t.Fatalf("%d inline bytes", x.qp.Inline())
	}
	copy(x.mem[40:], "12345678")
	s := x.write(y.card(), 40, 8)
	s.Inline, s.LKey = true, 0
	x.post(t, s)
	copy(x.mem[40:], "xxxxxxxx")
	x.succeed(t, 1)
	if got := string(y.mem[40:48]); got != "12345678" {
		t.Errorf("inline bytes arrived as %q", got)
	}
}

func reads(t *testing.T, x, y *end) {
	fill(y.mem, 9)
	clear(x.mem)
	s := x.write(y.card(), 64, 5000)
	s.Op = verbs.Read
	x.post(t, s)
	x.succeed(t, 1)
	if !bytes.Equal(x.mem[64:5064], y.mem[64:5064]) || x.mem[63]|x.mem[5064] != 0 {
		t.Error("read other bytes")
	}
}

// What is not signalled completes without saying so, and its places in the queue come back with a later one that is.
func unsignalled(t *testing.T, x, y *end) {
	for range 20 {
		for i := range uint32(16) {
			s := x.write(y.card(), 8*i, 8)
			s.Unsignaled = i < 15
			x.post(t, s)
		}
		if c := x.succeed(t, 1)[0]; c.ID != 8*15 {
			t.Errorf("%+v completed", c)
		}
	}
	x.nothing(t)
}

// The limits that a device states can be had, and what is above is refused by name.
func TestHWLimits(t *testing.T) {
	d := devices(t)[0]
	e := lone(t, d, spec{})
	limits := e.c.Limits()
	t.Logf("%+v", limits)
	depth := min(limits.CQE, 1<<17)
	cq, err := e.c.NewCQ(depth)
	if err != nil {
		t.Fatal(err)
	}
	if cq.Depth() < depth {
		t.Errorf("%d entries of %d", cq.Depth(), depth)
	}
	wrs := min(limits.QPWRs, 1<<12)
	qp, err := e.c.NewQP(verbs.QPSpec{CQ: cq, SendWRs: wrs, RecvWRs: wrs})
	if err != nil {
		t.Fatal(err)
	}
	if err := cq.Close(); err == nil {
		t.Error("a completion queue went with a queue pair on it")
	} else {
		says(t, err, d.Name+": ibv_destroy_cq: device or resource busy (16): a queue pair uses it")
	}
	err = e.c.Close()
	says(t, err, "2 queue pairs, 2 completion queues and 1 memory regions are open")
	_, err = e.c.NewCQ(limits.CQE + 1)
	says(t, err, fmt.Sprintf("a completion queue of %d entries: the device takes 1 to %d", limits.CQE+1, limits.CQE))
	_, err = e.c.NewQP(verbs.QPSpec{CQ: cq, SendWRs: limits.QPWRs + 1, RecvWRs: 1})
	says(t, err, fmt.Sprintf("a queue pair of %d sends and 1 receives: the device takes 1 to %d", limits.QPWRs+1, limits.QPWRs))
	for _, c := range []interface{ Close() error }{qp, cq, qp, cq} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A queue pair gets the inline data that its device can do, where it was asked for more than any can.
func TestHWInlineIsNegotiated(t *testing.T) {
	e := lone(t, devices(t)[0], spec{QPSpec: verbs.QPSpec{Inline: 1 << 16}})
	t.Logf("%d inline bytes", e.qp.Inline())
	if e.qp.Inline() < 1 || e.qp.Inline() >= 1<<16 {
		t.Errorf("%d inline bytes", e.qp.Inline())
	}
}

// A key that is wrong, memory beyond the region, and memory that may only be read.
func TestHWRemoteAccess(t *testing.T) {
	d := devices(t)[0]
	for name, spoil := range map[string]func(s *verbs.Send){
		"key":       func(s *verbs.Send) { s.RKey ^= 0x5500 },
		"below":     func(s *verbs.Send) { s.Remote -= 8 },
		"beyond":    func(s *verbs.Send) { s.Remote += size },
		"end":       func(s *verbs.Send) { s.Remote += size - 7 },
		"read only": func(*verbs.Send) {},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec{}
			if name == "read only" {
				s.access = verbs.RemoteRead | verbs.LocalWrite
			}
			x, y := pair(t, d, d, s)
			y.receive(t, 1, 2)
			bad := x.write(y.card(), 0, 8)
			spoil(&bad)
			fill(x.mem, 1)
			x.post(t, bad)
			x.ends(t, 1, "remote access error")
			x.state(t, "ERR")
			y.state(t, "ERR")
			y.ends(t, 2, "flushed")
			x.post(t, x.write(y.card(), 0, 8))
			x.ends(t, 1, "flushed")
			if bytes.Contains(y.mem, []byte{1}) {
				t.Error("something was written")
			}
			if text, ok := y.c.Event(); ok && !strings.Contains(text, fmt.Sprintf("queue pair %d: the remote end accessed memory", y.qp.Number())) {
				t.Errorf("event %q", text) // not every device tells
			}
		})
	}
}

// Local memory that was not registered.
func TestHWLocalProtection(t *testing.T) {
	d := devices(t)[0]
	x, y := pair(t, d, d, spec{})
	s := x.write(y.card(), 0, 8)
	s.Addr += size
	x.post(t, s)
	x.ends(t, 1, "local protection error")
	y.state(t, "RTS")
}

// A message that meets no receive waits for one, or fails, as the sender was told to.
func TestHWReceiverNotReady(t *testing.T) {
	d := devices(t)[0]
	port := active(d)
	before, _, counts := verbs.Retries(verbs.HardwareCounters(d.Name, port))
	t.Run("for ever", func(t *testing.T) {
		x, y := pair(t, d, d, spec{})
		x.post(t, x.imm(y.card(), 0, 8, 77))
		x.post(t, x.write(y.card(), 16, 8))
		for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
			x.nothing(t) // nor does the write behind it overtake
		}
		y.receive(t, 5)
		if c := y.succeed(t, 1)[0]; c.Imm != 77 || c.ID != 5 {
			t.Errorf("%+v", c)
		}
		x.succeed(t, 2)
	})
	for _, retries := range []int{verbs.RNRNever, 2} {
		t.Run(fmt.Sprintf("retries %d", retries), func(t *testing.T) {
			x, y := pair(t, d, d, spec{QPSpec: verbs.QPSpec{RNRRetry: retries}})
			x.post(t, x.imm(y.card(), 0, 8, 77))
			x.ends(t, 1, "RNR retry exceeded")
			y.nothing(t)
			y.state(t, "RTS")
		})
	}
	t.Logf("RNR counter: %d before, counted: %v", before, counts)
	if !strings.HasPrefix(d.Name, "rxe") {
		return // others were not seen to count it on a way within the device
	}
	for end := time.Now().Add(patience); ; { // values are some milliseconds old
		after, _, _ := verbs.Retries(verbs.HardwareCounters(d.Name, port))
		if after >= before+2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the counter went from %d to %d", before, after)
		}
	}
}

// Queue pairs that share a completion queue are told apart by their numbers, and closing one leaves the others'.
func TestHWSharedQueue(t *testing.T) {
	d := devices(t)[0]
	hub := lone(t, d, spec{})
	var qps []*verbs.QP
	var far []*end
	for range 4 {
		y := lone(t, d, spec{})
		qp, err := hub.c.NewQP(verbs.QPSpec{CQ: hub.cq, SendWRs: 4, RecvWRs: 4})
		if err != nil {
			t.Fatal(err)
		}
		to := y.card().Remote
		to.SGID = hub.gid.Index
		if err := errors.Join(qp.Init(active(d)), qp.PostRecv(uint64(qp.Number())), qp.Connect(to)); err != nil {
			t.Fatal(err)
		}
		c := hub.card()
		c.Remote = qp.Local(hub.gid)
		if err := y.join(c); err != nil {
			t.Fatal(err)
		}
		y.post(t, y.imm(c, 0, 8, qp.Number()))
		qps, far = append(qps, qp), append(far, y)
	}
	seen := map[uint32]int{}
	for _, c := range hub.succeed(t, 4) {
		seen[c.QP]++
		if c.ID != uint64(c.QP) || c.Imm != c.QP {
			t.Errorf("%+v", c)
		}
	}
	if len(seen) != 4 {
		t.Errorf("completions of %v", seen)
	}
	for i, qp := range qps {
		if err := qp.Close(); err != nil {
			t.Error(err)
		}
		far[i].succeed(t, 1)
		for _, rest := range qps[i+1:] {
			if state, err := rest.State(); err != nil || state != "RTS" {
				t.Errorf("%s, %v", state, err)
			}
		}
	}
}

// Fail flushes what was posted.
func TestHWFail(t *testing.T) {
	d := devices(t)[0]
	x, y := pair(t, d, d, spec{})
	y.receive(t, 1, 2, 3)
	x.post(t, x.imm(y.card(), 0, 8, 1))
	y.succeed(t, 1)
	if err := y.qp.Fail(); err != nil {
		t.Fatal(err)
	}
	y.ends(t, 2, "flushed")
	y.state(t, "ERR")
}

// What is made and closed again and again is all given back: the device has only so many of each.
func TestHWNothingLeaks(t *testing.T) {
	d := devices(t)[0]
	for range 50 {
		x, err := newEnd(d, spec{})
		if err != nil {
			t.Fatal(err)
		}
		if err := x.join(x.card()); err != nil { // to itself, which is as good as any
			t.Fatal(err)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		if err := x.Close(); err != nil {
			t.Errorf("a second time: %v", err)
		}
	}
}
