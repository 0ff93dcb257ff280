"""Signatures of requests (source: AclUtils, AclSigner, DefaultAuthenticationContextBuilder).

A signature covers the values of the header's fields, in the order of their names, and the body. It has no time: a
recorded request can be sent again.
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
# Clients before 4.9.4 add this field after signing.
_LATE_FIELD: Final = "_UNIQUE_KEY_QUERY"


def sign(fields: Mapping[str, str], body: Buffer, secret: str) -> str:
    content = "".join([fields[name] for name in sorted(fields) if name != SIGNATURE])
    mac = hmac.new(secret.encode(), content.encode(), hashlib.sha1)
    mac.update(body)
    return base64.b64encode(mac.digest()).decode()


def is_signed_with(frame: Frame, secret: str) -> bool:
    fields = frame.ext_fields or {}
    if frame.version < STANDARD_JSON_VERSION:
        fields = {name: value for name, value in fields.items() if name != _LATE_FIELD}
    given = fields.get(SIGNATURE, "")
    return hmac.compare_digest(sign(fields, frame.body, secret).encode(), given.encode())


def signed(frame: Frame, access_key: str, secret: str) -> Frame:
    fields = {**(frame.ext_fields or {}), ACCESS_KEY: access_key}
    return frame._replace(ext_fields={**fields, SIGNATURE: sign(fields, frame.body, secret)})
