package rdma

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs"
)

// holds compares an error with what a user must read there: one line, with all of parts. No parts: there is none.
func holds(t *testing.T, err error, parts ...string) {
	t.Helper()
	if len(parts) == 0 {
		if err != nil {
			t.Error(err)
		}
		return
	}
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v does not say %q in one line", err, part)
		}
	}
}

// gid is a RoCE v2 address 10.0.0.n.
func gid(index int, n byte) verbs.GID {
	return verbs.GID{Index: index, Type: verbs.TypeRoCEv2, Value: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: n}}
}

// card is a device with a port for each of states.
func card(name, pci string, numa int, states ...string) verbs.Device {
	d := verbs.Device{Name: name, Transport: "InfiniBand", PCI: pci, NUMA: numa}
	for i, s := range states {
		d.Ports = append(d.Ports, verbs.Port{
			Number: i + 1, State: s, LinkLayer: "Ethernet", MTU: 4096, GIDs: []verbs.GID{gid(1, byte(i+1)), gid(3, byte(i+33))},
		})
	}
	return d
}

// pciTree makes PCI devices that stand at these places, for this test.
func pciTree(t *testing.T, places ...string) {
	t.Helper()
	root := t.TempDir()
	list := filepath.Join(root, "list")
	if err := os.Mkdir(list, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, p := range places {
		dir := filepath.Join(root, "devices", p)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(dir, filepath.Join(list, filepath.Base(p))); err != nil {
			t.Fatal(err)
		}
	}
	before := pciDevices
	pciDevices = list
	t.Cleanup(func() { pciDevices = before })
}

// TestNearestNIC: the NIC behind the GPU's own bridge, else behind its host bridge, else of its NUMA node; of several the
// ranks take one each.
func TestNearestNIC(t *testing.T) {
	pciTree(t,
		"pci0000:00/0000:00:01.0/0000:01:00.0", // the GPU …
		"pci0000:00/0000:00:01.0/0000:01:00.1", // … behind one bridge with it
		"pci0000:00/0000:00:02.0/0000:02:00.0", // behind one host bridge
		"pci0000:00/0000:00:03.0/0000:03:00.0",
		"pci0000:80/0000:80:01.0/0000:81:00.0", // elsewhere
		"pci0000:80/0000:80:02.0/0000:82:00.0")
	var (
		at      = gpu.Info{PCI: "0000:01:00.0", NUMA: 0}
		host    = gpu.Info{NUMA: 1}
		bridge  = card("bridge", "0000:01:00.1", 1, "ACTIVE")
		root    = card("root", "0000:02:00.0", 1, "ACTIVE")
		root2   = card("root2", "0000:03:00.0", 1, "ACTIVE")
		far     = card("far", "0000:81:00.0", 0, "ACTIVE")
		farther = card("farther", "0000:82:00.0", 1, "ACTIVE")
		soft    = card("rxe0", "", -1, "ACTIVE")
		off     = card("off", "0000:01:00.1", 0, "DOWN")
		iwarp   = card("iwarp", "0000:01:00.1", 0, "ACTIVE")
		broken  = verbs.Device{Name: "broken", Transport: "InfiniBand", NUMA: -1, Err: errors.New("verbs: broken: no permission")}
	)
	iwarp.Transport = "iWARP"
	two := card("two", "0000:01:00.1", 0, "ACTIVE", "ACTIVE")
	half := card("half", "0000:01:00.1", 0, "INIT", "ACTIVE")
	for name, c := range map[string]struct {
		all  []verbs.Device
		d    gpu.Info
		rank int
		want string
		says []string
	}{
		"one bridge":              {[]verbs.Device{far, root, bridge, soft}, at, 0, "bridge", nil},
		"one bridge, each rank":   {[]verbs.Device{far, root, bridge, soft}, at, 3, "bridge", nil},
		"one host bridge":         {[]verbs.Device{far, root, soft, farther}, at, 0, "root", nil},
		"two as near, rank 0":     {[]verbs.Device{root, far, root2}, at, 0, "root", nil},
		"two as near, rank 1":     {[]verbs.Device{root, far, root2}, at, 1, "root2", nil},
		"two as near, rank 2":     {[]verbs.Device{root, far, root2}, at, 2, "root", nil},
		"one NUMA node":           {[]verbs.Device{farther, far}, at, 0, "far", nil},
		"no PCI, one NUMA node":   {[]verbs.Device{far, farther}, host, 0, "farther", nil},
		"unknown NUMA nodes":      {[]verbs.Device{soft, far}, gpu.Info{NUMA: -1}, 0, "rxe0", nil},
		"unknown, the other rank": {[]verbs.Device{soft, far}, gpu.Info{NUMA: -1}, 1, "far", nil},
		"two ports, rank 0":       {[]verbs.Device{two}, at, 0, "two:1", nil},
		"two ports, rank 1":       {[]verbs.Device{two}, at, 1, "two:2", nil},
		"the port that is up":     {[]verbs.Device{half}, at, 0, "half:2", nil},
		"a nearer one is down":    {[]verbs.Device{off, far}, at, 0, "far", nil},
		"a nearer one is iWARP":   {[]verbs.Device{iwarp, far}, at, 0, "far", nil},
		"one cannot be opened":    {[]verbs.Device{broken, far}, at, 0, "far", nil},
		"none is up": {
			[]verbs.Device{off, broken, iwarp, half}[:3], at, 0, "",
			[]string{"no port of an RDMA device is up", "off is DOWN", "no permission", "iwarp is iWARP", "rdma_cm", "ip link set up"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := Options{}.choose(c.all, c.rank, c.d)
			holds(t, err, c.says...)
			if err == nil && (n.String() != c.want || n.gid.Index != 1) {
				t.Errorf("%s with %s, want %s", n, n.gid, c.want)
			}
			if err != nil && !errors.Is(err, gpu.ErrUnsupported) {
				t.Errorf("%v does not say that this machine cannot", err)
			}
		})
	}
}

func TestNamedNIC(t *testing.T) {
	one, two := card("mlx5_0", "", -1, "ACTIVE"), card("mlx5_1", "", -1, "ACTIVE", "DOWN")
	bare := card("bare", "", -1, "ACTIVE")
	bare.Ports[0].GIDs = nil
	broken := verbs.Device{Name: "broken", Err: errors.New("verbs: broken: no permission")}
	all := []verbs.Device{one, two, bare, broken}
	third, ninth := 3, 9
	for name, c := range map[string]struct {
		nics []string
		gid  *int
		rank int
		want string
		says []string
	}{
		"device":                {[]string{"mlx5_1"}, nil, 0, "mlx5_1:1 10.0.0.1 (RoCE v2, index 1)", nil},
		"port":                  {[]string{"mlx5_0:1"}, nil, 0, "mlx5_0 10.0.0.1 (RoCE v2, index 1)", nil},
		"in turns":              {[]string{"mlx5_0", "mlx5_1"}, nil, 3, "mlx5_1:1 10.0.0.1 (RoCE v2, index 1)", nil},
		"GID":                   {[]string{"mlx5_0"}, &third, 0, "mlx5_0 10.0.0.33 (RoCE v2, index 3)", nil},
		"GID that is not":       {[]string{"mlx5_0"}, &ninth, 0, "", []string{"mlx5_0 port 1", "no GID at index 9", "index 1", "index 3"}},
		"unknown":               {[]string{"mlx5_7"}, nil, 0, "", []string{"--nics: no RDMA device mlx5_7: there are mlx5_0, mlx5_1, bare, broken"}},
		"port that is not":      {[]string{"mlx5_0:2"}, nil, 0, "", []string{"--nics: ", "mlx5_0", "no port 2"}},
		"no port":               {[]string{"mlx5_0:x"}, nil, 0, "", []string{"--nics mlx5_0:x: want a port such as mlx5_0:1"}},
		"port down":             {[]string{"mlx5_1:2"}, nil, 0, "", []string{"port 2 of mlx5_1 is DOWN", "ip link set up"}},
		"no address":            {[]string{"bare"}, nil, 0, "", []string{"bare port 1", "no GID", "ip addr add"}},
		"cannot be opened":      {[]string{"broken"}, nil, 0, "", []string{"no permission"}},
		"without a name, GID":   {nil, &third, 0, "mlx5_0 10.0.0.33 (RoCE v2, index 3)", nil},
		"without a name, GID 9": {nil, &ninth, 0, "", []string{"no GID at index 9"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := Options{NICs: c.nics, GID: c.gid}.choose(all, c.rank, gpu.Info{NUMA: -1})
			holds(t, err, c.says...)
			if got := n.String() + " " + n.gid.String(); err == nil && got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
