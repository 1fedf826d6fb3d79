package cuda

import (
	"errors"
	"fmt"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

var (
	_ gpu.Driver    = (*Driver)(nil)
	_ gpu.Device    = (*Device)(nil)
	_ gpu.Monitor   = (*Device)(nil)
	_ gpu.Launcher  = (*Device)(nil)
	_ gpu.Inspector = (*Device)(nil)
	_ gpu.Buffer    = (*Buffer)(nil)
	_ gpu.Memory    = (*Memory)(nil)
	_ gpu.Engine    = (*Engine)(nil)
	_ gpu.Queue     = (*Queue)(nil)
)

func TestModuleVersion(t *testing.T) {
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (root@x)  Tue\nGCC version: 13": "580.159.04",
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024\nGCC version:  gcc":        "470.256.02",
		"": "", "something else 1.2.3": "",
	} {
		if got := moduleVersion(text); got != want {
			t.Errorf("moduleVersion(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestParseEngine(t *testing.T) {
	known := []string{"ce", "sm", "bulk", "proxy"}
	for name, want := range map[string]string{
		"": "ce 0", "auto": "ce 0", "ce": "ce 0", "ce:1": "ce 0", "ce:2": "ce 2", "ce:8": "ce 8", "sm": "sm 0", "sm:8": "sm 8", "bulk:132": "bulk 132", "proxy:16": "proxy 16",
	} {
		base, limit, err := parseEngine(name, known)
		if got := fmt.Sprint(base, " ", limit); err != nil || got != want {
			t.Errorf("parseEngine(%q) = %s, %v; want %s", name, got, err, want)
		}
	}
	for _, name := range []string{"warp", "proxy:", "sm:", "sm:0", "sm:-1", "sm:x", "sm:65536", "ce:0", "ce:9", "ce:x", ":4", "SM"} {
		if _, _, err := parseEngine(name, known); !errors.Is(err, gpu.ErrUnsupported) {
			t.Errorf("parseEngine(%q): %v", name, err)
		}
	}
	_, _, err := parseEngine("ce:9", known)
	reports(t, err, "ce:9", "ce takes a number of streams, 1 to 8", "of thread blocks, like sm:8")
	if _, _, err := parseEngine("bulk", known[:2]); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("bulk where there is none: %v", err)
	}
}

func TestFormatUUID(t *testing.T) {
	var b [16]byte
	for i := range b {
		b[i] = byte(i * 16)
	}
	if got := formatUUID(b); got != fakeUUID0 {
		t.Error(got)
	}
}

func TestNUMANodeOfNothing(t *testing.T) {
	if n := numaNode("ffff:ff:1f.7"); n != -1 {
		t.Error(n)
	}
}

func TestNVLinkName(t *testing.T) {
	for arch, want := range map[string]string{
		"sm_70": "NVLink 2", "sm_86": "NVLink 3", "sm_90": "NVLink 4", "sm_100": "NVLink 5", "sm_103": "NVLink 5", "sm_130": "NVLink",
	} {
		if got := nvlinkName(arch); got != want {
			t.Errorf("%s: %s, want %s", arch, got, want)
		}
	}
}
