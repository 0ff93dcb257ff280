"""The standing of peers: what a node knows of one decides what memory its connection may use."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Standing"]


class Standing(IntEnum):
    """The standing of a peer, from its connection on.

    A stranger has not sent a whole request yet, or none that the access control allowed. A client has. A peer is a node
    that this one has dialed or admitted as a member; its connection has bounds of its own.
    """

    STRANGER = 0
    CLIENT = 1
    PEER = 2
