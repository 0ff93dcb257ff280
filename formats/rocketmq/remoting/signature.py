"""Signatures of requests (source: AclUtils, AclSigner, DefaultAuthenticationContextBuilder).

Signed are the values of the header's fields in the order of their names, and the body. There is no time among them:
one who has recorded a request can send it again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.versions import STANDARD_JSON_VERSION
from formats.schema import Buffer

__all__ = ["ACCESS_KEY", "SIGNATURE", "is_signed_with", "sign", "signed"]

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
# Clients before 4.9.4 added this field behind their signing.
_LATE_FIELD: Final = "_UNIQUE_KEY_QUERY"


def sign(fields: Mapping[str, str], body: Buffer, secret: str) -> str:
    """The signature of fields and body."""
    content = "".join([fields[name] for name in sorted(fields) if name != SIGNATURE])
    mac = hmac.new(secret.encode(), content.encode(), hashlib.sha1)
    mac.update(body)
    return base64.b64encode(mac.digest()).decode()


def is_signed_with(frame: Frame, secret: str) -> bool:
    """Return whether a request is signed with a secret."""
    fields = frame.ext_fields or {}
    if frame.version < STANDARD_JSON_VERSION:
        fields = {name: value for name, value in fields.items() if name != _LATE_FIELD}
    given = fields.get(SIGNATURE, "")
    return hmac.compare_digest(sign(fields, frame.body, secret).encode(), given.encode())


def signed(frame: Frame, access_key: str, secret: str) -> Frame:
    """A request with somebody's signature."""
    fields = {**(frame.ext_fields or {}), ACCESS_KEY: access_key}
    return frame._replace(ext_fields={**fields, SIGNATURE: sign(fields, frame.body, secret)})
