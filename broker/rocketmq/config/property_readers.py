"""Configuration files, and the kinds of values that their properties have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker.rocketmq.config.tls import CLIENT_CERTIFICATES, TlsMode
from broker.rocketmq.replication.options import Role
from formats.addresses import read_host
from formats.errors import FormatError
from formats.rocketmq.files.index import IndexFile
from formats.rocketmq.files.property_text import PROPERTIES_ENCODING, read_properties
from formats.rocketmq.numbers import read_digits
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.access import UserInfo

__all__ = [
    "ADDRESSES",
    "BOOL",
    "BROKER_ID",
    "CLIENT_AUTH",
    "CODES",
    "CONSUME_QUEUE_BYTES",
    "FLUSH_TYPE",
    "HOST",
    "HOURS",
    "METRICS_EXPORTER",
    "MISREAD",
    "PATH",
    "PATHS",
    "ROLE",
    "SECRET",
    "TEXT",
    "TLS_MODE",
    "Kind",
    "PropertyError",
    "data_of",
    "index_faults",
    "is_misread",
    "number",
    "properties_of",
    "raise_first",
    "read_master_role",
    "secret_pair",
    "shown_delays",
]


# The original counts the bytes of a file in 32 bits.
_FILE_BYTES_MAX: Final = (1 << 31) - 1
# An eavesdropper of a proof can try guesses offline.
_SECRET_CHARS_MIN: Final = 16
MISREAD: Final = "has characters in UTF-8, and Java's properties are in ISO-8859-1"


class PropertyError(Exception):
    """A configuration that cannot be used: `problem` gives the place and the reason, and `remedy`, if any, what to do.

    `others` are the next faults in the same file.
    """

    def __init__(self, problem: str, remedy: str = "", others: tuple[PropertyError, ...] = ()) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy
        self.others = others

    def __str__(self) -> str:
        more = f" ({len(self.others)} more after this)" if self.others else ""
        return f"{self.problem}; {self.remedy}{more}" if self.remedy else f"{self.problem}{more}"


def raise_first(faults: Sequence[PropertyError]) -> None:
    """Raise the first of a file's faults, if any, with the others."""
    if faults:
        raise PropertyError(faults[0].problem, faults[0].remedy, tuple(faults[1:]))


def properties_of(path: Path) -> dict[str, str]:
    """Return the properties of a configuration file, without blanks around the values. Raises `PropertyError`.

    Source: BrokerStartup.SystemConfigFileHelper, MixAll.properties2Object.
    """
    try:
        found = read_properties(data_of(path).decode(PROPERTIES_ENCODING))
    except FormatError as error:
        raise PropertyError(f"{path}: {error.reason}", "write a backslash as two") from None
    return {name: value.strip() for name, value in found.items()}


