"""The counts of bridges in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from bmqctl.carrying.bridge.account import Account

__all__ = ["metrics_text"]


class _Family(NamedTuple):
    """A metric, and its value in an account."""

    name: str
    kind: str
    help: str
    value: Callable[[Account], int]


_FAMILIES: Final = (
    _Family("taken_total", "counter", "Messages delivered by the source.", lambda account: account.taken),
    _Family("delivered_total", "counter", "Messages acknowledged.", lambda account: account.delivered),
    _Family("refused_total", "counter", "Messages that cannot be carried.", lambda account: account.refused.total()),
    _Family("returned_total", "counter", "Messages left to the source.", lambda account: account.returned),
    _Family("repeated_total", "counter", "Sends beyond a message's first.", lambda account: account.repeated),
    _Family("delivered_bytes_total", "counter", "Bytes of acknowledged messages.", lambda account: account.size_bytes),
    _Family("in_flight", "gauge", "Messages taken and not yet at an end.", lambda account: account.in_flight),
)


def metrics_text(accounts: Sequence[tuple[str, Account]]) -> str:
    lines: list[str] = []
    for family in _FAMILIES:
        name = f"bmqctl_bridge_{family.name}"
        lines += (f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}")
        lines += (f'{name}{{bridge="{_escaped(bridge)}"}} {family.value(account)}' for bridge, account in accounts)
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
