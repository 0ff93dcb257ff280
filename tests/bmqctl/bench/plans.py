"""A short run, for tests to vary."""

from __future__ import annotations

from bmqctl.bench.plan import Plan

__all__ = ["PLAN"]

PLAN = Plan(
    run=99,
    host="127.0.0.1",
    port=0,
    queue="relay",
    client="relay",
    producers=1,
    consumers=1,
    size=200,
    batch=4,
    count=400,
    duration_s=None,
    rate=0.0,
    window=64,
    max_unconfirmed_messages=100,
    max_unconfirmed_bytes=1 << 20,
    connect_timeout_s=60.0,
    quiet_s=5.0,
)
