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

// outputError is a result that could not be written. What was measured is none the worse for it.
type outputError struct{ error }

func (e outputError) Unwrap() error { return e.error }

// catchWriteSignals makes a closed pipe an error of the write to it: by default it would end the process. A handler,
// unlike an ignored signal, is not inherited by the workers.
func catchWriteSignals() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// standardOutput is stdout. It remembers its first failure, since some text is written in pieces whose errors nobody
// looks at.
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

// goesTo reports whether stdout is that file.
func (s *standardOutput) goesTo(file fs.FileInfo) bool {
	f, ok := s.w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && os.SameFile(st, file)
}

// cause is an error of the file system without the operation and the name, of which the latter may be a temporary one.
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
	flag   string // as the user wrote it; "": nowhere
	path   string // the file itself, behind symbolic links
	stdout io.Writer
}

// encoder writes a document.
type encoder func(io.Writer) error

// toStdout is the value of --out that writes the complete result to stdout, in place of the view.
const toStdout = "-"

// openOutput replaces what is at path, before anything is measured, by a document that says that the run has not ended.
// So a name that cannot be written is refused in time, and no older result is taken for that of a run that was killed.
func openOutput(path string, stdout *standardOutput, unended encoder) (*output, error) {
	o := &output{flag: path, stdout: stdout}
	if path == "" || path == toStdout {
		return o, nil
	}
	st, err := os.Stat(path)
	switch {
	case err == nil && !st.Mode().IsRegular():
		return nil, usagef("--out %s: not a regular file", path)
	case err == nil && stdout.goesTo(st):
		return nil, usagef("--out %s: stdout goes there too: use --out - for the complete result alone", path)
	case err == nil:
		err = unix.Access(path, unix.W_OK)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err == nil {
		o.path, err = linked(path)
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

// linked follows the symbolic links of the path's last element, which a rename would replace.
func linked(path string) (string, error) {
	const most = 40 // Linux's own bound
	for range most {
		to, err := os.Readlink(path)
		if err != nil {
			return path, nil //nolint:nilerr // no link, or nothing there
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

// write replaces the file whole: it is written beside its place and renamed. A file that nothing can be renamed over,
// such as one that is mounted by itself, is written in place.
func (o *output) write(data []byte) error {
	dir, name := filepath.Split(o.path)
	if name == "" {
		return fs.ErrNotExist // a folder that is not there
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
	_ = os.Remove(tmp) // it may not have come to be
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
