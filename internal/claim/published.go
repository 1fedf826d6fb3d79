package claim

// Figures in the description of uccl-project/uccl#876: two processes on AMD Instinct MI325X, GPU 2 and GPU 6, which are
// on different NUMA nodes.

// RoundTrip is a row in the tables of its C++ benchmark. P50 and P99 are full round trips in µs: sample ⌊q·n⌋, from 0,
// of the n sorted samples. Uni is payload ÷ time with 8 messages in flight, in 2³⁰ bytes per second, which the
// benchmark prints as GB/s. 0: not published.
type RoundTrip struct {
	Size          uint64
	P50, P99, Uni float64
}

// UCCLSweep has 10 iterations after 2 of warm-up.
var UCCLSweep = []RoundTrip{
	{1 << 10, 258.13, 0, 0.06},
	{4 << 10, 186.10, 0, 0.23},
	{16 << 10, 250.02, 0, 0.84},
	{64 << 10, 336.91, 0, 3.69},
	{256 << 10, 338.33, 0, 11.75},
	{1 << 20, 357.30, 0, 21.60},
	{4 << 20, 255.95, 0, 39.53},
	{16 << 20, 795.26, 0, 42.69},
	{64 << 20, 2808.17, 0, 44.65},
	{256 << 20, 11086.86, 0, 45.24},
}

// UCCLAnchor uses done_seq and has 50 iterations after 5 of warm-up.
var UCCLAnchor = []RoundTrip{
	{1 << 10, 40.88, 195.51, 0.04},
	{4 << 10, 39.53, 279.06, 0.24},
	{64 << 10, 49.12, 435.46, 2.96},
	{1 << 20, 81.89, 389.30, 28.91},
	{16 << 20, 738.23, 1166.28, 43.30},
}

// UCCLRelay forces the relay through CPU memory and has 50 iterations after 5 of warm-up.
var UCCLRelay = []RoundTrip{
	{64 << 10, 2379.6, 0, 0},
	{1 << 20, 3609.5, 0, 0},
}

// Compared is a row in the table of its Python benchmark: the mean in ms of 20 back-to-back round trips after 3 of
// warm-up. GB/s is 2 × size ÷ that mean, in 10⁹ bytes per second.
type Compared struct {
	Size                  uint64
	UKernelMS, UKernelGBs float64
	UCCLMS, UCCLGBs       float64
	NCCLMS, NCCLGBs       float64
}

// UCCLCompare compares UKernel with UCCL's own IPC and NCCL.
var UCCLCompare = []Compared{
	{1 << 10, 0.047, 0.04, 0.039, 0.05, 0.108, 0.02},
	{4 << 10, 0.051, 0.16, 0.039, 0.21, 0.091, 0.09},
	{16 << 10, 0.052, 0.62, 0.039, 0.83, 0.092, 0.36},
	{64 << 10, 0.047, 2.78, 0.030, 4.34, 0.092, 1.42},
	{256 << 10, 0.057, 9.19, 0.041, 12.94, 0.091, 5.76},
	{1 << 20, 0.098, 21.47, 0.072, 28.99, 0.117, 17.92},
	{4 << 20, 0.246, 34.15, 0.254, 32.97, 0.276, 30.37},
	{16 << 20, 0.737, 45.54, 0.779, 43.06, 0.759, 44.23},
	{64 << 20, 2.755, 48.73, 2.868, 46.80, 2.735, 49.08},
	{256 << 20, 10.812, 49.65, 11.216, 47.86, 10.644, 50.44},
}

// ncclFactors returns NCCL's time ÷ UKernel's time, by size.
func ncclFactors() map[uint64]float64 {
	f := map[uint64]float64{}
	for _, r := range UCCLCompare {
		f[r.Size] = r.NCCLMS / r.UKernelMS
	}
	return f
}

// relayRoundTrips returns the published round trips of the relay in µs, by size.
func relayRoundTrips() map[uint64]float64 {
	us := map[uint64]float64{}
	for _, r := range UCCLRelay {
		us[r.Size] = r.P50
	}
	return us
}

// Figures of meta-pytorch/torchcomms#2728: two processes on two NVIDIA H100. A CUDA graph of one call was started 500
// times (up to 64 KiB), 200 times (up to 64 MiB) or 50 times back to back between two events. A time is the mean, the
// maximum over ranks. GB/s is the payload of one direction, also in bidirectional runs, in 10⁹ bytes per second. The
// kernel and NCCL had the same number of thread blocks.

// OneWay is a row of its tables for one direction: GB/s with CTAs thread blocks.
type OneWay struct {
	CTAs       int
	Size       uint64
	Ours, NCCL float64
}

// TorchcommsOneWay holds the rows of both tables.
var TorchcommsOneWay = []OneWay{
	{4, 1 << 20, 44.2, 41.3},
	{4, 8 << 20, 59.2, 66.2},
	{4, 64 << 20, 120.3, 132.2},
	{4, 256 << 20, 121.5, 132.7},
	{4, 1 << 30, 121.9, 132.8},
	{16, 1 << 20, 105.2, 67.5},
	{16, 1 << 30, 337.8, 364.9},
}

// BothWays is a published ratio for both directions and a range of sizes: NCCL's time ÷ that of the warp-specialised
// kernel with 4 thread blocks.
type BothWays struct {
	From, To  uint64
	Low, High float64
}

// TorchcommsBothWays is from the final revision. It does not define small sizes; those of the earlier table are used.
var TorchcommsBothWays = []BothWays{
	{32, 64 << 10, 1.4, 1.7},
	{8 << 20, 1 << 30, 1.10, 1.13},
}

// TorchcommsEarlier is from an earlier revision, in the description's first table.
var TorchcommsEarlier = []BothWays{
	{32, 64 << 10, 1.49, 1.83},
	{1 << 20, 1 << 20, 1.16, 1.16},
	{8 << 20, 8 << 20, 1.11, 1.11},
	{64 << 20, 64 << 20, 1.12, 1.12},
}

// earlierFactors returns the factors in TorchcommsEarlier for single sizes.
func earlierFactors() map[uint64]float64 {
	f := map[uint64]float64{}
	for _, r := range TorchcommsEarlier {
		if r.From == r.To {
			f[r.From] = r.Low
		}
	}
	return f
}
