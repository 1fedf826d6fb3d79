package worker

import (
	"fmt"
	"os"
)

// title is the name under which ps shows a worker's command line. A launcher's is its own.
func title(rank int) string { return fmt.Sprintf("p2pbench: rank %d", rank) }

// nameProcess sets this process's short name, which top and ps -e show; the kernel keeps 15 bytes of it. A process that
// may not do so keeps the name it has.
func nameProcess(rank int) {
	_ = os.WriteFile("/proc/self/comm", fmt.Appendf(nil, "p2pbench:rank%d", rank), 0)
}
