package sendrecv

// The protocol's bounds of settings.
const (
	MaxCTAs   = maxCTAs
	MaxBurst  = maxBurst
	MaxStages = staging / grain
)
