package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// outputError means that a valid result could not be written.
type outputError struct{ error }

func (e outputError) Unwrap() error { return e.error }

// catchWriteSignals makes a write to a closed pipe return an error instead of ending the process by SIGPIPE. It
// installs a handler because workers would inherit an ignored signal.
func catchWriteSignals() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// standardOutput is stdout. It keeps its first error, because errors of fmt.Fprintf are not checked everywhere.
type standardOutput struct {
	w   io.Writer
	err error
}

func (s *standardOutput) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(p)
	if err != nil {
		s.err = outputError{fmt.Errorf("stdout: %w", cause(err))}
	}
	return n, s.err
}

// writesTo reports whether stdout is that file.
func (s *standardOutput) writesTo(file fs.FileInfo) bool {
	f, ok := s.w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && os.SameFile(st, file)
}

// cause strips operation and file name, which may be that of a temporary file, from a file system's error.
func cause(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// output is where --out writes the complete result.
type output struct {
	flag   string // value of --out; "": not given
	path   string // file name after following symbolic links
	stdout io.Writer
}

// encoder writes a document.
type encoder func(io.Writer) error

// toStdout is the value of --out that writes the complete result to stdout instead of the view.
const toStdout = "-"

// openOutput writes a document that says that the run has not ended. It runs before the measurement: a file that cannot
// be written is refused early, and after a killed run no older result is left under that name.
func openOutput(path string, stdout *standardOutput, unended encoder) (*output, error) {
	o := &output{flag: path, stdout: stdout}
	if path == "" || path == toStdout {
		return o, nil
	}
	st, err := os.Stat(path)
	switch {
	case err == nil && !st.Mode().IsRegular():
		return nil, usagef("--out %s: not a regular file", path)
	case err == nil && stdout.writesTo(st):
		return nil, usagef("--out %s: stdout goes there too: use --out - for the complete result alone", path)
	case err == nil:
		err = unix.Access(path, unix.W_OK)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err == nil {
		o.path, err = followLinks(path)
	}
	var data bytes.Buffer
	if err == nil {
		err = unended(&data)
	}
	if err == nil {
		err = o.write(data.Bytes())
	}
	if err != nil {
		return nil, usagef("--out %s: cannot write there: %w", path, cause(err))
	}
	return o, nil
}

// followLinks resolves symbolic links in the last element of path, which a rename would replace.
func followLinks(path string) (string, error) {
	const maxLinks = 40 // Linux's limit
	for range maxLinks {
		to, err := os.Readlink(path)
		if err != nil {
			return path, nil //nolint:nilerr // not a link, or no such file
		}
		if !filepath.IsAbs(to) {
			dir, _ := filepath.Split(path)
			to = dir + to
		}
		path = to
	}
	return "", syscall.ELOOP
}

// save writes the result of the run.
func (o *output) save(result encoder) error {
	switch o.flag {
	case "":
		return nil
	case toStdout:
		return result(o.stdout)
	}
	var data bytes.Buffer
	if err := result(&data); err != nil {
		return err
	}
	if err := o.write(data.Bytes()); err != nil {
		return outputError{fmt.Errorf("--out %s: %w", o.flag, cause(err))}
	}
	return nil
}

// write replaces the file atomically: it writes a temporary file in the same folder and renames it. Where rename fails,
// as over a bind-mounted file, it writes in place.
func (o *output) write(data []byte) error {
	dir, name := filepath.Split(o.path)
	if name == "" {
		return fs.ErrNotExist // path ends in "/"
	}
	tmp := dir + ".p2pbench-" + rand.Text()
	err := writeFile(tmp, data, os.O_CREATE|os.O_EXCL)
	if err == nil {
		if st, gone := os.Stat(o.path); gone == nil {
			err = os.Chmod(tmp, st.Mode().Perm())
		}
	}
	if err == nil {
		if err = os.Rename(tmp, o.path); err == nil {
			return nil
		}
		err = writeFile(o.path, data, os.O_CREATE|os.O_TRUNC)
	}
	_ = os.Remove(tmp) // may not exist
	return err
}

func writeFile(path string, data []byte, flags int) error {
	f, err := os.OpenFile(path, os.O_WRONLY|flags, 0o666) // less the umask
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
