package nccl

import "github.com/p2pbench/p2pbench/internal/transport"

// counters describe the endpoint's. docs/json.md says what each one counts.
var counters = transport.Counters{
	{Name: "messages", Kind: transport.Count},
	{Name: "nccl_ctas", Kind: transport.Max, Label: "CTAs", Column: "CTAs"},
}

func (ep *endpoint) Counters() map[string]uint64 {
	if ep.end == nil {
		return nil
	}
	out := map[string]uint64{"messages": uint64(ep.end.messages)}
	if ep.env.Rank == 0 && ep.end.launch.known != 0 { // the other ranks launch as many; a window's are not the sum
		out["nccl_ctas"] = uint64(ep.end.launch.ctas)
	}
	return out
}
