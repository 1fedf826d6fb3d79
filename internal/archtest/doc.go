// Package archtest tests the rules of this repository that the compiler does not check: imports between packages,
// packages that may contain C, length of files. It contains tests only.
package archtest
