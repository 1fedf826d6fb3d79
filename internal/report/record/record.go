// Package record defines the versioned JSON document of a run's result, from which every view is rendered.
//
// It depends neither on devices nor on rendering. docs/json.md describes the document.
package record

import "time"

// Schema is the name and major version of the document. A reader refuses a newer major version.
const Schema = "p2pbench/1"

// Document is the result of one run.
type Document struct {
	Schema  string    `json:"schema"`
	Version string    `json:"version"` // of p2pbench
	Started time.Time `json:"started"`
	Command []string  `json:"command"`
	Preset  string    `json:"preset,omitempty"` // the preset that chose the flags
	Env     Env       `json:"env"`
	// Transports are the descriptions of the run's transports, including those of baselines, by name. Documents of
	// earlier versions have none.
	Transports map[string]Transport `json:"transports,omitempty"`
	Cells      []Cell               `json:"cells"`
	Warnings   []string             `json:"warnings"`
	Exit       int                  `json:"exit"` // exit code of the run
}

// Env describes the machine and the conditions of the run.
type Env struct {
	Host      string            `json:"host"`
	OS        string            `json:"os"`     // "Debian GNU/Linux 12 (bookworm)"
	Kernel    string            `json:"kernel"` // "6.1.0-18-amd64"
	Arch      string            `json:"arch"`   // "amd64"
	CPU       CPU               `json:"cpu"`
	MemoryB   uint64            `json:"memory_bytes"`
	Driver    string            `json:"driver,omitempty"`    // GPU driver
	Libraries map[string]string `json:"libraries,omitempty"` // "nccl": "2.28.9"
	Ranks     []Rank            `json:"ranks"`
	Link      *Link             `json:"link,omitempty"` // between rank 0's and rank 1's device
	Harness   Harness           `json:"harness"`
}

// CPU describes the host's processors.
type CPU struct {
	Model     string `json:"model"`
	Count     int    `json:"count"` // CPUs this process may use
	NUMANodes int    `json:"numa_nodes"`
	Governor  string `json:"governor,omitempty"` // "performance"; absent if unknown
}

// Rank is one worker process and its device.
type Rank struct {
	Rank   int     `json:"rank"`
	CPU    int     `json:"cpu"` // CPU of the timing thread; -1: not pinned
	NUMA   int     `json:"numa"`
	Device GPU     `json:"device"`
	Before *Health `json:"before,omitempty"` // before the first cell
	After  *Health `json:"after,omitempty"`  // after the last cell
	// Cold costs of this rank in µs: from process start to ready, and opening the device with its context.
	ProcessUS float64 `json:"process_us"`
	DeviceUS  float64 `json:"device_us"`
	// CPUSeconds is the total user and system time of the worker.
	CPUSeconds float64 `json:"cpu_seconds"`
}

// GPU identifies a device ("host" for CPU memory).
type GPU struct {
	Kind   string `json:"kind"`
	Index  int    `json:"index"`
	Name   string `json:"name"`
	UUID   string `json:"uuid"`
	PCI    string `json:"pci,omitempty"`
	Arch   string `json:"arch,omitempty"`
	NUMA   int    `json:"numa"`
	Memory uint64 `json:"memory_bytes"`
}

