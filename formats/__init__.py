"""Bytes <-> values for everything that the two systems put on a wire or a disk. No I/O; imports nothing of ours."""
