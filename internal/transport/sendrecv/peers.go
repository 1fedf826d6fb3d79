package sendrecv

/*
#include "sendrecv.h"
*/
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/transport/rendezvous"
)

// neighbours are the ranks that a rank of a ring has to do with. Between two ranks next and previous are one.
type neighbours struct{ next, previous int }

func neighboursOf(rank, ranks int) neighbours {
	return neighbours{next: (rank + 1) % ranks, previous: (rank + ranks - 1) % ranks}
}

// peers are the different ones among them. A rank's memory has a partition for each, in this order.
func (n neighbours) peers() []int {
	if n.next == n.previous {
		return []int{n.next}
	}
	return []int{n.next, n.previous}
}

// slot is the number of the partition for that rank.
func (n neighbours) slot(rank int) int {
	if rank == n.next {
		return 0
	}
	return len(n.peers()) - 1
}

// layout is where things lie in the memory that a rank shares, in bytes from its begin. Words, lines and staging are
// there once for each partition, one behind the other; what the variant does not need takes no room.
type layout struct {
	Words   uint64 `json:"words"`
	Lines   uint64 `json:"lines"`
	Staging uint64 `json:"staging"`
	Inbox   uint64 `json:"inbox"`
	Bytes   uint64 `json:"bytes"`
}

// Bytes of a partition's parts.
const (
	partAlign = 64 << 10
	wordBytes = (C.sizeof_struct_sr_words + partAlign - 1) / partAlign * partAlign
	lineBytes = C.SR_LINES
)

// lay divides the memory of a rank with so many partitions, whose inbox is of that many bytes.
func (o Options) lay(partitions int, inbox uint64) layout {
	var l layout
	n := uint64(partitions)
	l.Lines = l.Words + n*wordBytes
	l.Staging = l.Lines
	if o.Variant == "ws" || o.Variant == "auto" || lineRoom(o.Variant) > 0 {
		l.Staging += n * lineBytes
	}
	l.Inbox = l.Staging
	if o.staged() {
		l.Inbox += n * staging
	}
	l.Bytes = l.Inbox + inbox
	return l
}

// partition is one of them as this process addresses it.
type partition struct {
	words                 *C.struct_sr_words
	lines, staging, inbox *C.sr_u8
}

func (l layout) partition(base uintptr, slot int) partition {
	at := func(offset uint64) unsafe.Pointer { return abi.Pointer(base + uintptr(offset)) }
	k := uint64(slot)
	return partition{
		words: (*C.struct_sr_words)(at(l.Words + k*wordBytes)), lines: (*C.sr_u8)(at(l.Lines + k*lineBytes)),
		staging: (*C.sr_u8)(at(l.Staging + k*staging)), inbox: (*C.sr_u8)(at(l.Inbox)),
	}
}

// hello is what neighbours tell each other. A descriptor may travel beside it.
type hello struct {
	Handle gpu.HandleKind `json:"handle"`
	Kind   uint32         `json:"kind"`
	Length uint64         `json:"length"`
	ID     uint64         `json:"id"`
	Opaque []byte         `json:"opaque"`
	Layout layout         `json:"layout"`
	Slot   int            `json:"slot"` // of the partition that is for the one who reads this
}

// peer is a neighbour.
type peer struct {
	rank   int
	conn   *rendezvous.Conn
	hello  hello
	fd     int     // came with the hello; -1: none
	base   uintptr // of its memory as mapped here; 0: not mapped
	server bool    // this rank's link listens
}

// openPeers begins a link to each neighbour. The smaller rank of two listens.
func openPeers(run string, rank int, n neighbours) (_ []*peer, err error) {
	var out []*peer
	defer func() {
		if err != nil {
			for _, p := range out {
				err = errors.Join(err, p.conn.Close())
			}
		}
	}()
	for _, other := range n.peers() {
		p := &peer{rank: other, fd: -1, server: rank < other}
		end := 1
		if p.server {
			end = 0
		}
		if p.conn, err = rendezvous.Open(fmt.Sprintf("%s-%d-%d", run, min(rank, other), max(rank, other)), end); err != nil {
			return out, err
		}
		out = append(out, p)
	}
	return out, nil
}

// address is where a rank listens, by the rank that it listens for.
type address map[string]json.RawMessage

