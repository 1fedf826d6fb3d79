package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs/verbstest"
)

// randomSeed says with which seed TestRandomCommands chooses.
const randomSeed = "P2PBENCH_TEST_SEED"

func seedOfCommands(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv(randomSeed)
	if text == "" {
		return 1
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", randomSeed, err)
	}
	return seed
}

// flagValues are values that a flag may be given, most of which exist. "": the flag stands alone.
type flagValues map[string][]string

var anyPath = flagValues{
	"--op":     {"latency", "stream", "bidir", "pingpong", "latency,stream", "bidir,pingpong", "latency,stream,bidir,pingpong"},
	"--bidir":  {""},
	"--window": {"1", "2", "5", "64", "300", "513", "4096"},
	"--offset": {"0", "1", "16", "4K", "100001"},
	"--check":  {"full", "sample", "off"},
	"--vs":     {"memcpy", "nccl", "memcpy,nccl-graph:4"},
	"--until":  {"ci=20%"},
	"--pin":    {"off", "auto"},
	"--seed":   {"0", "7"},
	"-w":       {"0", "1", "5"},
	"-G":       {"0", "1", "20", "600"},
	"--ranks":  {"1", "2", "3", "4"},
}

var byPath = map[string]flagValues{
	"ipc": {
		"--path": {"auto", "direct", "handshake", "relay", "get"}, "--engine": {"auto", "cpu", "cpu-memcpy", "cpu-nt", "ce", "sm:4"},
		"--streams": {"1", "2"}, "--handle": {"auto", "memfd", "legacy"}, "--completion": {"done-seq", "ring-ack"},
		"--export-cache": {"allocation", "pointer", "off"}, "--open": {"eager", "lazy", "per-call"},
		"--publish": {"dedupe", "always"}, "--cache": {"sender", "off", "dual"}, "--cache-size": {"0", "1", "16"},
		"--buffers": {"same", "rotate:3", "rotate:17", "slices:4", "realloc-same", "realloc-overlap"},
		"--wake":    {"spin", "yield", "sleep:50us", "adaptive"}, "--relay": {"pooled", "fresh"},
		"--relay-chunk": {"4K", "1M", "5000"}, "--relay-depth": {"1", "4", "16"}, "--same-process": {""},
	},
	"rdma": {
		"--conns": {"1", "2", "3", "7"}, "--groups": {"0", "1", "2", "4"}, "--depth": {"1", "2", "8"}, "--qps": {"1", "2", "4"},
		"--fan": {"pair", "out", "in"}, "--mr": {"auto", "reg", "dmabuf"}, "--cts": {"fifo", "pre-granted"},
		"--route": {"imm", "fifo"}, "--completion": {"write-imm", "write+imm", "memory"}, "--signal-every": {"1", "4", "256"},
		"--burst": {"1", "5", "256"}, "--windows": {"1", "2", "16"}, "--inline": {"0", "8", "64"},
		"--close-order": {"lifo", "fifo", "random"},
	},
	"sendrecv": {
		"--variant": {"auto", "ws", "stable", "put", "ll", "ll128", "ce"}, "--ctas": {"1", "2", "3", "65", "200"},
		"--sender-warps": {"1", "2", "4", "16"}, "--receiver-warps": {"1", "2", "4"}, "--stride": {"auto", "4K", "256K"},
		"--stages": {"1", "2", "64"}, "--ll-max": {"0", "4K", "1M"}, "--ring": {""}, "--copy": {"ldst", "bulk"},
		"--launch": {"stream", "graph", "persistent"}, "--burst": {"1", "7", "64"}, "--overlap": {"on", "off"},
		"--timing": {"device", "host"}, "--handle": {"auto", "memfd", "legacy"},
	},
}

// randomCommand is a path and flags, small enough to run at once.
func randomCommand(r *rand.Rand) []string {
	paths := []string{"ipc", "sendrecv", "sendrecv", "rdma"}
	path := paths[r.IntN(len(paths))]
	small := []string{"0", "1", "8", "1000", "1K", "4097"}
	large := []string{"64K", "100001", "1M"}
	if path == "sendrecv" { // to ll these are many launches
		large = append(large, "8M")
	}
	args := []string{path, "--device", "host", "--timeout", "20s", "-n", "3", "--format", "json"}
	heavy := false // many messages of any size
	for _, flags := range []flagValues{anyPath, byPath[path]} {
		for _, name := range slices.Sorted(maps.Keys(flags)) {
			if r.IntN(8) > 0 {
				continue
			}
			value := flags[name][r.IntN(len(flags[name]))]
			heavy = heavy || len(value) >= 3 && (name == "--window" || name == "-G")
			if args = append(args, name); value != "" {
				args = append(args, value)
			}
		}
	}
	sizes := []string{small[r.IntN(len(small))]}
	if all := append(large, small...); !heavy {
		sizes = append(sizes, all[r.IntN(len(all))])
	}
	return append(args, "--sizes", strings.Join(sizes, ","))
}

// What a plan accepts is measured to its end, and what cannot be is refused by plan and run alike, in the same words and
// before anything runs.
func TestRandomCommands(t *testing.T) {
	count, seed := 600, seedOfCommands(t)
	if testing.Short() {
		count = 40
	}
	env := verbstest.Env(verbstest.Build(t))
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the same commands each time
	outcomes := map[int]int{}
	for i := range count {
		args := randomCommand(r)
		t.Run(fmt.Sprintf("seed %d, command %d", seed, i), func(t *testing.T) {
			with := func(args ...string) (*command, int) {
				c := newCommand(t, args...)
				c.Env = append(c.Env, env...)
				c.begin(t)
				return c, c.end(t)
			}
			plan, planned := with(append([]string{"plan"}, args...)...)
			ran, code := with(args...)
			outcomes[code]++
			if code != planned || code != exitOK && code != exitUsage {
				t.Fatalf("%s:\nplan ends with %d: %s\nthe run with %d: %s", strings.Join(args, " "), planned, plan.stderr.String(), code, ran.stderr.String())
			}
			if code == exitOK {
				return
			}
			want, err := complaint(plan.stderr.String())
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(ran.stderr.String(), "p2pbench: "+want+"\n") || ran.stdout.Len() > 0 {
				t.Errorf("%s: the plan says %q, the run %q, and shows %q", strings.Join(args, " "), want, ran.stderr.String(), ran.stdout.String())
			}
		})
	}
	t.Logf("exit codes and how often: %v", outcomes)
	if outcomes[exitOK] == 0 || outcomes[exitUsage] == 0 {
		t.Errorf("exit codes %v: want some that run, and some that are refused", outcomes)
	}
}
