"""The security of connections to RocketMQ's brokers, by a command's options."""

from __future__ import annotations

import ssl

from bmqctl.carrying.messages.ends import Reach, access_keys, check_authority
from bmqctl.client.remoting.client import Security
from bmqctl.client.remoting.link import AccessKeys

__all__ = ["security_of"]


def security_of(reach: Reach) -> Security:
    """Return the security of connections to RocketMQ. Raises `CannotBegin`."""
    keys, authority = access_keys(reach), check_authority(reach.authority)
    return Security(
        None if authority is None else ssl.create_default_context(cafile=authority),
        None if keys is None else AccessKeys(*keys),
    )
