package rdma_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs/verbstest"
)

// TestSanitized runs the timed loops, and the fake library, under the address and undefined behaviour sanitizers.
func TestSanitized(t *testing.T) {
	flags := []string{"-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"}
	lib := verbstest.Build(t, flags...)
	driver := filepath.Join(t.TempDir(), "driver")
	args := append([]string{
		"-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I.", "-I../..", "testdata/driver.c", lib, "-o", driver, "-lpthread", "-lm",
	}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc driver.c (libasan and libubsan come with it): %v\n%s", err, out)
	}
	for _, c := range []struct {
		form   string // that fails; "": all of them, and none does
		faults string
	}{
		{"", ""},
		{"", "rnr=300"},
		{"shared", "fake0/bad-rkey=900"},
		{"unshared", "fake1/bad-rkey=900"},
		{"separate immediate", "fake0/drop-imm=400"},
		{"shared by all", "fake0/port-down-after=900"},
		{"pre-granted", "fake1/removed-after=900"},
		{"in memory", "fake0/bad-rkey=900"},
		{"in memory, shared", "fake1/removed-after=900"},
	} {
		t.Run(c.form+" "+c.faults, func(t *testing.T) {
			env, count := verbstest.Log(t)
			cmd := exec.Command(driver)
			if c.form != "" {
				cmd.Args = append(cmd.Args, c.form)
			} else if testing.Short() {
				cmd.Args = append(cmd.Args, "-short")
			}
			cmd.Env = slices.Concat(os.Environ(), env, verbstest.Env(lib, c.faults))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if left, made := count(); len(left) > 0 || made["qp"] == 0 {
				t.Errorf("left %v of %v", left, made)
			}
		})
	}
}
