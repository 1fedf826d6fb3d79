package claim

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/stats"
)

// Every claim has the parts that its verdict needs.
func TestClaimsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range All() {
		if seen[c.ID] || strings.Count(c.ID, "/") != 1 {
			t.Errorf("%s: not one of its kind", c.ID)
		}
		seen[c.ID] = true
		for what, text := range map[string]string{"title": c.Title, "source": c.Source, "published": c.Published, "differs": c.Differs} {
			if strings.TrimSpace(text) == "" {
				t.Errorf("%s: no %s", c.ID, what)
			}
		}
		names := map[string]bool{}
		for _, test := range c.Tests {
			if names[test.Name] || test.Name == "" && len(c.Tests) > 1 {
				t.Errorf("%s: a test's name %q tells it from no other", c.ID, test.Name)
			}
			names[test.Name] = true
			checkTest(t, c.ID+":"+test.Name, test)
			checkOnHost(t, c.ID+":"+test.Name, test)
		}
		if len(c.Tests) == 0 {
			t.Errorf("%s: nothing is tested", c.ID)
		}
	}
	if len(seen) != 32 {
		t.Errorf("%d claims, want 32", len(seen))
	}
}

// givesInterval reports whether n samples are enough for an interval of the median.
func givesInterval(n int) bool {
	_, _, _, ok := stats.MedianRanks(n, confidence)
	return ok
}

func checkTest(t *testing.T, id string, test Test) {
	t.Helper()
	if len(test.Expect) == 0 || len(test.Sizes) == 0 || !givesInterval(test.Iters) || test.Warmup < 0 {
		t.Errorf("%s: nothing is expected, or nothing measured: %+v", id, test)
	}
	if q := test.Quick(); !givesInterval(q.Iters) || q.Iters > test.Iters || q.Warmup != test.Warmup {
		t.Errorf("%s: quick takes %d samples after %d", id, q.Iters, q.Warmup)
	}
	var at []uint64
	for size := range test.Factors {
		at = append(at, size)
	}
	for _, e := range test.Expect {
		switch e := e.(type) {
		case Faster:
			at = append(at, e.At...)
		case Equal:
			at = append(at, e.At...)
		case Near:
			for size := range e.RoundTripUS {
				at = append(at, size)
			}
			if test.Paired() || test.Op != "pingpong" {
				t.Errorf("%s: a published round trip is held against an arm alone, in pingpong", id)
			}
		case FirstSlower:
			if test.Warmup != 0 {
				t.Errorf("%s: the first message is in the warm-up", id)
			}
		case Count:
			if e.Of == B && !test.Paired() || e.Per == PerOther && !test.Paired() {
				t.Errorf("%s: %s: there is no B", id, e)
			}
		case Times:
			if !test.Paired() || e.Min <= 0 || e.More == e.Less {
				t.Errorf("%s: %s says nothing", id, e)
			}
		}
	}
	for _, size := range at {
		if !slices.Contains(test.Sizes, size) {
			t.Errorf("%s: something is said of %d, which is not measured", id, size)
		}
	}
}

// checkOnHost checks that sizes for CPU memory fit a small machine and have expectations.
func checkOnHost(t *testing.T, id string, test Test) {
	t.Helper()
	onHost := test.On(false)
	for _, size := range onHost.Sizes {
		if size > 256<<20 {
			t.Errorf("%s: %d bytes between CPU memories", id, size)
		}
	}
	if !slices.Equal(test.On(true).Sizes, test.Sizes) {
		t.Errorf("%s: other sizes on GPUs", id)
	}
	expects := slices.ContainsFunc(test.Expect, func(e Expectation) bool {
		at := []uint64(nil)
		switch e := e.(type) {
		case Faster:
			at = e.At
		case Equal:
			at = e.At
		}
		return at == nil || slices.ContainsFunc(onHost.Sizes, func(n uint64) bool { return slices.Contains(at, n) })
	})
	if !expects {
		t.Errorf("%s: nothing is expected between CPU memories", id)
	}
}

// A run that hangs is not reproduced if the claim is that it ends, and not measurable otherwise.
func TestEnds(t *testing.T) {
	must := Test{A: Arm{Label: "a"}, Op: "bidir", Sizes: []uint64{8}, Expect: []Expectation{Ends{}, Intact{}}}
	may := must
	may.Expect = []Expectation{Intact{}}
	hung := Run{Absent: "rank 0: no progress for 5s", Hung: true}
	if o := must.Judge(hung); o.Verdict != NotReproduced || o.Why != hung.Absent {
		t.Errorf("%s: %s", o.Verdict, o.Why)
	}
	if o := may.Judge(hung); o.Verdict != NotMeasurable {
		t.Errorf("where nobody said that it ends: %s", o.Verdict)
	}
	if o := must.Judge(Run{Absent: "no GPU"}); o.Verdict != NotMeasurable {
		t.Errorf("where it cannot run: %s", o.Verdict)
	}
	c := cellOf(8, around(50, 1000, 10), nil)
	c.Op = "bidir"
	if o := must.Judge(Run{Cells: []record.Cell{c}}); o.Verdict != Reproduced {
		t.Errorf("it ended: %s: %s", o.Verdict, o.Why)
	}
}

