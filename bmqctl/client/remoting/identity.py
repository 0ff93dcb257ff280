"""The ids by which brokers distinguish clients."""

from __future__ import annotations

import os
import secrets
import socket

__all__ = ["new_client_id"]


def new_client_id() -> str:
    """Make a unique id: containers may have the same host name and process ids."""
    return f"{socket.gethostname()}@{os.getpid()}#{secrets.token_hex(8)}"
