package archtest

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/p2pbench/p2pbench/"
)

// floor lists the packages of this module that packages at or below a path may import. The longest matching path
// counts.
type floor struct {
	path    string
	imports []string // "p": the package p, "p/...": p and everything below
	tests   []string // additional imports of _test.go files
}

var (
	device    = []string{"internal/gpu", "internal/gpu/abi", "internal/gpu/autotune", "internal/gpu/dynlib"}
	anyDevice = []string{"internal/gpu/..."}
	anyPath   = []string{"internal/gpu/...", "internal/transport/..."}
)

var floors = []floor{
	{path: "cmd/p2pbench", imports: []string{"internal/..."}},
	{path: "internal/archtest"},
	{path: "internal/cgroup"},
	{path: "internal/rlimit"},
	{path: "internal/knob"},
	{path: "internal/report", imports: []string{"internal/report/..."}},
	{path: "internal/verdict", imports: []string{"internal/report/record"}, tests: []string{"internal/report/..."}},
	{path: "internal/verdict/view", imports: []string{"internal/verdict", "internal/report", "internal/report/record"}, tests: []string{"internal/report/..."}},
	{path: "internal/claim", imports: []string{"internal/report", "internal/report/record"}, tests: []string{"internal/report/..."}},
	{
		path:    "internal/sweep",
		imports: []string{"internal/sweep/...", "internal/knob", "internal/transport", "internal/gpu", "internal/gpu/abi", "internal/report/record", "internal/cgroup"},
		tests:   anyPath,
	},
	{path: "internal/transport", imports: append([]string{"internal/knob", "internal/transport", "internal/transport/loop", "internal/transport/rendezvous"}, device...), tests: anyPath},
	{path: "internal/transport/ipc/lru/lrutest"},
	{path: "internal/transport/ipc/ring/ringtest"},
	{
		path:    "internal/transport/rdma",
		imports: append([]string{"internal/knob", "internal/transport", "internal/transport/loop", "internal/transport/rendezvous", "internal/transport/rdma/..."}, device...),
		tests:   anyPath,
	},
	{path: "internal/transport/rdma/pool"},
	{path: "internal/transport/rdma/verbs", imports: []string{"internal/gpu", "internal/gpu/abi", "internal/gpu/dynlib"}, tests: anyPath},
	// The suite uses real devices and runs ranks as processes.
	{path: "internal/transport/transporttest", imports: append([]string{"internal/sweep/worker"}, anyPath...)},
	// It runs the transport from the plan to the views.
	{
		path:    "internal/transport/transporttest/dummy",
		imports: []string{"internal/transport", "internal/gpu", "internal/gpu/abi"},
		tests:   append([]string{"internal/sweep/...", "internal/report/..."}, anyPath...),
	},
	{path: "internal/gpu", imports: []string{"internal/gpu/abi"}, tests: anyDevice},
	{path: "internal/gpu/abi"},
	{path: "internal/gpu/abi/abitest", imports: []string{"internal/gpu/abi"}},
	{path: "internal/gpu/kernel", imports: []string{"internal/gpu"}, tests: anyDevice},
	{path: "internal/gpu/cuda", imports: append([]string{"internal/gpu/kernel"}, device...), tests: anyDevice},
	{path: "internal/gpu/hip", imports: append([]string{"internal/gpu/kernel"}, device...), tests: anyDevice},
	{path: "internal/gpu/host", imports: append([]string{"internal/cgroup"}, device...), tests: anyDevice},
	{path: "internal/gpu/fault", imports: device, tests: anyDevice},
	{path: "internal/gpu/autotune", imports: device, tests: anyDevice},
	{path: "internal/gpu/dynlib", imports: []string{"internal/gpu"}, tests: anyDevice},
}

// cgoPackages may contain C; all other packages are pure Go.
var cgoPackages = []string{
	"internal/gpu/abi", "internal/gpu/host", "internal/gpu/cuda", "internal/gpu/fault", "internal/gpu/autotune", "internal/gpu/dynlib",
	"internal/gpu/cuda/enginetest", "internal/gpu/autotune/autotunetest", "internal/gpu/host/queuetest", "internal/transport/loop/looptest", "internal/transport/sendrecv/protocoltest", // for tests
	"internal/gpu/abi/abitest", "internal/transport/ipc/lru/lrutest", "internal/transport/ipc/ring/ringtest", // for tests
	"internal/transport/loop", "internal/transport/ipc",
	"internal/transport/memcpy", "internal/transport/nccl", "internal/transport/sendrecv",
	"internal/transport/rdma", "internal/transport/rdma/verbs",
	"internal/rlimit", // checks before Go's runtime starts
}

// maxLines is the maximum length of a file.
const maxLines = 700

func TestFloors(t *testing.T) {
	eachGoFile(t, func(t *testing.T, path string, file *ast.File) {
		f := floorOf(filepath.ToSlash(filepath.Dir(path)))
		if f == nil {
			t.Errorf("%s: no floor for this package: add it to floors in internal/archtest/archtest_test.go", path)
			return
		}
		allowed := f.imports
		if strings.HasSuffix(path, "_test.go") {
			allowed = append(slices.Clone(allowed), f.tests...)
		}
		for _, spec := range file.Imports {
			name, ok := strings.CutPrefix(importPath(spec), module)
			if ok && !isSelf(path, name) && !covered(name, allowed) {
				t.Errorf("%s imports %s, which floor %q does not allow", path, name, f.path)
			}
		}
	})
}