// The published rates agree with the published times, so neither is mistyped.
func TestPublishedTableAgreesWithItself(t *testing.T) {
	check := func(size uint64, name string, ms, gbs float64) {
		low, high := 2*float64(size)/(ms+0.0005)/1e6, 2*float64(size)/(ms-0.0005)/1e6
		if gbs < low-0.005 || gbs > high+0.005 {
			t.Errorf("%s at %d: %v GB/s, but %v ms gives %.3f to %.3f", name, size, gbs, ms, low, high)
		}
	}
	for _, r := range UCCLCompare {
		check(r.Size, "UKernel", r.UKernelMS, r.UKernelGBs)
		check(r.Size, "UCCL", r.UCCLMS, r.UCCLGBs)
		check(r.Size, "NCCL", r.NCCLMS, r.NCCLGBs)
	}
	if f := ncclFactors()[1<<10]; math.Abs(f-0.108/0.047) > 1e-12 {
		t.Errorf("NCCL's time over UKernel's at 1K is %v", f)
	}
}

func TestFind(t *testing.T) {
	ids := func(args ...string) []string {
		claims, err := Find(args)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, c := range claims {
			out = append(out, c.ID)
		}
		return out
	}
	if got := ids("mpich-7862/lru-cliff", "uccl-876/vs-nccl", "mpich-7862/lru-cliff"); !slices.Equal(got, []string{"uccl-876/vs-nccl", "mpich-7862/lru-cliff"}) {
		t.Errorf("two claims, one of them twice: %q", got)
	}
	if got := ids("mpich-7862"); len(got) != 5 {
		t.Errorf("a pull request: %q", got)
	}
	if got := ids("all", "uccl-876"); len(got) != len(All()) {
		t.Errorf("all: %d of %d", len(got), len(All()))
	}
}

func TestUnknownClaim(t *testing.T) {
	for id, want := range map[string]string{
		"uccl-876/direct":     `no claim "uccl-876/direct": did you mean uccl-876/direct-vs-handshake?`,
		"export":              `no claim "export": did you mean uccl-876/export-cache?`,
		"cache-off":           `no claim "cache-off": did you mean mpich-7862/cache-off?`,
		"mpich-7862/xyz":      `no claim "mpich-7862/xyz": there are mpich-7862/direct-hit, mpich-7862/cache-off, `,
		"nvshmem-71/depth":    `no claim "nvshmem-71/depth": use all, one of uccl-876, mpich-7862, anp-20, torchcomms-2728, p2pbench, or an ID from`,
		"":                    `no claim "": use all`,
		"uccl-876/vs-nccl/on": `no claim "uccl-876/vs-nccl/on": there are uccl-876/direct-vs-handshake, `,
	} {
		if _, err := Find([]string{"all", id}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", id, err, want)
		}
	}
}

