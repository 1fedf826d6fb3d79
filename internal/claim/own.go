package claim

// fullSweep is `--size-sweep` of ipc.
var fullSweep = []uint64{
	1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20,
}

// own returns p2pbench's claims about itself, from its documentation. They are judged by the same rules.
func own() []Claim {
	return []Claim{autoEngine(), aheadOfNCCL(), copyEngineRate(), sendrecvAheadOfNCCL(), wsLinesVsNCCL(), putVsNCCL(), llGraph()}
}

const ownSource = "p2pbench, docs/measurement.md and docs/results"

func autoEngine() Claim {
	auto := Arm{Label: "auto", Args: []string{"ipc", "--path", "direct", "--engine", "auto"}}
	small, large := fullSweep[:5], fullSweep[5:]
	var tests []Test
	for _, part := range []struct {
		name, op string
		sizes    []uint64
		iters    int
	}{
		// Single small messages vary by some percent, so a limit of 3 % needs many samples.
		{"latency", "latency", small, 1000},
		{"latency-large", "latency", large, 200},
		{"stream", "stream", fullSweep, 200},
	} {
		for _, engine := range []string{"ce", "sm", "bulk", "proxy"} {
			tests = append(tests, Test{
				Name: part.name + "-" + engine, A: auto,
				B:  Arm{Label: engine, Args: []string{"ipc", "--path", "direct", "--engine", engine}},
				Op: part.op, Sizes: part.sizes, Iters: part.iters, Warmup: 20, Expect: []Expectation{Faster{Min: 0.97}},
			})
		}
	}
	return Claim{
		ID:        "p2pbench/auto-engine",
		Title:     "The engine auto is no more than 3 % behind any single engine at any size.",
		Source:    ownSource,
		Published: "No figures.",
		Differs:   "Needs a GPU: CPU memory has one engine. The lower end of each interval must reach 0.97.",
		Tests:     tests,
	}
}

func aheadOfNCCL() Claim {
	a := Arm{Label: "auto", Args: []string{"ipc", "--path", "direct", "--engine", "auto"}}
	var tests []Test
	for _, op := range []string{"latency", "stream", "bidir", "pingpong"} {
		tests = append(tests, Test{
			Name: op, A: a, B: Arm{Label: "nccl", Baseline: "nccl"}, Op: op, Sizes: fullSweep, Iters: 100, Warmup: 20,
			Expect: []Expectation{Faster{}, Faster{Min: 1.05, At: []uint64{256 << 20}}},
		})
	}
	return Claim{
		ID:        "p2pbench/ahead-of-nccl",
		Title:     "Direct IPC is faster than NCCL's send and receive in every operation at every size.",
		Source:    ownSource,
		Published: "1.05 times at 256 MiB; no figures for other sizes.",
		Differs:   "NCCL posts from the CPU and waits on the CPU, as this path does.",
		Tests:     tests,
	}
}

func copyEngineRate() Claim {
	a := Arm{Label: "two processes", Args: []string{"ipc", "--path", "direct", "--engine", "ce"}}
	var tests []Test
	for _, op := range []string{"stream", "bidir"} {
		tests = append(tests, Test{
			Name: op, A: a, B: Arm{Label: "one process", Baseline: "memcpy"}, Op: op, Sizes: []uint64{64 << 20, 256 << 20},
			Iters: 60, Warmup: 5, Expect: []Expectation{Faster{Min: 0.98}},
		})
	}
	return Claim{
		ID:        "p2pbench/copy-engine-rate",
		Title:     "Two processes reach 0.98 of the copy engine's rate in one process, in one direction and in both.",
		Source:    ownSource,
		Published: "No figures.",
		Differs:   "The baseline does not notify a receiver.",
		Tests:     tests,
	}
}

func sendrecvAheadOfNCCL() Claim {
	var tests []Test
	for _, op := range []string{"stream", "bidir"} {
		tests = append(tests, Test{
			Name: op, A: sendrecvArm("auto", "--variant", "auto", "--launch", "graph"),
			B: Arm{Label: "nccl", Baseline: "nccl-graph"}, Op: op, Sizes: fullSweep, Iters: 100, Warmup: 20,
			Expect: []Expectation{Faster{Min: 1.05}},
		})
	}
	return Claim{
		ID:        "p2pbench/sendrecv-ahead-of-nccl",
		Title:     "Kernels that send and receive are at least 1.05 times as fast as NCCL in CUDA graphs, at every size.",
		Source:    ownSource,
		Published: "No figures.",
		Differs: "The device's clock times both, from the simultaneous start of both ranks. Neither number of thread blocks is " +
			"limited. NCCL is called once for each message.",
		Tests: tests,
	}
}

