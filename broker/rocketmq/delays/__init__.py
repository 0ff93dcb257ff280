"""Messages that become due later: delay levels and timers."""
