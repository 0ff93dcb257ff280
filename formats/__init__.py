"""Bytes <-> values for everything BlazingMQ puts on a wire or a disk. No I/O; imports nothing of ours."""
