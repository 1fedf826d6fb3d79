package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

var errInterrupted = errors.New("interrupted")

// endings are the signals that end a run in good order, with their exit codes.
var endings = map[os.Signal]int{
	syscall.SIGHUP: exitHangup, syscall.SIGINT: exitInterrupt, syscall.SIGTERM: exitTerminate,
}

// interruptible is a context that the first of endings ends; caught tells which of them did. A second signal kills.
// What the process was started to ignore, under nohup or in the background of a script, it ignores.
func interruptible() (ctx context.Context, caught func() os.Signal) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ch := make(chan os.Signal, 1)
	for sig := range endings {
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
		if context.Cause(ctx) == errInterrupted { //nolint:errorlint // the very value
			return got
		}
		return nil
	}
}
