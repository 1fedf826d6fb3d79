package claim

import (
	"fmt"
	"slices"
)

// Sizes of these claims. Sharing must keep the bandwidth at the sizes of anpLarge.
var (
	anpLarge = []uint64{64 << 10, 256 << 10, 1 << 20}
	anpSizes = append([]uint64{8, 4 << 10}, anpLarge...)
)

// anpHost is the largest size in CPU memory, where a CPU may have to emulate the NIC.
const anpHost = 256 << 10

// anpKeeps is the fraction of the bandwidth, or of the message rate, that must remain.
const anpKeeps = 0.97

const anpHardware = "Published for a collective on AMD Pollara NICs; measured point to point on the devices that the result " +
	"names. If the CPU emulates the NIC (soft-RoCE), absolute figures are meaningless and only ratios are shown. "

// anpArm is `p2pbench rdma` with 16 connections and more flags. A sample has two windows of each connection.
func anpArm(label string, flags ...string) Arm {
	return Arm{Label: label, Args: append([]string{"rdma", "--conns", "16", "--windows", "2"}, flags...)}
}

// anpShared is 16 connections in groups, each of which shares one queue pair with this multiplier of the depth.
func anpShared(groups, depth int) Arm {
	label := fmt.Sprintf("groups %d, depth %d", groups, depth)
	return anpArm(label, "--groups", fmt.Sprint(groups), "--qps", "1", "--depth", fmt.Sprint(depth))
}

// anpOwn is 16 connections with qps queue pairs each.
func anpOwn(qps int) Arm {
	return anpArm(fmt.Sprintf("unshared, QPs %d", qps), "--groups", "0", "--qps", fmt.Sprint(qps))
}

// anpOwnDeep is 16 connections with one queue pair each of twice the required depth.
func anpOwnDeep() Arm {
	return anpArm("unshared, depth 2", "--groups", "0", "--qps", "1", "--depth", "2")
}

// anpTest compares windows of messages on all connections of both arms.
func anpTest(name string, a, b Arm, sizes []uint64, expect ...Expectation) Test {
	return Test{
		Name: name, A: a, B: b, Op: "stream", Sizes: sizes, Iters: 100, Warmup: 10,
		OnHost: slices.DeleteFunc(slices.Clone(sizes), func(n uint64) bool { return n > anpHost }),
		Expect: append([]Expectation{Intact{}, Count{Of: A, Counter: "misroutes", Is: Exactly, Value: 0}}, expect...),
	}
}

// anpCounted is a test of counters, for which a few small messages suffice.
func anpCounted(expect ...Expectation) Test {
	t := anpTest("", anpShared(4, 2), anpOwn(4), []uint64{4 << 10}, expect...)
	t.Iters, t.Warmup = 10, 2
	return t
}

// anp20 returns the claims of ROCm/amd-anp#20: queue pairs shared by communicators.
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
		Title:  "16 connections have the same bandwidth on 4 shared queue pairs as on 64 queue pairs of their own.",
		Source: "ROCm/amd-anp#20, description: results",
		Published: "AllReduce about 140 GB/s without sharing (4 QPs for each communicator) and about 140 GB/s with it (4 groups, depth 2, " +
			"1 QP); alltoall and alltoallv gain 13–15 %.",
		Differs: anpHardware + fmt.Sprintf("From 64 KiB on the lower end of the factor's interval must reach %.2f. The other tests are "+
			"controls and expect correct data only: one unshared QP, one of depth 2, other numbers of groups.", anpKeeps),
		Tests: tests,
	}
}

func sharingSavesQPs() Claim {
	return Claim{
		ID:        "anp-20/sharing-saves-qps",
		Title:     "16 connections in 4 groups hold 4 queue pairs and 4 completion queues instead of 64 and 16.",
		Source:    "ROCm/amd-anp#20, description",
		Published: "No figures; the text says that many communicators share few queue pairs.",
		Differs:   anpHardware + "The verdict depends on counters only; the times are for information.",
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
		Title:  "Shared queues need no more depth than one connection does: deeper queues are not faster.",
		Source: "ROCm/amd-anp#20, description and review: the depth multiplier",
		Published: "No figures. The default multiplier is 4 in the description, 1 in the review and 1 in the final version; the published " +
			"run uses 2.",
		Differs: anpHardware + fmt.Sprintf("The final default, 1, is compared with 2, 4 and 8; for unshared queue pairs with 2. The lower end "+
			"of the factor's interval must reach %.2f.", anpKeeps),
		Tests: tests,
	}
}

func setupTime() Claim {
	return Claim{
		ID:        "anp-20/setup-time",
		Title:     "The set-up of a connection that shares queue pairs is at least five times as fast as that of one that creates its own.",
		Source:    "ROCm/amd-anp#20, description: secondary communicators",
		Published: "No figures; the text says that a secondary creates no queue pair and moves none to the ready states.",
		Differs: anpHardware + "Medians over the connections of the slower rank, without the exchange of addresses. The verdict " +
			"depends on counters only.",
		Tests: []Test{anpCounted(
			Times{More: Counter{B, "setup_ns"}, Less: Counter{A, "setup_shared_ns"}, Min: 5})},
	}
}

func immVsFIFO() Claim {
	route := func(how string) Arm { return anpArm(how, "--groups", "0", "--qps", "1", "--route", how) }
	return Claim{
		ID:        "anp-20/imm-routing-vs-fifo",
		Title:     "Identifying a message's connection by immediate data is as fast as by the order of receives.",
		Source:    "ROCm/amd-anp#20, description: completion routing",
		Published: "No figures; the text says that immediate data name connection and request, so that any receive serves any message.",
		Differs: anpHardware + fmt.Sprintf("Neither arm shares queue pairs, since the order of receives excludes it. The lower end of the "+
			"factor's interval must reach %.2f.", anpKeeps),
		Tests: []Test{anpTest("", route("imm"), route("fifo"), slices.Concat([]uint64{8, 4 << 10}, anpLarge[:1]), Faster{Min: anpKeeps})},
	}
}