func TestCgoOnlyWhereCBelongs(t *testing.T) {
	flags := regexp.MustCompile(`(?m)^\s*#cgo .*CFLAGS:.*-Wall -Wextra`)
	warned := map[string]bool{}
	eachGoFile(t, func(t *testing.T, path string, file *ast.File) {
		if !slices.ContainsFunc(file.Imports, func(s *ast.ImportSpec) bool { return importPath(s) == "C" }) {
			return
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		if !slices.Contains(cgoPackages, dir) {
			t.Errorf("%s: cgo in a package that is not in cgoPackages", path)
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		warned[dir] = warned[dir] || flags.Match(text)
	})
	for dir, ok := range warned {
		if !ok {
			t.Errorf("%s: no \"#cgo CFLAGS: … -Wall -Wextra\": make lint needs it to report warnings in C", dir)
		}
	}
}

func TestNoInit(t *testing.T) {
	eachGoFile(t, func(t *testing.T, path string, file *ast.File) {
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: func init: packages must not register themselves: list them in cmd/p2pbench/registry.go", path)
			}
		}
	})
}

// Built files must be in bin, which git ignores.
func TestNothingBuiltIsKept(t *testing.T) {
	look := func(t *testing.T, path string) {
		if bytes.HasPrefix(read(t, path), []byte("\x7fELF")) {
			t.Errorf("%s is a built file: build into bin, which git ignores", path)
		}
	}
	eachFile(t, look)
	top, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range top {
		if d.Type().IsRegular() {
			look(t, d.Name())
		}
	}
}

func TestFilesAreOneTopic(t *testing.T) {
	eachFile(t, func(t *testing.T, path string) {
		if !isSource(path) {
			return
		}
		lines := 0
		s := bufio.NewScanner(bytes.NewReader(read(t, path)))
		for s.Scan() {
			lines++
		}
		if err := s.Err(); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if lines > maxLines {
			t.Errorf("%s has %d lines, more than %d: split it by topic", path, lines, maxLines)
		}
	})
}

func TestFloorRules(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"internal/report/table", "internal/report/record", true},
		{"internal/report/table", "internal/sweep", false},
		{"internal/report", "internal/claim", false},
		{"internal/claim", "internal/report", true},
		{"internal/claim", "internal/transport", false},
		{"internal/sweep/worker", "internal/transport", true},
		{"internal/sweep", "internal/transport/ipc", false},
		{"internal/sweep", "internal/report/table", false},
		{"internal/sweep", "internal/knob", true},
		{"internal/transport/ipc", "internal/knob", true},
		{"internal/report", "internal/knob", false},
		{"internal/knob", "internal/transport", false},
		{"internal/transport/ipc", "internal/gpu/abi", true},
		{"internal/transport/ipc", "internal/transport/memcpy", false},
		{"internal/transport/ipc", "internal/gpu/cuda", false},
		{"internal/gpu/cuda", "internal/gpu/kernel", true},
		{"internal/gpu/cuda", "internal/gpu/host", false},
		{"internal/gpu/abi", "internal/gpu", false},
		{"internal/report/table", "cmd/p2pbench", false},
	} {
		if got := covered(c.to, floorOf(c.from).imports); got != c.want {
			t.Errorf("%s → %s: allowed %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

func floorOf(dir string) *floor {
	var best *floor
	for i := range floors {
		f := &floors[i]
		if (dir == f.path || strings.HasPrefix(dir, f.path+"/")) && (best == nil || len(f.path) > len(best.path)) {
			best = f
		}
	}
	return best
}

func covered(name string, allowed []string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		tree, below := strings.CutSuffix(a, "/...")
		return name == tree || below && strings.HasPrefix(name, tree+"/")
	})
}

// isSelf reports whether an external test imports its own package.
func isSelf(path, name string) bool {
	return strings.HasSuffix(path, "_test.go") && filepath.ToSlash(filepath.Dir(path)) == name
}

func importPath(s *ast.ImportSpec) string {
	p, err := strconv.Unquote(s.Path.Value)
	if err != nil {
		panic(fmt.Sprintf("import %s: %v", s.Path.Value, err))
	}
	return p
}

func isSource(path string) bool {
	return slices.Contains([]string{".go", ".c", ".h", ".cu", ".cuh", ".sh", ".py"}, filepath.Ext(path)) ||
		strings.HasPrefix(filepath.ToSlash(path), "scripts/")
}

func eachGoFile(t *testing.T, f func(t *testing.T, path string, file *ast.File)) {
	t.Helper()
	eachFile(t, func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		f(t, path, file)
	})
}

// eachFile calls f for every file of the source tree except testdata; path is relative to the root.
func eachFile(t *testing.T, f func(t *testing.T, path string)) {
	t.Helper()
	for _, top := range []string{"cmd", "internal", "scripts"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "testdata":
				return filepath.SkipDir
			case !d.Type().IsRegular():
				return nil
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			f(t, rel)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
