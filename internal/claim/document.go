package claim

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// Schema is the version of [Document]; docs/json.md describes it.
const Schema = "p2pbench-claims/1"

// Document is the result of `p2pbench claims run`.
type Document struct {
	Schema   string      `json:"schema"`
	Version  string      `json:"version"` // of p2pbench
	Started  time.Time   `json:"started"`
	Command  []string    `json:"command"`
	Env      *record.Env `json:"env"` // of the first run with figures; null: none
	Claims   []Result    `json:"claims"`
	Warnings []string    `json:"warnings"`
	Exit     int         `json:"exit"`
}

// Result is a claim with its verdict.
type Result struct {
	ID        string    `json:"id"`
	Title     string    `json:"title"`
	Source    string    `json:"source"`
	Published string    `json:"published"`
	Differs   string    `json:"differs"`
	Verdict   Verdict   `json:"verdict"`
	Why       string    `json:"why"`
	Caveat    string    `json:"caveat"` // why the verdict does not cover the claim
	Tests     []Outcome `json:"tests"`
}

// onCPUMemory is the caveat of a claim about GPUs that was measured in CPU memory.
const onCPUMemory = "measured in CPU memory; the claim is about GPUs, for which this proves nothing"

// Conclude makes the claim's result from the outcomes of its tests. gpu says whether they ran on GPUs.
func (c Claim) Conclude(tests []Outcome, gpu bool) Result {
	r := Result{
		ID: c.ID, Title: c.Title, Source: c.Source, Published: c.Published,
		Differs: strings.TrimSpace(c.Differs), Tests: append([]Outcome{}, tests...),
	}
	var verdicts []Verdict
	for _, o := range tests {
		verdicts = append(verdicts, o.Verdict)
	}
	r.Verdict = worst(verdicts)
	for _, o := range tests {
		if o.Verdict == r.Verdict {
			r.Why = o.Why
			if o.Name != "" && len(tests) > 1 {
				r.Why = o.Name + ": " + o.Why
			}
			break
		}
	}
	if c.GPUs && !gpu && r.Verdict != NotMeasurable {
		r.Caveat = onCPUMemory
	}
	return r
}

// Measured reports whether any claim has figures or a verdict.
func (d Document) Measured() bool {
	return slices.ContainsFunc(d.Claims, func(r Result) bool {
		return r.Verdict != NotMeasurable || slices.ContainsFunc(r.Tests, func(o Outcome) bool { return len(o.Cells) > 0 })
	})
}

// Count returns the number of claims with that verdict.
func (d Document) Count(v Verdict) int {
	n := 0
	for _, c := range d.Claims {
		if c.Verdict == v {
			n++
		}
	}
	return n
}

// WithoutSamples returns a copy of the document without raw samples.
func (d Document) WithoutSamples() Document {
	claims := make([]Result, len(d.Claims))
	for i, c := range d.Claims {
		tests := make([]Outcome, len(c.Tests))
		for j, o := range c.Tests {
			o.Cells = record.Document{Cells: o.Cells}.WithoutSamples().Cells
			tests[j] = o
		}
		c.Tests = tests
		claims[i] = c
	}
	d.Claims = claims
	return d
}

// Write writes the document as JSON, in the layout of [record.Write].
func Write(w io.Writer, d Document) error { return record.Encode(w, d) }

// Read reads a document. Like [record.Read] it returns a one-line error for another schema and for inconsistent cells.
func Read(r io.Reader) (Document, error) {
	data, err := record.Load(r)
	if err != nil {
		return Document{}, err
	}
	var d Document
	if err := record.Decode(data, Schema, &d); err != nil {
		return Document{}, err
	}
	for i, c := range d.Claims {
		for j, o := range c.Tests {
			if err := record.CheckCells(o.Cells); err != nil {
				return Document{}, fmt.Errorf("record: read: claims[%d].tests[%d]: %w", i, j, err)
			}
			if o.OnlyRatios == "" {
				c.Tests[j].OnlyRatios = record.OnlyRatios(o.Cells)
			}
		}
	}
	return d, nil
}
