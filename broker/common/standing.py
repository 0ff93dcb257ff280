"""The standing of peers, which decides how much memory their connections may use."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Standing"]


class Standing(IntEnum):
    """The standing of the other end of a connection.

    A STRANGER has not yet sent a complete request that access control allowed; a CLIENT has. A PEER is a node that this
    one has dialed or admitted as a member; its connection has bounds of its own.
    """

    STRANGER = 0
    CLIENT = 1
    PEER = 2
