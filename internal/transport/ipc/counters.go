package ipc

// #include "ipc.h"
import "C"

import "github.com/p2pbench/p2pbench/internal/transport"

// counters describes the counters of struct ipc_counts. docs/json.md documents them.
var counters = transport.Counters{
	{Name: "path_direct", Kind: transport.Count, Label: "path_direct", OmitZero: true},
	{Name: "path_handshake", Kind: transport.Count, Label: "path_handshake", OmitZero: true},
	{Name: "path_relay", Kind: transport.Count, Label: "path_relay", OmitZero: true},
	{Name: "path_get", Kind: transport.Count, Label: "path_get", OmitZero: true},
	{Name: "control_msgs", Kind: transport.Count, Label: "control_msgs"},
	{Name: "published", Kind: transport.Count, Label: "published"},
	{Name: "exports", Kind: transport.Count, Label: "exports"},
	{Name: "export_ns", Kind: transport.Count, Unit: transport.Nanoseconds, TimeOf: "exports"},
	{Name: "opens", Kind: transport.Count, Label: "opens"},
	{Name: "open_ns", Kind: transport.Count, Unit: transport.Nanoseconds, TimeOf: "opens"},
	{Name: "closes", Kind: transport.Count, Label: "closes"},
	{Name: "close_ns", Kind: transport.Count, Unit: transport.Nanoseconds, TimeOf: "closes"},
	{Name: "hits", Kind: transport.Count, Label: "hits"},
	{Name: "misses", Kind: transport.Count, Label: "misses"},
	{Name: "direct", Kind: transport.Count, Label: "direct"},
	{Name: "evictions", Kind: transport.Count, Label: "evictions"},
	{Name: "stale", Kind: transport.Count, Label: "stale"},
	{Name: "overlap_deletes", Kind: transport.Count, Label: "overlap_deletes"},
	{Name: "bounced", Kind: transport.Count, Label: "bounced"},
	{Name: "moved_buffers", Kind: transport.Count, Label: "moved_buffers"},
	{Name: "mapped_bytes", Kind: transport.Gauge, Unit: transport.Bytes, Label: "mapped", OmitZero: true},
	{Name: "device_free_bytes", Kind: transport.Min, Unit: transport.Bytes},
}

// counters returns the counters that apply to the settings.
func (s *side) counters() map[string]uint64 {
	if s.end == nil {
		return nil
	}
	n := &s.end.count
	out := map[string]uint64{
		"path_direct":    uint64(n.path[C.IPC_DIRECT]),
		"path_handshake": uint64(n.path[C.IPC_HANDSHAKE]),
		"path_relay":     uint64(n.path[C.IPC_RELAY_POOLED] + n.path[C.IPC_RELAY_FRESH]),
		"path_get":       uint64(n.path[C.IPC_GET]),
		"control_msgs":   uint64(n.control_msgs),
	}
	if s.o.Fault != "" {
		out[transport.Faults] = uint64(n.triggered)
	}
	if free := uint64(C.p2p_ipc_unused(s.end)); free > 0 {
		out["device_free_bytes"] = free
	}
	if s.o.Path == "relay" || s.o.SameProcess {
		return out
	}
	for name, v := range map[string]C.uint64_t{
		"hits": n.hits, "misses": n.misses, "opens": n.opens, "closes": n.closes, "exports": n.exports,
		"export_ns": n.export_ns, "open_ns": n.open_ns, "close_ns": n.close_ns, "mapped_bytes": n.mapped_bytes,
	} {
		out[name] = uint64(v)
	}
	if s.o.Path == "direct" {
		out["published"] = uint64(n.published)
	}
	if !s.o.Buffers.plain() {
		out["moved_buffers"] = uint64(n.moved)
	}
	if s.o.Path == "get" {
		out["direct"], out["evictions"], out["stale"] = uint64(n.direct), uint64(n.evictions), uint64(n.stale)
		out["overlap_deletes"], out["bounced"] = uint64(n.overlap_deletes), uint64(n.bounced)
	}
	return out
}
