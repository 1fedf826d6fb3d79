package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/p2pbench/p2pbench/internal/claim"
	"github.com/p2pbench/p2pbench/internal/report/record"
)

// saved reads a result written with --out.
func saved(t *testing.T, path string) record.Document {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return document(t, string(text))
}

// holdsOnly checks that the directory has no other files, including hidden ones.
func holdsOnly(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("%s holds %v (%v), want %s", dir, entries, err, name)
	}
}

// short is the command line of a short run.
func short(more ...string) []string {
	return append([]string{"ipc", "--device", "host", "--sizes", "8", "--op", "latency", "-n", "50", "-q"}, more...)
}

// deafStdouts are files to which every write fails.
func deafStdouts(t *testing.T) map[string]*os.File {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = full.Close()
		_ = write.Close()
	})
	return map[string]*os.File{"no space left on device": full, "broken pipe": write}
}

// If stdout is a closed pipe or a full disk, the view is lost, but --out is written.
func TestStdoutThatFails(t *testing.T) {
	for reason, stdout := range deafStdouts(t) {
		t.Run(reason, func(t *testing.T) {
			dir := t.TempDir()
			for name, args := range map[string][]string{
				"run":    short("--out", filepath.Join(dir, "run.json")),
				"claims": {"claims", "run", "mpich-7862/lru-cliff", "--device", "host", "--quick", "-q", "--out", filepath.Join(dir, "claims.json")},
				"plan":   {"plan", "ipc", "--device", "host"},
				"doctor": {"doctor"},
				"list":   {"claims", "list"},
				"help":   {"ipc", "--help"},
			} {
				c := newCommand(t, args...)
				c.Stdout = stdout
				c.begin(t)
				if code := c.end(t); code != exitOutput {
					t.Errorf("%s: exit code %d, want %d", name, code, exitOutput)
				}
				if text, err := complaint(c.stderr.String()); err != nil || !strings.Contains(text, "stdout: "+reason) {
					t.Errorf("%s: %q, %v", name, text, err)
				}
			}
			if d := saved(t, filepath.Join(dir, "run.json")); len(d.Cells) != 1 || len(d.Cells[0].SamplesNS) != 50 || d.Exit != exitOK {
				t.Errorf("the saved result: %+v", d)
			}
			text, err := os.ReadFile(filepath.Join(dir, "claims.json"))
			if err != nil || !strings.Contains(string(text), `"`+claim.Schema+`"`) || !strings.Contains(string(text), `"samples_ns"`) {
				t.Errorf("the saved claims: %s, %v", text, err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
				t.Errorf("%v, %v", entries, err)
			}
		})
	}
}

// If --out cannot be written at the end, the view is still printed.
func TestOutThatFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "run.json")
	c := newCommand(t, "ipc", "--device", "host", "--sizes", "8", "--op", "latency", "-D", "1s", "-q", "--out", out, "--format", "json")
	c.begin(t)
	eventually(t, "the run has begun", func() bool { return len(c.workers()) > 0 })
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if code := c.end(t); code != exitOutput {
		t.Errorf("exit code %d, want %d", code, exitOutput)
	}
	if text, err := complaint(c.stderr.String()); err != nil || text != "--out "+out+": no such file or directory" {
		t.Errorf("%q, %v", text, err)
	}
	if d := document(t, c.stdout.String()); len(d.Cells) != 1 {
		t.Errorf("%d cells were shown", len(d.Cells))
	}
}

// A killed run leaves no document that looks like its result, and no file other than that of --out.
func TestKilledRunAndItsOutput(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "run.json")
	exitsWith(t, exitOK, short("--out", out)...)
	c := newCommand(t, long("--out", out)...)
	c.begin(t)
	c.untilTimed(t, 16<<20)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // killed
	d := saved(t, out)
	if len(d.Cells) != 0 || d.Exit != exitLost || len(d.Warnings) != 1 || !strings.Contains(d.Warnings[0], "has not ended yet") {
		t.Errorf("%+v", d)
	}
	holdsOnly(t, dir, "run.json")
}