func TestCommand(t *testing.T) {
	test := Test{
		A: ipcArm("a", "--path", "direct"), B: Arm{Label: "nccl", Baseline: "nccl"}, Op: "pingpong",
		Sizes: []uint64{1 << 10, 3 << 20, 1500}, Iters: 7, Warmup: 0,
	}
	for _, tt := range []struct {
		arm  Arm
		gpu  bool
		want string
	}{
		{test.A, false, "ipc --path direct --op pingpong --sizes 1K,3M,1500 --iters 7 --warmup 0"},
		{test.A, true, "ipc --path direct --engine ce --op pingpong --sizes 1K,3M,1500 --iters 7 --warmup 0"},
		{test.B, true, "ipc --path direct --engine ce --op pingpong --sizes 1K,3M,1500 --iters 7 --warmup 0 --vs nccl"},
	} {
		if got := strings.Join(test.Command(tt.arm, tt.gpu), " "); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}

// The pull request's kernel also stages small messages: every arm and preset of it has --ll-max 0, and p2pbench's own
// claim has not.
func TestTorchcommsProtocol(t *testing.T) {
	staged := func(args []string) bool {
		i := slices.Index(args, "--ll-max")
		return i >= 0 && args[i+1] == "0"
	}
	arms := 0
	for _, c := range All() {
		for _, test := range c.Tests {
			for _, a := range []Arm{test.A, test.B} {
				if !slices.Contains(a.Args, "ws") {
					continue
				}
				arms++
				if theirs := c.Seed() == "torchcomms-2728"; staged(a.Args) != theirs {
					t.Errorf("%s: %q", c.ID, a.Args)
				}
			}
		}
	}
	for _, p := range Presets() {
		if slices.Contains(p.Flags, Flag{"variant", "ws"}) != slices.Contains(p.Flags, Flag{"ll-max", "0"}) {
			t.Errorf("%s: %v", p.Name, p.Flags)
		}
	}
	if arms < 10 {
		t.Errorf("%d arms only", arms)
	}
}

// Reading what Write has written gives the same document, with empty lists in place of nil.
func TestDocument(t *testing.T) {
	test := faster()
	cell := cellOf(1<<10, around(50, 1000, 10), around(50, 2000, 10))
	cell.Counters["checked_bytes"], cell.Counters["payload_bytes"] = 50<<11, 50<<11
	o := test.Judge(Run{Cells: []record.Cell{cell}})
	absent := test.Judge(Run{Absent: "no GPU"})
	d := Document{
		Schema: Schema, Command: []string{"p2pbench"}, Warnings: []string{},
		Claims: []Result{Claim{ID: "x-1/y"}.Conclude([]Outcome{o, absent}, true)},
	}
	var b bytes.Buffer
	if err := Write(&b, d); err != nil {
		t.Fatal(err)
	}
	again, err := Read(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	var second bytes.Buffer
	if err := Write(&second, again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), second.String()); diff != "" {
		t.Errorf("came back as another:\n%s", diff)
	}
	for _, list := range []string{`"rows": []`, `"cells": []`, `"warnings": []`} {
		if !strings.Contains(b.String(), list) {
			t.Errorf("no %s in:\n%s", list, b.String())
		}
	}
	short := d.WithoutSamples()
	if short.Claims[0].Tests[0].Cells[0].SamplesNS != nil || d.Claims[0].Tests[0].Cells[0].SamplesNS == nil {
		t.Error("samples are in the short document, or gone from the long one")
	}
}

func TestPresets(t *testing.T) {
	for _, p := range Presets() {
		got, ok := PresetNamed(p.Name)
		if !ok || got.Title != p.Title || len(p.Flags) == 0 || p.Title == "" || p.Path == "" {
			t.Errorf("%s: %+v", p.Name, got)
		}
	}
	if _, ok := PresetNamed(""); ok {
		t.Error("there is a preset without a name")
	}
}

// Each path command has its own presets.
func TestPresetNames(t *testing.T) {
	all, ipc, rdma, sendrecv := PresetNames(""), PresetNames("ipc"), PresetNames("rdma"), PresetNames("sendrecv")
	if len(ipc) != 4 || len(rdma) != 1 || len(sendrecv) != 3 || !slices.Equal(all, slices.Concat(ipc, rdma, sendrecv)) {
		t.Errorf("%q, %q, %q of %q", ipc, rdma, sendrecv, all)
	}
}

// On GPUs a preset of torchcomms has the sizes of the published table.
func TestTorchcommsPresets(t *testing.T) {
	value := func(name string, gpu bool, flag string) string {
		p, _ := PresetNamed(name)
		for _, f := range p.On(gpu) {
			if f.Name == flag {
				return f.Value
			}
		}
		return ""
	}
	for _, c := range []struct {
		name string
		gpu  bool
		want string
	}{
		{"torchcomms-2728", true, "32,64,1K,8K,64K,1M,8M,64M,256M,1G"},
		{"torchcomms-2728", false, "32,64,1K,8K,64K,1M"},
		{"torchcomms-2728-one-way", true, "1M,8M,64M,256M,1G"},
		{"torchcomms-2728-one-way-16", true, "1M,1G"},
		{"torchcomms-2728-one-way-16", false, "1M,8M"},
	} {
		if got := value(c.name, c.gpu, "sizes"); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if got := value("torchcomms-2728-one-way-16", true, "ctas"); got != "16" {
		t.Errorf("%s CTAs, want 16", got)
	}
}

// The arms are those of the pull request: 16 connections on 64 own queue pairs or 4 shared ones. Nothing is shared if
// completions are matched by the order of receives.
func TestANPArms(t *testing.T) {
	find := func(id string) Claim {
		claims, err := Find([]string{id})
		if err != nil {
			t.Fatal(err)
		}
		return claims[0]
	}
	test := find("anp-20/sharing-keeps-bandwidth").Tests[0]
	for got, want := range map[string]string{
		strings.Join(test.A.Args, " "):                                        "rdma --conns 16 --windows 2 --groups 4 --qps 1 --depth 2",
		strings.Join(test.B.Args, " "):                                        "rdma --conns 16 --windows 2 --groups 0 --qps 4",
		strings.Join(find("anp-20/imm-routing-vs-fifo").Tests[0].B.Args, " "): "rdma --conns 16 --windows 2 --groups 0 --qps 1 --route fifo",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	p, _ := PresetNamed("anp-20")
	labels := []string{}
	for _, a := range p.Baselines {
		if slices.Contains(labels, a.Label) || a.Label == anpShared(4, 2).Label {
			t.Errorf("%s is there twice", a.Label)
		}
		labels = append(labels, a.Label)
	}
	if len(labels) != 10 {
		t.Errorf("%d arms beside it: %q", len(labels), labels)
	}
}
