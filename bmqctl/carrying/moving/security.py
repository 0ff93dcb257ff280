"""The security of connections to brokers of RocketMQ, by the options of a command."""

from __future__ import annotations

import ssl

from bmqctl.carrying.messages.ends import CannotBegin, Reach, check_authority
from bmqctl.clients.rocketmq.client import Security
from bmqctl.clients.rocketmq.link import AccessKeys

__all__ = ["security_of"]


def security_of(reach: Reach) -> Security:
    """The security of connections of RocketMQ. Raises `CannotBegin`."""
    if reach.mechanism is not None:
        raise CannotBegin("an authentication mechanism is BlazingMQ's: a topic's brokers need KEY:SECRET only")
    key, colon, secret = reach.data.partition(":")
    if reach.data and not (key and colon and secret):
        raise CannotBegin("expected KEY:SECRET, the access key and the secret of a user of RocketMQ")
    authority = check_authority(reach.authority)
    return Security(
        None if authority is None else ssl.create_default_context(cafile=authority),
        AccessKeys(key, secret) if reach.data else None,
    )
