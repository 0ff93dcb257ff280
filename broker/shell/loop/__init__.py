"""The loop of a process: its rounds, timers and signals, and the pages and commands that it serves beside a node."""
