package verbs

/*
#include "verbs.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
)

// Limits are the limits of a device, for all its processes together.
type Limits struct {
	QPs        int // queue pairs
	QPWRs      int // work requests of a send or receive queue; fewer with much inline data
	SGE        int // buffers of a work request
	CQs        int // completion queues
	CQE        int // entries of a completion queue
	MRs        int // memory regions
	ReadAtomic int // outstanding reads and atomics of a queue pair
}

// Context is an opened device with a protection domain. Methods may be called from any goroutine.
type Context struct {
	name      string
	transport string // as in Device
	limits    Limits
	atomic    bool // the device has atomics
	p         *C.struct_ibv_context
	pd        *C.struct_ibv_pd

	qps, cqs, mrs atomic.Int32 // open objects
}

// Open opens the device with that name.
func Open(name string) (*Context, error) {
	if err := Load(); err != nil {
		return nil, err
	}
	c, names, err := &Context{name: name}, []string(nil), error(nil)
	listing := each(func(d *C.struct_ibv_device) bool {
		names = append(names, nameOf(d))
		if nameOf(d) == name {
			c.transport = transportOf(d)
			c.p, err = open(name, d)
		}
		return nameOf(d) != name
	})
	switch {
	case listing != nil:
		return nil, listing
	case err != nil:
		return nil, err
	case len(names) == 0:
		return nil, none()
	case c.p == nil:
		return nil, fmt.Errorf("verbs: no RDMA device %q: there are %s", name, strings.Join(names, ", "))
	}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(err, c.fail("ibv_close_device", C.p2p_verbs_close(c.p)))
	}
	return c, nil
}

func (c *Context) prepare() error {
	var a C.struct_ibv_device_attr
	if err := c.fail("ibv_query_device", C.p2p_verbs_query(c.p, &a)); err != nil {
		return err
	}
	c.limits = Limits{
		QPs: int(a.max_qp), QPWRs: int(a.max_qp_wr), SGE: int(a.max_sge), CQs: int(a.max_cq), CQE: int(a.max_cqe),
		MRs: int(a.max_mr), ReadAtomic: int(a.max_qp_rd_atom),
	}
	c.atomic = a.atomic_cap != C.IBV_ATOMIC_NONE
	return c.fail("ibv_alloc_pd", C.p2p_verbs_pd(c.p, &c.pd))
}

func (c *Context) fail(what string, errno C.int) error { return failed(c.name, what, errno) }

func (c *Context) open() error {
	if c.p == nil {
		return fmt.Errorf("verbs: %s: the device was closed", c.name)
	}
	return nil
}

// Name is the device's name.
func (c *Context) Name() string { return c.name }

// Limits are the device's limits.
func (c *Context) Limits() Limits { return c.limits }

// Objects returns the numbers of open objects of this context.
func (c *Context) Objects() (qps, cqs, mrs int) {
	return int(c.qps.Load()), int(c.cqs.Load()), int(c.mrs.Load())
}

// Close closes the device. It fails, and does nothing, while objects of the context are open. A second Close does
// nothing.
func (c *Context) Close() error {
	if c.p == nil {
		return nil
	}
	if qps, cqs, mrs := c.Objects(); qps+cqs+mrs > 0 {
		return fmt.Errorf("verbs: %s: close: %d queue pairs, %d completion queues and %d memory regions are open", c.name, qps, cqs, mrs)
	}
	err := errors.Join(c.fail("ibv_dealloc_pd", C.p2p_verbs_free_pd(c.pd)), c.fail("ibv_close_device", C.p2p_verbs_close(c.p)))
	c.p, c.pd = nil, nil
	return err
}

// troubles are the asynchronous events that report errors. %d is the number of the object.
var troubles = map[int]string{
	C.IBV_EVENT_CQ_ERR:        "completion queue error: it overran",
	C.IBV_EVENT_QP_FATAL:      "queue pair %d: fatal error",
	C.IBV_EVENT_QP_REQ_ERR:    "queue pair %d: invalid request from the remote end",
	C.IBV_EVENT_QP_ACCESS_ERR: "queue pair %d: the remote end accessed memory without permission",
	C.IBV_EVENT_PATH_MIG_ERR:  "queue pair %d: path migration failed",
	C.IBV_EVENT_DEVICE_FATAL:  "device removed or failed",
	C.IBV_EVENT_PORT_ERR:      "port error: port %d is down",
	C.IBV_EVENT_LID_CHANGE:    "port %d has another LID",
	C.IBV_EVENT_SRQ_ERR:       "shared receive queue error",
	C.IBV_EVENT_WQ_FATAL:      "work queue error",
}

// Event takes an asynchronous event that reports an error, if there is one, without waiting. It skips informational
// events, such as the first message of a connection.
func (c *Context) Event() (string, bool) {
	var kind C.int
	var number C.uint
	for c.p != nil && C.p2p_verbs_event(c.p, &kind, &number) != 0 {
		if text, ok := troubles[int(kind)]; ok {
			if strings.Contains(text, "%d") {
				text = fmt.Sprintf(text, uint32(number))
			}
			return text, true
		}
	}
	return "", false
}
