"""Agreement of several controllers on one log of commands, by Raft, without sockets, files or clocks."""
