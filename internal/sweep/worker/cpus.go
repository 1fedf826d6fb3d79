package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// Placement holds the CPUs on which a rank runs.
type Placement struct {
	CPU  int   // of the timing thread; -1: not pinned
	CPUs []int // of the whole process; nil: inherited
}

// Place chooses CPUs for each rank among those that this process may use, near the rank's NUMA node (-1: any). Each
// timing thread gets a core of its own while there are enough; the other threads of the process run on the node's CPUs.
func Place(nodes []int) ([]Placement, error) {
	allowed, err := allowedCPUs()
	if err != nil {
		return nil, err
	}
	return place("/sys/devices/system", allowed, nodes), nil
}

func place(sys string, allowed, nodes []int) []Placement {
	used := map[int]bool{} // cores taken, by their first CPU
	if len(allowed) >= 2*(len(nodes)+1) {
		used[core(sys, allowed[0])] = true // leave the first core to interrupts and the parent
	}
	out := make([]Placement, len(nodes))
	for r, node := range nodes {
		near := intersect(allowed, nodeCPUs(sys, node))
		if len(near) == 0 {
			near = allowed
		}
		out[r] = Placement{CPU: -1, CPUs: near}
		for _, c := range near {
			if k := core(sys, c); !used[k] {
				used[k] = true
				out[r].CPU = c
				break
			}
		}
	}
	return out
}

// core returns the first hardware thread of a CPU's physical core.
func core(sys string, cpu int) int {
	b, err := os.ReadFile(filepath.Join(sys, fmt.Sprintf("cpu/cpu%d/topology/thread_siblings_list", cpu)))
	if err != nil {
		return cpu
	}
	if l := parseList(string(b)); len(l) > 0 {
		return l[0]
	}
	return cpu
}

func nodeCPUs(sys string, node int) []int {
	b, err := os.ReadFile(filepath.Join(sys, fmt.Sprintf("node/node%d/cpulist", node)))
	if err != nil {
		return nil
	}
	return parseList(string(b))
}

// parseList parses the kernel's list format, "0-3,8".
func parseList(s string) []int {
	var out []int
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		if err != nil {
			continue
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(hi); err != nil {
				continue
			}
		}
		for ; a <= b; a++ {
			out = append(out, a)
		}
	}
	return out
}

func intersect(a, b []int) []int {
	in := map[int]bool{}
	for _, x := range b {
		in[x] = true
	}
	var out []int
	for _, x := range a {
		if in[x] {
			out = append(out, x)
		}
	}
	return out
}

// allowedCPUs lists the CPUs this process may run on.
func allowedCPUs() ([]int, error) {
	set, err := abi.ProcessCPUs()
	if err != nil {
		return nil, fmt.Errorf("worker: allowed CPUs: %w", err)
	}
	return set.List(), nil
}

// shortage says why the ranks cannot each spin on a CPU of their own; "" if they can. quota is the CPU time that
// control groups allow, in CPUs.
func shortage(ranks, cpus int, quota float64) string {
	const effect = "waiting ranks yield the CPU, which adds microseconds"
	switch {
	case cpus < ranks:
		return fmt.Sprintf("%d ranks share %d CPU(s): %s", ranks, cpus, effect)
	case quota < float64(ranks):
		return fmt.Sprintf("%d ranks share the time of %g CPU(s), the control group's quota: %s", ranks, quota, effect)
	}
	return ""
}
