package claim

// The figures of uccl-project/uccl#876, as its description has them: two processes on AMD Instinct MI325X, GPU 2 and
// GPU 6, which are on different NUMA nodes.

// RoundTrip is a row of the tables that its C++ benchmark gave. P50 and P99 are µs of a full round trip, the sample
// number ⌊q·n⌋ (from 0) of the n sorted ones. Uni is payload over time with 8 messages at a time, in units of 2³⁰
// bytes per second, which it prints as GB/s. 0: not published.
type RoundTrip struct {
	Size          uint64
	P50, P99, Uni float64
}

// UCCLSweep was taken with 10 iterations after 2 of warm-up.
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

// UCCLAnchor was taken with done_seq, with 50 iterations after 5 of warm-up.
var UCCLAnchor = []RoundTrip{
	{1 << 10, 40.88, 195.51, 0.04},
	{4 << 10, 39.53, 279.06, 0.24},
	{64 << 10, 49.12, 435.46, 2.96},
	{1 << 20, 81.89, 389.30, 28.91},
	{16 << 20, 738.23, 1166.28, 43.30},
}

// UCCLRelay was taken with the relay through CPU memory forced, with 50 iterations after 5 of warm-up.
var UCCLRelay = []RoundTrip{
	{64 << 10, 2379.6, 0, 0},
	{1 << 20, 3609.5, 0, 0},
}

// Compared is a row of the table that its Python benchmark gave: the mean of 20 round trips after 3, back to back, in
// ms; GB/s is 2 × size over that mean, in units of 10⁹ bytes per second.
type Compared struct {
	Size                  uint64
	UKernelMS, UKernelGBs float64
	UCCLMS, UCCLGBs       float64
	NCCLMS, NCCLGBs       float64
}

// UCCLCompare is UKernel beside UCCL's own IPC and NCCL.
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

// ncclFactors are NCCL's time over UKernel's.
func ncclFactors() map[uint64]float64 {
	f := map[uint64]float64{}
	for _, r := range UCCLCompare {
		f[r.Size] = r.NCCLMS / r.UKernelMS
	}
	return f
}

// relayRoundTrips are the published times of the relay.
func relayRoundTrips() map[uint64]float64 {
	us := map[uint64]float64{}
	for _, r := range UCCLRelay {
		us[r.Size] = r.P50
	}
	return us
}
