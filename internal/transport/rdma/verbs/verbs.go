// Package verbs is a Go interface to libibverbs: devices, their ports and addresses, memory regions, completion queues
// and reliably connected queue pairs. libibverbs.so.1 is loaded at run time; a binary that contains this package starts
// on a machine without it. Timed loops in C take CQ.Pointer and QP.Pointer and call ibv_post_send, ibv_post_recv and
// ibv_poll_cq, which are inline functions. Posting and polling in this package takes one cgo call each; it is for
// set-up and tests.
//
// A queue pair goes through these states:
//
//	NewQP      Init(port)     Connect(remote)          Fail(), or a failed request
//	  RESET ------> INIT ------------> RTR --> RTS ------------> ERR: requests are flushed
//	                receives may       sends may
//	                be posted          be posted
//
// Devices whose transport is iWARP are listed but cannot be connected: that needs rdma_cm.
//
// P2PBENCH_LIBIBVERBS names another file to load.
package verbs

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../../.. -DP2P_SHARED_HEADERS=0xdd300df9
#include "verbs.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/dynlib"
)

// Load finds libibverbs, once per process. The error wraps gpu.ErrUnsupported.
func Load() error {
	_, err := library()
	return err
}

// Version is the library's, "1.14.44.0": the ABI and the release of rdma-core. It is "" if it cannot be known.
func Version() string {
	file, err := library()
	if err != nil {
		return ""
	}
	_, v, _ := strings.Cut(filepath.Base(file), ".so.")
	return v
}

var (
	libibverbs = dynlib.Library{
		Name: "libibverbs", Files: []string{"libibverbs.so.1", "libibverbs.so"}, Variable: "P2PBENCH_LIBIBVERBS",
		Advice: "install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL), " +
			"or name the library with P2PBENCH_LIBIBVERBS",
	}
	loaded dynlib.Once[string]
)

// library loads libibverbs and returns its file.
func library() (string, error) {
	return loaded.Do(func() (string, error) {
		file, err := libibverbs.Open(unsafe.Pointer(&C.p2p_verbs_library))
		if err != nil {
			return "", fmt.Errorf("verbs: %w", err)
		}
		return file, nil
	})
}

// failed makes an error from an errno that a verb returned; nil for 0. where is the name of the device, what that of
// the verb.
func failed(where, what string, errno C.int) error {
	if errno == 0 {
		return nil
	}
	code := syscall.Errno(errno)
	switch code {
	case syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EPROTONOSUPPORT:
		return fmt.Errorf("verbs: %s: %s: %w (%d): %w", where, what, code, int(code), gpu.ErrUnsupported)
	}
	return fmt.Errorf("verbs: %s: %s: %w (%d)", where, what, code, int(code))
}

// hint adds what the user can do to an error with this errno.
func hint(err error, errno syscall.Errno, format string, args ...any) error {
	if !errors.Is(err, errno) {
		return err
	}
	return fmt.Errorf("%w: %s", err, fmt.Sprintf(format, args...))
}

// statuses are the texts of enum ibv_wc_status.
var statuses = []string{
	C.IBV_WC_SUCCESS:            "success",
	C.IBV_WC_LOC_LEN_ERR:        "local length error",
	C.IBV_WC_LOC_QP_OP_ERR:      "local queue pair operation error",
	C.IBV_WC_LOC_EEC_OP_ERR:     "local end-to-end context operation error",
	C.IBV_WC_LOC_PROT_ERR:       "local protection error",
	C.IBV_WC_WR_FLUSH_ERR:       "flushed, after an error before it",
	C.IBV_WC_MW_BIND_ERR:        "memory window bind error",
	C.IBV_WC_BAD_RESP_ERR:       "bad response",
	C.IBV_WC_LOC_ACCESS_ERR:     "local access error",
	C.IBV_WC_REM_INV_REQ_ERR:    "remote invalid request",
	C.IBV_WC_REM_ACCESS_ERR:     "remote access error",
	C.IBV_WC_REM_OP_ERR:         "remote operation error",
	C.IBV_WC_RETRY_EXC_ERR:      "retry exceeded: the remote end did not answer",
	C.IBV_WC_RNR_RETRY_EXC_ERR:  "RNR retry exceeded: the remote end had posted no receive",
	C.IBV_WC_LOC_RDD_VIOL_ERR:   "local RDD violation",
	C.IBV_WC_REM_INV_RD_REQ_ERR: "remote invalid RD request",
	C.IBV_WC_REM_ABORT_ERR:      "remote aborted",
	C.IBV_WC_INV_EECN_ERR:       "invalid end-to-end context number",
	C.IBV_WC_INV_EEC_STATE_ERR:  "invalid end-to-end context state",
	C.IBV_WC_FATAL_ERR:          "fatal error",
	C.IBV_WC_RESP_TIMEOUT_ERR:   "response timeout",
	C.IBV_WC_GENERAL_ERR:        "general error",
	C.IBV_WC_TM_ERR:             "tag matching error",
	C.IBV_WC_TM_RNDV_INCOMPLETE: "tag matching rendezvous incomplete",
}

// WCStatus returns the text of a completion's status, an ibv_wc_status.
func WCStatus(status int) string {
	if status < 0 || status >= len(statuses) {
		return fmt.Sprintf("status %d", status)
	}
	return statuses[status]
}
