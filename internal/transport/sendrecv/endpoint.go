package sendrecv

/*
#include <stdlib.h>
#include "sendrecv.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/loop"
)

// endpoint is the transport in one rank.
type endpoint struct {
	o          Options // settled
	env        transport.Env
	near       neighbours
	engine     gpu.Engine
	streamWait *loop.StreamWait // has the queue
	memory     gpu.Memory
	source     gpu.Buffer
	counts     gpu.Buffer // the kernels' counts: a struct sr_count for each block, then the struct sr_team
	layout     layout
	shared     uintptr      // memory that neighbours map; 0: not allocated
	control    *loop.Pinned // the struct sr_state
	samples    *loop.Pinned // written by a resident kernel; nil: none so far
	peers      []*peer
	end        *C.struct_sendrecv_end
	limits     limits
	chosen     map[shape]plan
	last       plan // of the last batch
	// lastBurst is its number of back-to-back round trips per burst; 0: it had no bursts.
	lastBurst uint64
	messages  uint64
	steps     uint64
	fences    uint64
	path      transport.Path
	ready     bool
}

func (t *sendrecv) Open(_ context.Context, env transport.Env) (_ transport.Endpoint, err error) {
	if err := t.Probe(env.Devices); err != nil {
		return nil, err
	}
	ep := &endpoint{
		o: t.o, env: env, near: neighboursOf(env.Rank, len(env.Devices)), chosen: map[shape]plan{},
		end: (*C.struct_sendrecv_end)(C.calloc(1, C.sizeof_struct_sendrecv_end)),
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("sendrecv: open: %w", err), ep.Close())
		}
	}()
	if err = ep.openDevice(); err != nil {
		return nil, err
	}
	if err = ep.findKernels(); err != nil {
		return nil, err
	}
	if err = ep.findLines(); err != nil {
		return nil, err
	}
	if err = ep.allocate(); err != nil {
		return nil, err
	}
	ep.peers, err = openPeers(env.Run, env.Rank, ep.near)
	return ep, err
}

// openDevice opens engine, queue and memory of the device and binds them to the calling thread.
func (ep *endpoint) openDevice() (err error) {
	d := ep.env.Device
	if _, ok := d.(gpu.Launcher); !ok {
		return fmt.Errorf("a %s device runs no kernels: %w", d.Info().Kind, gpu.ErrUnsupported)
	}
	for _, r := range ep.near.peers() {
		if other := ep.env.Devices[r]; !d.Reaches(other) {
			return fmt.Errorf("the device of rank %d does not reach that of rank %d: kernels need loads and stores between them: %w",
				ep.env.Rank, r, gpu.ErrUnsupported)
		}
	}
	if ep.engine, err = d.Engine(d.Info().CopyEngine); err != nil {
		return err
	}
	if ep.streamWait, err = loop.OpenStreamWait(ep.engine, d); err != nil {
		return err
	}
	if ep.memory, err = d.Memory(ep.o.Handle); err != nil {
		return err
	}
	ep.end.engine = (*C.struct_p2p_engine)(ep.engine.Table().Pointer())
	ep.end.stream_wait = *(*C.struct_p2p_stream_wait)(ep.streamWait.Pointer())
	ep.end.queue = (*C.struct_p2p_queue)(ep.streamWait.Queue(0).Table().Pointer())
	ep.end.ctx = (*C.struct_p2p_ctx)(ep.env.Wait.Pointer())
	return ep.bind()
}

// bind prepares the calling thread for C calls.
func (ep *endpoint) bind() error {
	return abi.Call(func(e *C.struct_p2p_error) { C.p2p_sendrecv_bind(ep.end, e) })
}

// findKernels finds the kernels that the variant may use, and sets the limits of this device.
func (ep *endpoint) findKernels() error {
	type kernel struct {
		number  C.uint32_t
		bulk    *bool // set to true if the device has the kernel; nil: every device must have it
		variant string
	}
	l := &ep.limits
	device := ep.env.Device.Info()
	l.ctas, l.warp, l.cpu = ep.streamWait.Queue(0).Table().CTAs(), device.Warp, device.OnCPU()
	for _, k := range []kernel{
		{C.SENDRECV_WS, nil, "ws"},
		{C.SENDRECV_WS_BULK, &l.wsBulk, "ws"},
		{C.SENDRECV_STABLE, nil, "stable"},
		{C.SENDRECV_PUT, nil, "put"},
		{C.SENDRECV_PUT_BULK, &l.putBulk, "put"},
		{C.SENDRECV_LL, nil, "ll"},
		{C.SENDRECV_LL128, nil, "ll128"},
	} {
		auto := ep.o.Variant == "auto" && (k.variant == "put" || lineRoom(k.variant) > 0)
		if k.variant != ep.o.Variant && !auto || k.bulk != nil && ep.o.Copy == "ldst" {
			continue
		}
		err := abi.Call(func(e *C.struct_p2p_error) { C.p2p_sendrecv_find(ep.end, k.number, e) })
		switch {
		case k.bulk != nil && err == nil:
			*k.bulk = true
		case k.bulk != nil && ep.o.Copy == "bulk":
			return fmt.Errorf("--copy bulk: this device has no such kernel (%w): use ldst: %w", err, gpu.ErrUnsupported)
		case k.bulk == nil && err != nil:
			return err
		}
	}
	return nil
}

// findLines finds out whether stores of 128 bytes reach the next rank unsplit.
func (ep *endpoint) findLines() error {
	err := ep.env.Device.StoresLines(ep.env.Devices[ep.near.next])
	if ep.limits.ll128 = err == nil; err != nil && ep.o.Variant == "ll128" {
		return fmt.Errorf("ll128: its lines of 128 bytes must arrive whole: %w: use --variant ll", err)
	}
	return nil
}

// burstRegion is the minimum region of persistent kernels, in bytes: room for a burst of small messages.
const burstRegion = 2 << 20

// allocate allocates all memory and sets words, lines and counts to zero, before any rank can write there.
func (ep *endpoint) allocate() (err error) {
	region := max(ep.env.Region, 1)
	if ep.o.Launch == "persistent" {
		region = max(region, burstRegion)
	}
	if ep.source, err = ep.env.Device.Alloc(region); err != nil {
		return err
	}
	const counts = C.SR_CTAS*C.sizeof_struct_sr_count + C.sizeof_struct_sr_team
	if ep.counts, err = ep.env.Device.Alloc(counts); err != nil {
		return err
	}
	ep.layout = ep.o.divide(len(ep.near.peers()), ceil(region, partAlign)*partAlign)
	if ep.shared, err = ep.memory.Table().Alloc(ep.layout.Bytes, 0); err != nil {
		return fmt.Errorf("allocate %d shared bytes: %w", ep.layout.Bytes, err)
	}
	if ep.control, err = loop.Pin(ep.engine, ep.memory, C.sizeof_struct_sr_state); err != nil {
		return err
	}
	if err := ep.zero(ep.shared, ep.layout.Staging); err != nil { // words and lines
		return err
	}
	return ep.zero(ep.counts.Addr(), counts)
}

// zero writes zeroes to device memory.
func (ep *endpoint) zero(p uintptr, n uint64) error {
	const most = 1 << 20
	zeroes, err := loop.Pin(ep.engine, ep.memory, most)
	if err != nil {
		return err
	}
	for n > 0 && err == nil {
		piece := min(n, most)
		err = ep.engine.Table().Copy(ep.env.Wait, p, uintptr(zeroes.At(0)), piece)
		p, n = p+uintptr(piece), n-piece
	}
	return errors.Join(err, zeroes.Close())
}

func (ep *endpoint) Connect(ctx context.Context, addresses [][]byte) error {
	begin := time.Now()
	if err := ep.connect(ctx, addresses); err != nil {
		return fmt.Errorf("sendrecv: connect: %w", err)
	}
	ep.describe()
	ep.path.ConnectUS = transport.Since(begin)
	ep.ready = true
	return nil
}

func (ep *endpoint) connect(ctx context.Context, addresses [][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, ep.env.Timeout)
	defer cancel()
	if err := ep.bind(); err != nil {
		return err
	}
	begin := time.Now()
	own, err := ep.memory.Table().Export(ep.shared)
	if err != nil {
		return err
	}
	ep.path.ExportUS = transport.Since(begin)
	err = ep.exchangeHellos(ctx, addresses, own)
	if own.FD >= 0 {
		_ = unix.Close(own.FD)
	}
	if err != nil {
		return err
	}
	begin = time.Now()
	if err := ep.mapPeers(); err != nil {
		return err
	}
	ep.path.OpenUS = transport.Since(begin)
	ep.place()
	if err := abi.Call(func(e *C.struct_p2p_error) { C.p2p_sendrecv_warm_up(ep.end, e) }); err != nil {
		return err
	}
	return ep.agree()
}

// place sets the addresses of the C part.
func (ep *endpoint) place() {
	end := ep.end
	end.rank, end.ranks = C.uint32_t(ep.env.Rank), C.uint32_t(len(ep.env.Devices))
	end.previous = C.uint32_t(ep.near.previous)
	end.warp = C.uint32_t(ep.limits.warp)
	if ep.limits.cpu {
		end.cpu = 1
	}
	next, to := ep.neighbour(ep.near.next)
	previous, from := ep.neighbour(ep.near.previous)
	in := ep.layout.partition(ep.shared, ep.near.slot(ep.near.previous))
	out := ep.layout.partition(ep.shared, ep.near.slot(ep.near.next))
	end.at = C.struct_sr_args{
		src: (*C.sr_u8)(abi.Pointer(ep.source.Addr())), dst: in.inbox, peer_dst: to.inbox,
		peer_staging: to.staging, staging: in.staging, peer_lines: to.lines, lines: in.lines,
		in: in.words, out: out.words, peer_in: to.words, peer_out: from.words,
		count: (*C.struct_sr_count)(abi.Pointer(ep.counts.Addr())),
		team:  (*C.struct_sr_team)(abi.Pointer(ep.counts.Addr() + C.SR_CTAS*C.sizeof_struct_sr_count)),
		state: (*C.struct_sr_state)(ep.control.At(0)),
	}
	end.to_next = next.channel(ep.env.Rank, ep.near.next)
	end.from_previous = previous.channel(ep.near.previous, ep.env.Rank)
}

// agree sets the limits to those that all devices have, so that all ranks make the same choice.
func (ep *endpoint) agree() error {
	const yes = 1
	l := &ep.limits
	l.recordedWords = (ep.o.Variant == "auto" || ep.o.Variant == "ce") && C.p2p_sendrecv_records_words(ep.end) != 0
	// The allreduce takes the maximum, so each rank passes what it lacks.
	lacks := func(has bool) C.uint64_t {
		if has {
			return 0
		}
		return yes
	}
	values := []C.uint64_t{
		maxCTAs - C.uint64_t(min(l.ctas, maxCTAs)), lacks(l.wsBulk), lacks(l.putBulk), lacks(l.recordedWords), lacks(l.ll128),
	}
	if err := ep.allreduceMax(values); err != nil {
		return err
	}
	l.ctas = maxCTAs - int(values[0])
	*l = ep.o.usable(*l)
	l.wsBulk, l.putBulk, l.recordedWords, l.ll128 = values[1] == 0, values[2] == 0, values[3] == 0, values[4] == 0
	return ep.o.fits(*l)
}

// fits refuses more blocks than each device runs at once: running blocks would wait for blocks that cannot start.
func (o Options) fits(l limits) error {
	blocks := plan{variant: o.Variant, ctas: max(o.CTAs, 1)}.blocks()
	if blocks > l.ctas {
		what := ""
		if o.Launch == "persistent" && !l.cpu {
			what = " together with the kernels that write and check payloads"
		}
		return fmt.Errorf("--ctas %d: %s would have %d thread blocks, and the device is sure to run only %d at once%s: %w",
			o.CTAs, o.Variant, blocks, l.ctas, what, gpu.ErrUnsupported)
	}
	return nil
}

// allreduceMax replaces each value with the largest of all ranks.
func (ep *endpoint) allreduceMax(values []C.uint64_t) error {
	return abi.Call(func(e *C.struct_p2p_error) {
		C.p2p_sendrecv_allreduce_max(ep.end, unsafe.SliceData(values), C.uint32_t(len(values)), e)
	})
}

func (ep *endpoint) describe() {
	o := ep.o
	p := &ep.path
	p.Path, p.Engine, p.Completion, p.Counters = o.Variant, "auto", "receiver", counters
	if o.settled() {
		p.Engine = o.candidates(shape{}, ep.limits)[0].String()
	}
	kind, why := ep.memory.Kind()
	p.Knobs = knob.Settings(&o)
	p.Knobs["engine"], p.Knobs["handle"], p.Knobs["ring"] = p.Engine, string(kind), strconv.FormatBool(o.Ring)
	if why != "" {
		p.Knobs["handle_why"] = why
	}
	chosen := map[string]string{}
	if o.Variant != "ce" {
		chosen["ctas"], chosen["copy"] = "auto", "auto"
	}
	if o.Variant != "auto" && o.Variant != "ce" && o.Copy != "bulk" {
		chosen["sender-warps"], chosen["receiver-warps"] = "by size", "by size"
	}
	if o.staged() {
		chosen["stride"] = "adaptive"
	}
	for name, how := range chosen {
		if p.Knobs[name] == "" {
			p.Knobs[name] = how
		}
	}
}

// settled reports whether there is one plan for all sizes.
func (o Options) settled() bool {
	hasCopies := o.Variant == "ws" || o.Variant == "put"
	if o.Variant == "ws" && *o.LLMax > 0 {
		return false // lines or steps
	}
	return o.Variant == "ce" || o.Variant != "auto" && o.CTAs != 0 && (o.Copy == "ldst" || !hasCopies)
}

func (ep *endpoint) Describe() transport.Path { return ep.path }

func (ep *endpoint) Close() error {
	if ep.end == nil {
		return nil
	}
	if ep.end.stuck != 0 {
		return errors.New("sendrecv: close: a command on the device does not end: its memory stays allocated until the process ends")
	}
	errs := []error{ep.bindToClose()}
	errs = append(errs, ep.streamWait.Close())
	for _, p := range ep.peers {
		errs = append(errs, p.Close(ep.memory))
	}
	errs = append(errs, ep.samples.Close(), ep.control.Close())
	if ep.shared != 0 {
		errs = append(errs, ep.memory.Table().Release(ep.shared))
	}
	if ep.memory != nil {
		errs = append(errs, ep.memory.Close())
	}
	for _, b := range []gpu.Buffer{ep.counts, ep.source} {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	if ep.engine != nil {
		errs = append(errs, ep.engine.Close())
	}
	C.free(unsafe.Pointer(ep.end))
	ep.end = nil
	return errors.Join(errs...)
}

// bindToClose prepares the calling thread, which may differ from the one that called open.
func (ep *endpoint) bindToClose() error {
	if ep.end.queue == nil {
		return nil
	}
	return ep.bind()
}
