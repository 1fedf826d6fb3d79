package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// The parent receives a worker's error with its class, its text and the details of a corruption.
func TestFailureCrosses(t *testing.T) {
	corrupt := &transport.CorruptError{Path: "ipc", Op: transport.OpLatency, Size: 8, Iteration: 3, Offset: 5, Expected: 1, Got: 2, Count: 1}
	for _, c := range []struct {
		err   error
		class error
	}{
		{fmt.Errorf("ipc: %w", corrupt), ErrCorrupt},
		{fmt.Errorf("ipc: %w", &abi.Error{Class: abi.ErrTimeout, Text: "waited 1 s"}), ErrHang},
		{fmt.Errorf("ipc: %w", &abi.Error{Class: abi.ErrAborted}), abi.ErrAborted},
		{fmt.Errorf("cuda: %w", gpu.ErrUnsupported), gpu.ErrUnsupported},
		{&abi.Error{Class: abi.ErrDevice, Text: "cuMemcpy: broken (1)"}, ErrFailed},
		{errors.New("anything"), ErrFailed},
	} {
		b, err := json.Marshal(reply{Failed: toWire(c.err)})
		if err != nil {
			t.Fatal(err)
		}
		var r reply
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		f := &Failure{Rank: 1, Class: r.Failed.class(), Text: r.Failed.Text}
		if !errors.Is(f, c.class) {
			t.Errorf("%v: class %v, want %v", c.err, f.Class, c.class)
		}
		if want := "rank 1: " + c.err.Error(); f.Error() != want {
			t.Errorf("got %q, want %q", f, want)
		}
		if got := r.Failed.Corrupt; (got != nil) != errors.Is(c.class, ErrCorrupt) || got != nil && *got != *corrupt {
			t.Errorf("%v: figures %+v", c.err, got)
		}
	}
	if class := (&failedReply{Class: "of a later version"}).class(); !errors.Is(class, ErrFailed) {
		t.Errorf("an unknown class is %v, want %v", class, ErrFailed)
	}
}

// The error of a hang has the state of every rank; that of a refused batch has not.
func TestFailureText(t *testing.T) {
	states := []abi.State{
		{Phase: abi.PhaseTimed, Size: 4096, Iter: 17, Waiting: "the receiver's acknowledgement", Want: 18, Have: 17},
		{Phase: abi.PhaseIdle},
	}
	doing := "; rank 0 was in phase timed, size 4096, iteration 17, waiting for the receiver's acknowledgement (want 18, have 17)" +
		"; rank 1 was in phase idle, size 0, iteration 0"
	for _, c := range []struct {
		class error
		want  string
	}{
		{ErrHang, "rank 1: text" + doing},
		{ErrCrash, "rank 1: text" + doing},
		{ErrCorrupt, "rank 1: text"},
		{ErrFailed, "rank 1: text"},
		{gpu.ErrUnsupported, "rank 1: text"},
	} {
		f := &Failure{Rank: 1, Class: c.class, Text: "text", States: states}
		if f.Error() != c.want {
			t.Errorf("%v: %q, want %q", c.class, f, c.want)
		}
	}
}

func TestWatchdog(t *testing.T) {
	beats := func(b ...uint64) (s []abi.State) {
		for _, n := range b {
			s = append(s, abi.State{Beat: n})
		}
		return s
	}
	long := func(w *watchdog) { w.since = w.since.Add(-w.limit - time.Second) }
	w := newWatchdog(time.Hour) // this test does not wait
	defer w.stop()
	if w.limit != time.Hour+grace {
		t.Errorf("limit %v: a rank's own deadline must come first", w.limit)
	}
	if w.stuck(beats(0, 0)) {
		t.Error("stuck before anything was tried")
	}
	long(w)
	if w.stuck(beats(0, 1)) {
		t.Error("one rank's progress is progress")
	}
	if w.stuck(beats(0, 1)) {
		t.Error("stuck a moment after progress")
	}
	long(w)
	w.progressed()
	if w.stuck(beats(0, 1)) {
		t.Error("a reply is progress")
	}
	long(w)
	if !w.stuck(beats(0, 1)) {
		t.Error("nothing moves and nobody says so")
	}
}

