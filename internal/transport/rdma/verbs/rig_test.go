package verbs_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs"
)

// patience is how long something that must happen may take.
const patience = 20 * time.Second

const all = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead

// end is one end of a connection: a queue pair with its own queue for completions and registered memory.
type end struct {
	c   *verbs.Context
	cq  *verbs.CQ
	qp  *verbs.QP
	mr  *verbs.MR
	gid verbs.GID
	mem []byte
}

// card is what the other end must know.
type card struct {
	Remote verbs.Remote
	Addr   uint64
	RKey   uint32
}

// size is that of an end's memory.
const size = 1 << 20

type spec struct {
	verbs.QPSpec
	port   int // 0: the first that is active
	depth  int // of the completion queue
	access verbs.Access
}

// newEnd opens the device and makes everything up to INIT. What the spec leaves out is enough for most tests.
func newEnd(device verbs.Device, s spec) (e *end, err error) {
	e = &end{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	port := s.port
	if port == 0 {
		port = active(device)
	}
	if e.gid, err = device.DefaultGID(port); err != nil {
		return e, err
	}
	if e.c, err = verbs.Open(device.Name); err != nil {
		return e, err
	}
	if e.mem, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		return e, err
	}
	if s.access == 0 {
		s.access = all
	}
	if e.mr, err = e.c.Register(e.addr(), size, s.access); err != nil {
		return e, err
	}
	if e.cq, err = e.c.NewCQ(max(s.depth, 1)); err != nil {
		return e, err
	}
	s.CQ = e.cq
	for _, n := range []*int{&s.SendWRs, &s.RecvWRs} {
		if *n == 0 {
			*n = 16
		}
	}
	if s.AckTimeout == 0 {
		s.AckTimeout = 14 // half a second until a dead peer is given up
	}
	if e.qp, err = e.c.NewQP(s.QPSpec); err != nil {
		return e, err
	}
	return e, e.qp.Init(port)
}

func addrOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func (e *end) addr() uintptr { return addrOf(e.mem) }

func (e *end) card() card {
	return card{Remote: e.qp.Local(e.gid), Addr: uint64(e.addr()), RKey: e.mr.RKey}
}

func (e *end) join(c card) error {
	c.Remote.SGID = e.gid.Index
	return e.qp.Connect(c.Remote)
}

// Close closes what there is, in the order that it takes.
func (e *end) Close() error {
	var errs []error
	if e.qp != nil {
		errs = append(errs, e.qp.Close())
	}
	if e.cq != nil {
		errs = append(errs, e.cq.Close())
	}
	if e.mr != nil {
		errs = append(errs, e.mr.Close())
	}
	if e.c != nil {
		errs = append(errs, e.c.Close())
	}
	if e.mem != nil {
		errs = append(errs, unix.Munmap(e.mem))
		e.mem = nil
	}
	return errors.Join(errs...)
}

// wait polls until n completions are there.
func (e *end) wait(n int) ([]verbs.Completion, error) {
	var out []verbs.Completion
	for end := time.Now().Add(patience); len(out) < n; {
		got, err := e.cq.Poll(n - len(out))
		if err != nil {
			return out, err
		}
		if out = append(out, got...); len(got) == 0 && time.Now().After(end) {
			return out, fmt.Errorf("%d completions after %v, want %d: %+v", len(out), patience, n, out)
		}
	}
	return out, nil
}

