package verbs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs/verbstest"
)

// roles are what another process of a test does. It talks to the test by JSON over its standard input and output, and
// ends when its input does.
var roles = map[string]func(in *json.Decoder, out *json.Encoder) error{
	"echo": echo, "sender": sender, "flags": flags, "idle": idle,
}

func TestMain(m *testing.M) {
	role, ok := roles[os.Getenv("P2PBENCH_TEST_ROLE")]
	if !ok {
		os.Exit(m.Run())
	}
	if err := role(json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// other is another process.
type other struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.Closer
	enc  *json.Encoder
	dec  *json.Decoder
	said bytes.Buffer // on standard error
	over bool
}

// start runs the role until the test ends.
func start(t *testing.T, role string, env ...string) *other {
	t.Helper()
	o := &other{t: t, cmd: exec.Command("/proc/self/exe")}
	o.cmd.Env = append(os.Environ(), append(env, "P2PBENCH_TEST_ROLE="+role)...)
	o.cmd.Stderr = &o.said
	in, err := o.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	o.in, o.enc, o.dec = in, json.NewEncoder(in), json.NewDecoder(out)
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.finish)
	return o
}

// finish closes the other's input and waits for its end, which must be a good one.
func (o *other) finish() {
	o.t.Helper()
	if o.over {
		return
	}
	o.over = true
	if err := errors.Join(o.in.Close(), o.cmd.Wait()); err != nil {
		o.t.Errorf("%v: %s", err, o.said.String())
	}
}

func (o *other) kill() {
	o.t.Helper()
	if err := o.cmd.Process.Kill(); err != nil {
		o.t.Fatal(err)
	}
	if err := o.cmd.Wait(); err == nil {
		o.t.Error("it ended before")
	}
	o.over = true
}

func (o *other) tell(v any) {
	o.t.Helper()
	if err := o.enc.Encode(v); err != nil {
		o.t.Fatal(err)
	}
}

func (o *other) hear(v any) {
	o.t.Helper()
	if err := o.dec.Decode(v); err != nil {
		o.t.Fatal(err)
	}
}

// meet connects an end of this process with one of the other's.
func (o *other) meet(e *end) card {
	o.t.Helper()
	var c card
	o.tell(e.card())
	o.hear(&c)
	if err := e.join(c); err != nil {
		o.t.Fatal(err)
	}
	return c
}

// second makes the end of a role, on the last device, and connects it.
func second(in *json.Decoder, out *json.Encoder, s spec) (*end, card, error) {
	var c card
	found, err := verbs.Devices()
	if found = usable(found); err != nil || len(found) == 0 {
		return &end{}, c, fmt.Errorf("no device: %w", err)
	}
	if s.depth == 0 {
		s.depth = 64
	}
	e, err := newEnd(found[len(found)-1], s)
	if err != nil {
		return e, c, err
	}
	if err := in.Decode(&c); err != nil {
		return e, c, err
	}
	for id := range uint64(8) {
		if err := e.qp.PostRecv(id); err != nil {
			return e, c, err
		}
	}
	if err := e.join(c); err != nil {
		return e, c, err
	}
	return e, c, out.Encode(e.card())
}

// untilClosed waits for the end of the input.
func untilClosed(in *json.Decoder) error {
	var more any
	if err := in.Decode(&more); !errors.Is(err, io.EOF) {
		return fmt.Errorf("heard %v, %w", more, err)
	}
	return nil
}

// echo sends back every message with an immediate, its bytes turned round, until an immediate of 0.
func echo(in *json.Decoder, out *json.Encoder) error {
	e, to, err := second(in, out, spec{})
	if err != nil {
		return errors.Join(err, e.Close())
	}
	for {
		got, err := e.wait(1)
		if err != nil {
			return err
		}
		c := got[0]
		if c.Err != nil || !c.Recv || c.Imm == 0 {
			return errors.Join(c.Err, e.Close())
		}
		for i := range e.mem[:c.Bytes] {
			e.mem[i] = ^e.mem[i]
		}
		if err := e.qp.PostRecv(c.ID); err != nil {
			return err
		}
		if err := e.qp.PostSend(e.imm(to, 0, c.Bytes, c.Imm+1)); err != nil {
			return err
		}
		if got, err = e.wait(1); err != nil || got[0].Err != nil || got[0].Recv {
			return fmt.Errorf("%+v, %w", got, err)
		}
	}
}

