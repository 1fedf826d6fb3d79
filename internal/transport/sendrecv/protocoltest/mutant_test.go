package protocoltest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	pt "github.com/p2pbench/p2pbench/internal/transport/sendrecv/protocoltest"
)

// A mutant is the protocol with a fault, and a plan under which some schedule shows it.
type mutant struct {
	name     string
	old, new string // in protocol.h
	found    string // by this plan of the cases, …
	as       string // … with this in what it says
}

var mutants = []mutant{
	// Staged.
	{
		"no drain", "if (a->drain == 0)\n\t\treturn 1;", "return 1;",
		"change/stride one way", "lost",
	},
	{
		"drain forgets the last block", "ok && b < a->drain", "ok && b + 1 < a->drain",
		"change/stride and fewer blocks", "",
	},
	{
		"drain lets one step be", "sr_load_counter(&a->count[b].sent))", "sr_load_counter(&a->count[b].sent) - 1)",
		"change/stages", "",
	},
	{
		"credit one too many", "step + 1 - a->stages", "step - a->stages",
		"staged/2 stages 3 steps", "lost",
	},
	{
		"credit one too few", "return step < a->stages ? 0 : step + 1 - a->stages", "return step < a->stages ? 0 : step + 2 - a->stages",
		"staged/1 stages 2 steps", "deadlock",
	},
	{
		"no wait for room", "if (g->rank == 0 && *seen < want) {", "if (0) {",
		"staged/1 stages 2 steps", "lost",
	},
	{
		"room seen that is not there", "*seen = want;", "*seen = want + 1;",
		"staged/2 stages 3 steps", "",
	},
	{
		"room seen that is not acquired", "*seen = sr_load(word);", "*seen = sr_load_counter(word);",
		"staged/2 stages 3 steps", "race",
	},
	{
		"counters of the other role are read", "if (roles & SR_SEND) {\n\t\tc.sent", "if (1) {\n\t\tc.sent",
		"staged/1 stages 1 steps both ways", "other role",
	},
	{
		"counters of the other role are written", "if (roles & SR_RECEIVE) {\n\t\tsr_store_counter", "if (1) {\n\t\tsr_store_counter",
		"staged/1 stages 1 steps both ways", "other role",
	},
	{
		"other threads do not wait for room", "*seen = want;\n\t}\n\treturn sr_vote(g, ok);", "*seen = want;\n\t}\n\treturn ok;",
		"staged/two threads", "",
	},
	{
		"other threads do not wait for a step", "ok = sr_poll(a, role, block, word, want);\n\treturn sr_vote(g, ok);",
		"ok = sr_poll(a, role, block, word, want);\n\treturn ok;",
		"staged/two threads", "",
	},
	{
		"tail before the barrier", "SR_FN void sr_publish(struct sr_group *g, sr_u64 *word, sr_u64 value) {\n\tsr_sync(g);",
		"SR_FN void sr_publish(struct sr_group *g, sr_u64 *word, sr_u64 value) {",
		"staged/two threads", "",
	},
	{
		"head before the barrier", "SR_FN void sr_publish_read(struct sr_group *g, sr_u64 *word, sr_u64 value) {\n\tsr_sync(g);",
		"SR_FN void sr_publish_read(struct sr_group *g, sr_u64 *word, sr_u64 value) {",
		"staged/two threads", "",
	},
	{
		"tail without a release", "sr_publish(g, &a->peer_in->tail[block].value, step + 1);",
		"sr_publish_read(g, &a->peer_in->tail[block].value, step + 1);",
		"staged/1 stages 1 steps", "race",
	},
	{
		"tail before the copy",
		"sr_copy(g, a->peer_staging + sr_slot(a, block, step), a->src + c->offset + s.from + at, n);\n\t\tsr_publish(g, &a->peer_in->tail[block].value, step + 1);",
		"sr_publish(g, &a->peer_in->tail[block].value, step + 1);\n\t\tsr_copy(g, a->peer_staging + sr_slot(a, block, step), a->src + c->offset + s.from + at, n);",
		"staged/1 stages 1 steps", "",
	},
	{
		"head before the copy",
		"sr_copy(g, a->dst + c->offset + s.from + at, a->staging + sr_slot(a, block, step), n);\n\t\tsr_publish_read(g, &a->peer_out->head[block].value, step + 1);",
		"sr_publish_read(g, &a->peer_out->head[block].value, step + 1);\n\t\tsr_copy(g, a->dst + c->offset + s.from + at, a->staging + sr_slot(a, block, step), n);",
		"staged/1 stages 2 steps", "",
	},
	{
		"takes a step that has not come", "&a->in->tail[block].value, step + 1)", "&a->in->tail[block].value, step)",
		"staged/2 stages 2 steps", "",
	},
	{
		"polls tail once and does not wait", "if (!sr_await(a, g, SR_RECEIVE, block, &a->in->tail[block].value, step + 1))\n\t\t\treturn 0;",
		"if (sr_load_counter(&a->in->tail[block].value) < step + 1 &&\n\t\t    !sr_await(a, g, SR_RECEIVE, block, &a->in->tail[block].value, step + 1))\n\t\t\treturn 0;",
		"staged/2 stages 2 steps", "race",
	},
	{
		"all steps in one slot", "step % a->stages) * a->stride", "0) * a->stride",
		"staged/2 stages 2 steps", "",
	},
	{
		"slots of blocks overlap", "((sr_u64)block * a->stages + step", "((sr_u64)block + step",
		"staged/two blocks", "",
	},
	{
		"slot of the wrong stage", "return ((sr_u64)block * a->stages + step % a->stages)", "return ((sr_u64)block * a->stages + step % (a->stages + 1))",
		"staged/two blocks", "",
	},
	{
		"32 bits of a step", "sr_u64 step = c->sent;", "sr_u64 step = (sr_u32)c->sent;",
		"staged/beyond 32 bits", "",
	},
	{
		"steps are not kept", "c->received = step;", "",
		"staged/1 stages 1 steps", "",
	},
	{
		"shares overlap", "s.from = each * block < bytes ? each * block", "s.from = each * block < bytes ? (each - SR_GRAIN) * block",
		"staged/two blocks", "",
	},
	{
		"last share too long", "s.bytes = bytes - s.from < each ? bytes - s.from : each;", "s.bytes = s.from < bytes ? each : 0;",
		"staged/odd end", "",
	},

	// Put.
	{
		"put without a credit", "sr_await_credit(a, g, block, head, message, &c->head)", "sr_await_credit(a, g, block, head, message - 1, &c->head)",
		"put/one by one", "",
	},
	{
		"one credit too many", "message - 1 + a->credits", "message + a->credits",
		"put/one by one", "",
	},
	{
		"one credit too few", "message - 1 + a->credits", "message - 2 + a->credits",
		"put/window", "",
	},
	{
		"every message of a window gives credits", "if (a->credits && sr_first(c) && g->rank == 0)", "if (a->credits && g->rank == 0)",
		"put/resident", "",
	},
	{
		"put not waited for", "&a->in->tail[block].value, message)", "&a->in->tail[block].value, message - 1)",
		"put/one by one", "",
	},
	{
		"put counts a message without a share", "const sr_u64 message = c->sent + 1;\n\tif (s.bytes == 0)\n\t\treturn 1;", "const sr_u64 message = c->sent + 1;",
		"put/blocks without a share", "deadlock",
	},
	{
		"put before the barrier", "sr_publish(g, &a->peer_in->tail[block].value, message);",
		"if (g->rank == 0)\n\t\tsr_store(&a->peer_in->tail[block].value, message);",
		"put/two threads", "",
	},

	// Lines.
	{
		"ll credit one too many", "message + 1 - SR_LL_SLOTS", "message - SR_LL_SLOTS",
		"ll/more than slots", "lost",
	},
	{
		"ll credit that does not come", "message + 1 - SR_LL_SLOTS", "message + 3 - SR_LL_SLOTS",
		"ll/both ways", "deadlock",
	},
	{
		"ll one slot", "block * SR_LL_SLOTS + (sr_u32)message % SR_LL_SLOTS", "block * SR_LL_SLOTS",
		"ll/more than slots", "",
	},
	{
		"ll blocks share lines", "slot * (2 * SR_LL_BYTES)", "slot * 16",
		"ll/two blocks", "",
	},
	{
		"flag that becomes 0", "(next & 0xffffffffu) + (next >> 32)", "next & 0xffffffffu",
		"ll/flag wraps", "",
	},
	{
		"flag of the slot", "(sr_u32)folded + (sr_u32)(folded >> 32)", "(sr_u32)(message % SR_LL_SLOTS) + 1",
		"ll/more than slots", "",
	},
	{
		"ll lines are not given back", "if (g->rank == 0)\n\t\tsr_store_after_read(&a->peer_out->ll_head[block].value, c->ll_received);", "",
		"ll/more than slots", "deadlock",
	},
	{
		"ll taken before the barrier", "if (sr_vote(g, ok && room))", "if (ok)",
		"ll/two threads", "",
	},
	{
		"ll room that is not checked", "sr_now(g->rank != 0 || c->ll_head >= want)", "1",
		"ll/resident both ways", "race",
	},
	{
		"ll room seen that is not acquired", "*seen = sr_load(word);", "*seen = sr_load_counter(word);",
		"ll/resident both ways", "race",
	},
	{
		"ll room that is kept", "c->ll_credit = 0;", "",
		"ll/resident, then one way", "",
	},
	{
		"ll word of the first line only", "ok && at < l.reach; at += n * step, on", "ok && at < l.reach; at += 2 * n * step, on",
		"ll/sizes", "",
	},
	{
		"ll sends the message before", "(sr_u8 *)a->src + c->offset + ahead * a->spacing", "(sr_u8 *)a->src + c->offset",
		"ll/resident", "",
	},
	{
		"ll single that is not", "if (all % 8)\n\t\treturn 0;", "",
		"ll/sizes", "",
	},
	{
		"ll sends every other line", "if (at + k * step < l->mine)\n\t\t\t\tsr_put(l, on + k * bytes", "if (k == 0)\n\t\t\t\tsr_put(l, on + k * bytes",
		"ll/three lines", "",
	},
	{
		"ll single of several lines", "return s->bytes && s->bytes <= sr_lines_payload(g, form)", "return s->bytes",
		"ll/more than slots", "",
	},
	{
		"ll128 payload for a flag", "data[i] = l->flag;", "data[i] = ~l->flag;",
		"ll128/sizes", "",
	},
	{
		"ll128 flag of 32 bits that is 0", "return form & SR_WIDE ? next :", "return form & SR_WIDE ? (sr_u32)next :",
		"ll128/flag beyond 32 bits", "",
	},
	{
		"ll128 flag for payload", "if (sr_is_flag(l, i, form))\n\t\t\tcontinue;", "if (0)\n\t\t\tcontinue;",
		"ll128/flag not payload", "",
	},
	{
		"ll128 blocks share lines", "slot * (SR_WIDE_LINES * SR_WIDE_LINE)", "slot * SR_WIDE_LINE",
		"ll128/two blocks", "",
	},
}

