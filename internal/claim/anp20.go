package claim

import (
	"fmt"
	"slices"
)

// Sizes of these claims: those from which on sharing has to keep the bandwidth, and smaller ones.
var (
	anpLarge = []uint64{64 << 10, 256 << 10, 1 << 20}
	anpSizes = append([]uint64{8, 4 << 10}, anpLarge...)
)

// anpHost is the largest between CPU memories, which a CPU may have to carry.
const anpHost = 256 << 10

// anpKeeps is the part of the bandwidth, or of the message rate, that may not be lost.
const anpKeeps = 0.97

const anpHardware = "Published on AMD Pollara NICs with a collective on top; here point to point, on the devices that the result " +
	"names. Where the CPU plays the NIC (soft-RoCE) absolute figures mean nothing, and only ratios are shown. "

// anpArm is `p2pbench rdma` with 16 connections and flags. Two windows of each connection are a sample.
func anpArm(label string, flags ...string) Arm {
	return Arm{Label: label, Args: append([]string{"rdma", "--conns", "16", "--windows", "2"}, flags...)}
}

// anpShared is as many groups of 16 connections, each with one queue pair that is so many times as deep.
func anpShared(groups, depth int) Arm {
	label := fmt.Sprintf("groups %d, depth %d", groups, depth)
	return anpArm(label, "--groups", fmt.Sprint(groups), "--qps", "1", "--depth", fmt.Sprint(depth))
}

// anpOwn is 16 connections with so many queue pairs each.
func anpOwn(qps int) Arm {
	return anpArm(fmt.Sprintf("unshared, QPs %d", qps), "--groups", "0", "--qps", fmt.Sprint(qps))
}

// anpOwnDeep is 16 connections with a queue pair each that is twice as deep as they need.
func anpOwnDeep() Arm {
	return anpArm("unshared, depth 2", "--groups", "0", "--qps", "1", "--depth", "2")
}

// anpTest is a window of messages on every connection of either arm.
func anpTest(name string, a, b Arm, sizes []uint64, expect ...Expectation) Test {
	return Test{
		Name: name, A: a, B: b, Op: "stream", Sizes: sizes, Iters: 100, Warmup: 10,
		OnHost: slices.DeleteFunc(slices.Clone(sizes), func(n uint64) bool { return n > anpHost }),
		Expect: append([]Expectation{Intact{}, Count{Of: A, Counter: "misroutes", Is: Exactly, Value: 0}}, expect...),
	}
}

// anpCounted is a test that counters decide, so that a few small messages do.
func anpCounted(expect ...Expectation) Test {
	t := anpTest("", anpShared(4, 2), anpOwn(4), []uint64{4 << 10}, expect...)
	t.Iters, t.Warmup = 10, 2
	return t
}

// anp20 are the claims of ROCm/amd-anp#20, queue pairs that communicators share.
func anp20() []Claim {
	return []Claim{sharingKeepsBandwidth(), sharingSavesQPs(), sharedDepth(), setupTime(), immVsFIFO()}
}

func sharingKeepsBandwidth() Claim {
	shared := anpShared(4, 2)
	tests := []Test{
		anpTest("shared", shared, anpOwn(4), anpSizes, Faster{Min: anpKeeps, At: anpLarge}),
		anpTest("one-qp", shared, anpOwn(1), anpSizes),
		anpTest("own-deep", shared, anpOwnDeep(), anpSizes),
	}
	for _, groups := range []int{1, 2, 8, 16} {
		tests = append(tests, anpTest(fmt.Sprintf("groups-%d", groups), shared, anpShared(groups, 2), anpSizes))
	}
	return Claim{
		ID:     "anp-20/sharing-keeps-bandwidth",
		Title:  "16 connections on 4 shared queue pairs have the bandwidth that they have on 64 of their own.",
		Source: "ROCm/amd-anp#20, description: results",
		Published: "AllReduce about 140 GB/s without sharing (4 QPs for each communicator) and about 140 GB/s with it (4 groups, depth 2, " +
			"1 QP); alltoall and alltoallv gain 13–15 %.",
		Differs: anpHardware + fmt.Sprintf("From 64 KiB on the lower end of the factor's interval has to reach %.2f. The other tests are "+
			"controls, of which only correctness is expected: one unshared QP, one that is as deep, other numbers of groups.", anpKeeps),
		Tests: tests,
	}
}