// matched compares a kernel with NCCL, each with 4 thread blocks, in graphs of 20 messages in each direction.
func matched(label, variant string, more ...Expectation) Test {
	return Test{
		A: sendrecvArm(label, "--variant", variant, "--ctas", "4", "--cudagraph", "20"),
		B: Arm{Label: "nccl", Baseline: "nccl-graph:4"}, Op: "bidir",
		Sizes: torchSizes, OnHost: torchHost, Iters: 100, Warmup: 10,
		Expect: append(more, Count{Of: A, Counter: "ctas", Is: AtMost, Value: 4}),
	}
}

const matchedDiffers = "Both start graphs of 20 messages (fewer for large messages), with one call per message. The counter nccl_ctas has " +
	"the thread blocks that NCCL launched. "

// huge are the sizes at which the cost of a start is negligible.
var huge = []uint64{64 << 20, 256 << 20, 1 << 30}

func wsLinesVsNCCL() Claim {
	return Claim{
		ID: "p2pbench/ws-vs-nccl-4ctas",
		Title: "With 4 thread blocks each, the staged kernel, which sends small messages in lines, is at least 1.1 times as fast as " +
			"NCCL in both directions.",
		Source:    ownSource,
		Published: "1.4 times up to 1 MiB, 1.8 at 8 MiB, 1.10 from 64 MiB to 1 GiB.",
		Differs:   matchedDiffers + "The pull request has no lines; torchcomms-2728/ws-vs-nccl measures its own protocol.",
		Tests: []Test{matched("ws", "ws",
			Faster{Min: 1.4, At: torchHost}, Faster{Min: 1.8, At: []uint64{8 << 20}}, Faster{Min: 1.10, At: huge})},
	}
}

func putVsNCCL() Claim {
	tiny := []uint64{32, 64, 1 << 10, 8 << 10}
	return Claim{
		ID:        "p2pbench/put-vs-nccl-4ctas",
		Title:     "With 4 thread blocks each, put moves twice as much as NCCL from 1 MiB on, in both directions.",
		Source:    ownSource,
		Published: "1.2 times up to 8 KiB, 1.5 at 64 KiB, 2 at 1 MiB, 4 at 8 MiB, 2.1 from 64 MiB to 1 GiB.",
		Differs:   matchedDiffers + "put needs the receiver's buffer to be mapped by the sender, which NCCL does not ask for.",
		Tests: []Test{matched("put", "put",
			Faster{Min: 1.2, At: tiny}, Faster{Min: 1.5, At: []uint64{64 << 10}}, Faster{Min: 2, At: []uint64{1 << 20}},
			Faster{Min: 4, At: []uint64{8 << 20}}, Faster{Min: 2.1, At: huge})},
	}
}

func llGraph() Claim {
	var tests []Test
	for _, op := range []string{"stream", "bidir"} {
		tests = append(tests, Test{
			Name: op, A: sendrecvArm("auto", "--variant", "auto", "--cudagraph", "20"),
			B: Arm{Label: "nccl", Baseline: "nccl-graph"}, Op: op,
			Sizes: []uint64{32, 64, 128, 256, 512, 1 << 10, 2 << 10, 4 << 10}, Iters: 500, Warmup: 50,
			Expect: []Expectation{Faster{Min: 1.43}},
		})
	}
	return Claim{
		ID:        "p2pbench/ll-graph",
		Title:     "In CUDA graphs messages of up to 4 KiB take 0.7 of NCCL's time at most.",
		Source:    ownSource,
		Published: "No figures.",
		Differs: "Both are timed by the device, in graphs of 20 messages, each by a call of its own: µs of a graph ÷ 20 is a rate, " +
			"not the time of a message. Neither has its number of thread blocks bound; the engine of each size says what auto chose.",
		Tests: tests,
	}
}
