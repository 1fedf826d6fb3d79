package claim

import "slices"

// Sizes of the published tables.
var (
	anchorSizes = []uint64{1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20}
	smallSizes  = []uint64{1 << 10, 4 << 10, 64 << 10}
)

// Differences from the pull request's measurements.
const (
	ucclHardware = "Published for two AMD MI325X in different NUMA domains; measured on the devices that the result names. "
	ucclLatency  = ucclHardware +
		"The pull request's latency is a full round trip, a ping-pong sample is half of one; factors are the same. "
	ucclEngine = "The copy engine moves the data, as in the pull request (CPU memory: the CPU)."
)

// onCopyEngine makes both arms use the pull request's engine; with "auto" they could use different ones.
var onCopyEngine = []string{"--engine", "ce"}

// ipcArm is `p2pbench ipc` with these flags.
func ipcArm(label string, flags ...string) Arm {
	return Arm{Label: label, Args: append([]string{"ipc"}, flags...), OnGPU: onCopyEngine}
}

// uccl876 returns the claims of uccl-project/uccl#876, "UKernel" IPC.
func uccl876() []Claim {
	return []Claim{
		directVsHandshake(), doneSeqVsRingAck(), exportCache(), eagerOpen(), publishDedupe(), sameProcess(),
		workerWakeup(), relayUnchanged(), vsNCCL(),
	}
}

func directVsHandshake() Claim {
	direct := ipcArm("direct", "--path", "direct", "--completion", "done-seq", "--wake", "spin")
	test := func(name string, b Arm, iters, warmup int, at []uint64) Test {
		return Test{
			Name: name, A: direct, B: b, Op: "pingpong", Sizes: anchorSizes, Iters: iters, Warmup: warmup,
			Expect: []Expectation{
				Faster{At: at},
				Count{Of: A, Counter: "path_direct", Is: AtLeast, Value: 1, Per: PerSample},
				Count{Of: B, Counter: "path_handshake", Is: AtLeast, Value: 1, Per: PerSample},
			},
		}
	}
	return Claim{
		ID:     "uccl-876/direct-vs-handshake",
		Title:  "Sending into a buffer that was published and opened beforehand is faster than requesting it for every message.",
		Source: "uccl-project/uccl#876, description: Problem, and What This PR Does",
		Published: "The three-message round trip (request, handle, ack) and workers that sleep up to 1 ms made UKernel 5–7× " +
			"slower than UCCL on small messages and 2–3× on large ones.",
		Differs: ucclLatency + "In test protocol both arms spin, so that only the protocol differs; a difference is expected " +
			"at sizes with a short copy. Test base compares the pull request's base (ring, ack, 1 ms sleeps) with its head. " +
			ucclEngine,
		Tests: []Test{
			test("protocol",
				ipcArm("handshake", "--path", "handshake", "--completion", "done-seq", "--wake", "spin"), 200, 20, smallSizes),
			test("base", ipcArm("handshake, ring-ack, sleeping 1 ms",
				"--path", "handshake", "--completion", "ring-ack", "--wake", "sleep:1ms"), 50, 5, nil),
		},
	}
}

func doneSeqVsRingAck() Claim {
	a := ipcArm("done-seq", "--path", "direct", "--completion", "done-seq", "--wake", "spin")
	return Claim{
		ID:     "uccl-876/done-seq-vs-ring-ack",
		Title:  "Signalling completion by a sequence number in shared memory is faster than by a ring message.",
		Source: "uccl-project/uccl#876, description: the done_seq channel and its anchor table",
		Published: "With done_seq, p50 of a round trip: 1K 40.88 µs, 4K 39.53, 64K 49.12, 1M 81.89, 16M 738.23. " +
			"No table for the ring under the same conditions.",
		Differs: ucclLatency + "Test spinning polls ring and word equally often; test polled polls the ring every 50 µs, as " +
			"the pull request's control worker does. The difference shows at sizes with a short copy. " +
			ucclEngine,
		Tests: []Test{
			{
				Name: "spinning", A: a, B: ipcArm("ring-ack", "--path", "direct", "--completion", "ring-ack", "--wake", "spin"),
				Op: "pingpong", Sizes: anchorSizes, Iters: 200, Warmup: 20,
				Expect: []Expectation{Faster{At: []uint64{1 << 10, 4 << 10}}},
			},
			{
				Name: "polled", A: a,
				B:  ipcArm("ring-ack, polled every 50 µs", "--path", "direct", "--completion", "ring-ack", "--wake", "sleep:50us"),
				Op: "pingpong", Sizes: anchorSizes, Iters: 200, Warmup: 20, Expect: []Expectation{Faster{At: smallSizes}},
			},
		},
	}
}

