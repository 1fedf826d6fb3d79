package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

// kernelReport lists the kernels that a device's driver has loaded, or says why they are unknown.
type kernelReport struct {
	Device  string       `json:"device"` // "cuda 0"
	Name    string       `json:"name"`
	Kernels []gpu.Kernel `json:"kernels"`
	Problem string       `json:"problem,omitempty"`
}

// inspect opens every device and lists its kernels. Devices that emulate kernels on the CPU are left out.
func inspect(all []gpu.Driver) []kernelReport {
	reports := []kernelReport{}
	for _, drv := range all {
		infos, err := drv.Devices()
		if err != nil {
			continue // diagnose has reported the error
		}
		for _, i := range infos {
			if r, ok := inspectDevice(drv, i); ok {
				reports = append(reports, r)
			}
		}
	}
	return reports
}

// inspectDevice returns ok false for a device without kernels.
func inspectDevice(drv gpu.Driver, i gpu.Info) (r kernelReport, ok bool) {
	r = kernelReport{Device: fmt.Sprintf("%s %d", i.Kind, i.Index), Name: i.Name, Kernels: []gpu.Kernel{}}
	d, err := drv.Open(i.UUID)
	if err != nil {
		r.Problem = reason(err)
		return r, true
	}
	inspector, ok := d.(gpu.Inspector)
	if ok {
		var kernels []gpu.Kernel
		if kernels, err = inspector.Kernels(); err == nil {
			r.Kernels = kernels
		}
	}
	if err = errors.Join(err, d.Close()); err != nil {
		r.Problem = reason(err)
	}
	return r, ok
}

// printKernels prints a table for each device, and a warning for each kernel that uses local memory.
func printKernels(w io.Writer, reports []kernelReport) error {
	fmt.Fprintln(w, "\nkernels:")
	if len(reports) == 0 {
		fmt.Fprintln(w, "  no GPU that can load them")
	}
	for _, r := range reports {
		if r.Problem != "" {
			fmt.Fprintf(w, "  %s: %s\n", r.Device, r.Problem)
			continue
		}
		fmt.Fprintf(w, "  %s, %s:\n", r.Device, r.Name)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "    name\tregisters\tlocal B\tshared B\tmax threads\ttarget")
		for _, k := range r.Kernels {
			fmt.Fprintf(t, "    %s\t%d\t%d\t%d\t%d\t%s\n", k.Name, k.Registers, k.Local, k.Shared, k.Threads, k.Target)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, k := range r.Kernels {
			if k.Local > 0 {
				fmt.Fprintf(w, "  warning: %s on %s uses %d bytes of local memory per thread (spilled registers or arrays)\n",
					k.Name, r.Device, k.Local)
			}
		}
	}
	return nil
}
