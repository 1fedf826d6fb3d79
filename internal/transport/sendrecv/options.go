package sendrecv

import (
	"errors"
	"fmt"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/knob"
)

// Options are the path's settings, as package knob reads them.
type Options struct {
	Variant       string         `json:"variant,omitempty" knob:"variant" values:"auto ws stable put ll ll128 ce" group:"path" help:"see below; auto: the fastest of put, ll, ll128 and ce at each size"`
	CTAs          int            `json:"ctas,omitempty" knob:"ctas" unset:"auto" range:"1..256" of:"variant!=ce" arg:"N" group:"path" help:"thread blocks that send; as many receive (stable: N further blocks); --vs nccl requests the same number; auto: the fastest at each size"`
	SenderWarps   int            `json:"sender_warps,omitempty" knob:"sender-warps" range:"1..16" of:"variant!=auto,ce copy!=bulk" arg:"N" group:"path" help:"sending warps per block: 1, 2, 4 or 8; put: up to 16 (default: by size)"`
	ReceiverWarps int            `json:"receiver_warps,omitempty" knob:"receiver-warps" range:"1..16" of:"variant!=auto,ce copy!=bulk" arg:"N" group:"path" help:"receiving warps per block: as many as send (put: 1)"`
	Stride        knob.Size      `json:"stride,omitempty" knob:"stride" unset:"auto" range:"1.." of:"variant=ws,stable" arg:"size" group:"path" help:"ws, stable: bytes per step, such as 256K; auto: grows with the message"`
	Stages        int            `json:"stages,omitempty" knob:"stages" default:"2" range:"1..32768" of:"variant=ws,stable" arg:"N" group:"path" help:"ws, stable: maximum number of steps in flight per block"`
	LLMax         *knob.Size     `json:"ll_max,omitempty" knob:"ll-max" default:"64K" of:"variant=ws" arg:"size" group:"path" help:"ws: largest message that is sent in lines, as ll does; 0: none (the pull request's protocol)"`
	Ring          bool           `json:"ring,omitempty" knob:"ring" group:"path" help:"each rank sends to the next rank and receives from the previous one; see --ranks; bidir only"`
	Copy          string         `json:"copy,omitempty" knob:"copy" values:"ldst bulk" free:"true" of:"variant!=auto,ce" group:"path" help:"copy method of the kernel: loads and stores, or (ws, put; sm_90 and later) bulk copies (default: the faster at each size)"`
	Launch        string         `json:"launch,omitempty" knob:"launch" values:"stream graph persistent" group:"path" help:"how kernels are started: one per message, a CUDA graph per window, or one resident kernel per batch"`
	Burst         int            `json:"burst,omitempty" knob:"burst" default:"64" range:"1..512" of:"launch=persistent op=pingpong" arg:"N" group:"path" help:"persistent pingpong: back-to-back round trips per barrier"`
	Overlap       string         `json:"overlap,omitempty" knob:"overlap" values:"on off" of:"variant!=ce launch!=persistent" group:"path" help:"programmatic dependent launch: overlap the launch of a kernel with the end of the previous one"`
	Timing        string         `json:"timing,omitempty" knob:"timing" values:"device host" group:"path" help:"timing source: the device's clock or the host's; baselines use the same"`
	Handle        gpu.HandleKind `json:"handle,omitempty" knob:"handle" values:"auto legacy vmm-fd fabric memfd" arg:"kind" group:"path" help:"memory handle; cuda: legacy, vmm-fd or fabric; host: memfd"`
}

// settle fills in the defaults and refuses invalid combinations.
func (o Options) settle() (Options, error) {
	if err := knob.Check(nil, &o); err != nil {
		return o, err
	}
	knob.Fill(nil, &o)
	for _, check := range []func(*Options) error{
		(*Options).checkCopy, (*Options).checkCTAs, (*Options).settleWarps, (*Options).checkSteps, (*Options).checkLaunch,
	} {
		if err := check(&o); err != nil {
			return o, err
		}
	}
	return o, nil
}

// staged reports whether messages go through a staging area.
func (o *Options) staged() bool { return o.Variant == "ws" || o.Variant == "stable" }

func (o *Options) checkCopy() error {
	if o.Copy == "bulk" && o.Variant != "ws" && o.Variant != "put" {
		return fmt.Errorf("--copy bulk: %s copies by loads and stores only: use ldst, or --variant ws or put", o.Variant)
	}
	return nil
}

// ctasByName is the maximum number of sending blocks of the variant, on any device.
func (o *Options) ctasByName() int {
	switch o.Variant {
	case "ll", "ll128":
		return maxLLCTAs
	case "stable":
		return maxCTAs / 2
	}
	return maxCTAs
}

