package claim

import "slices"

// Sizes of the published tables; torchHost are those that are measured in CPU memory.
var (
	torchSmall = []uint64{32, 64, 1 << 10, 8 << 10, 64 << 10}
	torchLarge = []uint64{8 << 20, 64 << 20, 256 << 20, 1 << 30}
	torchSizes = slices.Concat(torchSmall, []uint64{1 << 20}, torchLarge)
	torchHost  = append(slices.Clone(torchSmall), 1<<20)
)

// Differences from the pull request's measurements.
const (
	torchHardware = "Published for two NVIDIA H100; measured on the devices that the result names. "
	torchTiming   = torchHardware + "The pull request starts a CUDA graph of one call 50 to 500 times back to back and reports the " +
		"mean, which is throughput; here the device times each start of such a graph by itself, after a barrier, and medians are " +
		"compared. As in the pull request, the kernel copies by loads and stores and stages messages of every size. "
	torchMatched = "Both arms have 4 thread blocks; the counter nccl_ctas has the number that NCCL launched. "
)

// sendrecvArm is `p2pbench sendrecv` with these flags.
func sendrecvArm(label string, flags ...string) Arm {
	return Arm{Label: label, Args: append([]string{"sendrecv"}, flags...)}
}

// theirWS selects the pull request's protocol, which stages small messages too.
var theirWS = []string{"--variant", "ws", "--ctas", "4", "--ll-max", "0"}

// oneCall is one message in each direction as a graph, by 4 thread blocks; with stable, 2 of them send and 2 receive.
// They copy by loads and stores, as in the pull request.
func oneCall(label, variant string, more ...string) Arm {
	flags := map[string][]string{"ws": theirWS, "stable": {"--variant", "stable", "--ctas", "2"}}[variant]
	flags = append(slices.Clone(flags), "--copy", "ldst", "--cudagraph", "1")
	return sendrecvArm(label, append(flags, more...)...)
}

// torchcomms2728 returns the claims of meta-pytorch/torchcomms#2728: warp-specialised send and receive.
func torchcomms2728() []Claim {
	return []Claim{wsVsNCCL(), wsVsStable(), adaptiveStride(), namedBarrier(), smallMessages(), ringPeers()}
}

func wsVsNCCL() Claim {
	return Claim{
		ID:     "torchcomms-2728/ws-vs-nccl",
		Title:  "In both directions at once, the warp-specialised kernel is faster than NCCL with the same number of thread blocks.",
		Source: "meta-pytorch/torchcomms#2728, description: both ways, SM-matched",
		Published: "NCCL's time over the kernel's, 4 thread blocks: 1.10–1.13 from 8 MB to 1 GB, 1.4–1.7 for small messages; an " +
			"earlier revision 1.16 at 1 MB, 1.11 at 8 MB, 1.12 at 64 MB.",
		Differs: torchTiming + torchMatched + "The column published has the factors of the earlier revision, which are for one size each.",
		Tests: []Test{{
			A: oneCall("ws", "ws"), B: Arm{Label: "nccl", Baseline: "nccl-graph:4"}, Op: "bidir",
			Sizes: torchSizes, OnHost: torchHost, Iters: 100, Warmup: 10,
			Expect: []Expectation{
				Faster{},
				Faster{Min: 1.05, At: torchLarge},
				Count{Of: A, Counter: "ctas", Is: AtMost, Value: 4},
			},
			Factors: earlierFactors(),
		}},
	}
}

func wsVsStable() Claim {
	return Claim{
		ID:     "torchcomms-2728/ws-vs-stable",
		Title:  "Thread blocks in which some warps send and others receive are faster than blocks that only send or only receive.",
		Source: "meta-pytorch/torchcomms#2728, description: stable and warp-specialised kernel",
		Published: "Against NCCL with as many thread blocks, both ways from 8 MB on: the warp-specialised kernel 1.10–1.13, the stable " +
			"one, half of whose blocks send and half receive, 0.98.",
		Differs: torchTiming + "Both arms have 4 thread blocks in total, with the same number of threads.",
		Tests: []Test{{
			A: oneCall("ws", "ws"), B: oneCall("stable", "stable"), Op: "bidir",
			Sizes: torchLarge, OnHost: []uint64{64 << 10, 1 << 20, 4 << 20}, Iters: 100, Warmup: 10,
			Expect: []Expectation{Faster{}, Count{Of: A, Counter: "ctas", Is: AtLeast, Value: 1, Per: PerOther}},
		}},
	}
}

