package main

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/p2pbench/p2pbench/internal/claim"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/sweep"
	"github.com/p2pbench/p2pbench/internal/transport/rdma"
	"github.com/p2pbench/p2pbench/internal/verdict"
	"github.com/p2pbench/p2pbench/internal/verdict/view"
)

// eachCommand calls f for every command, with the words that name it.
func eachCommand(f func(c *cobra.Command, words []string)) {
	root := (&app{stdout: &standardOutput{}}).root()
	var walk func(c *cobra.Command, words []string)
	walk = func(c *cobra.Command, words []string) {
		for _, sub := range c.Commands() {
			walk(sub, append(slices.Clone(words), sub.Name()))
		}
		if c.Runnable() && !c.Hidden {
			f(c, words)
		}
	}
	walk(root, nil)
}

// eachPath calls f for every path command with its settings.
func eachPath(t *testing.T, f func(t *testing.T, name string, fs *pflag.FlagSet, settings []any)) {
	t.Helper()
	for _, p := range pathCommands() {
		t.Run(p.name, func(t *testing.T) {
			fs, flags := pflag.NewFlagSet(p.name, pflag.ContinueOnError), p.flags()
			flags.register(fs)
			f(t, p.name, fs, flags.shared().allSettings())
		})
	}
}

func TestEveryFlagIsExplained(t *testing.T) {
	flags := 0
	eachCommand(func(c *cobra.Command, words []string) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			flags++
			group := knob.Group(f)
			known := slices.ContainsFunc(flagGroups, func(g flagGroup) bool { return g.key == group })
			if f.Name != "help" && (f.Usage == "" || !known && !f.Hidden) {
				t.Errorf("%s --%s: help %q, group %q", strings.Join(words, " "), f.Name, f.Usage, group)
			}
		})
	})
	if flags < 100 {
		t.Errorf("%d flags", flags)
	}
}

func TestEveryWordIsTaken(t *testing.T) {
	eachPath(t, func(t *testing.T, _ string, fs *pflag.FlagSet, settings []any) {
		for _, f := range knob.Fields(settings...) {
			for _, word := range f.Values {
				if err := fs.Set(f.Name, word); err != nil {
					t.Errorf("--%s %s: %v", f.Name, word, err)
				}
			}
		}
	})
}

// --format accepts the formats of package report.
func TestFormats(t *testing.T) {
	if got := knob.Words(&viewSettings{}, "format"); !slices.Equal(got, report.Formats) {
		t.Errorf("results: %v, want %v", got, report.Formats)
	}
	if got := knob.Words(&claimsView{}, "format"); !slices.Equal(got, claim.Formats) {
		t.Errorf("claims: %v, want %v", got, claim.Formats)
	}
	if got := knob.Words(&verdictView{}, "format"); !slices.Equal(got, view.Formats) {
		t.Errorf("comparisons: %v, want %v", got, view.Formats)
	}
	if got := knob.Words(&calibrationView{}, "format"); !slices.Equal(got, view.CalibrationFormats) {
		t.Errorf("calibrations: %v, want %v", got, view.CalibrationFormats)
	}
	if got := knob.Words(&judgeSettings{}, "metric"); !slices.Equal(got, verdict.Metrics) {
		t.Errorf("metrics: %v, want %v", got, verdict.Metrics)
	}
}

// An empty value, as from an unset shell variable in p2pbench ipc --sizes "$SIZES", must not select the default.
func TestEmptyValues(t *testing.T) {
	texts := 0
	eachCommand(func(c *cobra.Command, words []string) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "bool" {
				return
			}
			texts++
			for _, empty := range []string{"", " "} {
				args := append(slices.Clone(words), "--"+f.Name+"="+empty)
				if text := refusal(t, args); !strings.HasPrefix(text, "--"+f.Name+": the value is empty: ") {
					t.Errorf("%q: %s", args, text)
				}
			}
		})
	})
	if texts < 100 {
		t.Errorf("%d flags that take a value", texts)
	}
}

// refusal runs a command in this process, which must refuse it before anything starts, and returns the error.
func refusal(t *testing.T, args []string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(args, &stdout, &stderr)
	text, err := complaint(stderr.String())
	if code != exitUsage || stdout.Len() > 0 || err != nil {
		t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, stdout.String(), stderr.String())
	}
	return text
}