// Link describes the interconnect between two devices.
type Link struct {
	Type   string `json:"type"`
	Count  int    `json:"count,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// Health is a reading of a device's state; absent: unknown.
type Health struct {
	SMClockMHz    *uint32  `json:"sm_clock_mhz,omitempty"`
	MaxSMClockMHz *uint32  `json:"max_sm_clock_mhz,omitempty"`
	MemClockMHz   *uint32  `json:"mem_clock_mhz,omitempty"`
	TemperatureC  *uint32  `json:"temperature_c,omitempty"`
	PowerW        *float64 `json:"power_w,omitempty"`
	ECCErrors     *uint64  `json:"ecc_uncorrected,omitempty"`
	Throttle      []string `json:"throttle,omitempty"`
	LinkTxBytes   *uint64  `json:"link_tx_bytes,omitempty"`
	LinkRxBytes   *uint64  `json:"link_rx_bytes,omitempty"`
}

// Harness is the overhead of the measurement, which is never subtracted.
type Harness struct {
	Clock       string  `json:"clock"`         // "TSC" or "CLOCK_MONOTONIC_RAW"
	OverheadNS  float64 `json:"overhead_ns"`   // timer and loop per iteration of an empty loop: median, maximum over ranks
	WorstSkewUS float64 `json:"worst_skew_us"` // largest difference between ranks leaving a barrier
	FirstCellMS float64 `json:"first_cell_ms"` // process start to the end of the first measured cell's first block
}

// Cell is one measured combination of transport, operation, size and window.
type Cell struct {
	Transport  string            `json:"transport"`
	Path       string            `json:"path"` // the path that ran
	Engine     string            `json:"engine"`
	Device     string            `json:"device"` // kind
	Op         string            `json:"op"`
	Size       uint64            `json:"size"` // bytes of a message
	Offset     uint64            `json:"offset,omitempty"`
	Ranks      int               `json:"ranks"`
	Window     int               `json:"window"` // messages in flight
	Warmup     int               `json:"warmup"`
	Iters      int               `json:"iters"` // requested samples
	N          int               `json:"n"`     // samples taken
	Completion string            `json:"completion"`
	Lat        Latency           `json:"lat_us"`
	BWPerDir   *float64          `json:"bw_GBps_per_dir"` // 1e9 bytes/s, from the median sample; null for size 0
	BWSum      *float64          `json:"bw_GBps_sum"`     // sum over concurrent windows
	MsgRate    float64           `json:"msg_rate"`        // messages per second and direction, from the median sample
	Verified   *bool             `json:"verified"`        // null: not checked
	Cold       Cold              `json:"cold"`
	Counters   map[string]uint64 `json:"counters"`
	Conns      []Connection      `json:"conns,omitempty"`         // connections that carried messages, by rank and number
	Fairness   *float64          `json:"jain_fairness,omitempty"` // Jain's index over Conns: 1/len(Conns) to 1
	Knobs      map[string]string `json:"knobs"`
	Vs         []Vs              `json:"vs"`
	Invalid    *string           `json:"invalid"` // reason, e.g. throttled; null: valid
	Warnings   []string          `json:"warnings"`
	SkewUS     float64           `json:"skew_us"`              // worst start skew of this cell
	SamplesNS  []int64           `json:"samples_ns,omitempty"` // --out only, in the order taken
	Histogram  []Bin             `json:"histogram_ns,omitempty"`
}

// Bin is a bin of a lossless histogram: Count samples lasted exactly NS. Used above 100,000 samples.
type Bin struct {
	NS    int64 `json:"ns"`
	Count int64 `json:"count"`
}

// Latency is the summary of samples in µs; percentiles are nearest-rank. A percentile with too few samples (p99 below
// 100, p99.9 below 1,000) is the maximum; readers must check N.
type Latency struct {
	Min  float64 `json:"min"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// Cold holds one-time costs in µs; absent: not applicable.
type Cold struct {
	ExportUS  *float64 `json:"export_us,omitempty"`
	OpenUS    *float64 `json:"open_us,omitempty"`
	ConnectUS *float64 `json:"connect_us,omitempty"`
	FirstUS   *float64 `json:"first_us,omitempty"` // the first iteration of this cell
}

// Vs is a baseline measured interleaved with the cell.
type Vs struct {
	Name      string            `json:"name"`
	Transport string            `json:"transport,omitempty"` // absent without figures
	Engine    string            `json:"engine,omitempty"`
	N         int               `json:"n"`
	Lat       Latency           `json:"lat_us"`
	BWPerDir  *float64          `json:"bw_GBps_per_dir"`
	Ratio     *float64          `json:"ratio"`        // baseline's p50 ÷ this cell's p50: above 1 the cell is faster
	NA        string            `json:"na,omitempty"` // why there are no figures
	Verified  *bool             `json:"verified"`
	Counters  map[string]uint64 `json:"counters,omitempty"` // counters of the baseline in this cell
	Conns     []Connection      `json:"conns,omitempty"`
	Fairness  *float64          `json:"jain_fairness,omitempty"`
	Knobs     map[string]string `json:"knobs,omitempty"`
	SamplesNS []int64           `json:"samples_ns,omitempty"`
	Histogram []Bin             `json:"histogram_ns,omitempty"`
}
