package archtest

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the stamps of shared headers instead of comparing them")

var (
	includeLine = regexp.MustCompile(`(?m)^\s*#include "([^"]+)"`)
	stampFlags  = regexp.MustCompile(`(?m)^#cgo CFLAGS: -I\$\{SRCDIR\}/([./]+) -DP2P_SHARED_HEADERS=0x([0-9a-f]+)$`)
)

// TestHeaderStamps checks for every package with C that the stamp in its cgo flags is the hash of the headers that it
// includes from other packages. Go hashes a package's flags but not headers outside its folder: without the stamp it
// would not rebuild the package when such a header changes.
func TestHeaderStamps(t *testing.T) {
	stamped := 0
	for _, dir := range cgoPackages {
		headers := sharedHeaders(t, dir)
		if len(headers) == 0 {
			continue
		}
		stamped++
		want := fmt.Sprintf("#cgo CFLAGS: -I${SRCDIR}/%s -DP2P_SHARED_HEADERS=0x%s",
			strings.Repeat("../", strings.Count(dir, "/")-1)+"..", stamp(t, headers))
		file, line := stampOf(t, dir)
		switch {
		case file == "":
			t.Errorf("%s includes %s: its cgo comment needs the line\n%s", dir, strings.Join(headers, ", "), want)
		case line != want && *update:
			text := strings.Replace(string(read(t, file)), line, want, 1)
			if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil { //nolint:gosec // a source file
				t.Fatal(err)
			}
		case line != want:
			t.Errorf("%s: a header that %s includes has changed: run scripts/stamp-headers", file, dir)
		}
	}
	if stamped == 0 {
		t.Error("found no package that includes a header of another package")
	}
}

// sharedHeaders returns the headers outside dir that its C files include, directly or indirectly.
func sharedHeaders(t *testing.T, dir string) []string {
	t.Helper()
	found := map[string]bool{}
	var visit func(path string)
	visit = func(path string) {
		for _, m := range includeLine.FindAllSubmatch(read(t, path), -1) {
			// In the compiler's order: the folder of the including file, then internal.
			header := filepath.Join(filepath.Dir(path), string(m[1]))
			if _, err := os.Stat(filepath.Join(root, header)); err != nil {
				header = filepath.Join("internal", string(m[1]))
			}
			if filepath.Dir(header) == dir || found[header] {
				continue
			}
			found[header] = true
			visit(header)
		}
	}
	err := fs.WalkDir(os.DirFS(root), dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir:
			return fs.SkipDir
		case slices.Contains([]string{".c", ".h", ".go"}, filepath.Ext(path)):
			visit(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(found))
}

// stamp returns the first digits of the SHA-256 of the headers' names and contents.
func stamp(t *testing.T, headers []string) string {
	t.Helper()
	h := sha256.New()
	for _, name := range headers {
		text := read(t, name)
		fmt.Fprintf(h, "%s %d\n", name, len(text))
		h.Write(text)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:4])
}

// stampOf returns the file of a package that has the stamp, and the line; empty if there is none.
func stampOf(t *testing.T, dir string) (file, line string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		rel, err := filepath.Rel(root, name)
		if err != nil {
			t.Fatal(err)
		}
		if m := stampFlags.Find(read(t, rel)); m != nil {
			return rel, string(m)
		}
	}
	return "", ""
}