// A worker that does not read is a hang, also for a request that is larger than the socket's buffer.
func TestSendToNobody(t *testing.T) {
	t.Parallel()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	p := &process{rank: 1, control: ours, enc: json.NewEncoder(ours)}
	large := request{Connect: &connectRequest{Addresses: [][][]byte{{make([]byte, 16<<20)}}}}
	ended := make(chan error, 1)
	go func() { ended <- p.send(large, time.Millisecond) }()
	select {
	case err := <-ended:
		if !errors.Is(err, ErrHang) || !strings.Contains(err.Error(), "rank 1: did not read a request for 2.001s") {
			t.Errorf("got %v, want a hang", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("waits for a reader for ever")
	}
	_ = theirs.Close()
	p.enc = json.NewEncoder(ours) // an encoder remembers its first failure
	if err := p.send(large, time.Second); err != nil {
		t.Errorf("a worker that has gone: %v; its end tells more", err)
	}
}

func TestPrefixer(t *testing.T) {
	for _, c := range []struct {
		writes []string
		want   string
	}{
		{nil, ""},
		{[]string{"one\n"}, "rank 1: one\n"},
		{[]string{"one\ntwo\n"}, "rank 1: one\nrank 1: two\n"},
		{[]string{"o", "n", "e\ntw", "o\n"}, "rank 1: one\nrank 1: two\n"},
		{[]string{"no end"}, "rank 1: no end\n"},
		{[]string{"\n\n"}, "rank 1: \nrank 1: \n"},
	} {
		var b bytes.Buffer
		p := &prefixer{w: &b, prefix: "rank 1: "}
		for _, w := range c.writes {
			if n, err := p.Write([]byte(w)); n != len(w) || err != nil {
				t.Errorf("%q: %d, %v", w, n, err)
			}
		}
		p.flush()
		p.flush()
		if b.String() != c.want {
			t.Errorf("%q: %q, want %q", c.writes, b.String(), c.want)
		}
	}
}

func TestCommandLine(t *testing.T) {
	plain, err := commandLine(nil)
	if err != nil || strings.Join(plain, " ") != "/proc/self/exe worker" {
		t.Errorf("%v, %v", plain, err)
	}
	launcher := make([]string, 2, 8)
	copy(launcher, []string{"emulator", "-x"})
	got, err := commandLine(launcher)
	if err != nil || len(got) != 4 || got[0] != "emulator" || got[1] != "-x" || got[3] != "worker" {
		t.Errorf("%v, %v", got, err)
	}
	if strings.Contains(got[2], "/proc/self") {
		t.Errorf("%s would be the launcher itself", got[2])
	}
	if again, _ := commandLine(launcher); len(again) != 4 || len(launcher) != 2 {
		t.Errorf("the launcher's own line changed: %v", launcher)
	}
}

// Decoding arbitrary bytes from the control socket does not panic, and decoded messages can be encoded again.
func FuzzRequest(f *testing.F) {
	seed(f, request{Init: &initRequest{Run: "r", Devices: []gpu.Info{{Kind: "host"}}, Arms: []Arm{{Name: "ipc", Options: []byte(`{}`)}}}},
		request{Connect: &connectRequest{Addresses: [][][]byte{{nil, []byte("x")}}}},
		request{Run: &runRequest{Batch: transport.Batch{Op: transport.OpBidir, Size: 1 << 40}}}, request{Finish: &finishRequest{}})
	f.Fuzz(func(t *testing.T, b []byte) { again[request](t, b) })
}

func FuzzReply(f *testing.F) {
	temperature := uint32(40)
	seed(f, reply{Opened: &openedReply{Opened: Opened{Clock: "TSC", Health: &gpu.Health{TemperatureC: &temperature}}}},
		reply{Connected: &connectedReply{Paths: []transport.Path{{Path: "direct"}}}}, reply{Finished: &finishedReply{CPUSeconds: 1}},
		reply{Ran: &ranReply{Samples: []int64{1, -2}}}, reply{Failed: &failedReply{Class: "hang", Corrupt: &transport.CorruptError{}}})
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, ok := again[reply](t, b); ok && r.Failed != nil && r.Failed.class() == nil {
			t.Error("a failure of no class")
		}
	})
}

func seed[T any](f *testing.F, messages ...T) {
	for _, m := range messages {
		b, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Add([]byte("null\n{}"))
}

func again[T any](t *testing.T, b []byte) (T, bool) {
	var first, second T
	if json.NewDecoder(bytes.NewReader(b)).Decode(&first) != nil {
		return first, false
	}
	text, err := json.Marshal(first)
	if err != nil {
		t.Fatalf("%q was understood and cannot be said: %v", b, err)
	}
	if err := json.Unmarshal(text, &second); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	other, err := json.Marshal(second)
	if err != nil || !bytes.Equal(text, other) {
		t.Fatalf("%q becomes %q: %v", text, other, err)
	}
	return first, true
}

// An outcome has the unchanged connections of all ranks that sent.
func TestConnectionsOfAllRanks(t *testing.T) {
	var o Outcome
	for rank := range 2 {
		sent := reply{Ran: &ranReply{Result: transport.Result{Conns: []transport.ConnStat{
			{Rank: rank, Conn: 3, Messages: 5, BusyNS: 1 << 40, Latency: [][2]int64{{100, 4}, {1 << 40, 1}}},
		}}}}
		b, err := json.Marshal(sent)
		if err != nil {
			t.Fatal(err)
		}
		var got reply
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(sent, got); d != "" {
			t.Errorf("sent (-), got (+):\n%s", d)
		}
		o.merge(got.Ran, nil)
	}
	if len(o.Conns) != 2 || o.Conns[0].Rank != 0 || o.Conns[1].Rank != 1 {
		t.Errorf("%+v", o.Conns)
	}
}

// If both ranks take samples, as in bidir, a sample is the maximum of both.
func TestSlowerRankCounts(t *testing.T) {
	var o Outcome
	for _, r := range []ranReply{
		{Samples: []int64{5, 1, 9}, Result: transport.Result{FirstNS: 7}},
		{Samples: []int64{3, 4, 9}, Result: transport.Result{FirstNS: 6}},
		{Result: transport.Result{FirstNS: 8}}, // a rank that did not time
	} {
		o.merge(&r, nil)
	}
	if want := []int64{5, 4, 9}; !slices.Equal(o.Samples, want) || o.FirstNS != 8 {
		t.Errorf("samples %v, first %d, want %v, 8", o.Samples, o.FirstNS, want)
	}
}
