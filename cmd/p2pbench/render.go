package main

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/report/record"
)

func (a *app) renderCommand() *cobra.Command {
	var format string
	var wide bool
	c := &cobra.Command{
		Use: "render FILE", Short: "Show a saved result again, in any format",
		Long:    "Render a result that a run wrote with --out. FILE - reads standard input.",
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
			doc, err := readResult(args[0])
			if err != nil {
				return err
			}
			return report.Render(a.stdout, doc, format, report.Options{Wide: wide})
		},
	}
	c.Flags().StringVar(&format, "format", "table", strings.Join(report.Formats, ", "))
	c.Flags().BoolVar(&wide, "wide", false, "all columns of the table")
	return c
}

func readResult(path string) (record.Document, error) {
	f := os.Stdin
	if path != "-" {
		var err error
		if f, err = os.Open(path); err != nil {
			return record.Document{}, usagef("render: %s: %w", path, errors.Unwrap(err))
		}
		defer func() { _ = f.Close() }()
	}
	doc, err := record.Read(f)
	if err != nil {
		return record.Document{}, usagef("render: %s: %w", path, err)
	}
	return doc, nil
}