func (o *Options) checkCTAs() error {
	if o.CTAs > o.ctasByName() {
		return fmt.Errorf("--ctas %d: %s takes 1 to %d, or auto for the fastest", o.CTAs, o.Variant, o.ctasByName())
	}
	return nil
}

// powerOfTwo reports whether n is a power of two from 1 to most.
func powerOfTwo(n, most int) bool { return n >= 1 && n <= most && n&(n-1) == 0 }

// settleWarps refuses invalid numbers of warps. If only one role's number is given, the other role gets the same; if
// none is, both stay 0.
func (o *Options) settleWarps() error {
	s, r := o.SenderWarps, o.ReceiverWarps
	switch {
	case s == 0 && r == 0:
		return nil
	case o.Variant == "put":
		return o.settlePutWarps()
	case s == 0:
		s = r
	case r == 0:
		r = s
	}
	if s != r || !powerOfTwo(s, maxWarps) {
		return fmt.Errorf("--sender-warps %d --receiver-warps %d: %s takes (1,1), (2,2), (4,4) or (8,8): as many warps that send as receive, a power of two", s, r, o.Variant)
	}
	o.SenderWarps, o.ReceiverWarps = s, r
	return nil
}

// settlePutWarps does so for put, whose receiver is one waiting thread.
func (o *Options) settlePutWarps() error {
	if o.SenderWarps == 0 {
		o.SenderWarps = maxPutWarps
	}
	if o.ReceiverWarps == 0 {
		o.ReceiverWarps = 1
	}
	if o.ReceiverWarps != 1 {
		return fmt.Errorf("--receiver-warps %d: put's receiver only waits: use 1", o.ReceiverWarps)
	}
	if !powerOfTwo(o.SenderWarps, maxPutWarps) {
		return fmt.Errorf("--sender-warps %d: put takes 1, 2, 4, 8 or %d", o.SenderWarps, maxPutWarps)
	}
	return nil
}

// Maximum warps of a role; put's receivers have 1.
const (
	maxWarps    = 8
	maxPutWarps = 16
)

// warps is the number of warps of each role in a block that moves share bytes of a message: as requested, or as many as
// have work, because a larger block starts later and synchronizes more slowly. On a CPU, where threads emulate warps,
// 1.
func (o Options) warps(p plan, share uint64, l limits) (sender, receiver int) {
	switch {
	case o.SenderWarps != 0:
		return o.SenderWarps, o.ReceiverWarps
	case l.cpu:
		return 1, 1
	case lineRoom(p.variant) > 0: // all warps both send and receive
		each := lineThread * uint64(l.warp)
		if p.variant == "ll128" {
			each = ll128Line * uint64(l.warp) / lineThreads
		}
		all := int(min(max(ceil(share, each), 1), 2*maxWarps))
		return all - all/2, all / 2
	case p.inLines:
		n := enough(share, lineThread*uint64(l.warp), maxWarps)
		return n, n
	case p.variant == "put" && share > 256<<10:
		return maxPutWarps, 1
	case p.variant == "put":
		return max(enough(share, rowsWarp, maxWarps), 4), 1
	}
	n := max(enough(share, rowsWarp, maxWarps), 2)
	return n, n
}

// Units of a copy.
const (
	lineThread  = 8       // ll: bytes of data that a thread moves, one line
	lineThreads = 8       // ll128: threads that move a line
	rowsWarp    = 2 << 10 // other variants: bytes that a warp moves at a time, rows of 16 bytes
)

// enough is the smallest power of two of warps, at most most, that move bytes if each moves each bytes.
func enough(bytes, each uint64, most int) int {
	n := 1
	for n < most && uint64(n)*each < bytes {
		n *= 2
	}
	return n
}

func (o *Options) checkSteps() error {
	if !o.staged() {
		return nil
	}
	stride, ctas := max(uint64(o.Stride), grain), uint64(max(o.CTAs, 1))
	switch {
	case o.Stride%grain != 0:
		return fmt.Errorf("--stride %s: want a multiple of %d, or auto for one that grows with the message", o.Stride, grain)
	case stride > staging/uint64(o.Stages)/ctas:
		return fmt.Errorf("%d CTAs × --stride %s × --stages %d: the staging area has %s: reduce one of them",
			ctas, knob.Size(stride), o.Stages, knob.Size(staging))
	}
	return nil
}

func (o *Options) checkLaunch() error {
	switch {
	case o.Launch != "persistent":
		return nil
	case o.Variant == "ce":
		return errors.New("--launch persistent: ce starts no kernel: use stream or graph")
	case o.Timing == "host":
		return errors.New("--launch persistent --timing host: a resident kernel takes the time itself: use --timing device")
	}
	return nil
}
