// Package sendrecv is kernels that send and receive.
package sendrecv
