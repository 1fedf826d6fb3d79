// Package archtest holds the rules of this repository that a compiler cannot hold: who may import whom, where C may stand,
// how long a file may grow. It has tests only.
package archtest
