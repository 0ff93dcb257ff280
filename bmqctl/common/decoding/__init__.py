"""Payloads as values: JSON, Avro, Protobuf, MessagePack and hex, as people and JSON are shown them."""
