package claim

// fullSweep is `--size-sweep` of ipc.
var fullSweep = []uint64{
	1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20,
}

// own are p2pbench's claims about itself: what its documentation says, judged as strictly as what others say.
func own() []Claim { return []Claim{autoEngine(), aheadOfNCCL(), copyEngineRate()} }

const ownSource = "p2pbench, docs/measurement.md and docs/results"

func autoEngine() Claim {
	auto := Arm{Label: "auto", Args: []string{"ipc", "--path", "direct", "--engine", "auto"}}
	var tests []Test
	for _, op := range []string{"latency", "stream"} {
		for _, engine := range []string{"ce", "sm", "bulk", "proxy"} {
			tests = append(tests, Test{
				Name: op + "-" + engine, A: auto,
				B:  Arm{Label: engine, Args: []string{"ipc", "--path", "direct", "--engine", engine}},
				Op: op, Sizes: fullSweep, Iters: 200, Warmup: 20, Expect: []Expectation{Faster{Min: 0.97}},
			})
		}
	}
	return Claim{
		ID:        "p2pbench/auto-engine",
		Title:     "The engine auto is no more than 3 % behind any single engine at any size.",
		Source:    ownSource,
		Published: "In words.",
		Differs:   "Needs a GPU: CPU memory has one engine. The lower end of each interval has to reach 0.97.",
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
		Published: "In words; 1.05 times at 256 MiB.",
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
		Title:     "Two processes get 0.98 of what the copy engine gives one, both ways too.",
		Source:    ownSource,
		Published: "In words.",
		Differs:   "The baseline has nobody to tell that a message has arrived.",
		Tests:     tests,
	}
}
