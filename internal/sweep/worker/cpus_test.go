package worker

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseList(t *testing.T) {
	for s, want := range map[string][]int{
		"":            nil,
		"\n":          nil,
		"0":           {0},
		"0-3\n":       {0, 1, 2, 3},
		"0-1,4,6-7":   {0, 1, 4, 6, 7},
		"0,64":        {0, 64},
		"5-3":         nil,
		"x,1,y-2,3-z": {1},
		"0-":          nil,
	} {
		if got := parseList(s); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}

// machine writes a sysfs tree: the CPU list of each node, and groups of hardware threads that share a core.
func machine(t *testing.T, nodes, cores []string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for n, list := range nodes {
		write(fmt.Sprintf("node/node%d/cpulist", n), list)
	}
	for _, list := range cores {
		for _, cpu := range parseList(list) {
			write(fmt.Sprintf("cpu/cpu%d/topology/thread_siblings_list", cpu), list)
		}
	}
	return dir
}

func cpus(list string) []int { return parseList(list) }

func TestPlace(t *testing.T) {
	for name, c := range map[string]struct {
		nodes, cores []string // of the machine
		allowed      string
		near         []int // NUMA node of each rank
		want         []Placement
	}{
		"two CPUs, two ranks: one each": {
			[]string{"0-1"},
			[]string{"0", "1"},
			"0-1",
			[]int{0, 0},
			[]Placement{{0, cpus("0-1")}, {1, cpus("0-1")}},
		},
		"room enough: the first core is left to interrupts and the parent": {
			[]string{"0-7"},
			nil, "0-7",
			[]int{0, 0},
			[]Placement{{1, cpus("0-7")}, {2, cpus("0-7")}},
		},
		"two threads of one core do not get a rank each": {
			[]string{"0-7"},
			[]string{"0,4", "1,5", "2,6", "3,7"},
			"0-7",
			[]int{0, 0},
			[]Placement{{1, cpus("0-7")}, {2, cpus("0-7")}},
		},
		"neighbours as siblings": {
			[]string{"0-7"},
			[]string{"0-1", "2-3", "4-5", "6-7"},
			"0-7",
			[]int{0, 0},
			[]Placement{{2, cpus("0-7")}, {4, cpus("0-7")}},
		},
		"each near its device": {
			[]string{"0-3", "4-7"},
			nil, "0-7",
			[]int{1, 0},
			[]Placement{{4, cpus("4-7")}, {1, cpus("0-3")}},
		},
		"both near the same": {
			[]string{"0-3", "4-7"},
			nil, "0-7",
			[]int{1, 1},
			[]Placement{{4, cpus("4-7")}, {5, cpus("4-7")}},
		},
		"only what this process may use": {
			[]string{"0-3", "4-7"},
			nil, "2,5-6",
			[]int{0, 1},
			[]Placement{{2, cpus("2")}, {5, cpus("5-6")}},
		},
		"nothing allowed near: anywhere is better than nowhere": {
			[]string{"0-3", "4-7"},
			nil, "0-1",
			[]int{1, 1},
			[]Placement{{0, cpus("0-1")}, {1, cpus("0-1")}},
		},
		"no node known": {
			[]string{"0-3"},
			nil, "0-1",
			[]int{-1, -1},
			[]Placement{{0, cpus("0-1")}, {1, cpus("0-1")}},
		},
		"fewer CPUs than ranks: nobody spins on another's": {
			[]string{"0"},
			nil, "0",
			[]int{0, 0},
			[]Placement{{0, cpus("0")}, {-1, cpus("0")}},
		},
		"two threads of the only core": {
			[]string{"0-1"},
			[]string{"0-1"},
			"0-1",
			[]int{0, 0},
			[]Placement{{0, cpus("0-1")}, {-1, cpus("0-1")}},
		},
		"a kernel that tells nothing": {
			nil, nil, "3,5",
			[]int{0, 0},
			[]Placement{{3, cpus("3,5")}, {5, cpus("3,5")}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := place(machine(t, c.nodes, c.cores), cpus(c.allowed), c.near)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("want (-), got (+):\n%s", d)
			}
		})
	}
}

// On this machine every rank has an allowed CPU or none, and no two ranks have the same.
func TestPlaceHere(t *testing.T) {
	allowed, err := allowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Place([]int{0, -1})
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	for r, p := range got {
		if p.CPU >= 0 && (!slices.Contains(allowed, p.CPU) || !slices.Contains(p.CPUs, p.CPU)) {
			t.Errorf("rank %d: CPU %d of %v, allowed %v", r, p.CPU, p.CPUs, allowed)
		}
	}
	if got[0].CPU >= 0 && got[0].CPU == got[1].CPU {
		t.Errorf("both on CPU %d", got[0].CPU)
	}
}

func TestShortage(t *testing.T) {
	for _, c := range []struct {
		ranks, cpus int
		quota       float64
		want        string // its beginning
	}{
		{2, 2, math.Inf(1), ""},
		{2, 2, 2, ""},
		{2, 1, math.Inf(1), "2 ranks share 1 CPU(s): waiting ranks yield the CPU"},
		{2, 1, 0.5, "2 ranks share 1 CPU(s): "},
		{2, 64, 1.5, "2 ranks share the time of 1.5 CPU(s), the control group's quota: waiting"},
		{8, 64, 7.5, "8 ranks share the time of 7.5 CPU(s)"},
	} {
		if got := shortage(c.ranks, c.cpus, c.quota); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%d ranks, %d CPUs, quota %g: %q, want %q", c.ranks, c.cpus, c.quota, got, c.want)
		}
	}
}
