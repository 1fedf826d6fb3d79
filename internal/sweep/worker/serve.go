package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// Descriptors that a worker inherits.
const (
	controlFD  = 3
	progressFD = 4
)

// Factory opens the devices and makes the transports that requests name.
type Factory struct {
	// Device opens a device; inject is the fault that the device injects, or empty.
	Device func(info gpu.Info, inject string) (gpu.Device, error)
	// Transport makes a transport from its options.
	Transport func(name string, options json.RawMessage) (transport.Transport, error)
}

// Serve runs a worker until it ends and returns the exit code of the process.
func Serve(f Factory) int {
	began := abi.RawNS()
	control := os.NewFile(controlFD, "control")
	page := os.NewFile(progressFD, "progress")
	if _, err := unix.GetsockoptInt(controlFD, unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
		fmt.Fprintln(os.Stderr, "p2pbench worker: started by p2pbench itself, not by hand")
		return 2
	}
	// A child that outlives this process must not hold them open: the parent waits for the end of the connection.
	unix.CloseOnExec(controlFD)
	unix.CloseOnExec(progressFD)
	signal.Ignore(unix.SIGXFSZ) // beyond the limit of a file's size, ftruncate of a memfd returns an error
	// A garbage collection would disturb the measurement, and workers need little heap.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(1 << 30)
	runtime.LockOSThread() // this thread times: it is pinned and has the device's context
	w := &server{factory: f, began: began, page: page, reply: json.NewEncoder(control)}
	defer w.close()
	for req := range requests(control) {
		if err := w.handle(req); err != nil {
			_ = w.reply.Encode(reply{Failed: toWire(err)})
			<-make(chan struct{}) // wait for requests to end the process when the parent closes the connection
		}
		if req.Finish != nil {
			return 0
		}
	}
	return 1
}

// requests reads control on a goroutine, so that the process also ends during a batch when the parent has ended.
func requests(control io.Reader) <-chan request {
	ch := make(chan request)
	go func() {
		d := json.NewDecoder(control)
		for {
			var r request
			if err := d.Decode(&r); err != nil {
				os.Exit(1) // the parent has ended; the kernel releases all resources of this process
			}
			ch <- r
		}
	}()
	return ch
}

type server struct {
	factory   Factory
	began     int64
	page      *os.File
	reply     *json.Encoder
	init      initRequest
	progress  *abi.Progress
	wait      *abi.Ctx
	device    gpu.Device
	monitor   gpu.Monitor
	arms      []transport.Transport
	endpoints []transport.Endpoint
	samples   []int64
}

func (w *server) handle(r request) error {
	switch {
	case r.Init != nil:
		return w.open(*r.Init)
	case r.Connect != nil:
		return w.connect(*r.Connect)
	case r.Run != nil:
		return w.run(*r.Run)
	case r.Finish != nil:
		return w.finish()
	}
	return errors.New("worker: empty request")
}

func (w *server) open(r initRequest) error {
	w.init = r
	nameProcess(r.Rank)
	page, err := abi.MapPage(w.page, len(r.Devices))
	if err != nil {
		return err
	}
	w.progress = page.Rank(r.Rank)
	w.progress.At(abi.PhaseOpen)
	rep := openedReply{Opened: Opened{ProcessUS: float64(w.began-r.Started) / 1e3, CPU: r.CPUs[r.Rank]}}
	if rep.CPU >= 0 {
		if err := abi.CPUsOf(rep.CPU).Pin(); err != nil {
			rep.Warnings = append(rep.Warnings, fmt.Sprintf("rank %d: cannot pin to CPU %d: %v", r.Rank, rep.CPU, err))
			rep.CPU = -1
		}
	}
	w.wait = abi.NewCtx(page, r.Rank, r.Timeout, r.Yield)
	rep.Clock, rep.Overhead = w.wait.Clock(), w.wait.Overhead()
	begin := time.Now()
	if w.device, err = w.openDevice(r.Devices[r.Rank], r.Inject); err != nil {
		return err
	}
	rep.DeviceUS = float64(time.Since(begin)) / 1e3
	rep.Device = w.device.Info()
	w.monitor, _ = w.device.(gpu.Monitor)
	if rep.Health, err = w.health(); err != nil {
		rep.Warnings = append(rep.Warnings, fmt.Sprintf("rank %d: clocks, throttling and link counters are unknown: %v",
			r.Rank, err))
		w.monitor = nil
	}
	for i, a := range r.Arms {
		addr, err := w.openArm(a)
		if err != nil {
			return &armError{i, err}
		}
		rep.Addresses = append(rep.Addresses, addr)
	}
	return w.reply.Encode(reply{Opened: &rep})
}

