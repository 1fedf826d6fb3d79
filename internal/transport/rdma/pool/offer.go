package pool

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Offer is what one end of a connection sends to the other, as JSON.
type Offer struct {
	ID        uint16   `json:"id"`         // of the connection at the offering end
	Group     int      `json:"group"`      // -1: it shares nothing
	Dir       Dir      `json:"dir"`        // seen from the offering end
	NIC       int      `json:"nic"`        // of the offering end
	RemoteNIC int      `json:"remote_nic"` // of the other end, as the offering end has it
	Primary   bool     `json:"primary"`
	QPs       [][]byte `json:"qps"` // addresses, by queue pair of the connection
}

// UnmarshalJSON refuses invalid offers.
func (o *Offer) UnmarshalJSON(text []byte) error {
	type plain Offer // without this method
	var read plain
	if err := json.Unmarshal(text, &read); err != nil {
		return fmt.Errorf("pool: offer: %w", err)
	}
	if err := Offer(read).check(); err != nil {
		return fmt.Errorf("pool: %w", err)
	}
	*o = Offer(read)
	return nil
}

func (o Offer) check() error {
	switch {
	case o.ID < 1 || o.ID > MaxComms:
		return fmt.Errorf("offer: id %d: want 1 to %d", o.ID, MaxComms)
	case o.Group < unshared:
		return fmt.Errorf("offer: group %d", o.Group)
	case o.Dir != Send && o.Dir != Recv:
		return fmt.Errorf("offer: direction %q", o.Dir)
	case o.NIC < 0 || o.RemoteNIC < 0:
		return fmt.Errorf("offer: NICs %d and %d: they are numbered from 0 on", o.NIC, o.RemoteNIC)
	case o.Group == unshared && !o.Primary:
		return errors.New("offer: a secondary without a group")
	case len(o.QPs) < 1 || len(o.QPs) > most:
		return fmt.Errorf("offer: %d queue pairs: want 1 to %d", len(o.QPs), most)
	}
	for q, a := range o.QPs {
		if len(a) == 0 {
			return fmt.Errorf("offer: queue pair %d has no address", q)
		}
	}
	return nil
}
