package claim

// Differences from the pull request, which has no figures.
const mpichDiffers = "The pull request has no figures; the arms measure its statements on the devices that the result " +
	"names. A message is timed until the sender knows that the receiver has it. The choice of the buffers to " +
	"share (MPICH: 1 MiB or more, or seen before) is not measured. "

// mpich7862 returns the claims of pmodels/mpich#7862: one handle cache at the sender instead of several.
func mpich7862() []Claim {
	return []Claim{directHit(), cacheOff(), boundedMemory(), staleSafe(), lruCliff()}
}

func getArm(label string, flags ...string) Arm {
	return ipcArm(label, append([]string{"--path", "get"}, flags...)...)
}

// counted is a test at 1 MiB, the smallest size that MPICH always shares. Its warm-up fills every cache.
func counted(a, b Arm, expect ...Expectation) Test {
	return Test{A: a, B: b, Op: "latency", Sizes: []uint64{1 << 20}, Iters: 200, Warmup: 80, Expect: expect}
}

func directHit() Claim {
	return Claim{
		ID:     "mpich-7862/direct-hit",
		Title:  "A message whose buffer the receiver has mapped before carries the mapped address: no handle, no open.",
		Source: "pmodels/mpich#7862, description: the sender-side cache with remote mappings",
		Published: "No figures; the text says that one cache at the sender keeps the handle and each receiver's mapping, which control " +
			"messages report.",
		Differs: mpichDiffers + "Arm B is the design before the pull request, a cache at each rank; its time is for information.",
		Tests: []Test{counted(
			getArm("one cache", "--cache", "sender"), getArm("a cache at each rank", "--cache", "dual"),
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
		Title:     "Without the cache every message exports, opens and closes a handle, and takes longer.",
		Source:    "pmodels/mpich#7862, description: MPIR_CVAR_CH4_IPC_GPU_CACHE_SIZE=0",
		Published: "No figures; the text says that a size of 0 disables the cache.",
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
		Title:  "The cache maps at most as many buffers as its size, however many are sent.",
		Source: "pmodels/mpich#7862, description: MPIR_CVAR_CH4_IPC_GPU_CACHE_SIZE",
		Published: "No figures; the text says that the setting keeps stale entries of the cache from exhausting device " +
			"memory.",
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
		Title:  "A buffer that was freed and allocated again at the same address is never mistaken for the old buffer.",
		Source: "pmodels/mpich#7862, description: handle and mapping must be synchronised",
		Published: "No figures; the text says that new mappings failed because of stale overlapping addresses, and that one cache with " +
			"explicit messages keeps both ranks consistent.",
		Differs: mpichDiffers + "Test no-validation is the control: a cache that identifies a buffer by its address alone must " +
			"deliver wrong bytes, and the payload check must detect them.",
		Tests: []Test{validated, blind},
	}
}

func lruCliff() Claim {
	return Claim{
		ID:     "mpich-7862/lru-cliff",
		Title:  "With 16 buffers in turn, a cache of 16 entries always hits; with 17 it never does.",
		Source: "pmodels/mpich#7862, description, and #7821, which it builds on: a fixed array, least recently used evicted",
		Published: "No figures; the text describes a fixed array, 16 entries by default, that evicts the least recently used entry. The " +
			"claim follows from that.",
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
