"""Repair of RocketMQ stores: sound parts keep their places, and the rest is rebuilt from them."""
