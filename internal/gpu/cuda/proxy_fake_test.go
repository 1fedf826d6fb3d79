package cuda

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda/enginetest"
)

// many starts `count` copies of n bytes with different payloads, waits for them and checks them.
func many(t *testing.T, r *rig, g *abi.Engine, n uint64, count int) {
	t.Helper()
	dst, src := r.alloc(n*uint64(count)), r.alloc(n*uint64(count))
	var copies []enginetest.Copy
	for i := range count {
		at := uintptr(n) * uintptr(i)
		r.fill(src.Addr()+at, n, uint64(i), 0)
		copies = append(copies, enginetest.Copy{Dst: dst.Addr() + at, Src: src.Addr() + at, N: n})
	}
	if err := enginetest.Start(g, copies); err != nil {
		t.Fatal(err)
	}
	if err := enginetest.Wait(g, r.ctx); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		r.expect(dst.Addr()+uintptr(n)*uintptr(i), n, uint64(i), "copy %d", i)
	}
}

// No copy is lost if the kernel exits in the middle of a window, or is slower than the host.
func TestFakeProxyRing(t *testing.T) {
	for _, c := range []struct {
		env      string
		launches uint64 // at least
	}{
		{"FAKE_PROXY_SERVES=1", 300},
		{"FAKE_PROXY_SERVES=3", 100},
		{"FAKE_PROXY_SERVES=64", 4},
		{"FAKE_PROXY_SERVES=100", 3},
		{"FAKE_PROXY_SLOW_US=100", 1},
		{"FAKE_PROXY_SLOW_US=15000", 1}, // longer than the kernel's idle limit
	} {
		t.Run(c.env, func(t *testing.T) {
			fake{env: []string{c.env}}.on(t, func(t *testing.T) {
				r := newRig(t, New(), 0)
				g := r.proxy("proxy")
				count := 300
				if strings.HasSuffix(c.env, "000") {
					count = 70
				}
				before := g.Launches()
				many(t, r, g.Table(), 123, count)
				if got := g.Launches() - before; got < c.launches {
					t.Errorf("%d launches, want at least %d", got, c.launches)
				}
				many(t, r, g.Table(), 4567, 10)
			})
		})
	}
}

// Opening an engine tests the kernel and stops it again.
func TestFakeProxyIsNotResidentAfterOpen(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		r := newRig(t, New(), 0)
		g := r.proxy("proxy")
		if g.Launches() != 1 {
			t.Errorf("%d launches after opening", g.Launches())
		}
		before := g.Launches()
		many(t, r, g.Table(), 100, 1)
		if g.Launches() != before+1 {
			t.Errorf("%d launches for the first copy", g.Launches()-before)
		}
		check(t, g.Close())
		if g.Launches() != 0 {
			t.Error("a closed engine has launches")
		}
		if r.proxy("proxy:65535").Name() != "proxy:65535" {
			t.Error("wrong name")
		}
	})
}

// The wait for a kernel that never completes a copy ends at the deadline, or when the parent sets the abort flag; close
// stops the kernel.
func TestFakeProxyHang(t *testing.T) {
	fake{env: []string{"FAKE_HANG_BYTES=777"}}.on(t, func(t *testing.T) {
		r := newRig(t, New(), 0)
		b := r.alloc(1 << 20)
		page, err := abi.NewPage(1)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { check(t, page.Close()) }()
		for _, yield := range []bool{false, true} {
			g := r.proxy("proxy")
			ctx := abi.NewCtx(page, 0, 200*time.Millisecond, yield)
			err := g.Table().Copy(ctx, b.Addr(), b.Addr()+4096, 777)
			reports(t, err, "the copy engine", "p2p_proxy is running", "launch 2, 2 blocks")
			if !errors.Is(err, abi.ErrTimeout) {
				t.Error(err)
			}
			if s := page.Rank(0).Read(); s.Waiting != "the copy engine" || s.Want != s.Have+1 {
				t.Errorf("the watchdog sees %q", s)
			}
			ctx.Close()
			check(t, g.Close())
		}
		g := r.proxy("proxy")
		ctx := abi.NewCtx(page, 0, time.Hour, false)
		defer ctx.Close()
		page.Rank(0).Abort()
		if err := g.Table().Copy(ctx, b.Addr(), b.Addr()+4096, 777); !errors.Is(err, abi.ErrAborted) {
			t.Error(err)
		}
		check(t, g.Close())
	})
}

// Every wait for a kernel that has failed returns the driver's error instead of hanging.
func TestFakeProxyDies(t *testing.T) {
	for env, says := range map[string][]string{
		"FAKE_FAIL_BYTES=777":       {"p2p_proxy died (cuStreamQuery)", "(700)"},
		"FAKE_PROXY_QUIT_BYTES=777": {"p2p_proxy ended unexpectedly"},
	} {
		t.Run(env, func(t *testing.T) {
			fake{env: []string{env}}.on(t, func(t *testing.T) {
				r := newRig(t, New(), 0)
				b := r.alloc(1 << 20)
				g, err := r.dev.Engine("proxy")
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					err := g.Table().Copy(r.ctx, b.Addr(), b.Addr()+4096, 777)
					reports(t, err, says...)
					if !errors.Is(err, abi.ErrDevice) {
						t.Error(err)
					}
				}
				// The ring fills up: a wait for a free slot fails as well.
				err = enginetest.Window(g.Table(), r.ctx, b.Addr(), b.Addr()+1<<19, 8, 8, 100)
				reports(t, err, says...)
				if err := g.Close(); strings.Contains(env, "FAIL") {
					reports(t, err, "close engine proxy", "(700)")
				} else {
					check(t, err)
				}
			})
		})
	}
}

func TestFakeProxySpoils(t *testing.T) {
	fake{env: []string{"FAKE_SPOIL_BYTES=2003"}}.on(t, func(t *testing.T) {
		dev, err := New().Open(fakeUUID0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = dev.Engine("proxy")
		reports(t, err, "engine proxy: test copy of 2003 bytes is wrong: offset 2002")
		check(t, dev.Close())
	})
}

// Host and kernel must have the same layout of a message.
func TestProxyProtocol(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Skipf("no source tree here: %v", err)
		}
		return string(text)
	}
	host, device := read("proxy_page.h"), read("../kernel/src/proxy.cu")
	factors := regexp.MustCompile(`(dst|src|n|seq) \* (0x[0-9a-f]{16})`)
	var sides [2][]string
	for i, text := range []string{host, device} {
		for _, m := range factors.FindAllStringSubmatch(text, -1) {
			sides[i] = append(sides[i], m[1]+m[2])
		}
	}
	if len(sides[0]) != 4 || !slices.Equal(sides[0], sides[1]) {
		t.Errorf("seals: %v, %v", sides[0], sides[1])
	}
	number := func(text, pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m == nil {
			return fmt.Sprintf("nothing like %s", pattern)
		}
		return m[1]
	}
	if h, d := number(host, `PROXY_GROUP = (\d+)`), number(device, `u32 group = (\d+)`); h != d {
		t.Errorf("group: %s, %s", h, d)
	}
}
