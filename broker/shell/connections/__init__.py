"""TCP connections: accepted or dialed, plain or over TLS, with bounds on their number and memory."""