func exportCache() Claim {
	arm := func(cache string) Arm {
		return ipcArm("cache "+cache, "--path", "handshake", "--export-cache", cache, "--buffers", "slices:8")
	}
	return Claim{
		ID:     "uccl-876/export-cache",
		Title:  "A handle cached per allocation serves every slice of it: one export instead of one for each pointer.",
		Source: "uccl-project/uccl#876, description: What This PR Does, 1 (export cache)",
		Published: "No figures; the text says that several slices of one allocation share one exported handle, without another call of the " +
			"driver.",
		Differs: ucclHardware + "Messages use eight slices of one allocation in turn. The verdict depends on counters only; the times are for information. " +
			ucclEngine,
		Tests: []Test{
			{
				Name: "pointer", A: arm("allocation"), B: arm("pointer"), Op: "latency", Sizes: []uint64{64 << 10}, Iters: 200, Warmup: 20,
				Expect: []Expectation{
					Count{Of: A, Counter: "exports", Is: Exactly, Value: 1},
					Count{Of: B, Counter: "exports", Is: Exactly, Value: 8},
				},
			},
			{
				Name: "off", A: arm("allocation"), B: arm("off"), Op: "latency", Sizes: []uint64{64 << 10}, Iters: 200, Warmup: 20,
				Expect: []Expectation{
					Count{Of: A, Counter: "exports", Is: Exactly, Value: 1},
					Count{Of: B, Counter: "exports", Is: AtLeast, Value: 1, Per: PerSample},
				},
			},
		},
	}
}

func eagerOpen() Claim {
	arm := func(open string) Arm { return ipcArm(open, "--path", "direct", "--open", open) }
	return Claim{
		ID:        "uccl-876/eager-open",
		Title:     "Handles opened before the timed part keep the cost of opening out of the first message.",
		Source:    "uccl-project/uccl#876, description: What This PR Does, 1 (eager open)",
		Published: "No figures; the text says that the first timed send does not include the cost of opening.",
		Differs: ucclHardware + "Test lazy has no warm-up and compares the very first message of each arm: one observation. " +
			"Test per-call maps the handle anew for every message. " + ucclEngine,
		Tests: []Test{
			{
				Name: "lazy", A: arm("eager"), B: arm("lazy"), Op: "latency", Sizes: []uint64{64 << 10}, Iters: 200, Warmup: 0,
				Expect: []Expectation{FirstSlower{}},
			},
			{
				Name: "per-call", A: arm("eager"), B: arm("per-call"), Op: "latency", Sizes: smallSizes, Iters: 200, Warmup: 20,
				Expect: []Expectation{
					Count{Of: A, Counter: "opens", Is: AtMost, Value: 2}, // one per rank
					Count{Of: B, Counter: "opens", Is: AtLeast, Value: 1, Per: PerSample},
					Faster{},
				},
			},
		},
	}
}

func publishDedupe() Claim {
	arm := func(publish string) Arm { return ipcArm(publish, "--path", "direct", "--publish", publish) }
	return Claim{
		ID:     "uccl-876/publish-dedupe",
		Title:  "A buffer whose address, size and version have not changed is not published again.",
		Source: "uccl-project/uccl#876, description: What This PR Does, 1 (deduplicated publication)",
		Published: "No figures; the text says that a receive publishes its buffer's metadata only if address, size or binding version has " +
			"changed.",
		Differs: ucclHardware + "The verdict depends on counters only; the times are for information. " + ucclEngine,
		Tests: []Test{{
			A: arm("dedupe"), B: arm("always"), Op: "latency", Sizes: []uint64{64 << 10}, Iters: 200, Warmup: 20,
			Expect: []Expectation{
				Count{Of: A, Counter: "published", Is: AtMost, Value: 2},
				Count{Of: B, Counter: "published", Is: AtLeast, Value: 1, Per: PerSample},
			},
		}},
	}
}

func sameProcess() Claim {
	return Claim{
		ID:        "uccl-876/same-process",
		Title:     "Ranks of one process pass the pointer: no export and no open.",
		Source:    "uccl-project/uccl#876, description: What This PR Does",
		Published: "No figures.",
		Differs:   ucclHardware + "The verdict depends on counters only; the times are for information. " + ucclEngine,
		Tests: []Test{{
			A: ipcArm("one process", "--path", "direct", "--same-process"), B: ipcArm("two processes", "--path", "direct"),
			Op: "latency", Sizes: []uint64{64 << 10}, Iters: 200, Warmup: 20,
			Expect: []Expectation{
				Count{Of: A, Counter: "path_direct", Is: AtLeast, Value: 1, Per: PerSample},
				Count{Of: A, Counter: "exports", Is: None},
				Count{Of: A, Counter: "opens", Is: None},
				Count{Of: B, Counter: "exports", Is: AtLeast, Value: 1},
				Count{Of: B, Counter: "opens", Is: AtLeast, Value: 1},
			},
		}},
	}
}

