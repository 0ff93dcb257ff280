"""The files in a broker's store that its controller's words are kept in: its id, and the epochs of its log."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from broker.rocketmq.assembly.config import PropertyError
from broker.rocketmq.core.options import BrokerOptions
from broker.rocketmq.replication.epochs import EpochBook
from broker.shell.config_files import ConfigFile
from formats.errors import FormatError
from formats.rocketmq.identity import BrokerIdentity, decode_identity, encode_identity

__all__ = ["StoredIdentity", "open_epochs", "open_identity"]

IDENTITY: Final = "brokerIdentity"
APPLICANT: Final = "brokerIdentity-temp"
EPOCHS: Final = "epochFileCheckpoint"


class StoredIdentity:
    """See `broker.rocketmq.replication.membership.IdentityFiles`."""

    def __init__(self, own: ConfigFile, applicant: ConfigFile) -> None:
        self._own = own
        self._applicant = applicant
        self.known = self._read(own) or self._read(applicant)

    @staticmethod
    def _read(file: ConfigFile) -> BrokerIdentity | None:
        data = file.read()
        return decode_identity(data) if data else None

    def keep(self, identity: BrokerIdentity) -> None:
        """Write an identity; that of an applicant if it has a check code."""
        (self._applicant if identity.check_code else self._own).write(encode_identity(identity))
        self.known = identity
        if not identity.check_code:
            self._applicant.remove()

    def forget(self) -> None:
        """Remove that of an applicant."""
        self._applicant.remove()
        self.known = None


def open_identity(store: Path, options: BrokerOptions) -> StoredIdentity:
    """Read a broker's id. Raises `PropertyError` if it is that of another broker, or cannot be read."""
    own, applicant = ConfigFile(store / IDENTITY), ConfigFile(store / APPLICANT)
    try:
        found = StoredIdentity(own, applicant)
    except FormatError as error:
        raise PropertyError(f"{own.path} or {applicant.path}: {error}; remove it for the broker to get an id") from None
    known = found.known
    if known is not None and (known.cluster, known.name) != (options.cluster, options.name):
        raise PropertyError(
            f"{store}: the store is that of broker {known.name} of cluster {known.cluster}, and the configuration that "
            f"of {options.name} of {options.cluster}; set brokerName and brokerClusterName to those of the store"
        )
    return found


def open_epochs(store: Path) -> EpochBook:
    """Read the epochs of a log. Raises `PropertyError`."""
    file = ConfigFile(store / EPOCHS)
    try:
        return EpochBook(file.read(), file.write)
    except FormatError as error:
        raise PropertyError(f"{file.path}: {error}; restore the file whose name ends with .bak") from None
