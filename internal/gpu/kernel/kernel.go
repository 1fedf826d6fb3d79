// Package kernel contains p2pbench's device code: CUDA C++ sources (src), the PTX that clang compiles from them (ptx),
// and the selection of an image. internal/gpu/cuda loads the images.
//
// The PTX is committed, so that users need the driver but no CUDA toolkit. `go generate` rebuilds it with the compiler
// that scripts/build-kernels names; `scripts/build-kernels --check` compares it with a fresh build.
package kernel

//go:generate ../../../scripts/build-kernels

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

// Names of the kernels, with their arguments. Addresses and sizes are 64-bit words; src documents the kernels.
const (
	Fill     = "p2p_fill"      // p, n, key, step
	Check    = "p2p_check"     // p, n, key, step, found
	Copy     = "p2p_copy"      // dst, src, n
	CopyBulk = "p2p_copy_bulk" // dst, src, n
	Proxy    = "p2p_proxy"     // ring, slots, answer, work, seq, launch, idle_ns, life_ns
)

// Names of the kernels that send and receive. All take a struct sr_args, see internal/gpu/abi/sendrecv.h.
const (
	SendrecvWS      = "p2p_sr_ws"
	SendrecvStable  = "p2p_sr_stable"
	SendrecvPut     = "p2p_sr_put"
	SendrecvLL      = "p2p_sr_ll"
	SendrecvLL128   = "p2p_sr_ll128"
	SendrecvWSBulk  = "p2p_sr_ws_bulk"
	SendrecvPutBulk = "p2p_sr_put_bulk"
)

// basic lists the kernels of every image, bulk those that only sm_90 has.
var (
	basic = []string{Fill, Check, Copy, Proxy, SendrecvWS, SendrecvStable, SendrecvPut, SendrecvLL, SendrecvLL128}
	bulk  = []string{CopyBulk, SendrecvWSBulk, SendrecvPutBulk}
)

// Format is the format of an image. Each device's driver loads one format.
type Format string

// PTX is assembly text that NVIDIA's driver compiles for the GPU.
const PTX Format = "ptx"

// Image is device code for a range of GPUs.
type Image struct {
	Format    Format
	Target    string   // architecture it was compiled for: "sm_90"; newer GPUs run it, too
	MinDriver int      // oldest driver that loads it, as the vendor numbers drivers: 12000 for CUDA 12.0
	Kernels   []string // names of its kernels
	Code      string   // the image in its format
}

// Has reports whether the image holds a kernel.
func (i Image) Has(name string) bool {
	for _, k := range i.Kernels {
		if k == name {
			return true
		}
	}
	return false
}

var (
	//go:embed ptx/p2p_sm70.ptx
	ptx70 string
	//go:embed ptx/p2p_sm90.ptx
	ptx90 string
)

// Images lists the images, the newest target first.
func Images() []Image {
	return []Image{
		{Format: PTX, Target: "sm_90", MinDriver: 12000, Kernels: slices.Concat(basic, bulk), Code: ptx90},
		{Format: PTX, Target: "sm_70", MinDriver: 11040, Kernels: basic, Code: ptx70},
	}
}

// Pick returns the image of that format with the newest target that a GPU of architecture arch can run. The error wraps
// gpu.ErrUnsupported.
func Pick(format Format, arch string) (Image, error) {
	have, err := number(arch)
	if err != nil {
		return Image{}, err
	}
	for _, i := range Images() {
		if want, err := number(i.Target); err == nil && i.Format == format && have >= want {
			return i, nil
		}
	}
	return Image{}, fmt.Errorf("kernel: no device code for %s as %s: sm_70 (Volta, 2017) or newer is needed: %w",
		arch, format, gpu.ErrUnsupported)
}

func number(arch string) (int, error) {
	digits, ok := strings.CutPrefix(arch, "sm_")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n <= 0 {
		return 0, fmt.Errorf("kernel: %q is not an architecture name like sm_90: %w", arch, gpu.ErrUnsupported)
	}
	return n, nil
}
