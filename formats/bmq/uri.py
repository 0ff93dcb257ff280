"""Queue URIs: `bmq://DOMAIN[.~TIER]/QUEUE[?id=APPID]` (source: bmqt::Uri and bmqt::UriParser)."""

from __future__ import annotations

import re
from typing import NamedTuple

from formats.errors import FormatError

__all__ = ["QUEUE_NAME_LENGTH_MAX", "QueueUri", "parse_uri"]

SCHEME = "bmq://"
QUEUE_NAME_LENGTH_MAX = 64

_DOMAIN = re.compile(r"[A-Za-z0-9_.-]*?(?=/|\.~|[^A-Za-z0-9_.-]|$)")
_TIER = re.compile(r"[A-Za-z0-9-]*")
_NAME = re.compile(r"[A-Za-z0-9_.-]*")


class QueueUri(NamedTuple):
    """A parsed URI; `tier` and `app_id` may be empty."""

    domain: str
    tier: str
    queue: str
    app_id: str

    @property
    def qualified_domain(self) -> str:
        """The domain with its tier, as configuration names it."""
        return f"{self.domain}.~{self.tier}" if self.tier else self.domain

    @property
    def canonical(self) -> str:
        """The URI without its query, which identifies the queue for all readers."""
        return f"{SCHEME}{self.qualified_domain}/{self.queue}"

    def __str__(self) -> str:
        return f"{self.canonical}?id={self.app_id}" if self.app_id else self.canonical


def _fail(offset: int, reason: str) -> FormatError:
    return FormatError("uri", offset, reason)


def parse_uri(text: str) -> QueueUri:
    """Parse `text`; FormatError with the offset of the first invalid character."""
    if not text.startswith(SCHEME):
        raise _fail(0, f'Invalid scheme: uri must start with "{SCHEME}"')
    start = len(SCHEME)
    end = _end(_DOMAIN, text, start)
    domain = text[start:end]
    if not domain:
        unsupported = end < len(text) and text[end] not in "/."
        raise _fail(
            start, f"Domain parsing failed: unsupported char {text[end]!r}" if unsupported else "Missing domain"
        )
    tier = ""
    if text.startswith(".~", end):
        start = end + 2
        end = _end(_TIER, text, start)
        tier = text[start:end]
        if not tier:
            raise _fail(start, "Empty tier")
    if end == len(text):
        raise _fail(end, "Missing queue")
    if text[end] != "/":
        raise _fail(end, f"{'Tier' if tier else 'Domain'} parsing failed: unsupported char {text[end]!r}")
    start = end + 1
    end = _end(_NAME, text, start)
    queue = text[start:end]
    if end < len(text) and text[end] != "?":
        raise _fail(end, f"Path parsing failed: unsupported char {text[end]!r}")
    if not queue:
        raise _fail(start, "Missing queue")
    if len(queue) > QUEUE_NAME_LENGTH_MAX:
        raise _fail(start, f"Queue name exceeds {QUEUE_NAME_LENGTH_MAX} characters")
    return QueueUri(domain, tier, queue, _app_id(text, end + 1) if end < len(text) else "")


def _app_id(text: str, start: int) -> str:
    key, separator, app_id = text[start:].partition("=")
    if not separator:
        raise _fail(start, "Query parsing failed: no separator found")
    if key != "id":
        raise _fail(start, f'Query parsing failed: unsupported query "{key}"')
    start += len("id=")
    if not app_id:
        raise _fail(start, 'Query parsing failed: missing value after "="')
    end = _end(_NAME, text, start)
    if end < len(text):
        raise _fail(end, f"Query parsing failed: unsupported char {text[end]!r}")
    return app_id


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return match.end() if match else start
