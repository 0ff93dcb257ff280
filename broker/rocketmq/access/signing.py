"""The check that a super user has signed a request."""

from __future__ import annotations

from broker.rocketmq.access.model import DISABLED, SUPER
from broker.rocketmq.access.tables import AccessTables
from formats.rocketmq.frame import Frame
from formats.rocketmq.signature import ACCESS_KEY, is_signed_with

__all__ = ["is_signed_by_super"]


def is_signed_by_super(tables: AccessTables, request: Frame) -> bool:
    """Return whether a super user has signed a request. It does not matter whether signatures are checked."""
    sender = tables.users.get((request.ext_fields or {}).get(ACCESS_KEY, ""))
    if sender is None or sender.kind != SUPER or sender.status == DISABLED:
        return False
    return is_signed_with(request, sender.password)
