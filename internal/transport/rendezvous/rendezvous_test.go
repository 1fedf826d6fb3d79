package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"
)

func ends(t *testing.T) (server, client *Conn) {
	t.Helper()
	run := fmt.Sprintf("rendezvous-%d-%d", os.Getpid(), time.Now().UnixNano())
	server, err := Open(run, 0)
	if err != nil {
		t.Fatal(err)
	}
	if client, err = Open(run, 1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := errors.Join(server.Close(), client.Close()); err != nil {
				t.Error(err)
			}
		}
	})
	return server, client
}

func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// pipe returns both ends of a pipe; the read end is a plain descriptor.
func pipe(t *testing.T) (int, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return int(r.Fd()), w
}

func TestSwap(t *testing.T) {
	server, client := ends(t)
	const bytes = 4096
	fd, w := pipe(t)
	type outcome struct {
		m   Message
		err error
	}
	done := make(chan outcome)
	ctx := deadline(t, 10*time.Second)
	go func() {
		m, err := server.Connect(ctx, nil, Message{Payload: []byte("from 0"), FD: -1}, bytes)
		done <- outcome{m, err}
	}()
	address := server.Address()
	// A stranger is rejected, and the rank is still served.
	c, err := net.Dial("unixpacket", server.server.name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, `{"run":"another"}`); err != nil {
		t.Fatal(err)
	}
	m, err := client.Connect(ctx, address, Message{Payload: []byte("from 1"), FD: fd}, bytes)
	if err != nil || string(m.Payload) != "from 0" || m.FD != -1 {
		t.Fatalf("rank 1 got %q, %d, %v", m.Payload, m.FD, err)
	}
	got := <-done
	if got.err != nil || string(got.m.Payload) != "from 1" {
		t.Fatalf("rank 0 got %q, %v", got.m.Payload, got.err)
	}
	if err := errors.Join(c.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	r := os.NewFile(uintptr(got.m.FD), "pipe")
	if b, err := io.ReadAll(r); err != nil || len(b) != 0 {
		t.Errorf("the descriptor that came is not the pipe: %v", err)
	}
	_ = r.Close()
	words := func(l *Conn) []byte { return unsafe.Slice((*byte)(l.Memory()), bytes) }
	words(server)[bytes-1] = 7
	if words(client)[bytes-1] != 7 || words(client)[0] != 0 {
		t.Error("the memory is not shared, or not zeroed")
	}
}

// A stranger that connects and sends nothing delays the rank only until a timeout.
func TestSilentStranger(t *testing.T) {
	server, client := ends(t)
	server.server.timeout = 50 * time.Millisecond
	c, err := net.Dial("unixpacket", server.server.name)
	if err != nil {
		t.Fatal(err)
	}
	ctx := deadline(t, 10*time.Second)
	done := make(chan error, 1)
	go func() {
		_, err := server.Connect(ctx, nil, Message{FD: -1}, 4096)
		done <- err
	}()
	if _, err := client.Connect(ctx, server.Address(), Message{FD: -1}, 4096); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n, err := c.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the stranger was told %d bytes, %v, and not hung up on", n, err)
	}
	_ = c.Close()
}

func TestNobodyComes(t *testing.T) {
	server, client := ends(t)
	_, err := server.Connect(deadline(t, 50*time.Millisecond), nil, Message{FD: -1}, 4096)
	if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "wait for the peer") {
		t.Errorf("got %v", err)
	}
	_, err = client.Connect(deadline(t, time.Second), []byte(`{"socket":"@p2pbench-nobody-listens"}`), Message{FD: -1}, 4096)
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
}

func TestTooLong(t *testing.T) {
	_, client := ends(t)
	_, err := client.Connect(deadline(t, time.Second), nil, Message{Payload: make([]byte, maxPayload+1), FD: -1}, 4096)
	if err == nil || !strings.Contains(err.Error(), "at most 2048") {
		t.Errorf("got %v", err)
	}
}

// Every wait for the other rank ends with the cause of the cancellation when the context is cancelled.
func TestCancelled(t *testing.T) {
	server, client := ends(t)
	mute, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: server.server.name + "-mute", Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }()
	silent, err := net.Dial("unixpacket", server.server.name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	for name, connect := range map[string]func(context.Context) error{
		"rank 1, whom nobody answers": func(ctx context.Context) error {
			_, err := client.Connect(ctx, fmt.Appendf(nil, `{"socket":%q}`, server.server.name+"-mute"), Message{FD: -1}, 4096)
			return err
		},
		"rank 0, whom nobody tells anything": func(ctx context.Context) error {
			_, err := server.Connect(ctx, nil, Message{FD: -1}, 4096)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(deadline(t, time.Hour))
			ended := make(chan error, 1)
			go func() { ended <- connect(ctx) }()
			time.AfterFunc(20*time.Millisecond, cancel)
			select {
			case err := <-ended:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want %v", err, context.Canceled)
				}
			case <-time.After(time.Minute):
				t.Error("goes on waiting")
			}
		})
	}
}

// Both ends send nothing to a process of another user.
func TestOtherUser(t *testing.T) {
	for name, foreign := range map[string]func(server, client *Conn){
		"rank 1": func(server, _ *Conn) { server.server.user++ },
		"rank 0": func(_, client *Conn) { client.user++ },
	} {
		t.Run(name, func(t *testing.T) {
			server, client := ends(t)
			address := server.Address()
			foreign(server, client)
			ctx, cancel := context.WithCancel(deadline(t, time.Minute))
			served := make(chan error, 1)
			go func() {
				_, err := server.Connect(ctx, nil, Message{Payload: []byte("secret"), FD: -1}, 4096)
				served <- err
			}()
			m, err := client.Connect(ctx, address, Message{Payload: []byte("hello"), FD: -1}, 4096)
			if err == nil || len(m.Payload) > 0 {
				t.Errorf("rank 1 was told %q, %v", m.Payload, err)
			}
			cancel() // rank 0 would continue to wait for its peer
			if err := <-served; !errors.Is(err, context.Canceled) {
				t.Errorf("rank 0: %v, want that it waited on", err)
			}
		})
	}
}
