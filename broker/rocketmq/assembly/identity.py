"""The files of a broker under a controller in its store: its id, and the epochs of its log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from broker.rocketmq.config.node import PropertyError, RocketConfig
from broker.rocketmq.replication.streams.epochs import EpochBook
from broker.rocketmq.tables.options import BrokerOptions
from formats.errors import FormatError
from formats.rocketmq.files.identity import BrokerIdentity, decode_identity, encode_identity

__all__ = [
    "EPOCHS",
    "OpenFile",
    "SmallFile",
    "StoredIdentity",
    "epoch_begins",
    "open_epochs",
    "open_identity",
    "small_file",
]

IDENTITY: Final = "brokerIdentity"
APPLICANT: Final = "brokerIdentity-temp"
EPOCHS: Final = "epochFileCheckpoint"


def small_file(config: RocketConfig, name: str) -> Path:
    places = config.places
    identity = places.identity or config.store / IDENTITY
    elsewhere = {EPOCHS: places.epochs, IDENTITY: identity, APPLICANT: identity.with_name(f"{identity.name}-temp")}
    return elsewhere.get(name) or config.store / name


class SmallFile(Protocol):
    """A file that is written as a whole; see `broker.shell.files.config_files.ConfigFile`."""

    @property
    def path(self) -> Path: ...

    def read(self) -> bytes: ...
    def write(self, data: bytes) -> None: ...
    def remove(self) -> None: ...


OpenFile = Callable[[str], SmallFile]


class StoredIdentity:
    """See `broker.rocketmq.replication.control.membership.IdentityFiles`."""

    def __init__(self, own: SmallFile, applicant: SmallFile) -> None:
        self._own = own
        self._applicant = applicant
        self.known = self._read(own) or self._read(applicant)

    @staticmethod
    def _read(file: SmallFile) -> BrokerIdentity | None:
        data = file.read()
        return decode_identity(data) if data else None

    def keep(self, identity: BrokerIdentity) -> None:
        (self._applicant if identity.check_code else self._own).write(encode_identity(identity))
        self.known = identity
        if not identity.check_code:
            self._applicant.remove()

    def forget(self) -> None:
        self._applicant.remove()
        self.known = None


def open_identity(open_file: OpenFile, options: BrokerOptions) -> StoredIdentity:
    """Read a broker's id. Raises `PropertyError` if it is another broker's, or unreadable."""
    own, applicant = open_file(IDENTITY), open_file(APPLICANT)
    try:
        found = StoredIdentity(own, applicant)
    except FormatError as error:
        raise PropertyError(f"{own.path} or {applicant.path}: {error}; remove it for the broker to get an id") from None
    known = found.known
    if known is not None and (known.cluster, known.name) != (options.cluster, options.name):
        raise PropertyError(
            f"{own.path.parent}: the store is that of broker {known.name} of cluster {known.cluster}, and "
            f"the configuration that of {options.name} of {options.cluster}; set brokerName and brokerClusterName to "
            "those of the store"
        )
    return found


def open_epochs(open_file: OpenFile) -> EpochBook:
    """Read the epochs of a log. Raises `PropertyError`."""
    file = open_file(EPOCHS)
    try:
        return EpochBook(file.read(), file.write)
    except FormatError as error:
        raise PropertyError(f"{file.path}: {error}; restore the file whose name ends with .bak") from None


def epoch_begins(open_file: OpenFile) -> list[int]:
    """Return the offsets at which the epochs of a log begin. Raises `PropertyError`."""
    return [entry.start_offset for entry in open_epochs(open_file).entries]
