package main

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/p2pbench/p2pbench/internal/claim"
	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs/verbstest"
)

// eachTest calls f for every test of every claim.
func eachTest(t *testing.T, f func(t *testing.T, test claim.Test)) {
	t.Helper()
	for _, c := range claim.All() {
		for _, test := range c.Tests {
			t.Run(c.ID+":"+test.Name, func(t *testing.T) { f(t, test) })
		}
	}
}

// Every arm is a valid command, on GPUs too.
func TestEveryArmCanBeTyped(t *testing.T) {
	eachTest(t, func(t *testing.T, test claim.Test) {
		for _, kind := range []string{host.Kind, "cuda"} {
			a, b := claimsFlags{deviceSettings: deviceSettings{Device: kind, GPUs: []int{0, 0}}}.commands(test, kind)
			for _, command := range [][]string{a, b} {
				if command == nil {
					continue
				}
				if !strings.HasSuffix(strings.Join(command, " "), "--device "+kind+" --gpus 0,0") {
					t.Errorf("%q does not name the devices", command)
				}
				arm, err := claimsFlags{}.parse(command)
				if err == nil {
					_, err = arm.arm()
				}
				if err != nil {
					t.Errorf("%s: %v", strings.Join(command, " "), err)
				}
			}
		}
	})
}

