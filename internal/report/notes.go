package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/stats"
)

// Notes collects the footnotes of a document. Equal texts share a number.
type Notes struct {
	texts []string  // cleaned; the number of a footnote is its index + 1
	stars []float64 // percentiles shown as max*
}

// Ref returns the reference to a footnote, such as [1], and adds the footnote if it is new.
func (n *Notes) Ref(text string) string {
	text = Clean(text)
	i := slices.Index(n.texts, text)
	if i < 0 {
		i = len(n.texts)
		n.texts = append(n.texts, text)
	}
	return fmt.Sprintf("[%d]", i+1)
}

// addStars records the percentiles with a star among the columns that are shown.
func (n *Notes) addStars(cols []Column) {
	for _, c := range cols {
		if c.short > 0 && !slices.Contains(n.stars, c.short) {
			n.stars = append(n.stars, c.short)
		}
	}
}

// starLines returns the explanation of the stars.
func (n *Notes) starLines() []string {
	var lines []string
	for _, p := range slices.Sorted(slices.Values(n.stars)) {
		lines = append(lines, fmt.Sprintf("p%v of fewer than %d samples is the maximum", p, stats.MinSamples(p)))
	}
	return lines
}

// Of returns the last column of a cell's row: a word if the figures are invalid, then references to its footnotes, most
// severe first.
func (n *Notes) Of(c record.Cell) string {
	var words, refs []string
	add := func(text string) {
		if ref := n.Ref(text); !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	if c.Verified != nil && !*c.Verified {
		words = append(words, "corrupt")
		add("corrupt: the received payload differs from the payload sent")
	}
	if c.Invalid != nil {
		words = append(words, "invalid")
		add("invalid: " + *c.Invalid)
	}
	if c.N == 0 && c.Invalid == nil {
		add("no samples were taken")
	}
	if c.Verified == nil {
		add("the payload was not checked")
	}
	for _, text := range c.Warnings {
		add(text)
	}
	for _, v := range c.Vs {
		switch {
		case v.NA != "":
			add(v.Name + " n/a: " + v.NA)
		case v.Verified != nil && !*v.Verified:
			add(v.Name + ": the received payload differs from the payload sent")
		case v.Verified == nil && c.Verified != nil:
			add(v.Name + ": the payload was not checked")
		}
	}
	return strings.Join(append(words, refs...), " ")
}
