"""Header codecs, each derived from a declaration: a `NamedTuple`.

A field's type gives the form of its text: `str`, `Int` (32 bits), `Long` (64 bits) or `bool`; with `| None` it may be
missing. Its name on the wire is its own in camel case, unless `Annotated` gives another:

    class PollingInfoResponse(NamedTuple):
        polling_count: Annotated[Int, "pollingNum"]

    header = read_header(PollingInfoResponse, frame.ext_fields)

Undeclared fields are ignored, as in the original.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from types import NoneType
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from formats.errors import FormatError

__all__ = ["HeaderCodec", "HeaderField", "Int", "Long", "codec_of", "read_header", "write_header"]


class Bounds(NamedTuple):
    """The range of a Java type."""

    least: int
    greatest: int


Int = Annotated[int, Bounds(-(1 << 31), (1 << 31) - 1)]
Long = Annotated[int, Bounds(-(1 << 63), (1 << 63) - 1)]

H = TypeVar("H", bound=tuple[Any, ...])
_DIGITS_MAX: Final = 20
_INTEGER: Final = re.compile(rf"[-+]?[0-9]{{1,{_DIGITS_MAX}}}")
_MISSING: Final = object()
# These fit every type of number.
_SMALL_NUMBERS: Final = {str(number): number for number in range(256)}


class HeaderField(NamedTuple):
    """A field of a header: its names in Python and on the wire, its type, and whether it may be missing."""

    name: str
    wire_name: str
    kind: type[str] | type[int] | type[bool]
    bounds: Bounds | None
    default: Any

    @property
    def is_required(self) -> bool:
        return self.default is _MISSING


class HeaderCodec(Generic[H]):
    """Reads and writes the headers of one declaration.

    Its code is generated at first use: most processes use few of the codecs.
    """

    def __init__(self, cls: type[H]) -> None:
        self.cls = cls
        self.name = cls.__name__
        self._read_fields: Callable[[Mapping[str, str]], H] = self._read_first
        self._write_fields: Callable[[H], dict[str, str]] = self._write_first

    @cached_property
    def fields(self) -> tuple[HeaderField, ...]:
        """The fields in order. Raises `TypeError` for a declaration with another type."""
        defaults: Mapping[str, Any] = getattr(self.cls, "_field_defaults", {})
        hints = get_type_hints(self.cls, include_extras=True)
        return tuple(_field(name, hint, defaults.get(name, _MISSING)) for name, hint in hints.items())

    def _read_first(self, given: Mapping[str, str]) -> H:
        self._read_fields = self._generate_read()
        return self._read_fields(given)

    def _write_first(self, header: H) -> dict[str, str]:
        self._write_fields = self._generate_write()
        return self._write_fields(header)

    def _generate_read(self) -> Callable[[Mapping[str, str]], H]:
        """Generate and compile `read`: straight-line code, no loop over fields.

        It handles texts and small numbers, which most fields hold; `read` handles the rest.
        """
        lines, values = [], []
        scope: dict[str, Any] = {"new": tuple.__new__, "cls": self.cls, "small": _SMALL_NUMBERS.get, "read": self._read}
        for number, field in enumerate(self.fields):
            scope[f"f{number}"] = field
            values.append(f"v{number}")
            lines.append(f"    t = v{number} = get({field.wire_name!r})")
            if field.kind is int:
                lines.append(f"    v{number} = small(t)")
            unread = f"v{number} is None" if field.kind is not bool else "True"
            lines.append(f"    if {unread}: v{number} = read(t, f{number})")
        source = "\n".join(
            ("def read_fields(given):", "    get = given.get", *lines, f"    return new(cls, ({', '.join(values)},))")
        )
        exec(compile(source, f"<codec of {self.name}>", "exec"), scope)
        read_fields: Callable[[Mapping[str, str]], H] = scope["read_fields"]
        return read_fields

    def _generate_write(self) -> Callable[[H], dict[str, str]]:
        lines = []
        for number, field in enumerate(self.fields):
            value = f"v{number}"
            lines.append(f"    if {value} is not None:")
            if field.bounds is not None:
                least, greatest = field.bounds
                lines.append(f"        if not {least} <= {value} <= {greatest}: refuse({number}, {value})")
            text = f"('true' if {value} else 'false')" if field.kind is bool else f"str({value})"
            lines.append(f"        written[{field.wire_name!r}] = {text}")
        values = "".join(f"v{number}, " for number in range(len(self.fields)))
        unpacked = [f"    {values}= header"] if self.fields else []
        source = "\n".join(("def write_fields(header):", "    written = {}", *unpacked, *lines, "    return written"))
        scope: dict[str, Any] = {"refuse": self._refuse}
        exec(compile(source, f"<codec of {self.name}>", "exec"), scope)
        write_fields: Callable[[H], dict[str, str]] = scope["write_fields"]
        return write_fields

    def _refuse(self, number: int, value: int) -> None:
        raise OverflowError(f"{self.name}.{self.fields[number].name} = {value} does not fit its type")

    def read(self, fields: Mapping[str, str] | None) -> H:
        """Decode the header in a frame's fields. Raises `FormatError` for a missing field, or one that does not match
        its type.
        """
        return self._read_fields(fields or {})

    def _read(self, text: str | None, field: HeaderField) -> Any:
        if text is None:
            if field.default is _MISSING:
                raise FormatError(f"{self.name}.{field.wire_name}", 0, "is missing")
            return field.default
        try:
            return _READERS[field.kind](text, field)
        except ValueError as error:
            raise FormatError(f"{self.name}.{field.wire_name}", 0, str(error)) from None

    def write(self, header: H) -> dict[str, str]:
        """Return a frame's fields for `header`, omitting None.

        Raises `OverflowError` for a number that does not fit its type.
        """
        return self._write_fields(header)


_codecs: Final[dict[type[Any], HeaderCodec[Any]]] = {}


def codec_of(cls: type[H]) -> HeaderCodec[H]:
    """Return the codec of a declaration, made at the first call. Message paths keep it."""
    codec = _codecs.get(cls)
    if codec is None:
        codec = _codecs[cls] = HeaderCodec(cls)
    return codec


def read_header(cls: type[H], fields: Mapping[str, str] | None) -> H:
    """Decode the header in a frame's fields, like `HeaderCodec.read`."""
    codec: HeaderCodec[H] = _codecs.get(cls) or codec_of(cls)
    return codec.read(fields)


