"""Binary events, one module per family. Messages are small values over views of the event: no payload is copied."""
