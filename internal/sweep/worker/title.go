package worker

import (
	"fmt"
	"os"
)

// title is the worker's argv[0], which ps shows. With a launcher it is not set.
func title(rank int) string { return fmt.Sprintf("p2pbench: rank %d", rank) }

// nameProcess sets the short name of this process, which top and ps -e show; the kernel keeps 15 bytes. Errors are
// ignored.
func nameProcess(rank int) {
	_ = os.WriteFile("/proc/self/comm", fmt.Appendf(nil, "p2pbench:rank%d", rank), 0)
}
