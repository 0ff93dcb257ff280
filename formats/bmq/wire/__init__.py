"""Binary events, one module per family. Messages come as small values over views of the event: no payload is copied."""
