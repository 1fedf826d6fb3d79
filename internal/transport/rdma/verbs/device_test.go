package verbs

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// gid is one of that address and type.
func gid(index int, kind, addr string) GID {
	return GID{Index: index, Value: netip.MustParseAddr(addr).As16(), Type: kind}
}

func TestDefaultGID(t *testing.T) {
	var (
		v1   = gid(0, TypeRoCEv1, "fe80::1")
		v2   = gid(1, TypeRoCEv2, "fe80::1")
		v1ip = gid(2, TypeRoCEv1, "10.0.0.1")
		ip6  = gid(3, TypeRoCEv2, "fd00::1")
		ip   = gid(4, TypeRoCEv2, "10.0.0.1")
		ip2  = gid(5, TypeRoCEv2, "10.0.0.2")
		old  = gid(6, "", "10.0.0.1")
		ib0  = gid(0, TypeIB, "fe80::2")
		ib1  = gid(1, TypeIB, "fec0::2")
	)
	for _, c := range []struct {
		name string
		gids []GID
		want GID
	}{
		{"IPv4 before all", []GID{v1, v2, v1ip, ip6, ip, ip2}, ip},
		{"the first of equals", []GID{ip, ip2}, ip},
		{"global before link-local", []GID{v1, v2, v1ip, ip6}, ip6},
		{"link-local before RoCE v1", []GID{v1, v1ip, v2}, v2},
		{"RoCE v1 where there is no other", []GID{v1, v1ip}, v1},
		{"type unknown", []GID{v1, old}, old},
		{"InfiniBand", []GID{ib0, ib1}, ib0},
	} {
		got, err := Device{Name: "d", Ports: []Port{{Number: 1, LinkLayer: "Ethernet", GIDs: c.gids}}}.DefaultGID(1)
		if err != nil || got != c.want {
			t.Errorf("%s: %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

func TestNoGID(t *testing.T) {
	d := Device{Name: "d", Ports: []Port{
		{Number: 1, LinkLayer: "Ethernet"},
		{Number: 2, LinkLayer: "InfiniBand"},
		{Number: 3, LinkLayer: "Ethernet", GIDs: []GID{gid(1, TypeRoCEv2, "10.0.0.1"), gid(7, TypeRoCEv1, "fe80::1")}},
	}}
	for _, c := range []struct {
		port, index int
		want        string
	}{
		{1, 0, "verbs: d port 1: no GID: its network interface has no address"},
		{2, 0, "verbs: d port 2: no GID: is a subnet manager running?"},
		{3, 2, "verbs: d port 3: no GID at index 2: there are 10.0.0.1 (RoCE v2, index 1), fe80::1 (RoCE v1, index 7)"},
		{4, 0, "verbs: d: no port 4: it has ports 1 to 3"},
	} {
		_, err := d.GIDAt(c.port, c.index)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("port %d, index %d: %v, want %s", c.port, c.index, err, c.want)
		}
	}
	broken := errors.New("broken")
	if _, err := (Device{Err: broken}).DefaultGID(1); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

func TestMTU(t *testing.T) {
	for size, code := range map[int]int{0: 1, 255: 1, 256: 1, 511: 1, 512: 2, 1024: 3, 1500: 3, 2048: 4, 4096: 5, 9000: 5} {
		if got := int(mtuCode(size)); got != code {
			t.Errorf("%d bytes: code %d, want %d", size, got, code)
		}
	}
}

func TestWCStatus(t *testing.T) {
	for status, want := range map[int]string{
		0: "success", 5: "flushed, after an error before it", 10: "remote access error",
		12: "retry exceeded: the remote end did not answer", 13: "RNR retry exceeded: the remote end had posted no receive",
		23: "tag matching rendezvous incomplete", 24: "status 24", -1: "status -1",
	} {
		if got := WCStatus(status); got != want {
			t.Errorf("%d: %q, want %q", status, got, want)
		}
	}
	for status, text := range statuses {
		if text == "" {
			t.Errorf("status %d has no words", status)
		}
	}
}

// tree makes files under a root that is /sys until the test ends; those that end in "->" are links to directories.
func tree(t *testing.T, files map[string]string) {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		path, link := strings.CutSuffix(filepath.Join(root, path), "->")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if link {
			err = os.Symlink(filepath.Join(root, text), path)
		} else {
			err = os.WriteFile(path, []byte(text+"\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	was := sysfs
	sysfs = root
	t.Cleanup(func() { sysfs = was })
}

func TestPlace(t *testing.T) {
	const pci = "devices/pci0000:3a/0000:3b:00.0"
	tree(t, map[string]string{
		pci + "/numa_node":                                  "1",
		"class/infiniband/mlx5_0/device->":                  pci,
		"devices/platform/x/numa_node":                      "-1",
		"class/infiniband/other0/device->":                  "devices/platform/x",
		"class/infiniband/rxe0/parent":                      "eth0",
		"class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/3": "eth7",
		"class/infiniband/mlx5_0/ports/1/gid_attrs/types/0": "IB/RoCE v1",
		"class/infiniband/mlx5_0/ports/1/gid_attrs/types/3": "RoCE v2",
		"class/infiniband/mlx5_0/ports/1/rate":              "100 Gb/sec (4X EDR)",
		"class/infiniband/rxe0/ports/1/rate":                "2.5 Gb/sec (1X SDR)",
	})
	for name, want := range map[string]struct {
		pci  string
		numa int
		rate float64
	}{
		"mlx5_0": {"0000:3b:00.0", 1, 100},
		"other0": {"", -1, 0},
		"rxe0":   {"", -1, 2.5},
		"none":   {"", -1, 0},
	} {
		if pci, numa := place(name); pci != want.pci || numa != want.numa {
			t.Errorf("%s is at %q, node %d, want %+v", name, pci, numa, want)
		}
		if got := rate(name, 1); got != want.rate {
			t.Errorf("%s has %v Gb/s, want %v", name, got, want.rate)
		}
	}
	for index, want := range map[int]string{0: TypeRoCEv1, 3: TypeRoCEv2, 1: ""} {
		if got := gidTypeOfOld("mlx5_0", &Port{Number: 1, LinkLayer: "Ethernet"}, index); got != want {
			t.Errorf("index %d is %q, want %q", index, got, want)
		}
	}
	if got := gidTypeOfOld("mlx5_0", &Port{Number: 1, LinkLayer: "InfiniBand"}, 0); got != TypeIB {
		t.Errorf("InfiniBand has %q", got)
	}
	if got := gidNetdev("mlx5_0", 1, 3) + gidNetdev("mlx5_0", 1, 0); got != "eth7" {
		t.Errorf("interface %q", got)
	}
}

func TestCounters(t *testing.T) {
	const port = "class/infiniband/d/ports/2/"
	tree(t, map[string]string{
		port + "counters/port_xmit_data":                      "1000",
		port + "counters/port_rcv_data":                       "18446744073709551615",
		port + "counters/broken":                              "N/A (no PMA)",
		port + "hw_counters/rnr_nak_retry_err":                "7",
		port + "hw_counters/lifespan":                         "10",
		"class/infiniband/d/ports/1/hw_counters/rcvd_rnr_err": "9",
	})
	c := HardwareCounters("d", 2)
	if len(c) != 3 || c["port_xmit_data"] != 1000 || c["port_rcv_data"] != 1<<64-1 || c["rnr_nak_retry_err"] != 7 {
		t.Errorf("%v", c)
	}
	if c := HardwareCounters("none", 1); len(c) != 0 {
		t.Errorf("%v", c)
	}
}

func TestRetries(t *testing.T) {
	for _, c := range []struct {
		driver       string
		counters     map[string]uint64
		rnr, retries uint64
		ok           bool
	}{
		{"nothing", nil, 0, 0, false},
		{"other counters", map[string]uint64{"sent_pkts": 5, "rdma_sends": 6}, 0, 0, false},
		{
			"rxe", map[string]uint64{
				"rcvd_rnr_err": 3, "send_rnr_err": 50, "completer_retry_err": 4, "retry_exceeded_err": 1, "out_of_seq_request": 60,
			}, 3, 5, true,
		},
		{
			"mlx5", map[string]uint64{
				"rnr_nak_retry_err": 2, "packet_seq_err": 10, "local_ack_timeout_err": 100, "implied_nak_seq_err": 1000,
				"out_of_sequence": 7, "out_of_buffer": 8,
			}, 2, 1110, true,
		},
		{"bnxt_re", map[string]uint64{"rnr_naks_rcvd": 1, "to_retransmits": 2, "seq_err_naks_rcvd": 3, "max_retry_exceeded": 4}, 1, 9, true},
		{"ionic", map[string]uint64{"req_rx_rnr_retry_err": 1, "req_rx_pkt_seq_err": 2, "req_tx_retry_excd_err": 3}, 1, 5, true},
		{"irdma", map[string]uint64{"tcpRetransSegs": 6}, 0, 6, true},
		{"all 0", map[string]uint64{"rcvd_rnr_err": 0}, 0, 0, true},
	} {
		rnr, retries, ok := Retries(c.counters)
		if rnr != c.rnr || retries != c.retries || ok != c.ok {
			t.Errorf("%s: %d, %d, %v, want %+v", c.driver, rnr, retries, ok, c)
		}
	}
}

func TestPortBytes(t *testing.T) {
	for _, c := range []struct {
		counters       map[string]uint64
		sent, received uint64
		ok             bool
	}{
		{map[string]uint64{"port_xmit_data": 10, "port_rcv_data": 20}, 40, 80, true},
		{map[string]uint64{"port_xmit_data": 10, "port_rcv_data": 20, "tx_bytes": 1, "rx_bytes": 2}, 40, 80, true},
		{map[string]uint64{"tx_bytes": 10, "rx_bytes": 20}, 10, 20, true},
		{map[string]uint64{"tx_bytes": 10}, 10, 0, false},
		{map[string]uint64{"rcvd_rnr_err": 1}, 0, 0, false},
	} {
		sent, received, ok := PortBytes(c.counters)
		if sent != c.sent || received != c.received || ok != c.ok {
			t.Errorf("%v: %d, %d, %v", c.counters, sent, received, ok)
		}
	}
}
