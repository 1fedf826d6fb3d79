package record

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// cell returns a document with one cell that has these keys in addition to those of every cell with samples.
func cell(keys string) string {
	for _, other := range []string{`"ranks": 2`, `"window": 1`, `"iters": 1`} {
		if name, _, _ := strings.Cut(other, ":"); !strings.Contains(keys, name) {
			keys += ", " + other
		}
	}
	return fmt.Sprintf(`{"schema": "p2pbench/1", "cells": [{"op": "latency", "transport": "ipc", %s}]}`, keys)
}

func TestReadRefuses(t *testing.T) {
	const lat = `"lat_us": {"min": 1, "p50": 2, "p90": 3, "p99": 3, "p999": 3, "max": 3, "mean": 2}`
	tests := []struct {
		name, doc, want string
	}{
		{"empty", " \n", "the file is empty: not a p2pbench result"},
		{"not JSON", "size p50\n1K 7.8\n", "line 1 (byte 1): malformed JSON: invalid character 's' looking for beginning of value"},
		{"malformed", "{\"schema\": \"p2pbench/1\",\n\"cells\": [}", "line 2 (byte 36): malformed JSON: invalid character '}' looking for beginning of value"},
		{"truncated", "{\"schema\": \"p2pbench/1\",\n\n\"cells\": [{", "line 3 (byte 37): the file is truncated"},
		{"trailing garbage", "{\"schema\": \"p2pbench/1\"}\n{}", "line 2 (byte 26): malformed JSON: invalid character '{' after top-level value"},
		{"a list", `[]`, "not a p2pbench result: a JSON array, expected an object"},
		{"null", `null`, `no schema: not a p2pbench result (expected "p2pbench/1")`},
		{"no schema", `{"cells": []}`, `no schema: not a p2pbench result (expected "p2pbench/1")`},
		{"schema a number", `{"schema": 1}`, `no schema: not a p2pbench result (expected "p2pbench/1")`},
		{"foreign schema", `{"schema": "fio/1"}`, `foreign schema "fio/1": not a p2pbench result (expected "p2pbench/1")`},
		{"no major", `{"schema": "p2pbench"}`, `foreign schema "p2pbench": not a p2pbench result (expected "p2pbench/1")`},
		{"major 0", `{"schema": "p2pbench/0"}`, `foreign schema "p2pbench/0": not a p2pbench result (expected "p2pbench/1")`},
		{"major not as written", `{"schema": "p2pbench/01"}`, `foreign schema "p2pbench/01": not a p2pbench result (expected "p2pbench/1")`},
		{"line end in a string", "{\n\"schema\": \"p2p\nbench/1\"}", `line 2 (byte 17): malformed JSON: invalid character '\n' in string literal`},
		{
			"newer", `{"schema": "p2pbench/2", "cells": "no longer a list"}`,
			"result was written by a newer p2pbench (schema p2pbench/2); this one reads p2pbench/1: upgrade p2pbench",
		},
		{"wrong type", "{\"schema\": \"p2pbench/1\",\n\"cells\": [\n{\"n\": \"6\"}]}", "line 3 (byte 45): cells.n: a JSON string, expected int"},
		{"negative counter", cell(`"counters": {"opens": -1}`), "line 1 (byte 97): cells.counters: a JSON number -1, expected uint64"},
		{"fractional n", cell(`"n": 1.5`), "line 1 (byte 81): cells.n: a JSON number 1.5, expected int"},
		{"too large a number", cell(`"skew_us": 1e999`), "line 1 (byte 89): cells.skew_us: a JSON number 1e999, expected float64"},
		{"no time", `{"schema": "p2pbench/1", "started": "yesterday"}`, `parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"`},
		{"exit", `{"schema": "p2pbench/1", "exit": 256}`, "exit: 256 is not an exit code"},
		{"no op", `{"schema": "p2pbench/1", "cells": [{}]}`, "cells[0]: op and transport must be named"},
		{"negative n", cell(`"n": -1`), `cells[0] ("ipc" "latency", size 0): n: -1 is not between 0 and 1099511627776`},
		{"absurd n", cell(`"n": 1099511627777`), `cells[0] ("ipc" "latency", size 0): n: 1099511627777 is not between 0 and 1099511627776`},
		{"negative window", cell(`"window": -8`), `cells[0] ("ipc" "latency", size 0): window: -8, want at least 0`},
		{"negative bandwidth", cell(`"bw_GBps_sum": -0.5`), `cells[0] ("ipc" "latency", size 0): bw_GBps_sum: -0.5 is negative`},
		{"negative cold cost", cell(`"cold": {"open_us": -3}`), `cells[0] ("ipc" "latency", size 0): cold.open_us: -3 is negative`},
		{"figures without n", cell(lat), `cells[0] ("ipc" "latency", size 0): n is 0, but lat_us has figures`},
		{"p50 above p90", cell(`"n": 3, "lat_us": {"p50": 2, "p90": 1, "p99": 3, "p999": 3, "max": 3}`), `cells[0] ("ipc" "latency", size 0): lat_us: min, p50, p90, p99, p999 and max are not in ascending order`},
		{"mean outside", cell(`"n": 3, "lat_us": {"min": 1, "p50": 1, "p90": 1, "p99": 1, "p999": 1, "max": 1, "mean": 2}`), `cells[0] ("ipc" "latency", size 0): lat_us: mean is not between min and max`},
		{"a connection of no rank", cell(`"conns": [{"rank": -1}]`), `cells[0] ("ipc" "latency", size 0): conns[0]: rank -1, conn 0: negative`},
		{"a connection out of order", cell(`"conns": [{"p50_us": 2, "p99_us": 1, "max_us": 3}]`), `cells[0] ("ipc" "latency", size 0): conns[0]: p50_us, p99_us and max_us are not in ascending order`},
		{"a connection's negative rate", cell(`"conns": [{"GBps": -1}]`), `cells[0] ("ipc" "latency", size 0): conns[0]: GBps: -1 is negative`},
		{"fairness of nobody", cell(`"jain_fairness": 1`), `cells[0] ("ipc" "latency", size 0): jain_fairness without conns`},
		{"less fair than can be", cell(`"conns": [{}, {}], "jain_fairness": 0.4`), `cells[0] ("ipc" "latency", size 0): jain_fairness: 0.4 is not between 1/2 and 1`},
		{"fairer than fair", cell(`"vs": [{"name": "b", "conns": [{}], "jain_fairness": 1.5}]`), `cells[0] ("ipc" "latency", size 0): vs[0] ("b"): jain_fairness: 1.5 is not between 1/1 and 1`},
		{"fewer samples than n", cell(`"n": 4, ` + lat + `, "samples_ns": [1000, 2000, 3000]`), `cells[0] ("ipc" "latency", size 0): n is 4, but samples_ns has 3`},
		{"samples without n", cell(`"samples_ns": [1]`), `cells[0] ("ipc" "latency", size 0): n is 0, but samples_ns has 1`},
		{"negative sample", cell(`"n": 1, "samples_ns": [-1]`), `cells[0] ("ipc" "latency", size 0): samples_ns[0]: -1 is negative`},
		{"other figures than the samples'", cell(`"n": 3, ` + lat + `, "samples_ns": [1000, 2000, 4000]`), `cells[0] ("ipc" "latency", size 0): lat_us is not the summary of the samples`},
		{"other figures than the histogram's", cell(`"n": 3, ` + lat + `, "histogram_ns": [{"ns": 1000, "count": 2}, {"ns": 3000, "count": 1}]`), `cells[0] ("ipc" "latency", size 0): lat_us is not the summary of the samples`},
		{"samples and histogram", cell(`"n": 1, "samples_ns": [0], "histogram_ns": [{"ns": 0, "count": 1}]`), `cells[0] ("ipc" "latency", size 0): both samples_ns and histogram_ns: want one of them`},
		{"empty bin", cell(`"n": 1, "histogram_ns": [{"ns": 0, "count": 0}]`), `cells[0] ("ipc" "latency", size 0): histogram_ns[0]: values must ascend from 0 and counts be at least 1`},
		{"bins out of order", cell(`"n": 2, "histogram_ns": [{"ns": 5, "count": 1}, {"ns": 5, "count": 1}]`), `cells[0] ("ipc" "latency", size 0): histogram_ns[1]: values must ascend from 0 and counts be at least 1`},
		{"overflowing bins", cell(`"n": 1, "histogram_ns": [{"ns": 1, "count": 9223372036854775807}, {"ns": 2, "count": 9223372036854775807}]`), `cells[0] ("ipc" "latency", size 0): n is 1, but the counts of histogram_ns have another sum`},
		{"nameless baseline", cell(`"vs": [{}]`), `cells[0] ("ipc" "latency", size 0): vs[0] (""): name is missing`},
		{"baseline n/a with samples", cell(`"vs": [{"name": "nccl", "n": 1, "na": "no GPU"}]`), `cells[0] ("ipc" "latency", size 0): vs[0] ("nccl"): has 1 samples, but is n/a ("no GPU")`},
		{"baseline's negative ratio", cell(`"vs": [{"name": "nccl", "ratio": -1}]`), `cells[0] ("ipc" "latency", size 0): vs[0] ("nccl"): ratio: -1 is negative`},
		{"no ranks", cell(`"n": 1, "ranks": 0`), `cells[0] ("ipc" "latency", size 0): ranks: 0, want at least 1`},
		{"no window", cell(`"n": 1, "window": 0`), `cells[0] ("ipc" "latency", size 0): window: 0, want at least 1`},
		{"negative skew", cell(`"skew_us": -1`), `cells[0] ("ipc" "latency", size 0): skew_us: -1 is negative`},
		{"a key twice", "{\"schema\": \"p2pbench/1\",\n\"exit\": 0, \"exit\": 4}", `line 2 (byte 37): duplicate key "exit"`},
		{"a key twice, written otherwise", `{"schema": "p2pbench/1", "exit": 0, "e\u0078it": 4}`, `line 1 (byte 37): duplicate key "exit"`},
		{"a key twice but for its case", cell(`"n": 0, "N": 5`), `line 1 (byte 82): duplicate key "N"`},
		{"a key twice but for the case of a letter that has two", cell(`"skew_us": 0, "\u017fkew_us": 5`), `line 1 (byte 88): duplicate key "ſkew_us"`},
		{"a counter twice", cell(`"counters": {"opens": 1, "opens": 2}`), `line 1 (byte 99): duplicate key "opens"`},
		{"a terminal's escapes", `{"schema": "p2pbench/1", "cells": [{"op": "\u001b[2J", "transport": "\u202e", "n": -1}]}`, `cells[0] ("\u202e" "\x1b[2J", size 0): n: -1 is not between 0 and 1099511627776`},
		{"baseline's samples", cell(`"vs": [{"name": "nccl", "n": 2, "samples_ns": [0]}]`), `cells[0] ("ipc" "latency", size 0): vs[0] ("nccl"): n is 2, but samples_ns has 1`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Read(strings.NewReader(tt.doc))
			if err == nil {
				t.Fatal("accepted")
			}
			if want := "record: read: " + tt.want; err.Error() != want {
				t.Errorf("\n got %s\nwant %s", err, want)
			}
		})
	}
}