func workerWakeup() Claim {
	arm := func(label, wake string) Arm { return ipcArm(label, "--path", "direct", "--wake", wake) }
	test := func(name string, a, b Arm, iters, warmup int) Test {
		return Test{
			Name: name, A: a, B: b, Op: "pingpong", Sizes: smallSizes, Iters: iters, Warmup: warmup,
			Expect: []Expectation{Faster{}},
		}
	}
	spin, nap, doze := arm("spin", "spin"), arm("sleep 50 µs", "sleep:50us"), arm("sleep 1 ms", "sleep:1ms")
	return Claim{
		ID:     "uccl-876/worker-wakeup",
		Title:  "Messages are faster if waits spin or yield before they sleep, and sleep for 50 µs instead of 1 ms.",
		Source: "uccl-project/uccl#876, description: Problem, and What This PR Does (workers)",
		Published: "No figures; the text says that workers could sleep up to 1 ms at each step, and now yield 256 times before they sleep, " +
			"poll for control messages every 50 µs, and spin for a single request.",
		Differs: ucclLatency + "Each arm uses one kind of wait everywhere; the pull request combines them. " + ucclEngine,
		Tests: []Test{
			test("sleep-1ms", spin, doze, 50, 5),
			test("sleep-50us", spin, nap, 200, 20),
			test("poll", nap, doze, 50, 5),
			test("yield", spin, arm("yield", "yield"), 200, 20),
		},
	}
}

func relayUnchanged() Claim {
	fresh := Arm{Label: "fresh, ring-ack, sleeping 1 ms", Args: []string{
		"ipc", "--path", "relay", "--relay", "fresh", "--completion", "ring-ack", "--wake", "sleep:1ms",
	}}
	pooled := Arm{Label: "pooled", Args: []string{"ipc", "--path", "relay", "--relay", "pooled"}}
	sizes := []uint64{64 << 10, 1 << 20}
	return Claim{
		ID:        "uccl-876/relay-unchanged",
		Title:     "The relay through CPU memory, which the pull request did not change, takes milliseconds.",
		Source:    "uccl-project/uccl#876, description: results with the relay forced",
		Published: "p50 of a round trip: 64K 2379.6 µs, 1M 3609.5 µs (50 iterations after 5).",
		Differs: ucclLatency + "Test theirs compares twice the ping-pong sample with the published time, most of which is the " +
			"sleeps of 1 ms. Test pooled has no counterpart in the pull request: pinned buffers, chunks in flight, no sleep.",
		Tests: []Test{
			{
				Name: "theirs", A: fresh, Op: "pingpong", Sizes: sizes, Iters: 50, Warmup: 5,
				Expect: []Expectation{Near{RoundTripUS: relayRoundTrips(), Factor: 2}},
			},
			{
				Name: "pooled", A: pooled, B: fresh, Op: "pingpong", Sizes: sizes, Iters: 50, Warmup: 5,
				Expect: []Expectation{Faster{}},
			},
		},
	}
}

func vsNCCL() Claim {
	a := ipcArm("direct", "--path", "direct")
	a.OnGPU = []string{"--engine", "ce", "--streams", "2"}
	small := []uint64{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
	large := []uint64{16 << 20, 64 << 20, 256 << 20}
	return Claim{
		ID:     "uccl-876/vs-nccl",
		Title:  "Direct IPC is faster than NCCL's send and receive up to 4 MiB and as fast from 16 MiB on.",
		Source: "uccl-project/uccl#876, description: UKernel, UCCL and NCCL in comparison",
		Published: "Mean of round trips, UKernel and NCCL in ms: 1K 0.047 0.108, 4K 0.051 0.091, 16K 0.052 0.092, " +
			"64K 0.047 0.092, 256K 0.057 0.091, 1M 0.098 0.117, 4M 0.246 0.276, 16M 0.737 0.759, 64M 2.755 2.735, 256M 10.812 10.644.",
		Differs: ucclHardware + "The pull request runs each library by itself, back to back, from PyTorch, and reports the mean " +
			"of 20; here both are interleaved, each round trip is timed alone, and medians are compared. Its NCCL is RCCL, on AMD GPUs.",
		Tests: []Test{{
			A: a, B: Arm{Label: "nccl", Baseline: "nccl"}, Op: "pingpong", Sizes: slices.Concat(small, large),
			Iters: 100, Warmup: 10,
			Expect:  []Expectation{Faster{At: small}, Equal{Within: 0.1, At: large}},
			Factors: ncclFactors(),
		}},
	}
}
