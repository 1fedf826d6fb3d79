package abi

import (
	"os"
	"path/filepath"
	"testing"
)

// The processor's counter is used only if it is the operating system's clock source. Whether it is usable depends on
// the processor, which is the same for both names.
func TestClockSource(t *testing.T) {
	reads := map[string]bool{}
	for _, source := range []string{"tsc\n", "arch_sys_counter\n", "hpet\n", "acpi_pm\n", "kvm-clock\n", "tsc-early\n", ""} {
		path := filepath.Join(t.TempDir(), "current_clocksource")
		if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		k := newClock(path)
		reads[source] = k.tsc == 1

	}
	if reads["tsc\n"] != reads["arch_sys_counter\n"] {
		t.Errorf("the counter is read: %v", reads)
	}
	for _, source := range []string{"hpet\n", "acpi_pm\n", "kvm-clock\n", "tsc-early\n", ""} {
		if reads[source] {
			t.Errorf("the kernel keeps its time by %q, and the counter is read", source)
		}
	}
	k := newClock(filepath.Join(t.TempDir(), "nothing"))
	if k.tsc == 1 {
		t.Error("a counter for which nobody vouches is read")
	}
}
