package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs/verbstest"
)

// overFake runs `p2pbench rdma` over a fake libibverbs with two devices and returns its exit code.
func overFake(t *testing.T, env []string, args ...string) (*command, int) {
	t.Helper()
	c := newCommand(t, append([]string{"rdma", "--device", "host", "-q", "--timeout", "30s"}, args...)...)
	c.Env = append(c.Env, env...)
	c.begin(t)
	return c, c.end(t)
}

// rightOverFake is a run that must succeed and leave no process.
func rightOverFake(t *testing.T, args ...string) record.Document {
	t.Helper()
	env, count := verbstest.Log(t)
	c, code := overFake(t, append(env, verbstest.Env(verbstest.Build(t))...), append(args, "--format", "json")...)
	if code != exitOK || c.stderr.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, c.stderr.String())
	}
	left, made := count()
	if len(left) > 0 || made["qp"] == 0 {
		t.Errorf("left behind %v of %v", left, made)
	}
	d := document(t, c.stdout.String())
	for _, cell := range d.Cells {
		if cell.Verified == nil || !*cell.Verified || cell.Counters["misroutes"] != 0 || cell.Counters["messages"] == 0 {
			t.Errorf("%s %d: verified %v, counters %v", cell.Op, cell.Size, cell.Verified, cell.Counters)
		}
	}
	return d
}

// Every operation, without sharing, with one group, and with one group per connection: the number of queue pairs is
// right, all connections carry messages, and no message is misrouted.
func TestRDMAGroups(t *testing.T) {
	for groups, qps := range map[int]uint64{0: 32, 1: 1, 4: 4, 16: 16} {
		t.Run(fmt.Sprint(groups), func(t *testing.T) {
			own := "1"
			if groups == 0 {
				own = "2"
			}
			d := rightOverFake(t, "--groups", fmt.Sprint(groups), "--qps", own, "--window", "2", "--windows", "2", "-n", "10",
				"--sizes", "1,100K", "--op", "latency,stream,bidir,pingpong")
			if len(d.Cells) != 8 {
				t.Fatalf("%d cells", len(d.Cells))
			}
			for _, c := range d.Cells {
				if c.Counters["qps"] != 2*qps || c.Counters["comms"] != 32 { // both directions
					t.Errorf("%s: %d queue pairs, %d connections, want %d and 32", c.Op, c.Counters["qps"], c.Counters["comms"], 2*qps)
				}
				_, shares := c.Counters["setup_shared_ns"]
				if sharing := groups > 0 && groups < 16; shares != sharing {
					t.Errorf("%s: set-up of those that share is known: %v, want %v", c.Op, shares, sharing)
				}
				if c.Knobs["groups"] != fmt.Sprint(groups) || c.Knobs["soft"] != "true" || c.Knobs["window"] != "2" {
					t.Errorf("knobs %v", c.Knobs)
				}
			}
			checkTraffic(t, d)
		})
	}
}

// checkTraffic compares the messages of the connections with those of the cell.
func checkTraffic(t *testing.T, d record.Document) {
	t.Helper()
	for _, c := range d.Cells {
		if c.Op != "stream" && c.Op != "bidir" {
			continue
		}
		ranks := 1
		if c.Op == "bidir" {
			ranks = 2
		}
		if c.Window != 64 || len(c.Conns) != 16*ranks || c.Fairness == nil {
			t.Errorf("%s %d: window %d, %d connections, fairness %v", c.Op, c.Size, c.Window, len(c.Conns), c.Fairness)
			continue
		}
		for i, conn := range c.Conns {
			if conn.Rank != i/16 || conn.Conn != i%16 || conn.Messages != uint64(c.N*c.Window/16) || conn.P50 <= 0 {
				t.Errorf("%s %d: %+v", c.Op, c.Size, conn)
			}
		}
	}
}

// Every setting works, and is in the knobs of the result.
func TestRDMAKnobs(t *testing.T) {
	for _, flags := range []string{
		"--cts pre-granted", "--route fifo", "--completion write+imm", "--completion memory", "--burst 16", "--signal-every 8", "--inline 0", "--inline 16",
		"--close-order fifo", "--close-order random", "--gid-index 0", "--mr reg", "--qps 4", "--conns 3",
	} {
		t.Run(flags, func(t *testing.T) {
			args := strings.Fields(flags)
			d := rightOverFake(t, append(args, "--op", "latency,stream", "--sizes", "8,5000", "-n", "10", "--windows", "2")...)
			got, want := d.Cells[0].Knobs[strings.TrimPrefix(args[0], "--")], args[1]
			if args[0] == "--gid-index" {
				got, want = fmt.Sprint(strings.HasSuffix(d.Cells[0].Knobs["gid"], "index 0)")), "true"
			}
			if got != want {
				t.Errorf("%s: the result says %q in %v", flags, got, d.Cells[0].Knobs)
			}
		})
	}
}

