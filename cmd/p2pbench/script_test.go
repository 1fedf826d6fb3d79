package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs/verbstest"
)

// TestScripts runs testdata/script. In addition to testscript's commands a script has
//
//	exits CODE ARGS…               runs p2pbench; its exit code is CODE and no process of it is left
//	refuses REGEXP ARGS…           the same with CODE 2, nothing on stdout, and one line on stderr that matches
//	json FILE PATH OP [VALUE]      looks into a JSON file or stdout; see query
//	sizes SIZE…                    stdout of the last command has these words, in this order, at the start of lines
//	alone                          no process of this script is running
//	line                           stderr of the last command is one line that begins with "p2pbench: "
//	same A B LIST KEY…             two JSON files have equal values of the keys throughout a list
//	ratios FILE                    every ratio in a result is the baseline's p50 over the cell's
//	only DIR NAME…                 the directory holds these files and no other, hidden ones included
//	for-each-format FILE           a run and what is rendered from its --out look the same in every format
//	runs DIR COUNT [KEY=VALUE…]    writes run files; see scriptRuns
//	cut-off FILE                   render refuses every beginning of a result that is not all of it
//
// $GATE is ci/gate. $FAKEVERBS is a fake libibverbs with two devices, for P2PBENCH_LIBIBVERBS.
func TestScripts(t *testing.T) {
	verbs := verbstest.Build(t)
	gate, err := filepath.Abs("../../ci/gate")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(e *testscript.Env) error {
			e.Setenv(tagVariable, newTag())
			e.Setenv("FAKEVERBS", verbs)
			e.Setenv("GATE", gate)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": scriptExits, "refuses": scriptRefuses, "json": scriptJSON, "sizes": scriptSizes, "alone": scriptAlone,
			"line": scriptLine, "same": scriptSame, "ratios": scriptRatios, "only": scriptOnly,
			"for-each-format": scriptFormats, "cut-off": scriptCutOff, "runs": scriptRuns,
		},
		Condition: func(name string) (bool, error) {
			if name == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("no condition %q", name)
		},
		RequireUniqueNames: true,
	})
}

func scriptExits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 1 {
		ts.Fatalf("usage: exits CODE ARGS…")
	}
	code := 0
	if err := ts.Exec("p2pbench", args[1:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
	scriptAlone(ts, false, nil)
}

func scriptRefuses(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 1 {
		ts.Fatalf("usage: refuses REGEXP ARGS…")
	}
	scriptExits(ts, false, append([]string{"2"}, args[1:]...))
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("stdout is not empty: %q", out)
	}
	text, err := complaint(ts.ReadFile("stderr"))
	ts.Check(err)
	if !regexp.MustCompile(args[0]).MatchString(text) {
		ts.Fatalf("%q does not match %q", text, args[0])
	}
}

func scriptLine(ts *testscript.TestScript, _ bool, _ []string) {
	_, err := complaint(ts.ReadFile("stderr"))
	ts.Check(err)
}

func scriptAlone(ts *testscript.TestScript, _ bool, _ []string) {
	if pids := tagged(ts.Getenv(tagVariable)); len(pids) > 0 {
		ts.Fatalf("processes are left: %v", pids)
	}
}

func scriptOnly(ts *testscript.TestScript, _ bool, args []string) {
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, args[1:]) {
		ts.Fatalf("%s holds %q, want %q", args[0], names, args[1:])
	}
}

func scriptFormats(ts *testscript.TestScript, _ bool, args []string) {
	for _, format := range report.Formats {
		ts.Check(ts.Exec("p2pbench", "ipc", "--device", "host", "--sizes", "1,4K", "--vs", "memcpy", "-n", "15",
			"--format", format, "--out", args[0]))
		direct := ts.ReadFile("stdout")
		ts.Check(ts.Exec("p2pbench", "render", args[0], "--format", format))
		if d := cmp.Diff(direct, ts.ReadFile("stdout")); d != "" {
			ts.Fatalf("%s: the run showed (-), render shows (+):\n%s", format, d)
		}
		if len(direct) == 0 {
			ts.Fatalf("%s: nothing was shown", format)
		}
	}
}

func scriptCutOff(ts *testscript.TestScript, _ bool, args []string) {
	whole := strings.TrimSpace(ts.ReadFile(args[0]))
	for _, n := range []int{1, len(whole) / 3, len(whole) / 2, len(whole) - 1} {
		ts.Check(os.WriteFile(ts.MkAbs("cut.json"), []byte(whole[:n]), 0o600))
		scriptRefuses(ts, false, []string{"render: cut.json: .*the file is truncated", "render", "cut.json"})
	}
}

// scriptRatios compares the ratios of a result with the medians of its samples.
func scriptRatios(ts *testscript.TestScript, _ bool, args []string) {
	var doc record.Document
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &doc))
	for _, c := range doc.Cells {
		for _, v := range c.Vs {
			if v.NA != "" {
				continue
			}
			want := median(v.SamplesNS) / median(c.SamplesNS)
			if v.Ratio == nil || math.Abs(*v.Ratio/want-1) > 1e-9 {
				ts.Fatalf("%s %d: ratio %v, medians give %v", c.Op, c.Size, v.Ratio, want)
			}
		}
	}
}

