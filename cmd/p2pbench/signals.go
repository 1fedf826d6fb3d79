package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

var errInterrupted = errors.New("interrupted")

// signalExitCodes are the signals that end a run, and its exit codes.
var signalExitCodes = map[os.Signal]int{
	syscall.SIGHUP: exitHangup, syscall.SIGINT: exitInterrupt, syscall.SIGTERM: exitTerminate,
}

// signalContext returns a context that is cancelled by the first signal of signalExitCodes; caught returns that signal.
// A second signal kills the process. Signals that were ignored at the start, as under nohup, stay ignored.
func signalContext() (ctx context.Context, caught func() os.Signal) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ch := make(chan os.Signal, 1)
	for sig := range signalExitCodes {
		if !signal.Ignored(sig) {
			signal.Notify(ch, sig)
		}
	}
	var got os.Signal
	go func() {
		got = <-ch
		signal.Stop(ch)
		cancel(errInterrupted)
	}()
	return ctx, func() os.Signal {
		if context.Cause(ctx) == errInterrupted { //nolint:errorlint // identity, not wrapping
			return got
		}
		return nil
	}
}
