package claim

// What is measured otherwise than in the pull request, which has no figures.
const mpichDiffers = "The pull request argues and has no figures; the arms show on the devices that the result names what " +
	"it says. A message is timed until the sender knows that the receiver has it. Which buffers are worth sharing is not " +
	"asked here (MPICH: 1 MiB or more, or seen before). "

// mpich7862 are the claims of pmodels/mpich#7862, one handle cache at the sender instead of several.
func mpich7862() []Claim {
	return []Claim{directHit(), cacheOff(), boundedMemory(), staleSafe(), lruCliff()}
}

func getArm(label string, flags ...string) Arm {
	return ipcArm(label, append([]string{"--path", "get"}, flags...)...)
}

// counted is a test at 1 MiB, the smallest size that MPICH always shares, whose warm-up fills every cache.
func counted(a, b Arm, expect ...Expectation) Test {
	return Test{A: a, B: b, Op: "latency", Sizes: []uint64{1 << 20}, Iters: 200, Warmup: 80, Expect: expect}
}

func directHit() Claim {
	return Claim{
		ID:     "mpich-7862/direct-hit",
		Title:  "A buffer that the receiver has mapped before is sent by its mapped address: no handle and no open.",
		Source: "pmodels/mpich#7862, description: the sender-side cache with remote mappings",
		Published: "In words: one sender-side cache keeps both the handle and each receiver's mapping, told by control messages. " +
			"No figures.",
		Differs: mpichDiffers + "Arm B stands for the caches before, one at each end; its time is only shown.",
		Tests: []Test{counted(
			getArm("one cache", "--cache", "sender"), getArm("a cache at each end", "--cache", "dual"),
			Count{Of: A, Counter: "opens", Is: Exactly, Value: 1},
			Count{Of: A, Counter: "closes", Is: Exactly, Value: 0},
			Count{Of: A, Counter: "misses", Is: Exactly, Value: 1},
			Count{Of: A, Counter: "direct", Is: AtLeast, Value: 1, Per: PerSample},
		)},
	}
}

func cacheOff() Claim {
	return Claim{
		ID:        "mpich-7862/cache-off",
		Title:     "Without the cache every message exports, opens and closes, and pays for it.",
		Source:    "pmodels/mpich#7862, description: MPIR_CVAR_CH4_IPC_GPU_CACHE_SIZE=0",
		Published: "In words: a size of 0 disables the cache. No figures.",
		Differs:   mpichDiffers,
		Tests: []Test{{
			A: getArm("cache", "--cache", "sender"), B: getArm("no cache", "--cache", "off"), Op: "latency",
			Sizes: []uint64{1 << 20, 4 << 20, 16 << 20}, Iters: 200, Warmup: 20,
			Expect: []Expectation{
				Count{Of: A, Counter: "opens", Is: AtMost, Value: 1},
				Count{Of: B, Counter: "exports", Is: AtLeast, Value: 1, Per: PerSample},
				Count{Of: B, Counter: "opens", Is: AtLeast, Value: 1, Per: PerSample},
				Count{Of: B, Counter: "closes", Is: AtLeast, Value: 1, Per: PerSample},
				Faster{},
			},
		}},
	}
}

func boundedMemory() Claim {
	return Claim{
		ID:     "mpich-7862/bounded-memory",
		Title:  "However many buffers are sent, the cache keeps no more of them mapped than its size.",
		Source: "pmodels/mpich#7862, description: MPIR_CVAR_CH4_IPC_GPU_CACHE_SIZE",
		Published: "In words: the setting prevents the cache from hoarding device memory, where stale entries used to end in " +
			"its exhaustion. No figures.",
		Differs: mpichDiffers + "Arm A uses 64 allocations in turn, arm B 16, as many as the cache holds.",
		Tests: []Test{counted(
			getArm("64 buffers", "--buffers", "rotate:64", "--cache-size", "16"),
			getArm("16 buffers", "--buffers", "rotate:16", "--cache-size", "16"),
			Count{Of: A, Counter: "mapped_bytes", Is: AtMost, Value: 1, Per: PerOther},
			Count{Of: A, Counter: "evictions", Is: AtLeast, Value: 1, Per: PerSample},
			Count{Of: B, Counter: "mapped_bytes", Is: AtLeast, Value: 16 << 20},
			Count{Of: B, Counter: "evictions", Is: Exactly, Value: 0},
		)},
	}
}

func staleSafe() Claim {
	flags := []string{"--cache", "sender", "--buffers", "realloc-same"}
	validated := counted(getArm("validated", flags...), Arm{},
		Intact{},
		Count{Of: A, Counter: "stale", Is: AtLeast, Value: 1},
	)
	validated.Name = "validated"
	blind := counted(getArm("not validated", append(flags, "--inject", "no-validation")...), Arm{}, Caught{})
	blind.Name = "no-validation"
	return Claim{
		ID:     "mpich-7862/stale-safe",
		Title:  "A buffer that was freed and allocated again at the same address is never taken for the old one.",
		Source: "pmodels/mpich#7862, description: handle and mapping must be synchronised",
		Published: "In words: new mappings failed with stale overlapping addresses; with one cache and explicit messages both ends " +
			"agree. No figures.",
		Differs: mpichDiffers + "Test no-validation shows that the trap is real: a cache that takes the address for the " +
			"buffer must deliver wrong bytes, and the data check must see it.",
		Tests: []Test{validated, blind},
	}
}

func lruCliff() Claim {
	return Claim{
		ID:     "mpich-7862/lru-cliff",
		Title:  "Of a cache of 16, 16 buffers in turn always hit, and 17 never do.",
		Source: "pmodels/mpich#7862, description, and #7821, which it builds on: a fixed array, least recently used evicted",
		Published: "In words: a fixed array with eviction of the least recently used, 16 entries by default. The cliff follows; " +
			"nobody published it.",
		Differs: mpichDiffers,
		Tests: []Test{counted(
			getArm("16 buffers", "--buffers", "rotate:16", "--cache-size", "16"),
			getArm("17 buffers", "--buffers", "rotate:17", "--cache-size", "16"),
			Count{Of: A, Counter: "hits", Is: AtLeast, Value: 1, Per: PerSample},
			Count{Of: A, Counter: "misses", Is: Exactly, Value: 16},
			Count{Of: B, Counter: "hits", Is: Exactly, Value: 0},
			Count{Of: B, Counter: "misses", Is: AtLeast, Value: 1, Per: PerSample},
			Faster{},
		)},
	}
}
