package rdma_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/fault"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/rdma"
)

// rank is one rank's end, in this process.
type rank struct {
	number  int
	device  gpu.Device
	wait    *abi.Ctx
	entry   *abi.Progress
	ep      transport.Endpoint
	samples []int64
	result  transport.Result
	err     error // of the last batch
}

// rig is what ranks are opened with.
type rig struct {
	run     string
	devices []gpu.Info
	page    *abi.Page
	entries int // of the page: one a rank, or 1 where the other ranks are elsewhere
	region  uint64
	timeout time.Duration
}

func newRig(t *testing.T, ranks, entries int, region uint64) *rig {
	t.Helper()
	page, err := abi.NewPage(entries)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := page.Close(); err != nil {
			t.Error(err)
		}
	})
	return &rig{
		run: fmt.Sprintf("test-%d-%d", os.Getpid(), time.Now().UnixNano()), devices: cpus(t, ranks), page: page,
		entries: entries, region: region, timeout: patience,
	}
}

// open opens a rank's end; the caller closes it. inject is the fault that its device commits; "": none.
func (g *rig) open(t *testing.T, number int, o rdma.Options, inject string) (*rank, error) {
	t.Helper()
	device, err := host.Driver().Open(g.devices[number].UUID)
	if err != nil {
		t.Fatal(err)
	}
	if inject != "" {
		f, err := fault.Parse(inject)
		if err != nil {
			t.Fatal(err)
		}
		device = fault.Wrap(device, f)
	}
	path, err := rdma.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &rank{
		number: number, device: device, wait: abi.NewCtx(g.page, number%g.entries, g.timeout, true),
		entry: g.page.Rank(number % g.entries),
	}
	r.ep, err = path.Open(t.Context(), transport.Env{
		Run: g.run, Rank: number, Devices: g.devices, Device: device, Wait: r.wait, Region: g.region, Timeout: g.timeout,
	})
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Close closes what there is.
func (r *rank) Close() error {
	var errs []error
	if r.ep != nil {
		errs = append(errs, r.ep.Close())
	}
	r.wait.Close()
	return errors.Join(append(errs, r.device.Close())...)
}

// gather opens all ranks in this process and connects them. They are closed when the test ends.
func gather(t *testing.T, ranks int, o rdma.Options, region uint64, inject map[int]string) []*rank {
	t.Helper()
	g := newRig(t, ranks, ranks, region)
	var out []*rank
	var addresses [][]byte
	for number := range ranks {
		r, err := g.open(t, number, o, inject[number])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
		out, addresses = append(out, r), append(addresses, r.ep.Address())
	}
	for _, r := range out {
		if err := r.ep.Connect(t.Context(), addresses); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// together runs a batch on all ranks at once. When one fails the others are told to stop, if that is wanted.
func together(t *testing.T, ranks []*rank, b transport.Batch, stop bool) error {
	t.Helper()
	var all sync.WaitGroup
	for _, r := range ranks {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if r.one(t, b); r.err != nil && stop {
				for _, other := range ranks {
					other.entry.Abort()
				}
			}
		})
	}
	all.Wait()
	var errs []error
	for _, r := range ranks {
		if r.err != nil {
			errs = append(errs, fmt.Errorf("rank %d: %w", r.number, r.err))
		}
	}
	return errors.Join(errs...)
}

// one runs a batch on this rank.
func (r *rank) one(t *testing.T, b transport.Batch) {
	r.samples = make([]int64, b.Iters)
	r.result, r.err = r.ep.Run(t.Context(), b, r.samples)
}

// says holds an error's text against what a user must read there: one line, with all of parts.
func says(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one that says %q", parts)
		return
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than a line: %q", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}
