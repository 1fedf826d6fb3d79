package cuda

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/dynlib"
)

func TestFakeDMABuf(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		r, other := newRig(t, New(), 0), newRig(t, New(), 1)
		b := buffer(t, r.dev, 5000)
		fd, err := dmabufs(t, r.dev).DMABuf(b)
		check(t, err)
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d: flags %#x, %v", fd, flags, err)
		}
		check(t, unix.Close(fd))
		export := func() error { _, err := dmabufs(t, r.dev).DMABuf(b); return err }
		refused(t, failing(t, "cuMemGetHandleForAddressRange", 801, export), "cuMemGetHandleForAddressRange")
		reports(t, failing(t, "cuMemGetHandleForAddressRange", 2, export), "cuMemGetHandleForAddressRange", "out of memory")
		reports(t, failing(t, "cuCtxSetCurrent", 2, export), "cuCtxSetCurrent")
		if _, err := dmabufs(t, other.dev).DMABuf(b); err == nil {
			t.Error("another GPU's memory")
		}
		check(t, b.Close())
		if err := export(); err == nil {
			t.Error("a closed buffer")
		}
	})
}

func TestFakeDMABufOlderDriver(t *testing.T) {
	fake{cuda: []string{"-DOMIT_RECENT"}, env: []string{"FAKE_ARCH=8", "FAKE_DRIVER=11070"}}.on(t, func(t *testing.T) {
		r := newRig(t, New(), 0)
		_, err := dmabufs(t, r.dev).DMABuf(buffer(t, r.dev, 1))
		refused(t, err, "cuMemGetHandleForAddressRange: this driver does not have the function; drivers for CUDA 11.7 or newer do")
		lacks(t, err, dynlib.Error{Library: "libcuda", Symbol: "cuMemGetHandleForAddressRange", Have: "11.7", Need: "11.7"})
	})
}

func dmabufs(t *testing.T, d gpu.Device) gpu.DMABufs {
	t.Helper()
	x, ok := d.(gpu.DMABufs)
	if !ok {
		t.Fatal("no DMABufs")
	}
	return x
}

// buffer allocates a buffer that is closed when the test ends.
func buffer(t *testing.T, d gpu.Device, n uint64) gpu.Buffer {
	t.Helper()
	b, err := d.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, b.Close()) })
	return b
}

// TestHWDMABuf exports a buffer as a dma-buf, or gets an error that wraps gpu.ErrUnsupported.
func TestHWDMABuf(t *testing.T) {
	r := newRig(t, New(), 0)
	fd, err := dmabufs(t, r.dev).DMABuf(buffer(t, r.dev, 3<<20))
	if errors.Is(err, gpu.ErrUnsupported) {
		t.Logf("not on this machine: %v", err)
		return
	}
	check(t, err)
	if size, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil || size < 3<<20 {
		t.Errorf("a dma-buf of %d bytes, %v", size, err)
	}
	check(t, unix.Close(fd))
}
