package cuda

import (
	"fmt"
	"slices"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu/cuda/enginetest"
)

// BenchmarkHW measures every engine within a GPU and towards another GPU, with single copies and windows of eight.
//
//	p2pbench-cuda.test -test.run '^$' -test.bench 'HW/peer/sm' -test.benchtime 30x
func BenchmarkHW(b *testing.B) {
	b.Run("local", func(b *testing.B) { benchmarkTo(b, 0) })
	b.Run("peer", func(b *testing.B) { benchmarkTo(b, 1) })
}

func benchmarkTo(b *testing.B, index int) {
	const most = 1 << 30
	drv := New()
	r := newRig(b, drv, 0)
	peer := r
	if index != 0 {
		peer = newRig(b, drv, index)
	}
	src, dst := r.alloc(most), peer.alloc(most)
	names := []string{"ce", "sm", "sm:1", "sm:4", "sm:8", "sm:16", "sm:64"}
	if slices.Contains(r.dev.Engines(), "bulk") {
		names = append(names, "bulk", "bulk:1", "bulk:4", "bulk:8", "bulk:16", "bulk:64", "bulk:132")
	}
	names = append(names, "proxy", "proxy:1", "proxy:8", "proxy:16", "proxy:64")
	for _, name := range names {
		g := r.engine(name)
		for size := uint64(1 << 10); size <= most; size *= 4 {
			for _, window := range []int{1, 8} {
				if uint64(window)*size > most {
					continue
				}
				b.Run(fmt.Sprintf("%s/%d/x%d", name, size, window), func(b *testing.B) {
					for b.Loop() {
						if err := enginetest.Window(g, r.ctx, dst.Addr(), src.Addr(), size, size, window); err != nil {
							b.Fatal(err)
						}
					}
					bytes := float64(size) * float64(window) * float64(b.N)
					b.ReportMetric(bytes/float64(b.Elapsed().Nanoseconds()), "GB/s")
				})
			}
		}
	}
}
