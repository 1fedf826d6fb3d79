package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/p2pbench/p2pbench/internal/claim"
	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/report/record"
)

func (a *app) renderCommand() *cobra.Command {
	var format string
	var wide bool
	c := &cobra.Command{
		Use: "render FILE", Short: "Show a saved result again, in any format",
		Long: "Render a result that a run, or `p2pbench claims run`, wrote with --out. FILE - reads standard input.\n" +
			"Of claims there are the formats " + strings.Join(claim.Formats, ", ") + ".",
		Example: "  p2pbench render run.json --format md",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usagef("render: name one result file, as written by --out (- reads standard input)")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if !slices.Contains(report.Formats, format) {
				return usagef("--format %s: use one of %s", format, strings.Join(report.Formats, ", "))
			}
			return render(a.stdout, args[0], format, wide)
		},
	}
	c.Flags().StringVar(&format, "format", "table", strings.Join(report.Formats, ", "))
	c.Flags().BoolVar(&wide, "wide", false, "all columns of the table")
	return c
}

// render shows the result in the file, of a run or of claims.
func render(w io.Writer, path, format string, wide bool) error {
	data, err := readFile(path)
	if err != nil {
		return usagef("render: %s: %w", path, err)
	}
	if !isClaims(data) {
		doc, err := record.Read(bytes.NewReader(data))
		if err != nil {
			return usagef("render: %s: %w", path, err)
		}
		return report.Render(w, doc, format, report.Options{Wide: wide, Tables: claim.Tables})
	}
	doc, err := claim.Read(bytes.NewReader(data))
	if err != nil {
		return usagef("render: %s: %w", path, err)
	}
	if !slices.Contains(claim.Formats, format) {
		return usagef("render: %s: holds claims: --format %s: use one of %s", path, format, strings.Join(claim.Formats, ", "))
	}
	return claim.Render(w, doc, format)
}

// readFile reads the file, or standard input for "-". Its error leaves out the name.
func readFile(path string) ([]byte, error) {
	if path == "-" {
		return record.Load(os.Stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer func() { _ = f.Close() }()
	return record.Load(f)
}

// isClaims tells a document of claims, of whatever version, from that of a run.
func isClaims(data []byte) bool {
	var head struct {
		Schema string `json:"schema"`
	}
	kind, _, _ := strings.Cut(claim.Schema, "/")
	return json.Unmarshal(data, &head) == nil && strings.HasPrefix(head.Schema, kind+"/")
}
