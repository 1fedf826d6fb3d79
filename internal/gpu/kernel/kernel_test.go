package kernel

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

func TestPick(t *testing.T) {
	for arch, want := range map[string]string{
		"sm_70": "sm_70", "sm_75": "sm_70", "sm_80": "sm_70", "sm_86": "sm_70", "sm_89": "sm_70",
		"sm_90": "sm_90", "sm_100": "sm_90", "sm_120": "sm_90",
		"sm_60": "", "sm_37": "", "gfx942": "", "sm_": "", "sm_-90": "", "sm_90a": "", "": "",
	} {
		got, err := Pick(PTX, arch)
		if got.Target != want {
			t.Errorf("Pick(%q) = %q, %v; want %q", arch, got.Target, err, want)
		}
		if want == "" && !errors.Is(err, gpu.ErrUnsupported) {
			t.Errorf("Pick(%q): error %v does not wrap ErrUnsupported", arch, err)
		}
	}
}

// Pick returns only images in the driver's format.
func TestPickByFormat(t *testing.T) {
	if got, err := Pick("code object", "sm_90"); !errors.Is(err, gpu.ErrUnsupported) || !strings.Contains(err.Error(), "code object") {
		t.Errorf("%s, %v", got.Target, err)
	}
}

func TestPickExplainsOldGPU(t *testing.T) {
	if _, err := Pick(PTX, "sm_60"); err == nil || !strings.Contains(err.Error(), "sm_70 (Volta, 2017) or newer") {
		t.Errorf("Pick(sm_60): %v", err)
	}
}

// entries returns the text of each kernel.
func entries(ptx string) map[string]string {
	m := map[string]string{}
	for _, part := range strings.Split(ptx, ".visible .entry ")[1:] {
		name, _, _ := strings.Cut(part, "(")
		m[name] = part
	}
	return m
}

func TestImages(t *testing.T) {
	// PTX versions and the first CUDA release that supports them, from the release notes of the PTX ISA.
	since := map[string]int{"7.4": 11040, "8.0": 12000}
	for _, i := range Images() {
		t.Run(i.Target, func(t *testing.T) {
			if !strings.Contains(i.Code, "\n.target "+i.Target+"\n") {
				t.Error("wrong .target")
			}
			m := regexp.MustCompile(`\n\.version (\S+)\n`).FindStringSubmatch(i.Code)
			if m == nil || since[m[1]] != i.MinDriver {
				t.Errorf(".version %v, MinDriver %d", m, i.MinDriver)
			}
			first, _, _ := strings.Cut(i.Code, "\n")
			if !regexp.MustCompile(`^// .*clang version \d+\.\d+`).MatchString(first) {
				t.Errorf("first line %q does not name the compiler", first)
			}
			have := entries(i.Code)
			if len(have) != len(i.Kernels) {
				t.Errorf("%d kernels in the PTX, %d listed", len(have), len(i.Kernels))
			}
			for _, k := range i.Kernels {
				if have[k] == "" || !i.Has(k) {
					t.Errorf("%s is missing", k)
				}
			}
			if i.Has("p2p_nothing") {
				t.Error("has a kernel that it has not")
			}
		})
	}
}

// The vector kernels need 16-byte accesses, several loads in flight, and no spilled registers.
func TestAccessWidth(t *testing.T) {
	access := regexp.MustCompile(`\b(ld|st)(?:\.volatile)?\.global\S*\.(?:v4\.u32|v2\.u64)`)
	for _, i := range Images() {
		have := entries(i.Code)
		round := strings.Repeat("ld", 8) + strings.Repeat("st", 8)
		// The proxy copies by a warp and by blocks, a staged message is copied by its sender and by its receiver: each
		// of them in whole rounds, pairs of rows and single rows.
		rows := round + "ldldstst" + "ldst"
		for k, want := range map[string]string{
			Fill: "st", Check: "ld", Copy: round, Proxy: rows + rows,
			SendrecvWS: rows, SendrecvStable: rows, SendrecvPut: rows, SendrecvLL: "stld", SendrecvLL128: "stld",
		} {
			var got strings.Builder
			for _, m := range access.FindAllStringSubmatch(have[k], -1) {
				got.WriteString(m[1])
			}
			if !strings.Contains(got.String(), want) {
				t.Errorf("%s: %s: 16-byte accesses %q, want %q among them", i.Target, k, got.String(), want)
			}
		}
		if s := regexp.MustCompile(`\.local\b|__local_depot`).FindString(i.Code); s != "" {
			t.Errorf("%s: local memory in use: %s", i.Target, s)
		}
	}
}

// A resident kernel must not use the read-only path, because its data may have been written since it started.
func TestProxyReadsFresh(t *testing.T) {
	for _, i := range Images() {
		text := entries(i.Code)[Proxy]
		if s := regexp.MustCompile(`ld\.global\.nc\S*`).FindString(text); s != "" {
			t.Errorf("%s: %s", i.Target, s)
		}
		for _, want := range []string{"ld.acquire.sys.global.v2.u64", "fence.acq_rel.sys", "st.relaxed.sys.global.u64"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %s", i.Target, want)
			}
		}
	}
}

func TestBulkOnlyWhereItRuns(t *testing.T) {
	instructions := regexp.MustCompile(`cp\.async\.bulk|mbarrier|fence\.proxy`)
	for _, i := range Images() {
		for name, text := range entries(i.Code) {
			if want := slices.Contains(bulk, name); instructions.MatchString(text) != want {
				t.Errorf("%s: %s: bulk instructions: %v, want %v", i.Target, name, !want, want)
			}
		}
		if i.Has(CopyBulk) && i.Target != "sm_90" {
			t.Errorf("%s claims %s", i.Target, CopyBulk)
		}
	}
}

// A fresh build must be identical to the committed files. For another compiler version the script only warns.
func TestCommittedPTXIsCurrent(t *testing.T) {
	const script = "../../../scripts/build-kernels"
	for _, need := range []string{script, "src/p2p.cu"} {
		if _, err := os.Stat(need); err != nil {
			t.Skipf("no source tree here: %v", err)
		}
	}
	clang := "clang-19"
	if c := os.Getenv("CLANG"); c != "" {
		clang = c
	}
	if _, err := exec.LookPath(clang); err != nil {
		t.Skipf("no %s here: apt-get install clang-19", clang)
	}
	if out, err := exec.Command(script, "--check").CombinedOutput(); err != nil {
		t.Fatalf("build-kernels --check: %v\n%s", err, out)
	}
}
