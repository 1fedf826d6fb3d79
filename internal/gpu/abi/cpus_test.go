package abi

import (
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A machine may have more than the 1,024 CPUs of libc's type.
func TestManyCPUs(t *testing.T) {
	list := []int{0, 63, 64, 1023, 1024, 5000}
	if got := CPUsOf(list...).List(); !slices.Equal(got, list) {
		t.Errorf("%v become %v", list, got)
	}
	const possible = 8192
	got, err := affinity(func(s CPUs) (int, error) {
		if len(s)*64 < possible {
			return 0, unix.EINVAL
		}
		copy(s, CPUsOf(list...))
		return possible / 8, nil
	})
	if err != nil || !slices.Equal(got.List(), list) {
		t.Errorf("of %d possible CPUs: %v, %v", possible, got.List(), err)
	}
	if _, err := affinity(func(CPUs) (int, error) { return 0, unix.EINVAL }); err == nil {
		t.Error("a kernel that always refuses is asked for ever")
	}
	if err := CPUsOf(1 << 16).Pin(); err == nil {
		t.Error("pinned to a CPU that is not there")
	}
}

func TestWithoutCPU(t *testing.T) {
	for _, c := range []struct {
		set  []int
		cpu  int
		want []int
	}{
		{[]int{0, 1, 1500}, 1, []int{0, 1500}}, {[]int{0, 1}, 7, []int{0, 1}}, {[]int{3}, 3, []int{3}}, {[]int{0, 1}, -1, []int{0, 1}},
	} {
		if got := CPUsOf(c.set...).Without(c.cpu).List(); !slices.Equal(got, c.want) {
			t.Errorf("%v without %d: %v, want %v", c.set, c.cpu, got, c.want)
		}
	}
}

// Pinning a thread changes its affinity, but not the CPUs of the process.
func TestPin(t *testing.T) {
	all, err := ProcessCPUs()
	if err != nil {
		t.Fatal(err)
	}
	list := all.List()
	last := list[len(list)-1]
	ended := make(chan []int)
	go func() {
		runtime.LockOSThread() // not unlocked: the pinned thread ends with the goroutine
		if err := CPUsOf(last).Pin(); err != nil {
			t.Error(err)
		}
		now, err := Affinity()
		if err != nil {
			t.Error(err)
		}
		ended <- now.List()
	}()
	if got := <-ended; !slices.Equal(got, []int{last}) {
		t.Errorf("pinned to %d, runs on %v", last, got)
	}
	if again, _ := ProcessCPUs(); !slices.Equal(again.List(), list) {
		t.Errorf("the process's CPUs were %v, are %v", list, again.List())
	}
}