// median is nearest-rank, as docs/measurement.md defines percentiles.
func median(samples []int64) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	return float64(sorted[(len(sorted)+1)/2-1])
}

func scriptSame(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 4 {
		ts.Fatalf("usage: same A B LIST KEY…")
	}
	var lists [2][]map[string]any
	for i, file := range args[:2] {
		var doc map[string]json.RawMessage
		ts.Check(json.Unmarshal([]byte(ts.ReadFile(file)), &doc))
		ts.Check(json.Unmarshal(doc[args[2]], &lists[i]))
	}
	pick := func(list []map[string]any) (out []string) {
		for _, e := range list {
			var parts []string
			for _, k := range args[3:] {
				v, ok := e[k]
				if !ok {
					v = 0.0 // left out when zero
				}
				parts = append(parts, fmt.Sprintf("%s=%v", k, v))
			}
			out = append(out, strings.Join(parts, " "))
		}
		return out
	}
	if d := cmp.Diff(pick(lists[0]), pick(lists[1])); d != "" || len(lists[0]) == 0 {
		ts.Fatalf("%s (-) and %s (+) differ in %s:\n%s", args[0], args[1], args[2], d)
	}
}

func scriptSizes(ts *testscript.TestScript, neg bool, args []string) {
	var found []string
	for line := range strings.SplitSeq(ts.ReadFile("stdout"), "\n") {
		if f := strings.Fields(line); len(f) > 0 {
			found = append(found, f[0])
		}
	}
	i := 0
	for _, word := range found {
		if i < len(args) && word == args[i] {
			i++
		}
	}
	if (i < len(args)) != neg {
		ts.Fatalf("lines begin with %q, looked for %q in this order", found, args)
	}
}

func scriptJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 3 {
		ts.Fatalf("usage: json FILE PATH OP [VALUE]")
	}
	var doc any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &doc))
	err := query(doc, args[1], args[2], args[3:])
	if (err != nil) != neg {
		ts.Fatalf("json %s: %v", strings.Join(args, " "), err)
	}
}

// query compares every value that path selects in doc with a value. A path is keys separated by dots; [3] is an
// element, [*] every element, .len a length. Operators: == != as text, > >= < <= as numbers, exists, absent.
func query(doc any, path, op string, want []string) error {
	values, err := lookUp(doc, regexp.MustCompile(`\[[^]]*\]|[^.[]+`).FindAllString(path, -1))
	if err != nil {
		return err
	}
	if len(values) == 0 {
		return errors.New("[*] of nothing")
	}
	for _, v := range values {
		_, missing := v.(missing)
		switch {
		case op == "absent" && !missing:
			err = fmt.Errorf("there is %v", v)
		case op == "absent":
		case missing:
			err = errors.New("there is no such value")
		case op == "exists":
		case len(want) != 1:
			err = fmt.Errorf("%q: want one value", want)
		default:
			err = compare(v, op, want[0])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// missing is the value of a path that selects nothing.
type missing struct{}

// lookUp returns the values that path selects, one per element for [*].
func lookUp(v any, path []string) ([]any, error) {
	if len(path) == 0 {
		return []any{v}, nil
	}
	step, rest := path[0], path[1:]
	switch x := v.(type) {
	case map[string]any:
		if child, ok := x[step]; ok {
			return lookUp(child, rest)
		}
	case []any:
		if step == "len" {
			return lookUp(float64(len(x)), rest)
		}
		if step == "[*]" {
			var all []any
			for _, e := range x {
				found, err := lookUp(e, rest)
				if err != nil {
					return nil, err
				}
				all = append(all, found...)
			}
			return all, nil
		}
		i, err := strconv.Atoi(strings.Trim(step, "[]"))
		if err != nil {
			return nil, fmt.Errorf("%s: not an index", step)
		}
		if i < len(x) {
			return lookUp(x[i], rest)
		}
	}
	return []any{missing{}}, nil
}

func compare(v any, op, want string) error {
	text := fmt.Sprint(v)
	if f, ok := v.(float64); ok {
		text = strconv.FormatFloat(f, 'f', -1, 64)
	}
	ok := false
	switch op {
	case "==":
		ok = text == want
	case "!=":
		ok = text != want
	default:
		f, isNumber := v.(float64)
		w, err := strconv.ParseFloat(want, 64)
		if !isNumber || err != nil {
			return fmt.Errorf("%v %s %s: not numbers", v, op, want)
		}
		ok = map[string]bool{">": f > w, ">=": f >= w, "<": f < w, "<=": f <= w}[op]
	}
	if !ok {
		return fmt.Errorf("%s, want %s %s", text, op, want)
	}
	return nil
}