func (ep *endpoint) Address() []byte {
	a := address{}
	for _, p := range ep.peers {
		if p.server {
			a[strconv.Itoa(p.rank)] = p.conn.Address()
		}
	}
	b, _ := json.Marshal(a) // cannot fail: strings and JSON only
	return b
}

// meet swaps hellos with all neighbours at the same time: in a ring each would wait for the next one otherwise.
func (ep *endpoint) meet(ctx context.Context, addresses [][]byte, own abi.Handle) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(ep.peers))
	var all sync.WaitGroup
	for i, p := range ep.peers {
		all.Go(func() {
			if errs[i] = ep.greet(ctx, p, addresses, own); errs[i] != nil {
				errs[i] = fmt.Errorf("rank %d: %w", p.rank, errs[i])
				cancel()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (ep *endpoint) greet(ctx context.Context, p *peer, addresses [][]byte, own abi.Handle) error {
	kind, _ := ep.memory.Kind()
	text, err := json.Marshal(hello{
		Handle: kind, Kind: own.Kind, Length: own.Length, ID: own.ID, Opaque: own.Opaque[:], Layout: ep.layout,
		Slot: ep.near.slot(p.rank),
	})
	if err != nil {
		return err
	}
	var server json.RawMessage
	if !p.server {
		var a address
		if err := json.Unmarshal(addresses[p.rank], &a); err != nil {
			return fmt.Errorf("its address: %w", err)
		}
		server = a[strconv.Itoa(ep.env.Rank)]
	}
	m, err := p.conn.Connect(ctx, server, rendezvous.Message{Payload: text, FD: own.FD}, int(C.sizeof_struct_sendrecv_link))
	if err != nil {
		return err
	}
	p.fd = m.FD
	if err := json.Unmarshal(m.Payload, &p.hello); err != nil {
		return fmt.Errorf("its hello: %w", err)
	}
	return ep.acceptable(p.hello, kind)
}

// acceptable refuses a hello that would lead this rank to memory that is not there.
func (ep *endpoint) acceptable(h hello, kind gpu.HandleKind) error {
	switch {
	case h.Handle != kind:
		return fmt.Errorf("this rank shares memory as %s, that one as %s: name one with --handle: %w", kind, h.Handle, gpu.ErrUnsupported)
	case len(h.Opaque) != len(abi.Handle{}.Opaque) || h.Layout != ep.layout || h.Layout.Bytes > h.Length || h.Slot < 0 || h.Slot >= len(ep.peers):
		return fmt.Errorf("its hello: memory of %d bytes, divided as %+v, partition %d: %w", h.Length, h.Layout, h.Slot, abi.ErrInvalid)
	}
	return nil
}

// mapPeers opens the memory of every neighbour. The calling thread has bound the engine.
func (ep *endpoint) mapPeers() error {
	for _, p := range ep.peers {
		h := abi.Handle{Kind: p.hello.Kind, FD: p.fd, Length: p.hello.Length, ID: p.hello.ID}
		copy(h.Opaque[:], p.hello.Opaque)
		base, err := ep.memory.Table().Open(h)
		if err != nil {
			return fmt.Errorf("memory of rank %d: %w", p.rank, err)
		}
		p.base = base
		p.closeFD()
	}
	return nil
}

// neighbour finds the peer of that rank, and the partition of its memory that is for this one.
func (ep *endpoint) neighbour(rank int) (*peer, partition) {
	p := ep.peers[ep.near.slot(rank)]
	return p, p.hello.Layout.partition(p.base, p.hello.Slot)
}

// mail is what rank from writes to rank to, its neighbour.
func (p *peer) mail(from, to int) *C.struct_sendrecv_mail {
	l := (*C.struct_sendrecv_link)(p.conn.Memory())
	if from < to {
		return &l.from[0]
	}
	return &l.from[1]
}

func (p *peer) closeFD() {
	if p.fd >= 0 {
		_ = unix.Close(p.fd)
		p.fd = -1
	}
}

// Close unmaps the neighbour's memory and hangs up.
func (p *peer) Close(m gpu.Memory) error {
	var errs []error
	p.closeFD()
	if p.base != 0 {
		errs = append(errs, m.Table().Unmap(p.base))
		p.base = 0
	}
	return errors.Join(append(errs, p.conn.Close())...)
}
