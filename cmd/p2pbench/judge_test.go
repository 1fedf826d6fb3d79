package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/reporttest"
)

// scriptRuns writes run files as --out does, of a machine on which runs differ by 1 %:
//
//	runs DIR COUNT [begin=SECONDS] [every=SECONDS] [slower=PERCENT] [noise=PERCENT] [path=NAME] [drop=N] [exit=N] [n=N]
//
// Runs begin a second after each other, or as told; slower is the last cell's; drop leaves so many cells out.
func scriptRuns(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: runs DIR COUNT [KEY=VALUE…]")
	}
	o := map[string]float64{"begin": 0, "every": 1, "slower": 0, "noise": 1, "drop": 0, "exit": 0, "n": 200}
	path := "direct"
	for _, arg := range args[2:] {
		key, value, _ := strings.Cut(arg, "=")
		if key == "path" {
			path = value
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		ts.Check(err)
		o[key] = v
	}
	count, err := strconv.Atoi(args[1])
	ts.Check(err)
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o777))
	g := rand.New(rand.NewPCG(uint64(count), uint64(o["begin"])))
	for i := range count {
		d := runDocument(path, int(o["n"]), func(cell int) float64 {
			us := 10 * float64(cell+1) * math.Exp(o["noise"]/100*g.NormFloat64())
			if cell == 2 {
				us *= 1 + o["slower"]/100
			}
			return us
		})
		d.Cells, d.Exit = d.Cells[:len(d.Cells)-int(o["drop"])], int(o["exit"])
		d.Started = d.Started.Add(time.Duration((o["begin"] + float64(i)*o["every"]) * float64(time.Second)))
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%02d.json", i)))
		ts.Check(err)
		ts.Check(record.Write(f, d))
		ts.Check(f.Close())
	}
}

// runDocument is a run of three cells between CPU memories.
func runDocument(path string, n int, us func(cell int) float64) record.Document {
	d := reporttest.Host()
	d.Cells = nil
	for i, size := range []uint64{1 << 10, 64 << 10, 1 << 20} {
		c := reporttest.IPC("latency", size, 1, n, us(i))
		c.Device, c.Path = "host", path
		d.Cells = append(d.Cells, c)
	}
	return d
}
