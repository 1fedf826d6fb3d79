// Command p2pbench measures point-to-point transfer between GPUs, or between processes in CPU memory, over every
// path the machine has, and prints the cost of each path.
//
// It starts one process per GPU (this binary, with the hidden subcommand worker) and prints one table for the run:
//
//	p2pbench ipc --size-sweep --vs memcpy
//
// See `p2pbench help` and docs/.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/sweep"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/verdict"
)

// Exit codes, the same for every subcommand.
const (
	exitOK        = 0
	exitRegress   = 1 // compare, ab: slower
	exitUsage     = 2 // wrong flags, or not possible on this machine
	exitInvalid   = 3 // measured but invalid: throttled, a fallback ran, --require is not met, an injected fault did not occur; not comparable
	exitLost      = 4 // hang, crash or lost peer
	exitCorrupt   = 5
	exitAmbiguous = 6   // compare, ab: neither a regression nor its absence is shown
	exitInternal  = 70  // a defect of p2pbench; EX_SOFTWARE of sysexits.h
	exitOutput    = 74  // the result could not be written; sysexits.h calls it EX_IOERR
	exitHangup    = 129 // SIGHUP
	exitInterrupt = 130 // SIGINT
	exitTerminate = 143 // SIGTERM
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "worker" {
		os.Exit(worker.Serve(factory()))
	}
	debug.SetTraceback("crash") // a fatal error of Go's runtime ends in SIGABRT, not in exit code 2
	catchWriteSignals()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// app is the state that all subcommands share: the output streams, the start time, and how the run ended.
type app struct {
	stdout    *standardOutput
	stderr    io.Writer
	began     time.Time
	caught    func() os.Signal // the signal that ended the run, or nil
	accepted  atomic.Bool      // cobra accepted the command line; later errors are the command's own
	measuring atomic.Bool      // an interrupted command stops its workers and returns; execute waits for it
}

// run executes the command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, caught := signalContext()
	a := &app{stdout: &standardOutput{w: stdout}, stderr: stderr, began: time.Now(), caught: caught}
	root := a.root()
	root.SetArgs(args)
	err := a.execute(ctx, root)
	if err == nil {
		err = a.stdout.err
	}
	if err == nil {
		return exitOK
	}
	for _, line := range a.lines(err) {
		fmt.Fprintf(stderr, "p2pbench: %s\n", report.Printable(line))
	}
	return exitCode(err, caught())
}

// lines returns the text of an error as users see it, one line per joined error. After a signal it is "interrupted",
// and the error of --out if there is one.
func (a *app) lines(err error) []string {
	var output outputError
	switch lost := errors.As(err, &output); {
	case a.caught() != nil && lost:
		err = errors.Join(errInterrupted, output)
	case a.caught() != nil:
		err = errInterrupted
	}
	return strings.Split(strings.TrimSpace(reason(err)), "\n")
}

// execute runs the command. On a signal it waits only for a command that measures: any other may be blocked in a read
// or in a driver, and leaves nothing to clean up.
func (a *app) execute(ctx context.Context, root *cobra.Command) error {
	ended := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				ended <- fmt.Errorf("panic: %v: please report this defect with the command and\n%s", p, debug.Stack())
			}
		}()
		err := root.ExecuteContext(ctx)
		if err != nil && !a.accepted.Load() {
			err = usageError{err} // cobra's own complaints
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if !a.measuring.Load() {
		return errInterrupted
	}
	return <-ended
}

// reason returns the text of the error without that of gpu.ErrUnsupported, which adds nothing to the cause.
func reason(err error) string {
	return strings.ReplaceAll(err.Error(), ": "+gpu.ErrUnsupported.Error(), "")
}

// usageError is an error in the command line.
type usageError struct{ error }

func usagef(format string, a ...any) error { return usageError{fmt.Errorf(format, a...)} }

func (e usageError) Unwrap() error { return e.error }

func exitCode(err error, sig os.Signal) int {
	var usage usageError
	var output outputError
	var unfit *verdict.IncomparableError
	var failed *runError
	switch {
	case sig != nil:
		return signalExitCodes[sig]
	case errors.As(err, &failed):
		return failed.code
	case errors.As(err, &usage), errors.Is(err, gpu.ErrUnsupported):
		return exitUsage
	case errors.Is(err, errRegress):
		return exitRegress
	case errors.Is(err, errAmbiguous):
		return exitAmbiguous
	case errors.Is(err, sweep.ErrInvalid), errors.Is(err, errRequire), errors.Is(err, errFaultUnused), errors.As(err, &unfit):
		return exitInvalid
	case errors.Is(err, worker.ErrCorrupt):
		return exitCorrupt
	case errors.Is(err, worker.ErrHang), errors.Is(err, worker.ErrCrash), errors.Is(err, worker.ErrFailed),
		errors.Is(err, errUnfinished):
		return exitLost
	case errors.As(err, &output):
		return exitOutput
	}
	return exitInternal
}

const longHelp = `p2pbench measures point-to-point transfer between GPUs, or between processes in CPU
memory: latency and bandwidth of every path that this machine has.

Exit codes: 0 success; 1 compare, ab: slower; 2 wrong flags, or not possible on this
machine; 3 the result is invalid (clocks throttled, data took another path), or not
comparable; 4 hang, crash or lost peer; 5 data corruption; 6 compare, ab: ambiguous;
70 a defect of p2pbench; 74 the result could not be written; 129, 130, 143 interrupted
by SIGHUP, SIGINT, SIGTERM.`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "p2pbench", Short: "Measure point-to-point transfer between GPUs and hosts", Long: longHelp,
		SilenceErrors: true, SilenceUsage: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRunE: func(*cobra.Command, []string) error {
			a.accepted.Store(true)
			return nil
		},
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{flagError(err)} })
	for _, p := range pathCommands() {
		root.AddCommand(p.command(a))
	}
	root.AddCommand(a.planCommand(), a.claimsCommand(), a.abCommand(), a.compareCommand(), a.calibrateCommand(), a.baselineCommand(), a.renderCommand(), a.doctorCommand(), a.versionCommand(), workerCommand())
	return root
}

// flagError rewords pflag's error about a flag's value.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	name := "--" + invalid.GetFlag().Name
	if value := invalid.GetValue(); strings.TrimSpace(value) != "" {
		name += " " + value
	}
	return fmt.Errorf("%s: %w", name, invalid.Unwrap())
}

// workerCommand only reports an error: main starts a worker before it parses flags.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "worker", Hidden: true, Short: "Run one rank (started by p2pbench itself)",
		RunE: func(*cobra.Command, []string) error { return usagef("worker: started by p2pbench itself, not by hand") },
	}
}
