package claim

import "slices"

// Preset is a run as a pull request made it: flags of a path command.
type Preset struct {
	Name  string
	Title string
	Flags []Flag
	OnGPU []Flag // more, where the devices are GPUs
}

// Flag is a flag by its long name, without dashes.
type Flag struct{ Name, Value string }

// Presets are the runs that `p2pbench ipc --preset` repeats.
func Presets() []Preset {
	copies := []Flag{{"engine", "ce"}, {"streams", "2"}}
	windows := append(slices.Clone(copies), Flag{"window", "8"}) // CPU memory has fewer where they would be large
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
			Name: "uccl-876-sweep", Title: "uccl-project/uccl#876, sweep", OnGPU: windows,
			Flags: direct("10", "2", sizesOf(UCCLSweep), "latency,stream,pingpong"),
		},
		{
			Name: "uccl-876-anchor", Title: "uccl-project/uccl#876, done_seq anchor", OnGPU: windows,
			Flags: append(direct("50", "5", sizesOf(UCCLAnchor), "latency,stream,pingpong"),
				Flag{"completion", "done-seq"}, Flag{"wake", "spin"}),
		},
		{
			Name: "uccl-876-compare", Title: "uccl-project/uccl#876, UKernel, UCCL and NCCL", OnGPU: copies,
			Flags: append(direct("20", "3", compared, "pingpong"), Flag{"vs", "nccl"}),
		},
		{
			Name: "uccl-876-relay", Title: "uccl-project/uccl#876, relay through CPU memory",
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

// PresetNames are the names of [Presets].
func PresetNames() []string {
	var names []string
	for _, p := range Presets() {
		names = append(names, p.Name)
	}
	return names
}

// PresetNamed finds a preset.
func PresetNamed(name string) (Preset, bool) {
	all := Presets()
	i := slices.IndexFunc(all, func(p Preset) bool { return p.Name == name })
	if i < 0 {
		return Preset{}, false
	}
	return all[i], true
}