// Faults of the primitives: explore.c knows them by number.
var flaws = []struct {
	name   string
	number int
	found  string
}{
	{"one half of a line is not looked at", 1, "ll/more than slots"},
	{"a store releases nothing", 2, "staged/1 stages 1 steps"},
	{"a barrier that does not wait", 3, "staged/two threads"},
	{"a line of 128 bytes whose flag comes first", 4, "ll128/sizes"},
}

const protocolHeader = "../../../gpu/abi/protocol.h"

// build makes a library of the explorer with a protocol.
func build(t *testing.T, protocol string, flags ...string) *pt.Explorer {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"explore.c", "kernel.h", "memory.h", "plan.h", "schedule.h"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(source(t, name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Found before the original, which -I names last.
	abi := filepath.Join(dir, "gpu", "abi")
	if err := os.MkdirAll(abi, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(abi, "protocol.h"), []byte(protocol), 0o600); err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(dir, "explore.so")
	args := append([]string{"-std=gnu11", "-shared", "-fPIC", "-U_FORTIFY_SOURCE", "-I" + dir, "-I../../..", "-o", library, filepath.Join(dir, "explore.c")}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	e, err := pt.Load(library)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func source(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func planOf(t *testing.T, name string) pt.Plan {
	t.Helper()
	group, name, _ := strings.Cut(name, "/")
	for _, c := range cases()[group] {
		if c.name == name {
			return c.plan
		}
	}
	t.Fatalf("no plan %s/%s", group, name)
	return pt.Plan{}
}

// TestMutants shows that the plans of TestEverySchedule would fail if the protocol were wrong.
func TestMutants(t *testing.T) {
	protocol := source(t, protocolHeader)
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if n := strings.Count(protocol, m.old); n != 1 {
				t.Fatalf("%q is in protocol.h %d times, not once: what is the mutant now?", m.old, n)
			}
			e := build(t, strings.Replace(protocol, m.old, m.new, 1))
			r := e.Explore(planOf(t, m.found))
			if r.Failed == "" || !strings.Contains(r.Failed, m.as) {
				t.Errorf("%s: found %q, want %q in it, after %d schedules\n%s", m.found, r.Failed, m.as, r.Executions, r.Trace)
			}
			t.Logf("after %d schedules: %s", r.Executions, r.Failed)
		})
	}
}

func TestFlaws(t *testing.T) {
	for _, f := range flaws {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			r := build(t, source(t, protocolHeader), fmt.Sprintf("-DPT_FLAW=%d", f.number)).Explore(planOf(t, f.found))
			if r.Failed == "" {
				t.Errorf("%s: nothing found in %d schedules", f.found, r.Executions)
			}
			t.Logf("after %d schedules: %s", r.Executions, r.Failed)
		})
	}
}

// TestReadValuesAreKept checks an assumption by which the explorer compares states: what a thread saw of
// a peer's word without waiting for it is in its counters, and nowhere else.
func TestReadValuesAreKept(t *testing.T) {
	kept := 0
	for line := range strings.Lines(source(t, protocolHeader)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "*\t") || strings.HasPrefix(line, "SR_FN ") {
			continue
		}
		if strings.Contains(line, "sr_load(") && line != "*seen = sr_load(word);" ||
			strings.Contains(line, "sr_poll_once(") && !strings.Contains(line, "&c->") {
			t.Errorf("protocol.h: %q: the explorer does not know of that value", line)
		}
		if strings.Contains(line, "sr_poll_once(") {
			kept++
		}
	}
	if kept == 0 {
		t.Error("no sr_poll_once found")
	}
}
