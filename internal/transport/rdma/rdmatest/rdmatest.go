// Package rdmatest runs tests where there is the fake libibverbs of verbstest and no other RDMA, or where there is real
// RDMA.
package rdmatest

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs/verbstest"
)

// child names the test whose body a process shall run.
const child = "P2PBENCH_TEST_CHILD"

// OnFake runs body in another process with the fake library, with faults: libraries are loaded once per process. All
// objects of the fake's that body makes must be gone at its end.
func OnFake(t *testing.T, faults string, body func(t *testing.T)) {
	t.Helper()
	if os.Getenv(child) == t.Name() {
		body(t)
		return
	}
	env, count := verbstest.Log(t)
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"
	cmd := exec.Command("/proc/self/exe", "-test.run="+pattern, "-test.v", "-test.timeout=5m", fmt.Sprint("-test.short=", testing.Short()))
	cmd.Env = slices.Concat(os.Environ(), verbstest.Env(verbstest.Build(t), faults), env, []string{child + "=" + t.Name()})
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Errorf("it did not run:\n%s", out)
	}
	if left, _ := count(); len(left) > 0 {
		t.Errorf("left: %v\n%s", left, out)
	}
}

// Required reports whether the environment variable P2PBENCH_REQUIRE, a list such as "cuda,rdma", names what: then it
// must be there.
func Required(what string) bool {
	return slices.Contains(strings.Split(os.Getenv("P2PBENCH_REQUIRE"), ","), what)
}

// Ports are the ports of RDMA devices that are up and have an address, as Options.NICs has them. Without one the test
// is skipped, or fails where rdma is required.
func Ports(t *testing.T) []string {
	t.Helper()
	var names []string
	devices, err := verbs.Devices()
	for _, d := range devices {
		for _, p := range d.Ports {
			if p.State == "ACTIVE" && len(p.GIDs) > 0 {
				names = append(names, fmt.Sprintf("%s:%d", d.Name, p.Number))
			}
		}
	}
	if len(names) > 0 {
		return names
	}
	why := fmt.Sprintf("needs an RDMA device whose port is up and has an address (%v)", err)
	if Required("rdma") {
		t.Fatal(why)
	}
	t.Skip(why)
	return nil
}