// Messages that are seen in memory take no grant and are routed by nothing, whatever the defaults say; in trains or
// not, every one of them is checked.
func TestRDMAInMemory(t *testing.T) {
	for _, train := range []string{"1", "7"} {
		d := rightOverFake(t, "--completion", "memory", "--burst", train, "--groups", "4", "--sizes", "1,5000", "-n", "20",
			"--windows", "2", "--op", "latency,stream,bidir,pingpong")
		for _, c := range d.Cells {
			k := c.Knobs
			if c.Path != "memory" || k["cts"] != "pre-granted" || k["route"] != "none" || k["burst"] != train || c.Counters["grants"] != 0 {
				t.Errorf("%s: path %s, %v, %v", c.Op, c.Path, k, c.Counters)
			}
			if c.N != 20 {
				t.Errorf("%s %d: %d samples, want 20", c.Op, c.Size, c.N)
			}
		}
	}
}

// Fan-out and fan-in: the sum of GB/s is over all pairs.
func TestRDMAFan(t *testing.T) {
	for how, senders := range map[string][]int{"out": {0, 0}, "in": {1, 2}} {
		t.Run(how, func(t *testing.T) {
			d := rightOverFake(t, "--fan", how, "--groups", "2", "--conns", "4", "--sizes", "8,64K", "-n", "10", "--windows", "2")
			if len(d.Cells) != 4 || len(d.Env.Ranks) != 3 {
				t.Fatalf("%d cells of %d ranks", len(d.Cells), len(d.Env.Ranks))
			}
			c := d.Cells[3]
			if c.Op != "stream" || c.Ranks != 3 || c.Knobs["fan"] != how || *c.BWSum != 2**c.BWPerDir {
				t.Errorf("%s of %d ranks, fan %s, %v GB/s each, %v in sum", c.Op, c.Ranks, c.Knobs["fan"], *c.BWPerDir, *c.BWSum)
			}
			var got []int
			for _, conn := range c.Conns {
				got = append(got, conn.Rank)
			}
			slices.Sort(got)
			if len(got) != 8 || got[0] != senders[0] || got[7] != senders[1] {
				t.Errorf("connections of ranks %v, want 4 each of %v", got, senders)
			}
		})
	}
}

// The table names the NICs and has the figures of the connections.
func TestRDMATable(t *testing.T) {
	c, code := overFake(t, verbstest.Env(verbstest.Build(t)), "--groups", "4", "--sizes", "8,64K", "-n", "10", "--windows", "2", "--vs", "memcpy")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, c.stderr.String())
	}
	text := strings.Join(strings.Fields(c.stdout.String()), " ") // undo the line breaks
	for _, want := range []string{
		`^latency: rdma, .*NIC fake0,fake1, GID 10\.88\.0\.1 \(RoCE v2, index 1\), MTU \d+, soft-RoCE, completion receiver`,
		`connections: minimum–maximum over connections`,
		` 64K 16 `,
		`baselines, interleaved: memcpy cpu-memcpy`,
		`misroutes 0, .*qps 4, cqs 4, .*comms 16, queues of .*, set-up of a connection .* µs, of one that shares .* µs`,
		`vendor not available: UDMA mask .*CTS offload`,
		`caveat the CPU emulates the NIC \(soft-RoCE\): only ratios within one run`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %s in:\n%s", want, c.stdout.String())
		}
	}
}

// Every fault ends the run with its exit code and a one-line error.
func TestRDMAFaults(t *testing.T) {
	for fault, want := range map[string]struct {
		code int
		text string
	}{
		"bad-rkey=200":          {exitLost, `remote access error$|memory that it may not use$`},
		"port-down-after=400":   {exitLost, `fake[01]: port error: port 1 is down$`},
		"removed-after=400":     {exitLost, `fake[01]: device removed or failed$`},
		"memlock":               {exitUsage, `cannot allocate memory .*this process may lock .*ulimit -l`},
		"no-gid":                {exitUsage, `no GID: its network interface has no address: give it one and bring it up`},
		"few-qps=5":             {exitUsage, `connection 6 of 16: .*of 5 queue pairs that the device can have this process has 5$`},
		"few-wr=4":              {exitUsage, `the device allows 4 sends and 4 receives .*use a smaller --window`},
		"few-cqe=10":            {exitUsage, `completion queue of 10 entries\): use a smaller --window`},
		"drop-imm=20":           {exitLost, `misrouted: a completion of a receive`},
		"fake1/bad-rkey=100":    {exitLost, `remote access error$|memory that it may not use$`},
		"fake0/removed-after=9": {exitLost, `fake0: device removed or failed$`},
	} {
		t.Run(fault, func(t *testing.T) {
			c, code := overFake(t, verbstest.Env(verbstest.Build(t), fault), "--sizes", "8,4K", "-n", "100", "--windows", "2")
			text, err := complaint(c.stderr.String())
			if code != want.code || err != nil || !regexp.MustCompile(want.text).MatchString(text) {
				t.Errorf("exit code %d, %q (%v), want %d and %q", code, text, err, want.code, want.text)
			}
		})
	}
}

