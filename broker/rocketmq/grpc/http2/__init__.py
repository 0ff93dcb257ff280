"""One connection of HTTP/2, without its socket: frames, header blocks, and the calls in its streams."""
