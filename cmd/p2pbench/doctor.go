package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/sweep"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
)

// diagnosis is the output of doctor.
type diagnosis struct {
	Version string       `json:"version"`
	Host    record.Env   `json:"host"`
	Memlock string       `json:"memlock"` // limit of locked memory: "unlimited" or bytes
	Kinds   []kindReport `json:"devices"`
	RDMA    rdmaReport   `json:"rdma"`
	Paths   []pathReport `json:"paths"`
	// Kernels has one entry per device; nil without --kernels.
	Kernels *[]kernelReport `json:"kernels,omitempty"`
}

// kindReport lists the devices of one kind, or says why there is none.
type kindReport struct {
	Kind    string     `json:"kind"`
	Devices []gpu.Info `json:"devices"`
	Links   []linkInfo `json:"links,omitempty"`
	Problem string     `json:"problem,omitempty"`
}

type linkInfo struct {
	From int      `json:"from"`
	To   int      `json:"to"`
	Link gpu.Link `json:"link"`
}

// pathReport says whether a path or baseline runs on a kind of device.
type pathReport struct {
	Path    string `json:"path"`
	Device  string `json:"device"`
	Problem string `json:"problem,omitempty"`
	Note    string `json:"note,omitempty"`
}

// doctorSettings are the flags of `p2pbench doctor`.
type doctorSettings struct {
	Kernels bool   `knob:"kernels" group:"what" help:"open every GPU and list its kernels with registers, local and shared memory"`
	Format  string `knob:"format" values:"table json" group:"output" help:"format of the report on stdout"`
}

func (a *app) doctorCommand() *cobra.Command {
	var s doctorSettings
	c := &cobra.Command{
		Use: "doctor", Short: "Report devices, links and libraries, and what is missing", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			d := diagnose()
			if s.Kernels {
				found := inspect(newDrivers())
				d.Kernels = &found
			}
			if s.Format == "json" {
				e := json.NewEncoder(a.stdout)
				e.SetIndent("", "  ")
				return e.Encode(d)
			}
			return printDiagnosis(a.stdout, d)
		},
	}
	addFlags(c, &s)
	return c
}

func diagnose() diagnosis {
	d := diagnosis{Version: versionText(), Host: sweep.Host(), Memlock: memlock()}
	for _, drv := range newDrivers() {
		k := kindReport{Kind: drv.Kind(), Devices: []gpu.Info{}}
		infos, err := drv.Devices()
		if err != nil {
			k.Problem = reason(err)
		} else {
			k.Devices = infos
			k.Links = links(drv, infos)
		}
		d.Kinds = append(d.Kinds, k)
		d.Paths = append(d.Paths, paths(k)...)
	}
	d.RDMA = inspectNICs()
	return d
}

func links(drv gpu.Driver, infos []gpu.Info) []linkInfo {
	var out []linkInfo
	for i := range infos {
		for j := i + 1; j < len(infos); j++ {
			out = append(out, linkInfo{From: i, To: j, Link: drv.Link(infos[i], infos[j])})
		}
	}
	return out
}

// paths returns for every path and baseline whether it runs on that kind of device.
func paths(k kindReport) []pathReport {
	var out []pathReport
	var arms []worker.Arm
	for _, p := range pathCommands() {
		arms = append(arms, newArm(p.name, nil))
	}
	for _, arm := range append(arms, newArm("memcpy", nil), newArm("nccl", nil)) {
		r := pathReport{Path: arm.Name, Device: k.Kind, Problem: k.Problem}
		if len(k.Devices) > 0 {
			pair := []gpu.Info{k.Devices[0], k.Devices[min(1, len(k.Devices)-1)]}
			if t, err := newTransport(arm.Transport, arm.Options); err != nil {
				r.Problem = reason(err)
			} else if err := t.Probe(pair); err != nil {
				r.Problem = reason(err)
			}
			if len(k.Devices) == 1 && k.Kind != "host" {
				r.Note = "one GPU, which both ranks would share"
			}
		}
		out = append(out, r)
	}
	return out
}

func memlock() string {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return err.Error()
	}
	if l.Cur == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return fmt.Sprintf("%d bytes", l.Cur)
}

func printDiagnosis(w io.Writer, d diagnosis) error {
	h := d.Host
	fmt.Fprintf(w, "p2pbench %s on %s, Linux %s, %s\n", d.Version, h.OS, h.Kernel, h.Arch)
	fmt.Fprintf(w, "%s: %d CPUs, %d NUMA node(s), %.1f GiB memory, locked memory: %s\n\n", h.CPU.Model, h.CPU.Count,
		h.CPU.NUMANodes, float64(h.MemoryB)/(1<<30), d.Memlock)
	for _, k := range d.Kinds {
		printKind(w, k)
	}
	printNICs(w, d.RDMA)
	fmt.Fprintln(w, "\npaths:")
	shown := d.printed()
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, p := range d.Paths {
		state := "ok"
		switch {
		case p.Problem != "":
			state = "not available: " + shown.text(p.Path+" on "+p.Device, p.Problem)
		case p.Note != "":
			state += " (" + p.Note + ")"
		}
		fmt.Fprintf(t, "  %s\ton %s\t%s\n", p.Path, p.Device, state)
	}
	if err := t.Flush(); err != nil || d.Kernels == nil {
		return err
	}
	return printKernels(w, *d.Kernels)
}

// problems are the problems that have been printed, and the devices or paths that have them.
type problems []struct{ of, text string }

// printed returns the problems that are printed above the list of paths.
func (d diagnosis) printed() *problems {
	list := &problems{}
	for _, k := range d.Kinds {
		list.text(k.Kind, k.Problem)
	}
	list.text("rdma", d.RDMA.Problem)
	return list
}

// text returns the problem, or a reference to the line above that already states it, since many paths share one cause.
func (l *problems) text(of, text string) string {
	_, cause, _ := strings.Cut(text, ": ") // without the package's name
	for _, p := range *l {
		if text != "" && (strings.Contains(p.text, text) || cause != "" && strings.Contains(p.text, cause)) {
			return "see " + p.of + " above"
		}
	}
	*l = append(*l, struct{ of, text string }{of, text})
	return text
}

func printKind(w io.Writer, k kindReport) {
	if k.Problem != "" {
		fmt.Fprintf(w, "%s: not available: %s\n", k.Kind, k.Problem)
		return
	}
	for _, i := range k.Devices {
		parts := []string{i.Name, i.UUID}
		for _, s := range []string{i.PCI, i.Arch, i.Driver} {
			if s != "" {
				parts = append(parts, s)
			}
		}
		fmt.Fprintf(w, "%s %d: %s, NUMA node %d, %.1f GiB\n", k.Kind, i.Index, strings.Join(parts, ", "), i.NUMA,
			float64(i.Memory)/(1<<30))
	}
	for _, l := range k.Links {
		fmt.Fprintf(w, "%s %d - %d: %s\n", k.Kind, l.From, l.To, linkText(l.Link))
	}
}

func linkText(l gpu.Link) string {
	text := l.Type
	if l.Detail != "" {
		text += " (" + l.Detail + ")"
	}
	if !l.Peer {
		text += ", no peer access"
	}
	return text
}
