package verbs

/*
#include <net/if.h>
#include "verbs.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

// Device is an RDMA device and its properties when it was listed.
type Device struct {
	Name      string `json:"name"`               // the kernel's: "mlx5_0", "rxe0"
	Transport string `json:"transport"`          // "InfiniBand", which is RoCE on Ethernet, "iWARP", "usNIC" or "other"
	Firmware  string `json:"firmware,omitempty"` // its version
	PCI       string `json:"pci,omitempty"`      // "0000:3b:00.0"; "" where it is no PCI device
	NUMA      int    `json:"numa"`               // NUMA node, -1 if unknown
	Ports     []Port `json:"ports"`              // none if it could not be opened
	Err       error  `json:"-"`                  // why it could not be
}

// Port is a port of a device. Ports are numbered from 1.
type Port struct {
	Number    int     `json:"number"`
	State     string  `json:"state"`      // "ACTIVE" can send; "DOWN", "INIT", "ARMED", "ACTIVE_DEFER"
	LinkLayer string  `json:"link_layer"` // "Ethernet" or "InfiniBand"
	LID       uint16  `json:"lid"`        // 0 on Ethernet
	MTU       int     `json:"mtu"`        // in use, bytes of payload
	Largest   uint64  `json:"largest"`    // maximum bytes of a message
	Rate      float64 `json:"rate"`       // Gb/s, 0 if unknown
	GIDs      []GID   `json:"gids"`
}

// Kinds of GID.
const (
	TypeIB     = "IB"
	TypeRoCEv1 = "RoCE v1"
	TypeRoCEv2 = "RoCE v2"
)

// GID is an address of a port.
type GID struct {
	Index  int      `json:"index"`
	Value  [16]byte `json:"value"`
	Type   string   `json:"type"`             // "IB", "RoCE v1", "RoCE v2", or "" if unknown
	Netdev string   `json:"netdev,omitempty"` // the network interface whose address it is
}

// Addr is the GID as an IPv6 address; a mapped IPv4 address is itself.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g.Value).Unmap() }

func (g GID) String() string { return fmt.Sprintf("%s (%s, index %d)", g.Addr(), g.Type, g.Index) }

// Devices lists the RDMA devices of this machine, in the library's order. If there are none, the error wraps
// gpu.ErrUnsupported.
func Devices() ([]Device, error) {
	if err := Load(); err != nil {
		return nil, err
	}
	var devices []Device
	err := each(func(d *C.struct_ibv_device) bool {
		devices = append(devices, describe(d))
		return true
	})
	if err != nil {
		return nil, err
	}
	if len(devices) == 0 {
		return nil, none()
	}
	return devices, nil
}

func none() error {
	return fmt.Errorf("verbs: this machine has no RDMA device, or its driver is not loaded (see `rdma link`; without a card "+
		"soft-RoCE makes one: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0): %w", gpu.ErrUnsupported)
}

// each calls f for the devices until it returns false.
func each(f func(d *C.struct_ibv_device) bool) error {
	var list **C.struct_ibv_device
	var n C.int
	switch rc := C.p2p_verbs_list(&list, &n); {
	case syscall.Errno(rc) == syscall.ENOSYS: // the kernel's RDMA modules are not loaded
		return none()
	case rc != 0:
		return failed("devices", "ibv_get_device_list", rc)
	}
	defer C.p2p_verbs_free(list)
	for _, d := range unsafe.Slice(list, int(n)) {
		if !f(d) {
			break
		}
	}
	return nil
}

func nameOf(d *C.struct_ibv_device) string { return C.GoString(&d.name[0]) }

func transportOf(d *C.struct_ibv_device) string {
	switch d.transport_type {
	case C.IBV_TRANSPORT_IB:
		return "InfiniBand"
	case C.IBV_TRANSPORT_IWARP:
		return "iWARP"
	case C.IBV_TRANSPORT_USNIC, C.IBV_TRANSPORT_USNIC_UDP:
		return "usNIC"
	}
	return "other"
}

func describe(d *C.struct_ibv_device) Device {
	out := Device{Name: nameOf(d), Transport: transportOf(d)}
	out.PCI, out.NUMA = place(out.Name)
	out.Err = out.ask(d)
	if out.Err != nil {
		out.Ports = nil
	}
	return out
}

// ask opens the device and reads its properties.
func (d *Device) ask(from *C.struct_ibv_device) (err error) {
	var context *C.struct_ibv_context
	if context, err = open(d.Name, from); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, failed(d.Name, "ibv_close_device", C.p2p_verbs_close(context))) }()
	var attr C.struct_ibv_device_attr
	if err := failed(d.Name, "ibv_query_device", C.p2p_verbs_query(context, &attr)); err != nil {
		return err
	}
	d.Firmware = C.GoString(&attr.fw_ver[0])
	slots := 0
	for number := 1; number <= int(attr.phys_port_cnt); number++ {
		var port C.struct_ibv_port_attr
		if err := failed(d.Name, "ibv_query_port", C.p2p_verbs_port(context, C.int(number), &port)); err != nil {
			return err
		}
		slots += int(port.gid_tbl_len)
		d.Ports = append(d.Ports, describePort(d.Name, number, &port))
	}
	for i := range d.Ports {
		if d.Ports[i].GIDs, err = gids(d.Name, context, &d.Ports[i], slots); err != nil {
			return err
		}
	}
	return nil
}

func open(name string, d *C.struct_ibv_device) (*C.struct_ibv_context, error) {
	var context *C.struct_ibv_context
	err := failed(name, "ibv_open_device", C.p2p_verbs_open(d, &context))
	for _, denied := range []syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.ENOENT} {
		err = hint(err, denied, "this process needs read and write access to /dev/infiniband/uverbs* (in a container: --device=/dev/infiniband)")
	}
	return context, err
}

var portStates = map[C.enum_ibv_port_state]string{
	C.IBV_PORT_NOP: "NOP", C.IBV_PORT_DOWN: "DOWN", C.IBV_PORT_INIT: "INIT", C.IBV_PORT_ARMED: "ARMED",
	C.IBV_PORT_ACTIVE: "ACTIVE", C.IBV_PORT_ACTIVE_DEFER: "ACTIVE_DEFER",
}

func describePort(device string, number int, attr *C.struct_ibv_port_attr) Port {
	p := Port{
		Number: number, State: portStates[attr.state], LinkLayer: "InfiniBand", LID: uint16(attr.lid),
		MTU: mtuBytes(attr.active_mtu), Largest: uint64(attr.max_msg_sz), Rate: rate(device, number),
	}
	if attr.link_layer == C.IBV_LINK_LAYER_ETHERNET {
		p.LinkLayer = "Ethernet"
	}
	if p.Rate == 0 {
		p.Rate = laneRate(int(attr.active_speed)) * lanes(int(attr.active_width))
	}
	return p
}

// mtuBytes and mtuCode translate between an ibv_mtu and bytes; the code is the largest that fits.
func mtuBytes(code C.enum_ibv_mtu) int { return 128 << code }

func mtuCode(size int) C.int {
	code := C.int(C.IBV_MTU_256)
	for code < C.IBV_MTU_4096 && 128<<(code+1) <= size {
		code++
	}
	return code
}

// laneRate converts ibv_port_attr.active_speed to Gb/s: SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR.
func laneRate(speed int) float64 {
	return map[int]float64{1: 2.5, 2: 5, 4: 10, 8: 10, 16: 14, 32: 25, 64: 50, 128: 100}[speed]
}

// lanes converts ibv_port_attr.active_width.
func lanes(width int) float64 { return map[int]float64{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}[width] }

// gids returns the port's GIDs; slots is the number of entries of all ports' tables.
func gids(device string, context *C.struct_ibv_context, p *Port, slots int) ([]GID, error) {
	if slots == 0 {
		return nil, nil
	}
	table := make([]C.struct_ibv_gid_entry, slots)
	var n C.int
	if err := failed(device, "ibv_query_gid_table",
		C.p2p_verbs_gids(context, C.int(p.Number), &table[0], C.int(slots), &n)); err != nil {
		return nil, err
	}
	var out []GID
	for _, e := range table[:n] {
		g := GID{Index: int(e.gid_index), Value: e.gid, Type: gidType(device, p, &e)}
		g.Netdev = gidNetdev(device, p.Number, g.Index)
		if g.Netdev == "" {
			var name [C.IF_NAMESIZE]C.char
			C.p2p_verbs_netdev(e.ndev_ifindex, &name[0])
			g.Netdev = C.GoString(&name[0])
		}
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b GID) int { return a.Index - b.Index })
	return out, nil
}

func gidType(device string, p *Port, e *C.struct_ibv_gid_entry) string {
	switch int32(e.gid_type) {
	case C.IBV_GID_TYPE_IB:
		return TypeIB
	case C.IBV_GID_TYPE_ROCE_V1:
		return TypeRoCEv1
	case C.IBV_GID_TYPE_ROCE_V2:
		return TypeRoCEv2
	}
	return gidTypeOfOld(device, p, int(e.gid_index))
}

// Port returns the port with that number.
func (d Device) Port(number int) (Port, error) {
	if d.Err != nil {
		return Port{}, d.Err
	}
	for _, p := range d.Ports {
		if p.Number == number {
			return p, nil
		}
	}
	return Port{}, fmt.Errorf("verbs: %s: no port %d: it has ports 1 to %d", d.Name, number, len(d.Ports))
}

// DefaultGID returns the port's address that most likely can reach other hosts: RoCE v2 over an IPv4 address, over a
// global IPv6 address, over a link-local one; RoCE v1; the first of an InfiniBand port.
func (d Device) DefaultGID(port int) (GID, error) {
	p, err := d.Port(port)
	if err != nil {
		return GID{}, err
	}
	if len(p.GIDs) > 0 {
		return slices.MinFunc(p.GIDs, func(a, b GID) int { return a.rank() - b.rank() }), nil
	}
	if p.LinkLayer == "Ethernet" {
		return GID{}, fmt.Errorf("verbs: %s port %d: no GID: its network interface has no address: give it one and bring it up "+
			"(ip addr add, ip link set up)", d.Name, port)
	}
	return GID{}, fmt.Errorf("verbs: %s port %d: no GID: is a subnet manager running?", d.Name, port)
}

// rank is lower for a better choice. Of equal ones the lower index is chosen.
func (g GID) rank() int {
	addr := netip.AddrFrom16(g.Value)
	switch {
	case g.Type == TypeIB:
		return 0
	case g.Type == TypeRoCEv1:
		return 5
	case addr.Is4In6():
		return 1
	case addr.IsLinkLocalUnicast():
		return 3
	}
	return 2
}

// GIDAt returns the port's address at that index.
func (d Device) GIDAt(port, index int) (GID, error) {
	p, err := d.Port(port)
	if err != nil {
		return GID{}, err
	}
	var known []string
	for _, g := range p.GIDs {
		if g.Index == index {
			return g, nil
		}
		known = append(known, g.String())
	}
	if len(known) == 0 {
		_, err := d.DefaultGID(port)
		return GID{}, err
	}
	return GID{}, fmt.Errorf("verbs: %s port %d: no GID at index %d: there are %s", d.Name, port, index, strings.Join(known, ", "))
}
