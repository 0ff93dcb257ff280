"""The signature of a call (source: DefaultAuthenticationContextBuilder, AuthenticationHeader).

It covers only the stated time: anyone who has seen a call can make others.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["CallCredential", "is_signed_with", "read_credential"]


class CallCredential(NamedTuple):
    """The name of a user, the signed text, and its signature."""

    name: str
    date_time: str
    signature: str


def read_credential(headers: Mapping[str, str]) -> CallCredential | None:
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    if not scheme:
        return None
    parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    name = parts.get("Credential", "").split("/")[0]
    signature = parts.get("Signature", "")
    return CallCredential(name, headers.get("x-mq-date-time", ""), signature) if name and signature else None


def is_signed_with(credential: CallCredential, secret: str) -> bool:
    """Return whether a credential is signed with a secret; its digits may have any case."""
    expected = hmac.new(secret.encode(), credential.date_time.encode("latin-1"), hashlib.sha1).hexdigest()
    return hmac.compare_digest(expected.encode(), credential.signature.lower().encode("latin-1", "replace"))
