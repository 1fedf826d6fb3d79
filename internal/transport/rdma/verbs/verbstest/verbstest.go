// Package verbstest builds a libibverbs for tests, with two RDMA devices that are none: fake0 and fake1. Their queue
// pairs work between the processes of one machine. testdata/fakeverbs.c says what they can do, and what faults they can
// be asked for.
package verbstest

import (
	"embed"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

//go:embed testdata
var sources embed.FS

// built are the libraries by their flags: compilers are slower than tests.
var built sync.Map

// Build compiles the fake with these flags of the compiler beside the usual ones, once per process, and returns its
// file, which is there until the test ends. Without a compiler the test is skipped.
func Build(t testing.TB, flags ...string) string {
	t.Helper()
	lib, key := filepath.Join(t.TempDir(), "fakeverbs.so"), strings.Join(flags, " ")
	if b, ok := built.Load(key); ok {
		if err := os.WriteFile(lib, b.([]byte), 0o600); err != nil {
			t.Fatal(err)
		}
		return lib
	}
	compile(t, lib, flags)
	b, err := os.ReadFile(lib)
	if err != nil {
		t.Fatal(err)
	}
	built.Store(key, b)
	return lib
}

func compile(t testing.TB, lib string, flags []string) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skipf("the fake library needs a compiler: %v", err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, sources); err != nil {
		t.Fatal(err)
	}
	args := append([]string{
		"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
		filepath.Join(dir, "testdata", "fakeverbs.c"), "-o", lib, "-lpthread",
	}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc fakeverbs.c: %v\n%s", err, out)
	}
}

// Env is the environment of a process that shall use the fake, with faults.
func Env(lib string, faults ...string) []string {
	return []string{"P2PBENCH_LIBIBVERBS=" + lib, "FAKEVERBS_FAULT=" + strings.Join(faults, ",")}
}

// Log is the environment for processes whose objects shall be counted, and a function that says what of these is left:
// how many of each kind, "qp", "cq", "mr", "pd" and "context". made says how many there were in all, and under "rnr"
// how many messages met no receive by the fault of that name.
func Log(t testing.TB) (env []string, count func() (left, made map[string]int)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "log")
	return []string{"FAKEVERBS_LOG=" + file}, func() (left, made map[string]int) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		left, made = map[string]int{}, map[string]int{}
		for line := range strings.Lines(string(text)) {
			kind, _, _ := strings.Cut(line[1:], " ")
			if line[0] == '+' {
				left[kind]++
				made[kind]++
			} else {
				left[kind]--
			}
			if left[kind] == 0 {
				delete(left, kind)
			}
		}
		return left, made
	}
}