// openDevice opens a device that waits with this rank's deadline and progress page.
func (w *server) openDevice(i gpu.Info, inject string) (gpu.Device, error) {
	d, err := w.factory.Device(i, inject)
	if waiter, ok := d.(gpu.Waiter); ok && err == nil {
		waiter.WaitWith(w.wait)
	}
	return d, err
}

func (w *server) openArm(a Arm) ([]byte, error) {
	t, err := w.factory.Transport(a.Transport, a.Options)
	if err != nil {
		return nil, err
	}
	ep, err := t.Open(context.Background(), transport.Env{
		Run: w.init.Run + "-" + a.Name, Rank: w.init.Rank, Devices: w.init.Devices, Device: w.device,
		Open: func(i gpu.Info) (gpu.Device, error) { return w.openDevice(i, "") },
		Wait: w.wait, CPUs: w.init.CPUs,
		Region: w.init.Region, Timeout: w.init.Timeout,
	})
	if err != nil {
		return nil, err
	}
	w.arms = append(w.arms, t)
	w.endpoints = append(w.endpoints, ep)
	return ep.Address(), nil
}

func (w *server) connect(r connectRequest) error {
	w.progress.At(abi.PhaseConnect)
	var rep connectedReply
	for i, ep := range w.endpoints {
		if err := ep.Connect(context.Background(), r.Addresses[i]); err != nil {
			return &armError{i, err}
		}
		rep.Paths = append(rep.Paths, ep.Describe())
	}
	var err error
	if rep.Health, err = w.health(); err != nil {
		return fmt.Errorf("read the device's health: %w", err)
	}
	w.progress.At(abi.PhaseIdle)
	return w.reply.Encode(reply{Connected: &rep})
}

func (w *server) run(r runRequest) error {
	if cap(w.samples) < r.Batch.Iters {
		w.samples = make([]int64, r.Batch.Iters)
	}
	samples := w.samples[:r.Batch.Iters]
	w.touch(samples)
	res, err := w.endpoints[r.Arm].Run(context.Background(), r.Batch, samples)
	if err != nil {
		return err
	}
	rep := ranReply{Result: res, Samples: samples[:res.Samples], Counters: w.endpoints[r.Arm].Counters()}
	if faulty, ok := w.device.(interface{ Struck() uint64 }); ok {
		if rep.Counters == nil {
			rep.Counters = map[string]uint64{}
		}
		rep.Counters[transport.Faults] += faulty.Struck()
	}
	if rep.Health, err = w.health(); err != nil {
		return fmt.Errorf("read the device's health: %w", err)
	}
	return w.reply.Encode(reply{Ran: &rep})
}

// touch writes to all samples, so that the timed loop causes no page faults. It reports progress, because other ranks
// wait meanwhile and the samples may be gigabytes.
func (w *server) touch(samples []int64) {
	const chunk = 1 << 17 // 1 MiB
	for part := range slices.Chunk(samples, chunk) {
		clear(part)
		w.progress.At(abi.PhasePrepare)
	}
}

func (w *server) health() (*gpu.Health, error) {
	if w.monitor == nil {
		return nil, nil //nolint:nilnil // a device without a monitor has no health, and that is not an error
	}
	h, err := w.monitor.Health()
	return &h, err
}

func (w *server) finish() error {
	var rep finishedReply
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err == nil {
		rep.CPUSeconds = float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
	}
	w.progress.At(abi.PhaseClose)
	return w.reply.Encode(reply{Finished: &rep})
}

func (w *server) close() {
	for _, ep := range w.endpoints {
		if err := ep.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if w.device != nil {
		if err := w.device.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}
