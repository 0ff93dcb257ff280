"""The ids by which brokers tell clients apart."""

from __future__ import annotations

import os
import secrets
import socket

__all__ = ["new_client_id"]


def new_client_id() -> str:
    """Make an id that no other client has: containers may have the same host name, and the same process id in it."""
    return f"{socket.gethostname()}@{os.getpid()}#{secrets.token_hex(8)}"