func TestReadAccepts(t *testing.T) {
	for name, doc := range map[string]string{
		"unknown keys":    `{"schema": "p2pbench/1", "mood": {"good": [1]}, "cells": [{"op": "swirl", "transport": "tea", "taste": 3}]}`,
		"nulls":           `{"schema": "p2pbench/1", "command": null, "cells": null, "warnings": null}`,
		"n, no samples":   cell(`"n": 1000`),
		"many in few":     cell(`"n": 1000000000, "msg_rate": 200000000, "lat_us": {"min": 0.005, "p50": 0.005, "p90": 0.005, "p99": 0.005, "p999": 0.005, "max": 0.005, "mean": 0.005}, "histogram_ns": [{"ns": 5, "count": 1000000000}]`),
		"n/a baseline":    cell(`"vs": [{"name": "nccl", "na": "no GPU"}]`),
		"space around it": "\n\n {\"schema\": \"p2pbench/1\"} \n\n",
	} {
		t.Run(name, func(t *testing.T) {
			d, err := Read(strings.NewReader(doc))
			if err != nil {
				t.Fatal(err)
			}
			if d.Cells == nil || d.Command == nil || d.Warnings == nil {
				t.Error("a list is nil")
			}
		})
	}
}

// A document that is truncated at any byte before the final newline is refused.
func TestReadTruncated(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, example().WithoutSamples()); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	for n := range len(whole) - 1 {
		if _, err := Read(bytes.NewReader(whole[:n])); err == nil {
			t.Fatalf("accepted %d of %d bytes", n, len(whole))
		} else if n > 0 && !strings.Contains(err.Error(), "truncated") {
			t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
}

// FuzzRead checks that Read never panics, that its errors have one line, and that accepted documents survive Write and
// Read.
func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := Write(&b, example()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"schema": "p2pbench/1"}`))
	f.Add([]byte(`{"schema": "p2pbench/2"}`))
	f.Add([]byte(`{"schema": "p2pbench/1", "started": "2026-11-20T10:00:00.5+23:59", "cells": [{"op": "", "transport": "\ud800"}]}`))
	f.Add([]byte(cell(`"n": 2, "samples_ns": [1, 2], "counters": {"a": 18446744073709551615}, "knobs": {"\u0000": "\""}, "invalid": ""`)))
	f.Add([]byte(cell(`"n": 3, "histogram_ns": [{"ns": 0, "count": 3}], "vs": [{"name": "a", "ratio": 5e-324}]`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Read(bytes.NewReader(data))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			return
		}
		var b bytes.Buffer
		if err := Write(&b, d); err != nil {
			t.Fatalf("accepted, but cannot be written: %v", err)
		}
		again, err := Read(bytes.NewReader(b.Bytes()))
		if err != nil {
			t.Fatalf("accepted, but not once written: %v\n%s", err, b.Bytes())
		}
		if diff := cmp.Diff(d, again, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}

// Documents without Transports state by a knob that only ratios are meaningful.
func TestReadsCaveatOfEarlierVersions(t *testing.T) {
	for soft, want := range map[string]string{"true": "the CPU emulates the NIC (soft-RoCE)", "false": ""} {
		d, err := Read(strings.NewReader(cell(`"n": 0, "knobs": {"soft": "` + soft + `"}`)))
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Transports[d.Cells[0].Transport].OnlyRatios; got != want {
			t.Errorf("soft %s: %q, want %q", soft, got, want)
		}
	}
}
