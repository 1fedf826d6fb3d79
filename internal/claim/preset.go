package claim

import "slices"

// Preset is the flags of a path command that repeat a run of a pull request.
type Preset struct {
	Name   string
	Path   string // the path command
	Title  string
	Flags  []Flag
	OnGPU  []Flag // additional flags on GPUs
	OnHost []Flag // additional flags on CPU memory
	// Baselines are additional arms of the same path, measured interleaved. Sizes, operations and samples are those of
	// the preset.
	Baselines []Arm
}

// Flag is a flag. Name is its long name without dashes.
type Flag struct{ Name, Value string }

// On returns the preset's flags for GPUs or for CPU memory.
func (p Preset) On(gpu bool) []Flag {
	if gpu {
		return slices.Concat(p.Flags, p.OnGPU)
	}
	return slices.Concat(p.Flags, p.OnHost)
}

// Presets returns the presets of all path commands.
func Presets() []Preset { return slices.Concat(ucclPresets(), anpPresets(), torchcommsPresets()) }

// ucclPresets returns presets of `p2pbench ipc`.
func ucclPresets() []Preset {
	copies := []Flag{{"engine", "ce"}, {"streams", "2"}}
	windows := append(slices.Clone(copies), Flag{"window", "8"}) // on CPU memory the default window limits the bytes
	direct := func(iters, warmup string, sizes []uint64, ops string) []Flag {
		return []Flag{
			{"path", "direct"},
			{"sizes", sizeList(sizes)},
			{"iters", iters},
			{"warmup", warmup},
			{"op", ops},
		}
	}
	sizesOf := func(rows []RoundTrip) (sizes []uint64) {
		for _, r := range rows {
			sizes = append(sizes, r.Size)
		}
		return sizes
	}
	var compared []uint64
	for _, r := range UCCLCompare {
		compared = append(compared, r.Size)
	}
	return []Preset{
		{
			Name: "uccl-876-sweep", Path: "ipc", Title: "uccl-project/uccl#876, sweep", OnGPU: windows,
			Flags: direct("10", "2", sizesOf(UCCLSweep), "latency,stream,pingpong"),
		},
		{
			Name: "uccl-876-anchor", Path: "ipc", Title: "uccl-project/uccl#876, done_seq anchor", OnGPU: windows,
			Flags: append(direct("50", "5", sizesOf(UCCLAnchor), "latency,stream,pingpong"),
				Flag{"completion", "done-seq"}, Flag{"wake", "spin"}),
		},
		{
			Name: "uccl-876-compare", Path: "ipc", Title: "uccl-project/uccl#876, UKernel, UCCL and NCCL", OnGPU: copies,
			Flags: append(direct("20", "3", compared, "pingpong"), Flag{"vs", "nccl"}),
		},
		{
			Name: "uccl-876-relay", Path: "ipc", Title: "uccl-project/uccl#876, relay through CPU memory",
			Flags: []Flag{
				{"path", "relay"},
				{"relay", "fresh"},
				{"completion", "ring-ack"},
				{"wake", "sleep:1ms"},
				{"sizes", sizeList(sizesOf(UCCLRelay))},
				{"iters", "50"},
				{"warmup", "5"},
				{"op", "latency,pingpong"},
			},
		},
	}
}

// anpPresets returns presets of `p2pbench rdma`: the pull request's shared queue pairs, compared with unshared ones and
// the control arms. The windows are short because every arm has its own buffers.
func anpPresets() []Preset {
	baselines := []Arm{anpOwn(4), anpOwn(1), anpOwnDeep()}
	for _, groups := range []int{1, 2, 8, 16} {
		baselines = append(baselines, anpShared(groups, 2))
	}
	for _, depth := range []int{1, 4, 8} {
		baselines = append(baselines, anpShared(4, depth))
	}
	return []Preset{{
		Name: "anp-20", Path: "rdma", Title: "ROCm/amd-anp#20, 16 connections on shared queue pairs",
		Flags: []Flag{
			{"conns", "16"},
			{"groups", "4"},
			{"depth", "2"},
			{"qps", "1"},
			{"op", "stream"},
			{"warmup", "5"},
		},
		OnGPU:     []Flag{{"sizes", "8,4K,64K,1M"}, {"windows", "2"}, {"iters", "100"}},
		OnHost:    []Flag{{"sizes", "8,4K,64K"}, {"windows", "1"}, {"iters", "20"}},
		Baselines: baselines,
	}}
}

// torchcommsPresets returns presets of `p2pbench sendrecv`. Sizes for CPU memory fit a small machine.
func torchcommsPresets() []Preset {
	preset := func(name, title, op, ctas string, sizes, onHost []uint64) Preset {
		return Preset{
			Name: name, Path: "sendrecv", Title: "meta-pytorch/torchcomms#2728, " + title,
			Flags: []Flag{
				{"variant", "ws"},
				{"ctas", ctas},
				{"ll-max", "0"},
				{"copy", "ldst"},
				{"op", op},
				{"cudagraph", "1"},
				{"timing", "device"},
				{"vs", "nccl"},
			},
			OnGPU:  []Flag{{"sizes", sizeList(sizes)}, {"iters", "200"}, {"warmup", "20"}},
			OnHost: []Flag{{"sizes", sizeList(onHost)}, {"iters", "50"}, {"warmup", "5"}},
		}
	}
	oneWay := func(ctas int) (sizes []uint64) {
		for _, r := range TorchcommsOneWay {
			if r.CTAs == ctas {
				sizes = append(sizes, r.Size)
			}
		}
		return sizes
	}
	small := []uint64{1 << 20, 8 << 20}
	return []Preset{
		preset("torchcomms-2728", "both ways, 4 CTAs", "bidir", "4", torchSizes, torchHost),
		preset("torchcomms-2728-one-way", "one way, 4 CTAs", "stream", "4", oneWay(4), small),
		preset("torchcomms-2728-one-way-16", "one way, 16 CTAs", "stream", "16", oneWay(16), small),
	}
}

// PresetNames returns the names of a path command's presets; of all presets if path is "".
func PresetNames(path string) []string {
	var names []string
	for _, p := range Presets() {
		if path == "" || p.Path == path {
			names = append(names, p.Name)
		}
	}
	return names
}

// PresetNamed returns the preset of that name.
func PresetNamed(name string) (Preset, bool) {
	all := Presets()
	i := slices.IndexFunc(all, func(p Preset) bool { return p.Name == name })
	if i < 0 {
		return Preset{}, false
	}
	return all[i], true
}
