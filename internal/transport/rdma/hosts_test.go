package rdma_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/rdma"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/rdmatest"
)

// wire is how the nodes of a test talk to each other beside the path under test.
type wire struct {
	t    *testing.T
	node int
	in   *json.Decoder
	out  *json.Encoder
}

// meet connects node 0, which listens, with node 1.
func meet(t *testing.T, node int, network, listen, dial string) *wire {
	t.Helper()
	var conn net.Conn
	var err error
	end := time.Now().Add(patience)
	if node == 0 {
		l, lerr := net.Listen(network, listen)
		if lerr != nil {
			t.Fatal(lerr)
		}
		defer l.Close() //nolint:errcheck // it has done its work
		if err := l.(interface{ SetDeadline(time.Time) error }).SetDeadline(end); err != nil {
			t.Fatal(err)
		}
		conn, err = l.Accept()
	} else {
		for conn, err = net.Dial(network, dial); err != nil && time.Now().Before(end); conn, err = net.Dial(network, dial) {
			time.Sleep(20 * time.Millisecond) // until node 0 listens
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{t, node, json.NewDecoder(conn), json.NewEncoder(conn)}
}

// swap tells the other node something and hears the like from it. Neither goes on before both are there.
func swap[T any](w *wire, mine T) T {
	w.t.Helper()
	var theirs T
	if err := w.out.Encode(mine); err != nil {
		w.t.Fatal(err)
	}
	if err := w.in.Decode(&theirs); err != nil {
		w.t.Fatalf("the other node: %v", err)
	}
	return theirs
}

// hostForms are the forms that nodes run.
var hostForms = map[string]rdma.Options{
	"unshared":        forms["unshared"],
	"shared":          forms["shared"],
	"pre-granted":     forms["pre-granted"],
	"write, then imm": forms["write, then imm"],
}

// apart runs every operation between two ranks that have nothing in common but the path, and holds what they counted
// against each other.
func apart(t *testing.T, w *wire) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(hostForms)) {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			g := newRig(t, 2, 1, 64*8192)
			r, err := g.open(t, w.node, hostForms[name], "")
			if err != nil {
				t.Fatal(err)
			}
			addresses := [][]byte{r.ep.Address(), nil}
			addresses[1] = swap(w, addresses[0])
			if w.node == 1 {
				slices.Reverse(addresses)
			}
			if err := r.ep.Connect(t.Context(), addresses); err != nil {
				t.Fatal(err)
			}
			first := uint64(0)
			for _, op := range transport.Ops {
				for _, size := range []uint64{0, 8, 4097, 200000} {
					window := 1
					if op == transport.OpStream || op == transport.OpBidir {
						window = int(min(50, g.region/max(size, 8192)))
					}
					b := batch(op, size, window)
					b.First, first = first, first+10
					swap(w, fmt.Sprint(op, size)) // the other one is ready too
					if r.one(t, b); r.err != nil {
						t.Fatal(r.err)
					}
					checks := w.node == 1 || op == transport.OpBidir || op == transport.OpPingPong
					if want := uint64((b.Warmup+b.Iters)*window) * size; checks && r.result.Checked != want {
						t.Errorf("%s, size %d: %d bytes checked, want %d", op, size, r.result.Checked, want)
					}
				}
			}
			mine := r.ep.Counters()
			theirs := swap(w, mine)
			for _, same := range []string{"qps", "cqs", "comms", "misroutes"} {
				if mine[same] != theirs[same] {
					t.Errorf("%s: %d here, %d there", same, mine[same], theirs[same])
				}
			}
			if hostForms[name].CTS != rdma.CTSPreGranted && (mine["grants"] != theirs["messages"] || theirs["grants"] != mine["messages"]) {
				t.Errorf("%d messages here for %d grants there, and %d there for %d here",
					mine["messages"], theirs["grants"], theirs["messages"], mine["grants"])
			}
			if mine["misroutes"] != 0 || mine["messages"] == 0 {
				t.Errorf("%v", mine)
			}
			swap(w, "nothing is under way any more")
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHWTwoHosts runs on two hosts at once, of which P2PBENCH_NODE is the number of this one, 0 or 1, and P2PBENCH_PEER
// the address of the other. Where there is no other host the test is skipped, or fails where rdma-two-hosts is required.
func TestHWTwoHosts(t *testing.T) {
	const port = "18515"
	node, err := strconv.Atoi(os.Getenv("P2PBENCH_NODE"))
	peer := os.Getenv("P2PBENCH_PEER")
	if err == nil && (node == 0 || node == 1) && peer != "" {
		rdmatest.Ports(t)
		apart(t, meet(t, node, "tcp", ":"+port, net.JoinHostPort(peer, port)))
		return
	}
	const why = "needs another host: P2PBENCH_NODE=0 or 1 and P2PBENCH_PEER (scripts/rxe-vm --two-hosts)"
	if rdmatest.Required("rdma-two-hosts") {
		t.Fatal(why)
	}
	t.Skip(why)
}

// TestTwoNodes is the same between two processes that are no workers of one parent.
func TestTwoNodes(t *testing.T) {
	for node := range 2 {
		t.Run(fmt.Sprint(node), func(t *testing.T) {
			t.Parallel()
			rdmatest.OnFake(t, "", func(t *testing.T) {
				socket := fmt.Sprintf("@p2pbench-test-%d", os.Getppid()) // of both nodes
				apart(t, meet(t, node, "unix", socket, socket))
			})
		})
	}
}
