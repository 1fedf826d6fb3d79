// Package claim holds published claims about point-to-point transfer as comparisons that p2pbench can run, and judges
// their results.
//
// A claim is data: its source, the published figures, and tests. A test has two arms, A and B, and expectations. Each
// arm is a p2pbench command; both are measured interleaved in one run. [Test.Judge] returns the verdict on a run:
//
//	reproduced       what was claimed shows here, beyond the doubt that the samples leave
//	not reproduced   it was measured and does not show, or not clearly
//	not measurable   this machine cannot run it, or the figures are not to be used
//
// The package runs nothing and knows no flags; the command runs the arms with the flags of their path.
package claim

import (
	"fmt"
	"slices"
	"strings"
)

// Claim is one statement of a pull request, or of p2pbench about itself.
type Claim struct {
	ID        string // "uccl-876/export-cache"
	Title     string // the claim in one sentence
	Source    string // pull request and section
	Published string // published figures with their definition, or text
	Differs   string // differences between the published measurement and this one
	GPUs      bool   // the claim is about GPUs: measured in CPU memory, its verdict has a caveat
	Tests     []Test
}

// Test is one comparison of a claim.
type Test struct {
	Name   string // unique in the claim; "" for a single test
	A, B   Arm    // zero B: A runs alone
	Op     string
	Sizes  []uint64
	OnHost []uint64 // sizes in CPU memory; nil: Sizes
	Iters  int      // samples of each arm and size
	Warmup int
	Expect []Expectation
	// Factors are the published factors, B's time ÷ A's time, by size.
	Factors map[uint64]float64
}

// Arm is one of the two configurations of a test.
type Arm struct {
	Label string
	Args  []string // path command and its flags: "ipc", "--path", "direct"
	OnGPU []string // additional flags on GPUs
	// Baseline is a value of --vs, used instead of Args: A's command measures this arm too.
	Baseline string
}

// Paired reports whether there are two arms.
func (t Test) Paired() bool { return t.B.Label != "" }

// Command returns the arguments of p2pbench that run the arm alone; for a baseline, A's command with --vs.
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

// On returns the test with the sizes for GPUs or for CPU memory.
func (t Test) On(gpu bool) Test {
	if !gpu && t.OnHost != nil {
		t.Sizes = t.OnHost
	}
	return t
}

// Quick returns the test with a fifth of the samples, but enough for an interval of the median. The warm-up is
// unchanged, because caches must be warm.
func (t Test) Quick() Test {
	t.Iters = min(t.Iters, max(t.Iters/5, 20))
	return t
}

// All returns the claims of each pull request, then p2pbench's own.
func All() []Claim {
	return slices.Concat(ofGPUs(uccl876()), ofGPUs(mpich7862()), anp20(), ofGPUs(torchcomms2728()), ofGPUs(own()))
}

func ofGPUs(claims []Claim) []Claim {
	for i := range claims {
		claims[i].GPUs = true
	}
	return claims
}

// Seeds returns the sources of claims: the pull requests, and p2pbench itself.
func Seeds() []string {
	var seeds []string
	for _, c := range All() {
		if s := c.Seed(); !slices.Contains(seeds, s) {
			seeds = append(seeds, s)
		}
	}
	return seeds
}

// Seed returns the source in the ID.
func (c Claim) Seed() string {
	seed, _, _ := strings.Cut(c.ID, "/")
	return seed
}

// Find returns the claims that ids name, each once, in the order of [All]. An id is a claim's ID, a seed for all of its
// claims, or "all". The error for an unknown id suggests similar ones.
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

// near suggests claims whose ID contains the text, or those of the seed, or the seeds.
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

// sizeText formats a size for --sizes: 1K, 1536, 3M.
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
