package fault_test

import (
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/fault"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]fault.Flip{
		"flip=0:0":                    {},
		"flip=3:4096":                 {Copy: 3, Offset: 4096},
		"flip=18446744073709551615:1": {Copy: 1<<64 - 1, Offset: 1},
	} {
		if got, err := fault.Parse(s); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", "flip", "flip=", "flip=1", "flip=:", "flip=1:", "flip=:1", "flip=-1:0", "flip=1:-1", "flip=1:2:3", "flip=a:b",
		"flop=1:2", "flip=1.5:0", "Flip=1:2", " flip=1:2", "flip=18446744073709551616:0",
	} {
		if got, err := fault.Parse(s); err == nil || !strings.Contains(err.Error(), "want flip=COPY:OFFSET") {
			t.Errorf("%q: %+v, %v; want a refusal that shows the form", s, got, err)
		}
	}
}

// One byte of one copy is another, at its place; nothing else is.
func TestFlip(t *testing.T) {
	infos, err := host.Driver().Devices()
	if err != nil {
		t.Fatal(err)
	}
	inner, err := host.Driver().Open(infos[0].UUID)
	if err != nil {
		t.Fatal(err)
	}
	page, err := abi.NewPage(1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = page.Close() }()
	x := abi.NewCtx(page, 0, time.Minute, false)
	defer x.Close()
	for _, f := range []fault.Flip{{Copy: 0, Offset: 0}, {Copy: 2, Offset: 999}, {Copy: 3, Offset: 500}, {Copy: 1, Offset: 1000}, {Copy: 9, Offset: 0}} {
		e, err := fault.Wrap(inner, f).Engine("cpu")
		if err != nil {
			t.Fatal(err)
		}
		g := e.Table()
		source, inbox := make([]byte, 1000), make([]byte, 1000)
		for i := range uint64(4) {
			key := abi.PayloadKey(1, 1000, i, 0)
			src, dst := uintptr(unsafe.Pointer(&source[0])), uintptr(unsafe.Pointer(&inbox[0]))
			if err := g.Fill(x, src, 1000, key, 0); err != nil {
				t.Fatal(err)
			}
			if err := g.Copy(x, dst, src, 1000); err != nil {
				t.Fatal(err)
			}
			m, err := g.Check(x, dst, 1000, key, 0)
			if err != nil {
				t.Fatal(err)
			}
			if hit := i == f.Copy && f.Offset < 1000; hit != (m.Count == 1) || m.Count > 1 || hit && m.Offset != f.Offset {
				t.Errorf("%+v: copy %d: %+v", f, i, m)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := fault.Wrap(inner, fault.Flip{}).Engine("warp"); err == nil {
		t.Error("an unknown engine stays unknown")
	}
}
