package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/p2pbench/p2pbench/internal/claim"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/report/record"
)

func (a *app) renderCommand() *cobra.Command {
	var view viewSettings
	c := &cobra.Command{
		Use: "render FILE", Short: "Print a saved result in any format",
		Long: "Print a result that a path command or `p2pbench claims run` has written with --out. FILE - is standard input.\n" +
			"Results of claims can be printed as " + strings.Join(claim.Formats, ", ") + ".",
		Example: "  p2pbench render run.json --format md",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usagef("render: name one result file, as written by --out (- reads standard input)")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := knob.Check(nil, &view); err != nil {
				return usageError{err}
			}
			knob.Fill(nil, &view)
			return render(a.stdout, args[0], view)
		},
	}
	addFlags(c, &view)
	return c
}

// render renders the result file of a run or of claims.
func render(w io.Writer, path string, view viewSettings) error {
	data, err := readFile(path)
	if err != nil {
		return usagef("render: %s: %w", path, err)
	}
	if !isClaims(data) {
		doc, err := record.Read(bytes.NewReader(data))
		if err != nil {
			return usagef("render: %s: %w", path, err)
		}
		return report.Render(w, doc, view.Format, report.Options{Wide: view.Wide, Tables: claim.Tables})
	}
	doc, err := claim.Read(bytes.NewReader(data))
	if err != nil {
		return usagef("render: %s: %w", path, err)
	}
	if err := knob.Check(nil, &claimsView{view.Format}); err != nil {
		return usagef("render: %s: contains claims: %w", path, err)
	}
	return claim.Render(w, doc, view.Format)
}

// readFile reads the file, or standard input for "-". Its error does not contain the file name.
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

// isClaims reports whether the document holds claims, of any schema version.
func isClaims(data []byte) bool {
	var head struct {
		Schema string `json:"schema"`
	}
	kind, _, _ := strings.Cut(claim.Schema, "/")
	return json.Unmarshal(data, &head) == nil && strings.HasPrefix(head.Schema, kind+"/")
}
