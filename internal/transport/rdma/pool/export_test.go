package pool

// Lookup is the connection that has an id, nil if none has. Ids are given again as late as possible, so that a late
// completion does not find a new owner.
func (p *Pool) Lookup(id uint16) *Comm {
	if int(id) >= len(p.comms) {
		return nil
	}
	return p.comms[id]
}
