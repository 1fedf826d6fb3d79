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

// neighbours are the next and the previous rank in the ring; of two ranks they are the same.
type neighbours struct{ next, previous int }

func neighboursOf(rank, ranks int) neighbours {
	return neighbours{next: (rank + 1) % ranks, previous: (rank + ranks - 1) % ranks}
}

// peers lists each neighbour once. A rank's memory has a partition for each, in this order.
func (n neighbours) peers() []int {
	if n.next == n.previous {
		return []int{n.next}
	}
	return []int{n.next, n.previous}
}

// slot is the number of the partition for the rank.
func (n neighbours) slot(rank int) int {
	if rank == n.next {
		return 0
	}
	return len(n.peers()) - 1
}

// layout is the offsets, in bytes, of the parts of the memory that a rank shares. Words, lines and staging exist once
// for each partition, one after the other; parts that the variant does not need have no bytes.
type layout struct {
	Words   uint64 `json:"words"`
	Lines   uint64 `json:"lines"`
	Staging uint64 `json:"staging"`
	Inbox   uint64 `json:"inbox"`
	Bytes   uint64 `json:"bytes"`
}

// Sizes of a partition's parts, in bytes.
const (
	partAlign = 64 << 10
	wordBytes = (C.sizeof_struct_sr_words + partAlign - 1) / partAlign * partAlign
	lineBytes = C.SR_LINES
)

// divide lays out the memory of a rank with the given number of partitions and an inbox of the given bytes.
func (o Options) divide(partitions int, inbox uint64) layout {
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

// partition is the addresses of one partition in this process.
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

// hello is what neighbours send each other before they share memory. A file descriptor may accompany it.
type hello struct {
	Handle gpu.HandleKind `json:"handle"`
	Kind   uint32         `json:"kind"`
	Length uint64         `json:"length"`
	ID     uint64         `json:"id"`
	Opaque []byte         `json:"opaque"`
	Layout layout         `json:"layout"`
	Slot   int            `json:"slot"` // of the partition for the rank that receives the hello
}

// peer is a neighbour.
type peer struct {
	rank   int
	conn   *rendezvous.Conn
	hello  hello
	fd     int     // received with the hello; -1: none
	base   uintptr // where its memory is mapped; 0: not mapped
	server bool    // this rank listens for the connection
}

// openPeers opens a connection to each neighbour. The smaller rank of two listens.
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

// address is where a rank listens, by the rank that connects.
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

// exchangeHellos does so with all neighbours concurrently: one by one, the ranks of a ring would wait in a cycle.
func (ep *endpoint) exchangeHellos(ctx context.Context, addresses [][]byte, own abi.Handle) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(ep.peers))
	var all sync.WaitGroup
	for i, p := range ep.peers {
		all.Go(func() {
			if errs[i] = ep.exchangeHello(ctx, p, addresses, own); errs[i] != nil {
				errs[i] = fmt.Errorf("rank %d: %w", p.rank, errs[i])
				cancel()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (ep *endpoint) exchangeHello(ctx context.Context, p *peer, addresses [][]byte, own abi.Handle) error {
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

// acceptable refuses a hello that describes memory other than this rank expects.
func (ep *endpoint) acceptable(h hello, kind gpu.HandleKind) error {
	switch {
	case h.Handle != kind:
		return fmt.Errorf("this rank shares memory by %s, that one by %s: name one with --handle: %w", kind, h.Handle, gpu.ErrUnsupported)
	case len(h.Opaque) != len(abi.Handle{}.Opaque) || h.Layout != ep.layout || h.Layout.Bytes > h.Length || h.Slot < 0 || h.Slot >= len(ep.peers):
		return fmt.Errorf("its hello: memory of %d bytes, divided as %+v, partition %d: %w", h.Length, h.Layout, h.Slot, abi.ErrInvalid)
	}
	return nil
}

// mapPeers maps the memory of every neighbour. The engine must be bound to the calling thread.
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

// neighbour returns the peer of that rank, and the partition of its memory for this rank.
func (ep *endpoint) neighbour(rank int) (*peer, partition) {
	p := ep.peers[ep.near.slot(rank)]
	return p, p.hello.Layout.partition(p.base, p.hello.Slot)
}

// channel is the memory that rank from writes and its neighbour, rank to, reads.
func (p *peer) channel(from, to int) *C.struct_sendrecv_channel {
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

// Close unmaps the neighbour's memory and closes the connection.
func (p *peer) Close(m gpu.Memory) error {
	var errs []error
	p.closeFD()
	if p.base != 0 {
		errs = append(errs, m.Table().Unmap(p.base))
		p.base = 0
	}
	return errors.Join(append(errs, p.conn.Close())...)
}
