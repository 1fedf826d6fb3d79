package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A shell's variable that is not set must not ask for everything: p2pbench ipc --sizes "$SIZES".
func TestEmptyValues(t *testing.T) {
	texts := 0
	var walk func(c *cobra.Command, path []string)
	walk = func(c *cobra.Command, path []string) {
		for _, sub := range c.Commands() {
			walk(sub, append(path[:len(path):len(path)], sub.Name()))
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "string" || !c.Runnable() || c.Hidden {
				return
			}
			texts++
			for _, empty := range []string{"", " "} {
				args := append(path[:len(path):len(path)], "--"+f.Name+"="+empty)
				if c.Name() == "render" || c.CommandPath() == "p2pbench claims run" {
					args = append(args, "all")
				}
				var stdout, stderr bytes.Buffer
				code := run(args, &stdout, &stderr)
				text, err := complaint(stderr.String())
				if code != exitUsage || stdout.Len() > 0 || err != nil || !strings.HasPrefix(text, "--"+f.Name+": the value is empty") {
					t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, stdout.String(), stderr.String())
				}
			}
		})
	}
	walk((&app{stdout: &standardOutput{}}).root(), nil)
	if texts < 50 {
		t.Errorf("%d flags that take text", texts)
	}
}