// A setting whose condition does not hold is refused by both plan and run.
func TestSettingsThatWouldDoNothing(t *testing.T) {
	conditions := 0
	eachPath(t, func(t *testing.T, name string, _ *pflag.FlagSet, settings []any) {
		fields := knob.Fields(settings...)
		for _, f := range fields {
			for i := range f.Of {
				conditions++
				args := append([]string{name, "--device", "host", "--sizes", "8"}, misplaced(t, fields, f, i)...)
				ran := refusal(t, args)
				if planned := refusal(t, append([]string{"plan"}, args...)); planned != ran {
					t.Errorf("%q: the plan says %q, the run %q", args, planned, ran)
				}
				if !strings.HasPrefix(ran, "--"+f.Name) || !strings.Contains(ran, "--"+f.Of[i].Name) {
					t.Errorf("%q: %q does not name --%s and --%s", args, ran, f.Name, f.Of[i].Name)
				}
			}
		}
	})
	if conditions < 30 {
		t.Errorf("%d conditions", conditions)
	}
}

// misplaced returns flags that set the field so that its condition i does not hold and all others do.
func misplaced(t *testing.T, fields []knob.Field, f knob.Field, i int) []string {
	t.Helper()
	var args []string
	for k, c := range f.Of {
		at := slices.IndexFunc(fields, func(f knob.Field) bool { return f.Name == c.Name })
		if at < 0 {
			t.Fatalf("--%s belongs to --%s, which there is not", f.Name, c.Name)
		}
		if c.Values == nil || k != i && slices.Contains(c.Values, fields[at].Default) != c.Not {
			continue // by omitting the flag
		}
		args = append(args, flag(c.Name, valueFor(t, fields[at], c, k != i))...)
	}
	return append(args, flag(f.Name, sample(f))...)
}

func flag(name, value string) []string {
	if value == "true" {
		return []string{"--" + name}
	}
	return []string{"--" + name, value}
}

// valueFor returns a value of the condition's setting for which the condition holds or does not hold.
func valueFor(t *testing.T, f knob.Field, c knob.Condition, holds bool) string {
	t.Helper()
	if c.Not != holds {
		return c.Values[0]
	}
	for _, word := range append(slices.Clone(f.Values), "cpu") { // an engine of CPU memory
		if word != "auto" && !slices.Contains(c.Values, word) {
			return word
		}
	}
	t.Fatalf("no value of --%s but %v", c.Name, c.Values)
	return ""
}

// sample returns a valid value of the setting.
func sample(f knob.Field) string {
	switch {
	case len(f.Values) > 0:
		return f.Values[0]
	case f.Default != "":
		return f.Default
	}
	for _, value := range []string{"true", "1", "4K", "1s"} {
		if f.Set(value) == nil {
			return value
		}
	}
	return "a"
}

// The bounds of flags equal those of the packages that use them.
func TestBoundsOfFlags(t *testing.T) {
	for _, c := range []struct {
		path, flag string
		most       int
	}{
		{"ipc", "window", sweep.MaxWindow},
		{"sendrecv", "window", sweep.MaxWindow},
		{"sendrecv", "cudagraph", sweep.MaxWindow},
		{"rdma", "window", rdma.Requests},
		{"rdma", "burst", rdma.MaxBurst},
	} {
		f, _ := pathNamed(c.path)
		fs := pflag.NewFlagSet(c.path, pflag.ContinueOnError)
		f.register(fs)
		if err := fs.Set(c.flag, strconv.Itoa(c.most)); err != nil {
			t.Errorf("%s --%s %d: %v", c.path, c.flag, c.most, err)
		}
		if err := fs.Set(c.flag, strconv.Itoa(c.most+1)); err == nil {
			t.Errorf("%s --%s %d is taken", c.path, c.flag, c.most+1)
		}
	}
}

// Presets use the format in which flags print values, because a user's flag is compared with it.
func TestPresetsAreWrittenAsFlagsPrint(t *testing.T) {
	for _, p := range claim.Presets() {
		for _, onGPU := range []bool{true, false} {
			f, _ := pathNamed(p.Path)
			fs := pflag.NewFlagSet(p.Path, pflag.ContinueOnError)
			f.register(fs)
			for _, s := range p.On(onGPU) {
				if err := fs.Set(s.Name, s.Value); err != nil || fs.Lookup(s.Name).Value.String() != s.Value {
					t.Errorf("%s: --%s %s: %v, printed as %s", p.Name, s.Name, s.Value, err, fs.Lookup(s.Name).Value)
				}
			}
		}
	}
}
