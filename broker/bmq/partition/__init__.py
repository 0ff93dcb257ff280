"""One partition: appending to its files, rollover, and records that wait for room or for copies."""