def write_header(header: tuple[Any, ...]) -> dict[str, str]:
    """Return a frame's fields for `header`, like `HeaderCodec.write`."""
    return codec_of(type(header)).write(header)


def _read_text(text: str, field: HeaderField) -> str:
    return text


def _read_integer(text: str, field: HeaderField) -> int:
    is_usual = len(text) < _DIGITS_MAX and text.isdecimal() and text.isascii()
    if not is_usual and not _INTEGER.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no integer")
    number = int(text)
    bounds = field.bounds
    if bounds is not None and not bounds.least <= number <= bounds.greatest:
        raise ValueError(f"{number} is not between {bounds.least} and {bounds.greatest}")
    return number


def _read_bool(text: str, field: HeaderField) -> bool:
    # As in Java: everything else is false, including the C++ client's 0 and 1.
    return text.lower() == "true"


_READERS: Final[dict[type, Callable[[str, HeaderField], Any]]] = {
    str: _read_text,
    int: _read_integer,
    bool: _read_bool,
}


def _field(name: str, hint: Any, default: Any) -> HeaderField:
    first, *others = name.split("_")
    wire_name = first + "".join(word.title() for word in others)
    bounds: Bounds | None = None
    while True:
        if get_origin(hint) is Annotated:
            hint, *notes = get_args(hint)
            for note in notes:
                if isinstance(note, Bounds):
                    bounds = note
                else:
                    wire_name = note
        elif optional := [arg for arg in get_args(hint) if arg is not NoneType]:
            (hint,) = optional
        else:
            break
    if hint not in _READERS:
        raise TypeError(f"{name}: {hint!r} is none of str, Int, Long and bool")
    if hint is int and bounds is None:
        raise TypeError(f"{name}: say Int or Long")
    return HeaderField(name, wire_name, hint, bounds, default)
