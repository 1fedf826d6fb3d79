package host

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestSanitized exchanges messages between two ranks with every kernel, one-shot and resident, under ThreadSanitizer,
// which finds unordered accesses to a byte or a counter.
func TestSanitized(t *testing.T) {
	driver := filepath.Join(t.TempDir(), "exchange")
	args := []string{
		"-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=thread", "-I../..", "-I.",
		"testdata/exchange.c", "kernels.c", "pool.c", "queue.c", "-o", driver, "-lpthread",
	}
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc exchange.c (libtsan comes with it): %v\n%s", err, out)
	}
	out, err := sanitized(driver)
	if bytes.Contains(out, []byte("unexpected memory mapping")) { // more address bits are randomised than libtsan supports
		out, err = sanitized("setarch", "--addr-no-randomize", driver)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func sanitized(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "TSAN_OPTIONS=halt_on_error=1")
	return cmd.CombinedOutput()
}
