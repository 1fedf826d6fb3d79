package cuda

// Candidates names the engines that "auto" chooses from; see gpu.Chooser.
func (d *Device) Candidates() []string { return d.Engines() }
