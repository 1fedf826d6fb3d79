package sendrecv

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

// Options are the path's knobs. The zero value of each means its default; a knob that the variant does not have must be
// left at it.
type Options struct {
	Variant string `json:"variant,omitempty"` // one of Variants; "": auto
	CTAs    int    `json:"ctas,omitempty"`    // blocks that send, and as many that receive; 0: chosen by trial
	// SenderWarps and ReceiverWarps are those of a block; 0: as many as there can be.
	SenderWarps   int    `json:"sender_warps,omitempty"`
	ReceiverWarps int    `json:"receiver_warps,omitempty"`
	Stride        uint64 `json:"stride,omitempty"` // ws, stable: bytes of a step; 0: grows with the message
	Stages        int    `json:"stages,omitempty"` // ws, stable: steps under way; 0: DefaultStages
	// Lines is the size in bytes up to which ws sends messages in lines, where they have room for it; 0: none; nil:
	// DefaultLines.
	Lines *uint64 `json:"lines,omitempty"`
	// Overlap lets the launch of a kernel overlap the end of the one before, where the device can: "on" or "off"; "": on.
	Overlap string `json:"overlap,omitempty"`
	Ring    bool   `json:"ring,omitempty"`   // each rank sends to the next one, round and round; bidir only
	Copy    string `json:"copy,omitempty"`   // one of Copies; "": chosen by trial
	Launch  string `json:"launch,omitempty"` // one of Launches; "": stream
	// Train is how many round trips of a persistent ping-pong follow each other before the ranks meet again, fewer where
	// the buffers hold fewer messages; 0: DefaultTrain.
	Train  int    `json:"train,omitempty"`
	Timing string `json:"timing,omitempty"` // one of Timings; "": device
	// Handle is the kind of memory that the ranks share: "auto", or a kind the device knows.
	Handle gpu.HandleKind `json:"handle,omitempty"`
}

// The values of the knobs. Where there is a default, it is the first.
var (
	Variants = []string{"auto", "ws", "stable", "put", "ll", "ll128", "ce"}
	Copies   = []string{"ldst", "bulk"} // loads and stores of all threads, or the bulk copies that a thread of sm_90 starts
	Launches = []string{"stream", "graph", "persistent"}
	Timings  = []string{"device", "host"}
	Overlaps = []string{"on", "off"}
)

// DefaultTrain is how many round trips follow each other unless the options say otherwise.
const DefaultTrain = 64

// DefaultStages is how many steps are under way unless the options say otherwise.
const DefaultStages = 2

// DefaultLines is up to where ws sends in lines unless the options say otherwise.
const DefaultLines = 64 << 10

// settle fills in the defaults and refuses what cannot be.
func (o Options) settle() (Options, error) {
	for _, k := range []struct {
		name  string
		value *string
		known []string
		free  bool // "" stays: it is chosen later
	}{
		{"variant", &o.Variant, Variants, false},
		{"copy", &o.Copy, Copies, true},
		{"launch", &o.Launch, Launches, false},
		{"timing", &o.Timing, Timings, false},
		{"overlap", &o.Overlap, Overlaps, false},
	} {
		switch {
		case *k.value == "" && !k.free:
			*k.value = k.known[0]
		case *k.value != "" && !slices.Contains(k.known, *k.value):
			return o, fmt.Errorf("--%s %s: use one of %s", k.name, *k.value, strings.Join(k.known, ", "))
		}
	}
	if o.Handle == "" {
		o.Handle = gpu.HandleAuto
	}
	for _, check := range []func(*Options) error{
		(*Options).checkCopy, (*Options).checkCTAs, (*Options).settleWarps, (*Options).settleSteps, (*Options).checkLaunch,
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
	switch {
	case o.Copy == "":
		return nil
	case o.Variant == "auto":
		return fmt.Errorf("--copy %s: auto chooses how it copies: leave it out, or name ws or put with --variant", o.Copy)
	case o.Variant == "ce":
		return fmt.Errorf("--copy %s: in ce no kernel copies: leave it out", o.Copy)
	case o.Copy == "bulk" && o.Variant != "ws" && o.Variant != "put":
		return fmt.Errorf("--copy bulk: %s copies by loads and stores only: use ldst, or --variant ws or put", o.Variant)
	}
	return nil
}

// ctasByName is how many blocks the variant lets send, whatever the device.
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
	switch {
	case o.CTAs == 0:
		return nil
	case o.Variant == "ce":
		return fmt.Errorf("--ctas %d: ce starts no kernel: leave it out", o.CTAs)
	case o.CTAs < 0 || o.CTAs > o.ctasByName():
		return fmt.Errorf("--ctas %d: %s takes 1 to %d, or 0 for the best by trial", o.CTAs, o.Variant, o.ctasByName())
	}
	return nil
}

// powerOfTwo reports whether n is one, from 1 to most.
func powerOfTwo(n, most int) bool { return n >= 1 && n <= most && n&(n-1) == 0 }

