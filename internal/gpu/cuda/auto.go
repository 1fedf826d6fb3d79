package cuda

// Candidates names the engines that "auto" measures; see gpu.Chooser.
func (d *Device) Candidates() []string { return d.Engines() }
