// Package claim holds what the authors of the systems behind p2pbench published, each claim as a comparison that can
// be run here, and judges what came of it.
//
// A claim is data: its source, what was published, and tests. A test is two arms, A and B, each a p2pbench command
// that anybody can type, measured interleaved in one run, and what is expected of them. [Test.Judge] takes the run and
// gives the verdict, with the published figure beside the measured one:
//
//	reproduced       what was claimed shows here, beyond the doubt that the samples leave
//	not reproduced   it was measured and does not show, or not clearly
//	not measurable   this machine cannot run it, or the figures are not to be used
//
// It runs nothing and knows no flag: the command does, with the flags of the path that an arm names.
package claim

import (
	"fmt"
	"slices"
	"strings"
)

// Claim is one statement of a pull request, or of p2pbench about itself.
type Claim struct {
	ID        string // "uccl-876/export-cache"
	Title     string // what is claimed, in one sentence
	Source    string // pull request and where in it
	Published string // what was published: figures with their definition, or words
	Differs   string // what is different here
	GPUs      bool   // it is about GPUs: between CPU memories its verdict carries a caveat
	Tests     []Test
}

// Test is one comparison of a claim.
type Test struct {
	Name   string // within the claim; "" where it is the only one
	A, B   Arm    // the zero B: A runs alone
	Op     string
	Sizes  []uint64
	OnHost []uint64 // sizes between CPU memories, where Sizes are for GPUs; nil: Sizes
	Iters  int      // samples of each arm and size
	Warmup int
	Expect []Expectation
	// Factors are the published factors, B's time over A's, by size.
	Factors map[uint64]float64
}

// Arm is one side of a test.
type Arm struct {
	Label string
	Args  []string // path command and its own flags: "ipc", "--path", "direct"
	OnGPU []string // more flags, where the devices are GPUs
	// Baseline is a value of --vs instead of Args: measured beside A by A's own command.
	Baseline string
}

// Paired reports whether there are two arms.
func (t Test) Paired() bool { return t.B.Label != "" }

// Command is what to type, after p2pbench, to run the arm alone; a baseline is run by A's command.
func (t Test) Command(a Arm, gpu bool) []string {
	var vs []string
	if a.Baseline != "" {
		a, vs = t.A, []string{"--vs", a.Baseline}
	}
	args := slices.Clone(a.Args)
	if gpu {
		args = append(args, a.OnGPU...)
	}
	args = append(args, "--op", t.Op, "--sizes", sizeList(t.Sizes), "--iters", fmt.Sprint(t.Iters),
		"--warmup", fmt.Sprint(t.Warmup))
	return append(args, vs...)
}

// On is the test as it is made where the devices are GPUs, or CPU memory.
func (t Test) On(gpu bool) Test {
	if !gpu && t.OnHost != nil {
		t.Sizes = t.OnHost
	}
	return t
}

// Quick is the test with a fifth of the samples, but enough of them for an interval of the median. The warm-up stays:
// a cache has to be warm.
func (t Test) Quick() Test {
	t.Iters = min(t.Iters, max(t.Iters/5, 20))
	return t
}

// All are the claims, by pull request, and p2pbench's own.
func All() []Claim {
	return slices.Concat(ofGPUs(uccl876()), ofGPUs(mpich7862()), anp20(), ofGPUs(torchcomms2728()), ofGPUs(own()))
}

func ofGPUs(claims []Claim) []Claim {
	for i := range claims {
		claims[i].GPUs = true
	}
	return claims
}

// Seeds are the pull requests that claims are taken from, and p2pbench itself.
func Seeds() []string {
	var seeds []string
	for _, c := range All() {
		if s := c.Seed(); !slices.Contains(seeds, s) {
			seeds = append(seeds, s)
		}
	}
	return seeds
}

// Seed is the pull request's part of the ID.
func (c Claim) Seed() string {
	seed, _, _ := strings.Cut(c.ID, "/")
	return seed
}

// Find gives the claims that ids name, each once, in the order of [All]: an ID, a seed for all of its claims, or
// "all". An unknown one is an error that names those that come nearest.
func Find(ids []string) ([]Claim, error) {
	wanted := map[string]bool{}
	for _, id := range ids {
		known := false
		for _, c := range All() {
			if id == "all" || id == c.ID || id == c.Seed() {
				wanted[c.ID], known = true, true
			}
		}
		if !known {
			return nil, fmt.Errorf("no claim %q: %s", id, near(id))
		}
	}
	return slices.DeleteFunc(All(), func(c Claim) bool { return !wanted[c.ID] }), nil
}

// near says what to ask for instead: the claims whose ID has the text in it, or those of the seed, or the seeds.
func near(id string) string {
	seed, _, _ := strings.Cut(id, "/")
	var same, alike []string
	for _, c := range All() {
		if c.Seed() == seed {
			same = append(same, c.ID)
		}
		if len(id) >= 3 && strings.Contains(c.ID, id) {
			alike = append(alike, c.ID)
		}
	}
	switch {
	case len(alike) > 0:
		return "did you mean " + strings.Join(alike, ", ") + "?"
	case len(same) > 0:
		return "there are " + strings.Join(same, ", ")
	}
	return "use all, one of " + strings.Join(Seeds(), ", ") + ", or an ID from `p2pbench claims list`"
}

func sizeList(sizes []uint64) string {
	texts := make([]string, len(sizes))
	for i, n := range sizes {
		texts[i] = sizeText(n)
	}
	return strings.Join(texts, ",")
}

// sizeText is a size as users write it: 1K, 1536, 3M.
func sizeText(n uint64) string {
	unit := ""
	for _, u := range []string{"K", "M", "G"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, unit = n/1024, u
	}
	return fmt.Sprintf("%d%s", n, unit)
}
