package main

import (
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs"
)

// rdmaReport lists the RDMA devices, or says what is missing and how to get it.
type rdmaReport struct {
	Library string      `json:"library,omitempty"` // version of libibverbs; "": unknown or not installed
	Devices []nicReport `json:"devices"`
	Problem string      `json:"problem,omitempty"`
	Notes   []string    `json:"notes,omitempty"` // problems that may prevent a run
}

// nicReport is an RDMA device.
type nicReport struct {
	Name      string       `json:"name"`
	Transport string       `json:"transport"`
	Firmware  string       `json:"firmware,omitempty"`
	PCI       string       `json:"pci,omitempty"` // absent: a software device
	NUMA      int          `json:"numa"`          // -1: unknown
	Ports     []portReport `json:"ports"`
	Problem   string       `json:"problem,omitempty"`
}

type portReport struct {
	Number    int      `json:"number"`
	State     string   `json:"state"`
	LinkLayer string   `json:"link_layer"`
	Rate      float64  `json:"rate_gbps"` // Gb/s, 0: unknown
	MTU       int      `json:"mtu"`
	GIDs      []string `json:"gids"`              // with kind and index
	Default   *int     `json:"gid,omitempty"`     // index that a run uses
	Problem   string   `json:"problem,omitempty"` // why no run uses this port
}

// inspectNICs lists the RDMA devices and their ports.
func inspectNICs() rdmaReport {
	r := rdmaReport{Library: verbs.Version(), Devices: []nicReport{}}
	devices, err := verbs.Devices()
	if err != nil {
		r.Problem = reason(err)
		if verbs.Load() == nil {
			r.Problem += "; scripts/rxe-vm starts a virtual machine with two soft-RoCE devices"
		}
		return r
	}
	usable := false
	for _, d := range devices {
		n := nicReport{Name: d.Name, Transport: d.Transport, Firmware: d.Firmware, PCI: d.PCI, NUMA: d.NUMA, Ports: []portReport{}}
		if d.Err != nil {
			n.Problem = reason(d.Err)
		}
		for _, p := range d.Ports {
			port := inspectPort(d, p)
			usable = usable || port.Problem == ""
			n.Ports = append(n.Ports, port)
		}
		r.Devices = append(r.Devices, n)
	}
	if !usable {
		r.Notes = append(r.Notes, "no port is active and has an address")
	}
	r.Notes = append(r.Notes, memlockNotes()...)
	return r
}

func inspectPort(d verbs.Device, p verbs.Port) portReport {
	r := portReport{Number: p.Number, State: p.State, LinkLayer: p.LinkLayer, Rate: p.Rate, MTU: p.MTU, GIDs: []string{}}
	for _, g := range p.GIDs {
		r.GIDs = append(r.GIDs, g.String())
	}
	gid, err := d.DefaultGID(p.Number)
	switch {
	case p.State != "ACTIVE":
		r.Problem = "the port is " + p.State + ": bring its network interface up (ip link set up), or check its cable"
	case err != nil:
		r.Problem = reason(err)
	}
	if err == nil {
		r.Default = &gid.Index
	}
	return r
}

// memlockEnough is roughly the size of the buffers of a default run, in bytes.
const memlockEnough = 1 << 30

func memlockNotes() []string {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil || l.Cur == unix.RLIM_INFINITY || l.Cur >= memlockEnough {
		return nil
	}
	return []string{fmt.Sprintf("locked memory is limited to %d KiB, less than large buffers need: raise it by `ulimit -l unlimited`, or by memlock in "+
		"/etc/security/limits.conf", l.Cur>>10)}
}

func printNICs(w io.Writer, r rdmaReport) {
	if r.Problem != "" {
		fmt.Fprintf(w, "rdma: not available: %s\n", r.Problem)
		return
	}
	library := r.Library
	if library == "" {
		library = "(unknown version)"
	}
	fmt.Fprintf(w, "rdma: libibverbs %s\n", library)
	for _, d := range r.Devices {
		parts := []string{"transport " + d.Transport}
		if d.Firmware != "" {
			parts = append(parts, "firmware "+d.Firmware)
		}
		if d.PCI == "" {
			parts = append(parts, "no PCI device: emulated in software, such as soft-RoCE, for tests of correctness")
		} else {
			parts = append(parts, d.PCI)
		}
		if d.NUMA >= 0 {
			parts = append(parts, fmt.Sprintf("NUMA node %d", d.NUMA))
		}
		if d.Problem != "" {
			parts = append(parts, d.Problem)
		}
		fmt.Fprintf(w, "rdma %s: %s\n", d.Name, strings.Join(parts, ", "))
		for _, p := range d.Ports {
			fmt.Fprintf(w, "rdma %s port %d: %s\n", d.Name, p.Number, portText(p))
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "rdma: %s\n", n)
	}
}

func portText(p portReport) string {
	parts := []string{p.State, p.LinkLayer}
	if p.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%g Gb/s", p.Rate))
	}
	parts = append(parts, fmt.Sprintf("MTU %d", p.MTU))
	if len(p.GIDs) > 0 {
		parts = append(parts, "GIDs "+strings.Join(p.GIDs, ", "))
	}
	if p.Default != nil {
		parts = append(parts, fmt.Sprintf("default index %d", *p.Default))
	}
	if p.Problem != "" {
		parts = append(parts, "not usable: "+p.Problem)
	}
	return strings.Join(parts, ", ")
}
