"""The exceptions that a request to a nameserver or a broker may end with."""

from __future__ import annotations

from typing import Final

from bmqctl.clients.rocketmq.link import LinkLost, NoAnswer
from bmqctl.clients.rocketmq.refusals import RequestRefused
from formats.errors import FormatError

__all__ = ["FAULTS", "words_of"]

# After one of these, what failed may be tried again.
FAULTS: Final = (OSError, LinkLost, NoAnswer, RequestRefused, FormatError)


def words_of(fault: Exception) -> str:
    """The reason of a fault, for people."""
    return (fault.strerror or str(fault)) if isinstance(fault, OSError) else str(fault)