// sender sends as many immediates as it is told, one after the other, and tells how they ended.
func sender(in *json.Decoder, out *json.Encoder) error {
	e, to, err := second(in, out, spec{})
	if err != nil {
		return errors.Join(err, e.Close())
	}
	var n uint32
	if err := in.Decode(&n); err != nil {
		return err
	}
	for i := range n {
		if err := e.qp.PostSend(e.imm(to, 0, 64, i+1)); err != nil {
			return err
		}
		got, err := e.wait(1)
		if err != nil {
			return err
		}
		if err := out.Encode(verbs.WCStatus(got[0].Status)); err != nil {
			return err
		}
	}
	return errors.Join(untilClosed(in), e.Close())
}

// idle connects and does nothing.
func idle(in *json.Decoder, out *json.Encoder) error {
	e, _, err := second(in, out, spec{})
	if err != nil {
		return errors.Join(err, e.Close())
	}
	return errors.Join(untilClosed(in), e.Close())
}

// Between processes as between real hosts: bytes before their completion, both ways, and nothing left.
func TestHWProcesses(t *testing.T) {
	a := devices(t)[0]
	x := lone(t, a, spec{})
	x.receive(t, 0, 1)
	to := start(t, "echo").meet(x)
	for i, n := range []uint32{1, 8, 0, 500, 4096, 100_000} {
		want := make([]byte, n)
		fill(x.mem[:n], byte(i))
		for j, v := range x.mem[:n] {
			want[j] = ^v
		}
		x.post(t, x.imm(to, 0, n, uint32(10*i+10)))
		for _, c := range x.succeed(t, 2) { // the send's and the answer's, in either order
			if c.Recv && (c.Imm != uint32(10*i+11) || c.Bytes != n) {
				t.Errorf("%d bytes: %+v", n, c)
			}
			if c.Recv {
				x.receive(t, c.ID)
			}
		}
		if !bytes.Equal(x.mem[:n], want) {
			t.Errorf("%d bytes came back wrong", n)
		}
	}
	x.post(t, x.imm(to, 0, 0, 0))
	x.succeed(t, 1)
}

// A flag behind its data, in one write, is not seen before them by a process that looks at its memory only.
func TestFakeFlagBehindData(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		a, _ := two(t)
		x := lone(t, a, spec{})
		to := start(t, "flags").meet(x)
		for _, n := range flagSizes {
			flag := (*uint64)(unsafe.Pointer(&x.mem[n-8]))
			for i := uint64(1); i < 100; i++ {
				want := i * 0x0101010101010101
				for end := time.Now().Add(patience); atomic.LoadUint64(flag) != want; {
					if time.Now().After(end) {
						t.Fatalf("no flag %d in %d bytes", i, n)
					}
				}
				if ready := bytes.Count(x.mem[:n], []byte{byte(i)}); ready != n {
					t.Fatalf("flag %d came before %d of %d bytes", i, n-ready, n)
				}
				x.post(t, x.imm(to, 0, 0, 1))
				x.succeed(t, 1)
			}
		}
	})
}

// flagSizes are of messages that end in a flag, which is where none was before.
var flagSizes = []int{64, 512, 520, 8192}

// flags writes messages of each size, each after the one before was answered.
func flags(in *json.Decoder, out *json.Encoder) error {
	e, to, err := second(in, out, spec{})
	if err != nil {
		return errors.Join(err, e.Close())
	}
	for _, n := range flagSizes {
		for i := byte(1); i < 100; i++ {
			copy(e.mem, bytes.Repeat([]byte{i}, n))
			if err := e.qp.PostSend(e.write(to, 0, uint32(n))); err != nil {
				return err
			}
			got, err := e.wait(2) // the write, and the answer
			if err != nil || got[0].Err != nil || got[1].Err != nil {
				return fmt.Errorf("%+v, %w", got, err)
			}
			if err := e.qp.PostRecv(0); err != nil {
				return err
			}
		}
	}
	return errors.Join(untilClosed(in), e.Close())
}