// Limits of a device reduce the depth of queues, and the result has a warning.
func TestRDMASmallDevice(t *testing.T) {
	for fault, want := range map[string]string{
		"few-cqe=300": "completion queue of 300 entries instead of 768, which is the most that the device allows",
		"few-wr=100":  "send queue of 100 entries instead of 512, which is the most that the device allows",
	} {
		t.Run(fault, func(t *testing.T) {
			c, code := overFake(t, verbstest.Env(verbstest.Build(t), fault), "--sizes", "8,4K", "-n", "20", "--windows", "2", "--format", "json")
			if code != exitOK {
				t.Fatalf("exit code %d: %s", code, c.stderr.String())
			}
			d := document(t, c.stdout.String())
			n := 0
			for _, text := range d.Warnings {
				if text == want {
					n++
				}
			}
			if n != 1 {
				t.Errorf("warnings %q, want once %q", d.Warnings, want)
			}
		})
	}
}

// A message without a posted receive is retransmitted completely.
func TestRDMANotReady(t *testing.T) {
	env, count := verbstest.Log(t)
	c, code := overFake(t, append(env, verbstest.Env(verbstest.Build(t), "rnr=5")...), "--op", "latency,bidir", "--sizes", "4K", "-n", "20", "--format", "json")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, c.stderr.String())
	}
	for _, cell := range document(t, c.stdout.String()).Cells {
		if cell.Verified == nil || !*cell.Verified || cell.Counters["messages"] == 0 {
			t.Errorf("%s: verified %v, counters %v", cell.Op, cell.Verified, cell.Counters)
		}
	}
	if _, made := count(); made["rnr"] != 2*5 {
		t.Errorf("%d messages met no receive, want 5 of each rank", made["rnr"])
	}
}

// The preset measures all arms interleaved, and its table has a row for each.
func TestRDMAPreset(t *testing.T) {
	d := rightOverFake(t, "--preset", "anp-20")
	if d.Preset != "anp-20" || len(d.Cells) != 3 {
		t.Fatalf("%d cells of preset %q", len(d.Cells), d.Preset)
	}
	qps := map[string]uint64{
		"unshared, QPs 4": 64, "unshared, QPs 1": 16, "unshared, depth 2": 16, "groups 1, depth 2": 1, "groups 2, depth 2": 2,
		"groups 8, depth 2": 8, "groups 16, depth 2": 16, "groups 4, depth 1": 4, "groups 4, depth 4": 4, "groups 4, depth 8": 4,
	}
	for _, c := range d.Cells {
		if c.Counters["qps"] != 4 || len(c.Vs) != len(qps) {
			t.Errorf("%d queue pairs, %d arms", c.Counters["qps"], len(c.Vs))
		}
		for _, v := range c.Vs {
			if v.Counters["qps"] != qps[v.Name] || len(v.Conns) != 16 || v.Fairness == nil {
				t.Errorf("%s: %d queue pairs, %d connections", v.Name, v.Counters["qps"], len(v.Conns))
			}
		}
	}
}

// The claims about counters are reproduced on the fake.
func TestRDMAClaims(t *testing.T) {
	c := newCommand(t, "claims", "run", "anp-20/sharing-saves-qps", "anp-20/setup-time", "--device", "host", "--quick", "-q", "--require")
	c.Env = append(c.Env, verbstest.Env(verbstest.Build(t))...)
	c.begin(t)
	if code := c.end(t); code != exitOK {
		t.Errorf("exit code %d: %s\n%s", code, c.stderr.String(), c.stdout.String())
	}
	for _, want := range []string{"A qps 4; B qps 64", "A cqs 4; B cqs 16", "B setup_ns ", "caveat .*only ratios"} {
		if !regexp.MustCompile(want).MatchString(c.stdout.String()) {
			t.Errorf("no %s in:\n%s", want, c.stdout.String())
		}
	}
}
