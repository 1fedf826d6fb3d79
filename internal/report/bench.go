package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// renderBench writes the Go benchmark format (golang.org/design/14313-benchmark-format): one line a cell, its median
// as ns/op, so that benchstat can compare files. A line is one run: give benchstat several.
func renderBench(w io.Writer, d record.Document, _ Options) error {
	fmt.Fprintf(w, "goos: linux\ngoarch: %s\ncpu: %s\np2pbench: %s\n", d.Env.Arch, d.Env.CPU.Model, d.Version)
	if d.Env.Driver != "" {
		fmt.Fprintf(w, "driver: %s\n", d.Env.Driver)
	}
	for _, c := range d.Cells {
		name := fmt.Sprintf("Benchmark%s/path=%s/engine=%s/device=%s/op=%s/size=%d/window=%d-%d", capital(c.Transport), c.Path,
			c.Engine, c.Device, c.Op, c.Size, c.Window, c.Ranks)
		fmt.Fprintf(w, "%s %d %s ns/op %s p99-ns %s max-ns", strings.ReplaceAll(name, " ", "_"), c.N, full(c.Lat.P50*1e3),
			full(c.Lat.P99*1e3), full(c.Lat.Max*1e3))
		if c.BWPerDir != nil {
			fmt.Fprintf(w, " %s MB/s", full(*c.BWPerDir*1e3))
		}
		fmt.Fprintln(w)
	}
	return nil
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