func (e *end) mustWait(t *testing.T, n int) []verbs.Completion {
	t.Helper()
	out, err := e.wait(n)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// succeed waits for n completions, none of which may have failed.
func (e *end) succeed(t *testing.T, n int) []verbs.Completion {
	t.Helper()
	out := e.mustWait(t, n)
	for _, c := range out {
		if c.Err != nil {
			t.Fatal(c.Err)
		}
	}
	return out
}

// ends waits for n completions and holds them against words that each one's status must have.
func (e *end) ends(t *testing.T, n int, words ...string) {
	t.Helper()
	for i, c := range e.mustWait(t, n) {
		want := words[min(i, len(words)-1)]
		if got := verbs.WCStatus(c.Status); !strings.HasPrefix(got, want) {
			t.Errorf("completion %d of %d: %s (%v), want %s", i, n, got, c.Err, want)
		}
		if (c.Err == nil) != (want == "success") || c.QP != e.qp.Number() {
			t.Errorf("completion %d of %d: %+v", i, n, c)
		}
	}
}

// nothing holds that no completion is there.
func (e *end) nothing(t *testing.T) {
	t.Helper()
	got, err := e.cq.Poll(1)
	if err != nil || len(got) > 0 {
		t.Errorf("unexpected %+v, %v", got, err)
	}
}

func (e *end) post(t *testing.T, s verbs.Send) {
	t.Helper()
	if err := e.qp.PostSend(s); err != nil {
		t.Fatal(err)
	}
}

func (e *end) receive(t *testing.T, ids ...uint64) {
	t.Helper()
	for _, id := range ids {
		if err := e.qp.PostRecv(id); err != nil {
			t.Fatal(err)
		}
	}
}

func (e *end) state(t *testing.T, want string) {
	t.Helper()
	var got string
	for end := time.Now().Add(patience); time.Now().Before(end); {
		var err error
		if got, err = e.qp.State(); err != nil {
			t.Fatal(err)
		}
		if got == want {
			return
		}
	}
	t.Errorf("state %s, want %s", got, want)
}

// write is a write of n bytes from an offset to the same offset of the other end.
func (e *end) write(to card, offset, n uint32) verbs.Send {
	return verbs.Send{
		ID: uint64(offset), Op: verbs.Write, Addr: e.addr() + uintptr(offset), Bytes: n, LKey: e.mr.LKey,
		Remote: to.Addr + uint64(offset), RKey: to.RKey,
	}
}

func (e *end) imm(to card, offset, n, imm uint32) verbs.Send {
	s := e.write(to, offset, n)
	s.Op, s.Imm = verbs.WriteImm, imm
	return s
}

// pair makes two connected ends; closing them must leave nothing.
func pair(t *testing.T, a, b verbs.Device, s spec) (x, y *end) {
	t.Helper()
	x, y = lone(t, a, s), lone(t, b, s)
	for _, err := range []error{x.join(y.card()), y.join(x.card())} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return x, y
}

// lone makes an end in INIT.
func lone(t *testing.T, d verbs.Device, s spec) *end {
	t.Helper()
	if s.depth == 0 {
		s.depth = 64
	}
	e, err := newEnd(d, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if qps, cqs, mrs := e.c.Objects(); qps+cqs+mrs != 0 {
			t.Errorf("%d queue pairs, %d completion queues, %d regions are left", qps, cqs, mrs)
		}
	})
	return e
}

// active is the number of the device's first port that can send, or of its first.
func active(d verbs.Device) int {
	return 1 + max(0, slices.IndexFunc(d.Ports, func(p verbs.Port) bool { return p.State == "ACTIVE" }))
}

// usable are the devices between which connections can be made: with an active port, and a link like the first one's.
func usable(found []verbs.Device) []verbs.Device {
	var out []verbs.Device
	for _, d := range found {
		if d.Err != nil || d.Transport != "InfiniBand" {
			continue
		}
		p := d.Ports[active(d)-1]
		if p.State == "ACTIVE" && (len(out) == 0 || p.LinkLayer == out[0].Ports[active(out[0])-1].LinkLayer) {
			out = append(out, d)
		}
	}
	return out
}

// devices are the usable ones. Without one the test is skipped, or fails when P2PBENCH_REQUIRE says that there must be
// RDMA.
func devices(t *testing.T) []verbs.Device {
	t.Helper()
	found, err := verbs.Devices()
	if out := usable(found); err == nil && len(out) > 0 {
		return out
	}
	if slices.Contains(strings.Split(os.Getenv("P2PBENCH_REQUIRE"), ","), "rdma") {
		t.Fatalf("P2PBENCH_REQUIRE asks for rdma: %v, %+v", err, found)
	}
	t.Skipf("no RDMA device with an active port: %v, %+v", err, found)
	return nil
}

func says(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, s := range parts {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v does not say %q", err, s)
		}
	}
}

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8) ^ seed
	}
}