// Both arms are in one plan, A first in every cell, with interleaved rounds.
func TestEveryTestIsOnePlan(t *testing.T) {
	t.Setenv("P2PBENCH_LIBIBVERBS", verbstest.Build(t)) // two NICs
	f := claimsFlags{deviceSettings: deviceSettings{Device: host.Kind}, runSettings: runSettings{Timeout: time.Minute}}
	eachTest(t, func(t *testing.T, test claim.Test) {
		test = test.On(false)
		a, b := f.commands(test, host.Kind)
		tr, err := f.plan(test, a, b)
		needsGPU := func(a claim.Arm) bool {
			return strings.HasPrefix(a.Baseline, "nccl") || slices.ContainsFunc(a.Args, func(s string) bool {
				return a.Args[0] == "ipc" && slices.Contains([]string{"ce", "sm", "bulk", "proxy"}, s)
			})
		}
		if needsGPU(test.A) || needsGPU(test.B) {
			if !errors.Is(err, gpu.ErrUnsupported) {
				t.Errorf("NCCL or a GPU's engine between CPU memory: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		arms, ranks := 1, 2
		if test.Paired() {
			arms = 2
		}
		if i := slices.Index(test.A.Args, "--ranks"); i >= 0 {
			ranks, _ = strconv.Atoi(test.A.Args[i+1])
		}
		p := tr.plan
		if len(p.Arms) != arms || len(tr.ranks) != arms || len(tr.target.ranks) != ranks || tr.common.Timeout != time.Minute {
			t.Fatalf("%d arms of ranks %v on %d devices, timeout %v", len(p.Arms), tr.ranks, len(tr.target.ranks), tr.common.Timeout)
		}
		if arms == 2 && (p.Arms[1].Name != test.B.Label || string(p.Arms[0].Options) == string(p.Arms[1].Options)) {
			t.Errorf("the arms are %+v", p.Arms)
		}
		if len(p.Cells) != len(test.Sizes) {
			t.Fatalf("%d cells for %d sizes", len(p.Cells), len(test.Sizes))
		}
		for i, cell := range p.Cells {
			if cell.Size != test.Sizes[i] || string(cell.Op) != test.Op || cell.Iters != test.Iters || cell.Warmup != test.Warmup {
				t.Errorf("cell %+v", cell)
			}
			if arms == 2 && cell.Rounds < 2 {
				t.Errorf("size %d: the arms do not take turns", cell.Size)
			}
		}
	})
}

// A claim whose run fails is not measurable, and the command returns the error after it has measured the other claims.
func TestClaimThatBreaksDown(t *testing.T) {
	c := newCommand(t, "claims", "run", "uccl-876/relay-unchanged", "mpich-7862/lru-cliff", "--device", "host", "--quick", "-q",
		"--format", "json")
	c.begin(t)
	var pids []int
	eventually(t, "the first test has its workers", func() bool {
		pids = c.workers()
		return len(pids) == 2
	})
	if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := c.end(t); code != exitLost {
		t.Errorf("exit code %d, want %d", code, exitLost)
	}
	text, err := complaint(c.stderr.String())
	if err != nil || !strings.HasPrefix(text, "uccl-876/relay-unchanged: rank 1: killed by signal 9") {
		t.Errorf("%q, %v", text, err)
	}
	var d claim.Document
	if err := json.Unmarshal(c.stdout.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Claims) != 2 || d.Exit != exitLost {
		t.Fatalf("%d claims, exit %d", len(d.Claims), d.Exit)
	}
	theirs, cliff := d.Claims[0].Tests[0], d.Claims[1].Tests[0]
	if theirs.Verdict != claim.NotMeasurable || !strings.Contains(theirs.Why, "killed by signal 9") {
		t.Errorf("the broken test: %s: %s", theirs.Verdict, theirs.Why)
	}
	if len(cliff.Rows) != 1 || cliff.Rows[0].B == nil {
		t.Errorf("the test after it: %+v", cliff)
	}
}

func TestInterruptedClaims(t *testing.T) {
	c := newCommand(t, "claims", "run", "all", "--device", "host", "--out", filepath.Join(t.TempDir(), "claims.json"))
	c.begin(t)
	eventually(t, "there are workers", func() bool { return len(c.workers()) == 2 })
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := c.end(t); code != exitInterrupt {
		t.Errorf("exit code %d, want %d", code, exitInterrupt)
	}
	if text, err := complaint(c.stderr.String()); err != nil || text != "interrupted" {
		t.Errorf("%q, %v", text, err)
	}
	if c.stdout.Len() > 0 {
		t.Errorf("stdout, though no claim was finished: %s", c.stdout.String())
	}
}

// Every preset uses existing flags with valid values, on GPUs and on CPU memory.
func TestEveryPresetIsFlags(t *testing.T) {
	for _, p := range claim.Presets() {
		for _, gpu := range []bool{false, true} {
			f, ok := pathNamed(p.Path)
			if !ok {
				t.Fatalf("%s: no path command %q", p.Name, p.Path)
			}
			fs := pflag.NewFlagSet(p.Path, pflag.ContinueOnError)
			f.register(fs)
			for _, s := range p.On(gpu) {
				if err := fs.Set(s.Name, s.Value); err != nil {
					t.Errorf("%s: --%s %s: %v", p.Name, s.Name, s.Value, err)
				}
				if slices.Contains(presetFree, s.Name) {
					t.Errorf("%s: --%s is the user's", p.Name, s.Name)
				}
			}
			if _, err := f.arm(); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
		}
	}
}

// The flags that may be combined with presets exist on every path.
func TestPresetsLeaveFlagsThatThereAre(t *testing.T) {
	for _, p := range pathCommands() {
		fs := pflag.NewFlagSet(p.name, pflag.ContinueOnError)
		f := p.flags()
		f.register(fs)
		for _, name := range append(slices.Clone(presetFree), f.shared().traits.free...) {
			if fs.Lookup(name) == nil {
				t.Errorf("%s: --%s is left to the user, and there is no such flag", p.name, name)
			}
		}
	}
}

// On a GPU a preset selects the pull request's engine.
func TestPresetOnGPU(t *testing.T) {
	p, _ := claim.PresetNamed("uccl-876-anchor")
	f, _ := pathNamed(p.Path)
	fs := pflag.NewFlagSet(p.Path, pflag.ContinueOnError)
	f.register(fs)
	if err := fs.Parse([]string{"--engine", "sm"}); err != nil {
		t.Fatal(err)
	}
	err := f.shared().presetAgrees(p.Name, p.On(true))
	if want := "--engine sm: --preset uccl-876-anchor runs --engine ce: leave one of them out"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := f.shared().presetAgrees(p.Name, p.On(false)); err == nil || !strings.Contains(err.Error(), "sets its own configuration") {
		t.Errorf("between CPU memories: %v", err)
	}
}
