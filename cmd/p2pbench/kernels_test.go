package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
)

// inspected is a driver with two devices, of which the second fails to list its kernels.
type inspected struct{ gpu.Driver }

func (inspected) Devices() ([]gpu.Info, error) {
	return []gpu.Info{
		{Kind: "cuda", Name: "NVIDIA H200", UUID: "GPU-0"},
		{Kind: "cuda", Index: 1, Name: "NVIDIA H200", UUID: "GPU-1"},
		{Kind: "cuda", Index: 2, Name: "NVIDIA H200", UUID: "GPU-2"},
	}, nil
}

func (inspected) Open(uuid string) (gpu.Device, error) {
	if uuid == "GPU-2" {
		return nil, errors.New("cuda: out of memory")
	}
	return &inspector{fails: uuid == "GPU-1"}, nil
}

type inspector struct {
	gpu.Device
	fails bool
}

func (i *inspector) Kernels() ([]gpu.Kernel, error) {
	if i.fails {
		return nil, errors.New("cuda: no image for this device")
	}
	return []gpu.Kernel{
		{Name: "p2p_sr_ws", Registers: 64, Shared: 16, Threads: 1024, Target: "sm_90"},
		{Name: "p2p_sr_spills", Registers: 255, Local: 48, Threads: 256, Target: "sm_90"},
	}, nil
}

func (*inspector) Close() error { return nil }

// Every kernel of every GPU is listed, with a warning for one that spills, and the error of a GPU that fails.
func TestKernelsOfDoctor(t *testing.T) {
	reports := inspect([]gpu.Driver{inspected{}, host.Driver()})
	var b strings.Builder
	if err := printKernels(&b, reports); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  cuda 0, NVIDIA H200:\n", "    p2p_sr_ws      64         0        16        1024         sm_90\n",
		"  warning: p2p_sr_spills on cuda 0 uses 48 bytes of local memory per thread",
		"  cuda 1: cuda: no image for this device\n", "  cuda 2: cuda: out of memory\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "host") || strings.Count(b.String(), "warning") != 1 {
		t.Errorf("more than was asked for:\n%s", b.String())
	}
}

func TestNoKernels(t *testing.T) {
	var b strings.Builder
	if err := printKernels(&b, inspect([]gpu.Driver{host.Driver()})); err != nil || !strings.Contains(b.String(), "no GPU that can load them") {
		t.Errorf("%q, %v", b.String(), err)
	}
}