// settleWarps refuses what cannot be. Where one role's are told, the other's follow; where none are, they stay 0.
func (o *Options) settleWarps() error {
	s, r := o.SenderWarps, o.ReceiverWarps
	switch {
	case s == 0 && r == 0:
		return nil
	case o.Variant == "auto" || o.Variant == "ce":
		return fmt.Errorf("--sender-warps %d --receiver-warps %d: %s has none to set: leave them out, or name ws, stable, put, ll or ll128 with --variant", s, r, o.Variant)
	case o.Copy == "bulk":
		return fmt.Errorf("--sender-warps %d --receiver-warps %d: of a block that copies in bulk one thread sends and one receives: leave them out, or use --copy ldst", s, r)
	case o.Variant == "put":
		return o.settlePutWarps()
	case s == 0:
		s = r
	case r == 0:
		r = s
	}
	if s != r || !powerOfTwo(s, mostWarps) {
		return fmt.Errorf("--sender-warps %d --receiver-warps %d: %s takes (1,1), (2,2), (4,4) or (8,8): as many warps that send as receive, a power of two", s, r, o.Variant)
	}
	o.SenderWarps, o.ReceiverWarps = s, r
	return nil
}

// settlePutWarps: of put's receivers one thread waits, and there is nothing for others to do.
func (o *Options) settlePutWarps() error {
	if o.SenderWarps == 0 {
		o.SenderWarps = mostPutWarps
	}
	if o.ReceiverWarps == 0 {
		o.ReceiverWarps = 1
	}
	if o.ReceiverWarps != 1 {
		return fmt.Errorf("--receiver-warps %d: put's receiver only waits: use 1", o.ReceiverWarps)
	}
	if !powerOfTwo(o.SenderWarps, mostPutWarps) {
		return fmt.Errorf("--sender-warps %d: put takes 1, 2, 4, 8 or %d", o.SenderWarps, mostPutWarps)
	}
	return nil
}

// The most warps of a role; put's receivers have 1.
const (
	mostWarps    = 8
	mostPutWarps = 16
)

// warps are those of a block of that variant that moves so many bytes of a message: what was asked for, or as many as do
// something, since a block with more of them starts later and meets slower; where threads of a CPU play warps, as few.
func (o Options) warps(p plan, share uint64, l limits) (sender, receiver int) {
	switch {
	case o.SenderWarps != 0:
		return o.SenderWarps, o.ReceiverWarps
	case l.cpu:
		return 1, 1
	case lineRoom(p.variant) > 0: // all of them send and receive
		each := lineThread * uint64(l.warp)
		if p.variant == "ll128" {
			each = ll128Line * uint64(l.warp) / lineThreads
		}
		all := int(min(max(ceil(share, each), 1), 2*mostWarps))
		return all - all/2, all / 2
	case p.inLines:
		n := enough(share, lineThread*uint64(l.warp), mostWarps)
		return n, n
	case p.variant == "put" && share > 256<<10:
		return mostPutWarps, 1
	case p.variant == "put":
		return max(enough(share, rowsWarp, mostWarps), 4), 1
	}
	n := max(enough(share, rowsWarp, mostWarps), 2)
	return n, n
}

// What is moved at a time: by a thread the payload of a line of ll, by some threads that of one of ll128, by a warp some
// rows of 16 bytes.
const (
	lineThread  = 8
	lineThreads = 8 // of a line of ll128
	rowsWarp    = 2 << 10
)

// enough is the power of two, at most the most, of warps that move so many bytes with each of them.
func enough(bytes, each uint64, most int) int {
	n := 1
	for n < most && uint64(n)*each < bytes {
		n *= 2
	}
	return n
}

func (o *Options) settleSteps() error {
	if o.Lines == nil {
		lines := uint64(DefaultLines)
		o.Lines = &lines
	} else if o.Variant != "ws" {
		return fmt.Errorf("--lines %d: only ws chooses between lines and steps: leave it out, or name ws with --variant", *o.Lines)
	}
	if !o.staged() {
		if o.Stride != 0 || o.Stages != 0 {
			return fmt.Errorf("--stride and --stages: %s stages nothing: leave them out, or name ws or stable with --variant", o.Variant)
		}
		return nil
	}
	if o.Stages == 0 {
		o.Stages = DefaultStages
	}
	stride, ctas := max(o.Stride, grain), uint64(max(o.CTAs, 1))
	switch {
	case o.Stride%grain != 0:
		return fmt.Errorf("--stride %d: want a multiple of %d, or 0 for one that grows with the message", o.Stride, grain)
	case o.Stages < 0 || uint64(o.Stages) > staging/grain:
		return fmt.Errorf("--stages %d: want 1 to %d", o.Stages, staging/grain)
	case stride > staging/uint64(o.Stages)/ctas:
		return fmt.Errorf("%d CTAs × --stride %d × --stages %d: the staging area is of %d bytes, make one of them smaller",
			ctas, stride, o.Stages, staging)
	}
	return nil
}

func (o *Options) checkLaunch() error {
	switch {
	case o.Launch != "persistent" && o.Train != 0:
		return fmt.Errorf("--train %d: round trips follow each other in a resident kernel only: add --launch persistent", o.Train)
	case o.Launch != "persistent":
		return nil
	case o.Train < 0 || o.Train > maxTrain:
		return fmt.Errorf("--train %d: want 1 to %d round trips", o.Train, maxTrain)
	case o.Variant == "ce":
		return errors.New("--launch persistent: ce starts no kernel: use stream or graph")
	case o.Timing == "host":
		return errors.New("--launch persistent --timing host: a resident kernel takes the time itself: use --timing device")
	case o.Train == 0:
		o.Train = DefaultTrain
	}
	return nil
}
