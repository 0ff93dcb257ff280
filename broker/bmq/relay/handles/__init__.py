"""The handles of a relay: those of its clients, and the requests for them to the upstream."""
