"""Repair of RocketMQ stores: what is sound is kept where it is, and the rest is made again from it."""