func TestFakeProcesses(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		a, _ := two(t)
		t.Run("several at a time", func(t *testing.T) {
			var ends []*end
			var to []card
			for range 4 {
				e := lone(t, a, spec{})
				e.receive(t, 0)
				ends = append(ends, e)
				to = append(to, start(t, "echo").meet(e))
			}
			for i, e := range ends {
				e.mem[0] = byte(i)
				e.post(t, e.imm(to[i], 0, 1, uint32(i+1)))
			}
			for i, e := range ends {
				e.succeed(t, 2)
				if e.mem[0] != ^byte(i) {
					t.Errorf("process %d answered %d", i, e.mem[0])
				}
				e.post(t, e.imm(to[i], 0, 0, 0))
				e.succeed(t, 1)
			}
		})
		t.Run("waits for a receive", func(t *testing.T) {
			x := lone(t, a, spec{})
			o := start(t, "sender", "FAKEVERBS_FAULT=rnr=2")
			o.meet(x)
			o.tell(3)
			for i := range uint64(3) {
				x.receive(t, i)
				var status string
				o.hear(&status)
				if c := x.succeed(t, 1)[0]; c.Imm != uint32(i+1) || c.ID != i || status != "success" {
					t.Errorf("%+v, %s", c, status)
				}
			}
		})
		t.Run("wrong key", func(t *testing.T) {
			x := lone(t, a, spec{})
			o := start(t, "sender", "FAKEVERBS_FAULT=bad-rkey=2")
			o.meet(x)
			o.tell(2)
			x.receive(t, 1, 2, 3)
			for _, want := range []string{"success", "remote access error"} {
				var status string
				o.hear(&status)
				if status != want {
					t.Errorf("%s, want %s", status, want)
				}
			}
			x.ends(t, 3, "success", "flushed")
			x.state(t, "ERR")
			if text, ok := x.c.Event(); !ok || !strings.Contains(text, "the remote end accessed memory") {
				t.Errorf("event %q, %v", text, ok)
			}
		})
		t.Run("leaves", func(t *testing.T) {
			x := lone(t, a, spec{})
			o := start(t, "idle")
			to := o.meet(x)
			x.post(t, x.imm(to, 0, 8, 1))
			x.succeed(t, 1)
			o.finish()
			x.post(t, x.imm(to, 0, 8, 1))
			x.post(t, x.imm(to, 0, 8, 1))
			x.ends(t, 2, "retry exceeded", "flushed")
		})
	})
}

// A process that is killed answers no more, and nothing of it stays in the machine.
func TestFakeKilled(t *testing.T) {
	if !child(t) {
		fake{}.rerun(t, "^TestFakeKilled$", "P2PBENCH_TEST_CHILD="+t.Name()) // its log has what the killed one had
		return
	}
	a, _ := two(t)
	x := lone(t, a, spec{})
	o := start(t, "idle")
	to := o.meet(x)
	x.post(t, x.imm(to, 0, 8, 1))
	x.succeed(t, 1)
	if !hasTrace(t, x.qp.Number()) || !hasTrace(t, to.Remote.Number) {
		t.Error("a process that lives has no name")
	}
	o.kill()
	x.post(t, x.imm(to, 0, 0, 1))
	x.post(t, x.write(to, 0, 8))
	x.ends(t, 2, "retry exceeded", "flushed")
	if !hasTrace(t, x.qp.Number()) || hasTrace(t, to.Remote.Number) {
		t.Error("a process that was killed has its name still, or one that lives has none")
	}
}

// hasTrace reports whether the process of a queue pair has a name in the machine. None ever has a file.
func hasTrace(t *testing.T, number uint32) bool {
	t.Helper()
	if files, err := filepath.Glob("/dev/shm/*fakeverbs*"); err != nil || len(files) > 0 {
		t.Errorf("%q, %v", files, err)
	}
	sockets, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(sockets), fmt.Sprintf("@p2pbench-fakeverbs-%d-%d\n", os.Getuid(), number>>10))
}

// The fake is built without the source tree, and its faults are not mistaken.
func TestFakeUnknownFault(t *testing.T) {
	lib := verbstest.Build(t)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestHWDevices$")
	cmd.Env = append(os.Environ(), verbstest.Env(lib, "few-cqs=3")...)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), `FAKEVERBS_FAULT: "few-cqs" is unknown`) {
		t.Errorf("%v: %s", err, out)
	}
}
