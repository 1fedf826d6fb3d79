package verbs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// HardwareCounters reads the driver's counters of the port, for all processes, by the driver's names; none if the
// device has no counters. Drivers update the values about every ten milliseconds.
func HardwareCounters(device string, port int) map[string]uint64 {
	out := map[string]uint64{}
	for _, kind := range []string{"counters", "hw_counters"} {
		dir := filepath.Join(sysfs, "class/infiniband", device, "ports", strconv.Itoa(port), kind)
		files, err := os.ReadDir(dir)
		if err != nil {
			continue // not every device has both
		}
		for _, f := range files {
			if f.Name() == "lifespan" { // how long values are kept, ms
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				continue // "N/A" of old kernels is an error to read
			}
			if v, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
				out[f.Name()] = v
			}
		}
	}
	return out
}

// Drivers' names of counters of retransmissions by the requester, which is the sending end. The responder's counters
// (send_rnr_err, out_of_sequence) are left out: they count the same events. The names of rxe were tested; those of
// mlx5, bnxt_re, ionic, mana, irdma and efa are from the drivers' sources and documentation only.
var (
	rnrNames = []string{
		"rcvd_rnr_err",         // rxe
		"rnr_nak_retry_err",    // mlx5
		"rnr_naks_rcvd",        // bnxt_re
		"req_rx_rnr_retry_err", // ionic
		"requester_rnr_nak",    // mana
	}
	retryNames = []string{
		"completer_retry_err", "retry_exceeded_err", // rxe
		"packet_seq_err", "local_ack_timeout_err", "implied_nak_seq_err", "req_transport_retries_exceeded", // mlx5
		"to_retransmits", "seq_err_naks_rcvd", "max_retry_exceeded", // bnxt_re
		"req_rx_pkt_seq_err", "req_rx_impl_nak_seq_err", "tx_rdma_ack_timeout", "req_tx_retry_excd_err", // ionic
		"requester_timeout", "requester_oos_nak", "requester_implicit_nak", "requester_retries_exceeded", // mana
		"tcpRetransSegs", // irdma
		"retrans_pkts",   // efa
	}
)

// Retries sums a port's counters of retransmissions by this end: because the other end had posted no receive, and for
// other reasons, mostly losses. ok is false if the driver has no such counter.
func Retries(counters map[string]uint64) (rnr, retries uint64, ok bool) {
	rnr, hasRNR := sum(counters, rnrNames)
	retries, hasRetries := sum(counters, retryNames)
	return rnr, retries, hasRNR || hasRetries
}

// PortBytes returns the bytes in each direction from a port's counters. ok is false if the driver does not count bytes,
// such as rxe.
func PortBytes(counters map[string]uint64) (sent, received uint64, ok bool) {
	sent, hasSent := sum(counters, []string{"port_xmit_data"})
	received, hasReceived := sum(counters, []string{"port_rcv_data"})
	if hasSent && hasReceived {
		return 4 * sent, 4 * received, true // InfiniBand counts words of four bytes, and other drivers do the same
	}
	sent, hasSent = sum(counters, []string{"tx_bytes", "tx_rdma_ucast_bytes", "ip4OutOctets", "ip6OutOctets"})
	received, hasReceived = sum(counters, []string{"rx_bytes", "rx_rdma_ucast_bytes", "ip4InOctets", "ip6InOctets"})
	return sent, received, hasSent && hasReceived
}

func sum(counters map[string]uint64, names []string) (total uint64, found bool) {
	for _, name := range names {
		v, ok := counters[name]
		total, found = total+v, found || ok
	}
	return total, found
}
