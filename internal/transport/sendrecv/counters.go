package sendrecv

import "github.com/p2pbench/p2pbench/internal/transport"

// counters describes the endpoint's counters. docs/json.md documents them.
var counters = transport.Counters{
	{Name: "messages", Kind: transport.Count},
	{Name: "steps", Kind: transport.Count, Label: "steps"},
	{Name: "fences", Kind: transport.Count, Label: "fences"},
	{Name: "ctas", Kind: transport.Max, Label: "ctas"},
	{Name: "stride", Kind: transport.Max, Unit: transport.Bytes, Label: "stride"},
	{Name: "burst", Kind: transport.Max, Label: "bursts of"},
}

func (ep *endpoint) Counters() map[string]uint64 {
	out := map[string]uint64{"messages": ep.messages, "steps": ep.steps, "fences": ep.fences}
	if ep.last.variant != "" {
		out["ctas"] = uint64(ep.last.blocks())
	}
	if ep.last.staged() {
		out["stride"] = ep.last.stride
	}
	if ep.lastBurst > 0 {
		out["burst"] = ep.lastBurst
	}
	return out
}
