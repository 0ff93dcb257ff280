"""The tables of a data source over stores: planning, scanning, and decoding of payloads."""