// A symbolic link is kept and its target replaced, with the permissions of the previous file or by the umask.
func TestOutputBehindALink(t *testing.T) {
	for name, mode := range map[string]os.FileMode{"new": 0, "there before": 0o640} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, link := filepath.Join(dir, "real", "run.json"), filepath.Join(dir, "links", "run.json")
			for _, d := range []string{"real", "links"} {
				if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink("../real/run.json", link); err != nil {
				t.Fatal(err)
			}
			want := os.FileMode(0o600)
			if mode != 0 {
				want = mode
				if err := os.WriteFile(file, []byte("old"), mode); err != nil {
					t.Fatal(err)
				}
			}
			c := newCommandUnder(t, []string{"sh", "-c", `umask 077; exec "$@"`, "sh"}, short("--out", link)...)
			c.begin(t)
			if code := c.end(t); code != exitOK {
				t.Fatalf("exit code %d: %s", code, c.stderr.String())
			}
			if to, err := os.Readlink(link); err != nil || to != "../real/run.json" {
				t.Errorf("the link is %q, %v", to, err)
			}
			if d := saved(t, link); len(d.Cells) != 1 {
				t.Errorf("%d cells", len(d.Cells))
			}
			if st, err := os.Stat(file); err != nil || st.Mode().Perm() != want {
				t.Errorf("mode %v (%v), want %v", st.Mode(), err, want)
			}
			holdsOnly(t, filepath.Join(dir, "real"), "run.json")
			holdsOnly(t, filepath.Join(dir, "links"), "run.json")
		})
	}
}

// A bind-mounted file, as in containers, cannot be replaced by rename. Needs the right to mount.
func TestOutputThatIsMounted(t *testing.T) {
	dir := t.TempDir()
	out, behind := filepath.Join(dir, "run.json"), filepath.Join(t.TempDir(), "behind.json")
	for _, name := range []string{out, behind} {
		if err := os.WriteFile(name, []byte("old"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mount := fmt.Sprintf(`mount --bind '%s' '%s'`, behind, out)
	if text, err := exec.Command("unshare", "--mount", "sh", "-c", mount).CombinedOutput(); err != nil {
		t.Skipf("cannot mount in a namespace of its own here: %v: %s", err, text)
	}
	c := newCommandUnder(t, []string{"unshare", "--mount", "sh", "-c", mount + ` && exec "$@"`, "sh"}, short("--out", out)...)
	c.begin(t)
	if code := c.end(t); code != exitOK {
		t.Fatalf("exit code %d: %s", code, c.stderr.String())
	}
	if d := saved(t, behind); len(d.Cells) != 1 {
		t.Errorf("%d cells", len(d.Cells))
	}
	holdsOnly(t, dir, "run.json")
}

// --out and stdout being the same file is refused before anything is measured.
func TestOutputThatIsStdout(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run.json")
	file, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	for _, name := range []string{out, "/dev/stdout"} {
		c := newCommand(t, short("--out", name)...)
		c.Stdout = file
		c.begin(t)
		if code := c.end(t); code != exitUsage {
			t.Errorf("--out %s: exit code %d, want %d", name, code, exitUsage)
		}
		if text, err := complaint(c.stderr.String()); err != nil || !strings.Contains(text, "stdout goes there too: use --out -") {
			t.Errorf("--out %s: %q, %v", name, text, err)
		}
	}
}

// An interrupted run whose result cannot be written reports both errors.
func TestInterruptedAndDeaf(t *testing.T) {
	c := newCommand(t, long()...)
	c.Stdout = deafStdouts(t)["broken pipe"]
	c.begin(t)
	c.untilTimed(t, 16<<20)
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.end(t); code != exitTerminate {
		t.Errorf("exit code %d, want %d", code, exitTerminate)
	}
	if got := c.stderr.String(); got != "p2pbench: interrupted\np2pbench: stdout: broken pipe\n" {
		t.Errorf("stderr %q", got)
	}
}
