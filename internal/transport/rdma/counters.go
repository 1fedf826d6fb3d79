package rdma

import (
	"slices"

	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs"
)

// counters describes the endpoint's counters. docs/json.md documents them.
var counters = transport.Counters{
	{Name: "messages", Kind: transport.Count},
	{Name: "grants", Kind: transport.Count, Label: "grants"},
	{Name: "misroutes", Kind: transport.Count, Label: "misroutes"},
	{Name: "rnr", Kind: transport.Count, Label: "rnr"},
	{Name: "retries", Kind: transport.Count, Label: "retries"},
	{Name: "nic_bytes", Kind: transport.Count, Unit: transport.Bytes, Label: "nic_bytes"},
	{Name: "qps", Kind: transport.Max, Label: "qps"},
	{Name: "cqs", Kind: transport.Max, Label: "cqs"},
	{Name: "mrs", Kind: transport.Max, Label: "mrs"},
	{Name: "comms", Kind: transport.Max, Label: "comms"},
	{Name: "queue_bytes", Kind: transport.Max, Unit: transport.Bytes, Label: "queues of"},
	{Name: "setup_ns", Kind: transport.Max, Unit: transport.Nanoseconds, Label: "set-up of a connection"},
	{Name: "setup_shared_ns", Kind: transport.Max, Unit: transport.Nanoseconds, Label: "of one that shares"},
	{Name: "inline", Kind: transport.Max, Unit: transport.Bytes, Label: "inline up to"},
}

// setup is the median set-up time, in ns, of primary or of secondary connections; 0: there are none.
func (ep *endpoint) setup(primary bool) uint64 {
	var ns []int64
	for _, c := range slices.Concat(ep.out, ep.in) {
		if c.Primary() == primary {
			ns = append(ns, c.SetupNS())
		}
	}
	if len(ns) == 0 {
		return 0
	}
	slices.Sort(ns)
	return uint64(ns[len(ns)/2])
}

// Estimated bytes of queue entries in memory that the NIC reads, on most devices: a work request with one buffer and a
// header, a receive, a completion.
const (
	sendEntry    = 64
	receiveEntry = 16
	completion   = 64
)

func (ep *endpoint) Counters() map[string]uint64 {
	counts, sizes := ep.pool.Counts(), ep.pool.Sizes()
	_, _, mrs := ep.context.Objects()
	out := map[string]uint64{
		"messages": uint64(ep.end.messages), "misroutes": uint64(ep.end.misroutes), "grants": uint64(ep.end.grants),
		"qps": uint64(counts.QPs), "cqs": uint64(counts.CQs), "mrs": uint64(mrs), "comms": uint64(counts.Comms),
		"inline": uint64(ep.inlined()), "setup_ns": ep.setup(true),
		"queue_bytes": uint64(counts.QPs*(sizes.SendWRs*sendEntry+sizes.RecvWRs*receiveEntry) + counts.CQs*sizes.CQE*completion),
	}
	if ns := ep.setup(false); ns > 0 {
		out["setup_shared_ns"] = ns
	}
	now := verbs.HardwareCounters(ep.nic.device.Name, ep.nic.port.Number)
	rnr0, retries0, _ := verbs.Retries(ep.before)
	if rnr, retries, ok := verbs.Retries(now); ok {
		out["rnr"], out["retries"] = rnr-rnr0, retries-retries0
	}
	sent0, _, _ := verbs.PortBytes(ep.before)
	if sent, _, ok := verbs.PortBytes(now); ok {
		out["nic_bytes"] = sent - sent0
	}
	return out
}
