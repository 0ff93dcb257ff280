"""Parts of both systems: clock, timers, the boundary for faults, and the ports to files."""
