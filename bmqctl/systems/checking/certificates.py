"""The days until certificates expire: those in a file, and that of a port."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from bmqctl.client.address import BadAddress, parse_address
from bmqctl.common.regular import open_buffered
from bmqctl.systems.checking.verdict import Measured, Measurement
from broker.shell.connections.certificates import end_of

__all__ = ["CERTIFICATE_VALUES", "SOON_DAYS", "days_until", "end_in", "measure_certificate"]

CERTIFICATE_VALUES: Final = ("days",)
SOON_DAYS: Final = 30
# A bundle of all public authorities has a quarter of it.
_FILE_SIZE_MAX: Final = 1 << 20


def days_until(end: datetime) -> float:
    return round((end - datetime.now(UTC)) / timedelta(days=1), 2)


def end_in(file: Path) -> datetime:
    """Return when the first certificate in a file ends, or a list of revoked ones is outdated.

    Raises `OSError` if it cannot be read or is no regular file, and `ValueError` if it has neither or is too large.
    """
    with open_buffered(file) as opened:
        pem = opened.read(_FILE_SIZE_MAX + 1)
    if len(pem) > _FILE_SIZE_MAX:
        raise ValueError(f"{file} is larger than {_FILE_SIZE_MAX >> 20} MiB: it is no file of certificates")
    return end_of(pem)


def measure_certificate(place: str, timeout_s: float) -> Measured:
    """Measure the certificates in a file, or the one that a port shows, from any issuer.

    Raises `OSError` if the file cannot be read or the port shows none, and `ValueError` for any other place.
    """
    file = Path(place)
    end = end_in(file) if file.exists() else end_of(_shown_by(place, timeout_s))
    days = days_until(end)
    words = f"ends in {days:,g} days" if days >= 0 else f"ended {-days:,g} days ago"
    return Measured(f"{place}: {words}, on {end:%Y-%m-%d}", [Measurement("days", days, "")])


def _shown_by(place: str, timeout_s: float) -> bytes:
    try:
        address = parse_address(place)
    except BadAddress:
        raise ValueError(f"{place}: no such file, and not HOST:PORT") from None
    return ssl.get_server_certificate(address, timeout=timeout_s).encode()
