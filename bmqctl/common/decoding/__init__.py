"""Decoding of payloads to values of JSON: JSON, Avro, Protobuf, MessagePack and hex."""