func adaptiveStride() Claim {
	return Claim{
		ID:     "torchcomms-2728/adaptive-stride",
		Title:  "A step size that grows with the message avoids most of the waits and fences, and costs no time.",
		Source: "meta-pytorch/torchcomms#2728, description: adaptive stride",
		Published: "Steps of a thread block with a fixed stride of 256 KiB and with an adaptive one, 4 blocks: 64 and 8 at 64 MB, " +
			"1024 and 128 at 1 GB.",
		Differs: torchTiming + "A step is a tail, a head and a wait for each. The counter steps is the sum over all blocks of both " +
			"ranks; the expected ratio, 8, is that of both published pairs.",
		Tests: []Test{{
			A: oneCall("adaptive", "ws", "--stride", "auto"), B: oneCall("fixed 256 KiB", "ws", "--stride", "256K"), Op: "bidir",
			Sizes: []uint64{64 << 20, 1 << 30}, OnHost: []uint64{16 << 20, 32 << 20}, Iters: 50, Warmup: 5,
			Expect: []Expectation{
				Count{Of: B, Counter: "steps", Is: Exactly, Value: 8, Per: PerOther},
				Count{Of: A, Counter: "stride", Is: AtLeast, Value: 1 << 20},
				Count{Of: B, Counter: "stride", Is: Exactly, Value: 256 << 10},
				Faster{Min: 0.98},
			},
		}},
	}
}

func namedBarrier() Claim {
	var tests []Test
	for _, warps := range []string{"1", "2", "4", "8"} {
		tests = append(tests, Test{
			Name: "warps-" + warps,
			A: sendrecvArm("ws", append(slices.Clone(theirWS), "--copy", "ldst", "--launch", "stream",
				"--sender-warps", warps, "--receiver-warps", warps)...),
			Op: "bidir", Sizes: []uint64{64 << 10, 1 << 20, 64 << 20, 1 << 30}, OnHost: []uint64{64 << 10, 1 << 20},
			Iters: 30, Warmup: 5,
			Expect: []Expectation{Ends{}, Intact{}},
		})
	}
	return Claim{
		ID:     "torchcomms-2728/named-barrier",
		Title:  "With one named barrier per role, a kernel that sends and receives at the same time neither hangs nor corrupts data.",
		Source: "meta-pytorch/torchcomms#2728, description: named barriers",
		Published: "No figures; the text says that a barrier of the whole block deadlocks or corrupts data, and that with named barriers " +
			"any number of iterations up to 1 GB completes.",
		Differs: torchHardware + "One test for each permitted number of warps. The times are for information.",
		Tests:   tests,
	}
}

func smallMessages() Claim {
	return Claim{
		ID:     "torchcomms-2728/small-messages",
		Title:  "Up to 64 KiB in both directions the warp-specialised kernel is at least 1.4 times as fast as NCCL.",
		Source: "meta-pytorch/torchcomms#2728, description: both ways, SM-matched, 32 B to 64 KB",
		Published: "NCCL's time over the kernel's, 4 thread blocks: 1.4–1.7; an earlier revision 1.49–1.83 from 32 B to 64 KB. No " +
			"factors of single sizes.",
		Differs: torchTiming + torchMatched,
		Tests: []Test{{
			A: oneCall("ws", "ws"), B: Arm{Label: "nccl", Baseline: "nccl-graph:4"}, Op: "bidir",
			Sizes: torchSmall, Iters: 500, Warmup: 50,
			Expect: []Expectation{Faster{Min: 1.4}},
		}},
	}
}

func ringPeers() Claim {
	const ranks = "3"
	return Claim{
		ID:        "torchcomms-2728/ring-peers",
		Title:     "A rank can send to one rank and receive from another.",
		Source:    "meta-pytorch/torchcomms#2728, description: send_peer and recv_peer",
		Published: "No figures.",
		Differs: torchHardware + "A ring of " + ranks + " ranks, each on a GPU of its own. Every byte is compared; the times " +
			"are for information.",
		Tests: []Test{{
			A:     sendrecvArm("ring", append(slices.Clone(theirWS), "--ring", "--ranks", ranks)...),
			Op:    "bidir",
			Sizes: []uint64{64, 64 << 10, 1 << 20, 64 << 20}, OnHost: []uint64{64, 64 << 10, 1 << 20},
			Iters: 50, Warmup: 5, Expect: []Expectation{Ends{}, Intact{}},
		}},
	}
}
