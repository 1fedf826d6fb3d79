package archtest

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// eachSource visits the C and Go files below internal and cmd, except tests and packages for tests.
func eachSource(t *testing.T, visit func(name, text string)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasSuffix(name, "test") || slices.Contains([]string{"bin", ".git", "scripts"}, name)):
			return fs.SkipDir
		case slices.Contains([]string{".c", ".h", ".go"}, path.Ext(name)) && !strings.HasSuffix(name, "_test.go"):
			visit(name, string(read(t, name)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOneLoader checks that only dynlib opens libraries.
func TestOneLoader(t *testing.T) {
	calls := regexp.MustCompile(`\bdl(open|sym)\(`)
	found := false
	eachSource(t, func(name, text string) {
		if !calls.MatchString(text) {
			return
		}
		if path.Dir(name) == "internal/gpu/dynlib" {
			found = true
			return
		}
		t.Errorf("%s calls dlopen: use internal/gpu/dynlib", name)
	})
	if !found {
		t.Error("found no dlopen in dynlib: the test matches nothing")
	}
}

// TestVendorsBelowGPU checks that no package above internal/gpu calls a GPU vendor's driver or uses a vendor's name of
// a link, an image or an engine: differences between devices are data in gpu.Info, gpu.Link and the tables in abi.
func TestVendorsBelowGPU(t *testing.T) {
	vendors := regexp.MustCompile(`\b(cu|hip|nvml)[A-Z]\w+\(|[!=]= "(NVLink|xGMI|PCIe)"|libcuda\.so|Engine\("ce"\)|\bSR_WARP\b`)
	below := 0
	eachSource(t, func(name, text string) {
		if strings.HasPrefix(name, "internal/gpu/") {
			below += len(vendors.FindAllString(text, -1))
			return
		}
		for _, s := range vendors.FindAllString(text, -1) {
			t.Errorf("%s: %s: that belongs below internal/gpu", name, s)
		}
	})
	if below == 0 {
		t.Error("found no call of a driver below internal/gpu: the test matches nothing")
	}
}
