package nccl

import "github.com/p2pbench/p2pbench/internal/transport"

// counters describes the endpoint's counters. docs/json.md documents them.
var counters = transport.Counters{
	{Name: "messages", Kind: transport.Count},
	{Name: "nccl_ctas", Kind: transport.Max, Label: "CTAs", Column: "CTAs"},
}

func (ep *endpoint) Counters() map[string]uint64 {
	if ep.end == nil {
		return nil
	}
	out := map[string]uint64{"messages": uint64(ep.end.messages)}
	if ep.env.Rank == 0 && ep.end.launch.known != 0 { // every rank launches the same number, so the sum over ranks would be wrong
		out["nccl_ctas"] = uint64(ep.end.launch.ctas)
	}
	return out
}