func sharingSavesQPs() Claim {
	return Claim{
		ID:        "anp-20/sharing-saves-qps",
		Title:     "16 connections in 4 groups hold 4 queue pairs and 4 completion queues instead of 64 and 16.",
		Source:    "ROCm/amd-anp#20, description",
		Published: "In words: many communicators share few queue pairs. No figures.",
		Differs:   anpHardware + "Counters decide; the times are only shown.",
		Tests: []Test{anpCounted(
			Count{Of: A, Counter: "qps", Is: Exactly, Value: 4},
			Count{Of: B, Counter: "qps", Is: Exactly, Value: 64},
			Count{Of: A, Counter: "cqs", Is: Exactly, Value: 4},
			Count{Of: B, Counter: "cqs", Is: Exactly, Value: 16},
			Count{Of: A, Counter: "comms", Is: AtLeast, Value: 1, Per: PerOther},
		)},
	}
}

func sharedDepth() Claim {
	var tests []Test
	for _, depth := range []int{2, 4, 8} {
		tests = append(tests, anpTest(fmt.Sprintf("depth-%d", depth), anpShared(4, 1), anpShared(4, depth), anpLarge, Faster{Min: anpKeeps},
			Count{Of: A, Counter: "queue_bytes", Is: AtMost, Value: 1, Per: PerOther}))
	}
	tests = append(tests, anpTest("unshared", anpOwn(1), anpOwnDeep(), anpLarge, Faster{Min: anpKeeps}))
	return Claim{
		ID:     "anp-20/depth",
		Title:  "Queues of the depth that one connection needs are enough for those that share them: deeper ones bring nothing.",
		Source: "ROCm/amd-anp#20, description and review: the depth multiplier",
		Published: "No figures, and no agreement: the description's default multiplier is 4, the review's 1, the final one's 1; the " +
			"published run has 2.",
		Differs: anpHardware + fmt.Sprintf("Judged is the final default, 1, against 2, 4 and 8, and for queue pairs that nobody shares "+
			"against 2: the lower end of the factor's interval has to reach %.2f.", anpKeeps),
		Tests: tests,
	}
}

func setupTime() Claim {
	return Claim{
		ID:        "anp-20/setup-time",
		Title:     "A connection that joins others' queue pairs is set up at least five times as fast as one that makes its own.",
		Source:    "ROCm/amd-anp#20, description: secondary communicators",
		Published: "In words: a secondary makes no queue pair and moves none to ready. No figures.",
		Differs:   anpHardware + "Medians over the connections of the slower rank; the exchange of addresses is in neither. Counters decide.",
		Tests: []Test{anpCounted(
			Times{More: Counter{B, "setup_ns"}, Less: Counter{A, "setup_shared_ns"}, Min: 5})},
	}
}

func immVsFIFO() Claim {
	route := func(how string) Arm { return anpArm(how, "--groups", "0", "--qps", "1", "--route", how) }
	return Claim{
		ID:        "anp-20/imm-routing-vs-fifo",
		Title:     "To find a message's connection by its immediate data costs nothing against the order of receives.",
		Source:    "ROCm/amd-anp#20, description: completion routing",
		Published: "In words: immediate data name connection and request, so any receive serves any message. No figures.",
		Differs: anpHardware + fmt.Sprintf("Nothing is shared here, since receives in order cannot be. The lower end of the factor's "+
			"interval has to reach %.2f.", anpKeeps),
		Tests: []Test{anpTest("", route("imm"), route("fifo"), slices.Concat([]uint64{8, 4 << 10}, anpLarge[:1]), Faster{Min: anpKeeps})},
	}
}