def data_of(path: Path) -> bytes:
    """Return the bytes of a configuration file. Raises `PropertyError`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise PropertyError(f"{path}: {error.strerror}") from None


def is_misread(value: str) -> bool:
    """Return whether a value that was read as ISO-8859-1 was written in UTF-8."""
    try:
        return not value.isascii() and value.encode(PROPERTIES_ENCODING).decode() != value
    except UnicodeError:
        return False


def index_faults(path: Path, slots: int, entries: int) -> list[PropertyError]:
    """Return the fault of a configuration whose index files are larger than the original can map, if any."""
    size = IndexFile.size_of(slots, entries)
    if size <= _FILE_BYTES_MAX:
        return []
    problem = f"{path}: maxHashSlotNum={slots} and maxIndexNum={entries} make index files of {size} bytes"
    return [PropertyError(problem, f"lower them: {_FILE_BYTES_MAX} bytes are possible")]


def _read_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return text.lower() == "true"


class Kind(NamedTuple):
    """A kind of values. `read` raises `ValueError` for an invalid text; `about` is for the manual."""

    read: Callable[[str], Any]
    about: str
    write: Callable[[Any], str] = str


def number(least: int, most: int) -> Kind:
    def read(text: str) -> int:
        value = read_digits(text)
        if value is None or not least <= value <= most:
            raise ValueError(f"is not a number between {least} and {most}")
        return value

    return Kind(read, f"number, {least} to {most}")


def _word(meanings: Mapping[str, Any]) -> Kind:
    def read(text: str) -> Any:
        if text.lower() not in meanings:
            raise ValueError(f"is none of {', '.join(meanings)}")
        return meanings[text.lower()]

    words = {meaning: word for word, meaning in meanings.items()}
    return Kind(read, ", ".join(meanings), words.__getitem__)


def _read_broker_id(text: str) -> int:
    # The original's examples have -1 where a controller gives the id.
    return -1 if text == "-1" else number(0, (1 << 63) - 1).read(text)


def _read_text(text: str) -> str:
    if not text:
        raise ValueError("is empty")
    return text


def _read_metrics_exporter(text: str) -> bool:
    if text not in ("DISABLE", "OTLP_GRPC", "PROM", "LOG"):
        raise ValueError("is none of DISABLE, OTLP_GRPC, PROM and LOG")
    return text == "PROM"


def _read_flush_type(text: str) -> bool:
    if text not in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        raise ValueError("is neither ASYNC_FLUSH nor SYNC_FLUSH")
    return text == "SYNC_FLUSH"


def _read_role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise ValueError("is none of " + ", ".join(role.value for role in Role)) from None


def read_master_role(text: str) -> Role:
    role = _read_role(text)
    if role is Role.SLAVE:
        raise ValueError("is only used at the start of a broker")
    return role


def _read_consume_queue_bytes(text: str) -> int:
    # The original rounds up to whole entries.
    size: int = number(20, _FILE_BYTES_MAX // 20 * 20).read(text)
    return -(-size // 20) * 20


def _read_hours(text: str) -> frozenset[int]:
    words = [read_digits(word.strip(), 23) for word in text.split(";") if word.strip()]
    hours = frozenset(hour for hour in words if hour is not None)
    if not hours or None in words:
        raise ValueError("is not an hour between 00 and 23, or several separated by semicolons")
    return hours


def _read_addresses(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


def _read_path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError("is no path")
    return Path(text)


def _read_paths(text: str) -> tuple[Path, ...]:
    names = text.split(",")
    # The original's configurations may have a comma after the last path.
    while len(names) > 1 and not names[-1]:
        names.pop()
    for name in names:
        if not name or name != name.strip():
            raise ValueError("has a path that is empty, or begins or ends with a blank")
    paths = tuple(map(_read_path, names))
    if len({*paths}) < len(paths):
        raise ValueError("names a folder twice")
    return paths


def _codes(text: str) -> frozenset[int]:
    # There may be names of another protocol beside the codes; it is not spoken here.
    codes = map(read_digits, text.replace(",", " ").split())
    return frozenset(code for code in codes if code is not None)


def _peer_secret(text: str) -> bytes:
    secret = text.strip().encode()
    if len(secret) < _SECRET_CHARS_MIN:
        raise ValueError(f"has fewer than {_SECRET_CHARS_MIN} characters")
    return secret


def secret_pair(name: str, password: str) -> Kind:
    """Return the kind of a name and a password in a JSON object. Texts of faults have no password."""

    def read(text: str) -> UserInfo:
        try:
            value = fastjson.loads(text)
        except FormatError:
            value = None
        pair = (value.get(name), value.get(password)) if isinstance(value, dict) else ()
        if len(pair) != 2 or not all(isinstance(each, str) and each.strip() for each in pair):
            raise ValueError(f'is not like {{"{name}":"...","{password}":"..."}}')
        return UserInfo(pair[0], pair[1], "Super", "enable")

    return Kind(read, f'JSON, {{"{name}":"...","{password}":"..."}}')


def shown_delays(delays_ms: Sequence[int]) -> str:
    return " ".join(f"{delay // 1000}s" for delay in delays_ms)


TEXT: Final = Kind(_read_text, "text")
HOST: Final = Kind(read_host, "address or name of a host")
BOOL: Final = Kind(_read_bool, "true or false", lambda value: str(value).lower())
BROKER_ID: Final = Kind(_read_broker_id, "number from 0; -1 if a controller gives the id")
METRICS_EXPORTER: Final = Kind(
    _read_metrics_exporter, "PROM, DISABLE; OTLP_GRPC and LOG as DISABLE", lambda value: "PROM" if value else "DISABLE"
)
FLUSH_TYPE: Final = Kind(
    _read_flush_type, "SYNC_FLUSH or ASYNC_FLUSH", lambda is_sync: "SYNC_FLUSH" if is_sync else "ASYNC_FLUSH"
)
ROLE: Final = Kind(_read_role, ", ".join(role.value for role in Role), lambda role: role.value)
CONSUME_QUEUE_BYTES: Final = Kind(_read_consume_queue_bytes, f"number, 20 to {_FILE_BYTES_MAX // 20 * 20}")
HOURS: Final = Kind(
    _read_hours,
    "hours, separated by semicolons",
    lambda hours: ";".join(f"{hour:02d}" for hour in sorted(hours)),
)
ADDRESSES: Final = Kind(_read_addresses, "HOST:PORT, separated by semicolons", ";".join)
PATH: Final = Kind(_read_path, "path")
TLS_MODE: Final = _word({mode.value: mode for mode in TlsMode})
CLIENT_AUTH: Final = _word(CLIENT_CERTIFICATES)
CODES: Final = Kind(_codes, "codes of requests, separated by commas")
SECRET: Final = Kind(_peer_secret, f"text of {_SECRET_CHARS_MIN} characters or more")
PATHS: Final = Kind(_read_paths, "paths, separated by commas", lambda paths: ",".join(map(str, paths)))
