"""JSON bodies declared as one `NamedTuple` each, from which a codec is derived.

A field's type is `str`, `int`, `bool`, another declaration, or a list, dict or `| None` of those; keys of dicts are
`str` or `int`. Its name in JSON is its Python name in camel case, unless `Annotated` gives another. A field without a
default is required; null counts as missing. As in fastjson, undeclared fields are ignored, and fields are written in
the order of their names, without None.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection
from typing import Annotated, Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from formats.errors import FormatError
from formats.rocketmq.numbers import read_long
from formats.rocketmq.remoting import fastjson

__all__ = ["BodyCodec"]

B = TypeVar("B", bound=tuple[Any, ...])
_MISSING: Final = object()

_INT_MIN: Final = -(1 << 63)
_INT_MAX: Final = (1 << 63) - 1

Read = Callable[[Any], Any]
Write = Callable[[Any], Any]


class BodyCodec(Generic[B]):
    """Reads and writes the bodies of one declaration. The default bounds are those of requests."""

    def __init__(self, cls: type[B], bounds: fastjson.Bounds = fastjson.REQUEST) -> None:
        self.name = cls.__name__
        self._bounds = bounds
        self._read, self._write = _record_codec(cls)

    def read(self, body: bytes | bytearray | memoryview) -> B:
        """Decode a body. Raises `FormatError` with the path of a value that does not match the declaration."""
        try:
            text = str(body, "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(self.name, error.start, "is not UTF-8") from None
        return self.read_value(fastjson.loads(text, self._bounds))

    def read_value(self, value: Any) -> B:
        """Decode parsed JSON, like `read`."""
        try:
            found: B = self._read(value)
        except _Wrong as wrong:
            raise FormatError("".join((self.name, *reversed(wrong.path))), 0, wrong.reason) from None
        return found

    def write(self, value: B) -> bytes:
        """Encode `value` as fastjson does."""
        return fastjson.dumps(self._write(value)).encode()

    def write_value(self, value: B) -> dict[str, Any]:
        written: dict[str, Any] = self._write(value)
        return written


class _Wrong(Exception):
    """A value that does not match the declaration; `path` has the steps to it, the innermost first."""

    def __init__(self, reason: str, *path: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = [*path]

    def under(self, step: str) -> _Wrong:
        self.path.append(step)
        return self


def _wrong(value: Any, wanted: str) -> _Wrong:
    # Never build the text of a long or deep value.
    is_long = isinstance(value, dict | list | tuple) and len(value) > 0
    shown = f"{type(value).__name__} of {len(value)} items" if is_long else str(value)
    return _Wrong(f"{shown[:40]!r} is not {wanted}")


def _read_str(value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(value, "a string")
    return value


def _read_int(value: Any) -> int:
    # Some clients write numbers as text, which fastjson accepts.
    if isinstance(value, str):
        number = read_long(value)
        value = value if number is None else number
    if type(value) is not int or not _INT_MIN <= value <= _INT_MAX:
        raise _wrong(value if type(value) is not int else "a number", "an integer of 64 bits")
    return value


def _read_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(value, "true or false")
    return value


def _same(value: Any) -> Any:
    return value


_PLAIN: Final[dict[type, tuple[Read, Write]]] = {
    str: (_read_str, _same),
    int: (_read_int, _same),
    bool: (_read_bool, _same),
}


# The types of items that readers return unchanged.
_ITEMS: Final[dict[Read, type]] = {_read_str: str, _read_int: int, _read_bool: bool}


def _codec(hint: Any) -> tuple[Read, Write]:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, Union):
        (hint,) = (arg for arg in args if arg is not types.NoneType)
        return _codec(hint)
    if origin is Annotated:
        return _codec(args[0])
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is list:
        return _list_codec(*_codec(args[0]))
    if origin is dict:
        return _dict_codec(args[0], *_codec(args[1]))
    return _record_codec(hint)


def _are_plain(values: Collection[Any], read: Read) -> bool:
    """Return whether `read` would return all values unchanged, as in nearly all lists and objects."""
    kind = _ITEMS.get(read)
    if kind is None or {*map(type, values)} != {kind}:
        return False
    return kind is not int or (min(values) >= _INT_MIN and max(values) <= _INT_MAX)


def _list_codec(read: Read, write: Write) -> tuple[Read, Write]:
    def read_list(value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise _wrong(value, "a list")
        if _are_plain(value, read):
            return list(value)
        found: list[Any] = []
        try:
            for item in value:
                found.append(read(item))  # noqa: PERF401 - its length is the place of a fault
        except _Wrong as wrong:
            raise wrong.under(f"[{len(found)}]") from None
        return found

    def write_list(value: list[Any]) -> list[Any]:
        return [write(item) for item in value]

    return read_list, write_list


def _dict_codec(key_type: type, read: Read, write: Write) -> tuple[Read, Write]:
    read_key, _ = _PLAIN[key_type]

    def read_dict(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise _wrong(value, "an object")
        if _are_plain(value, read_key) and _are_plain(value.values(), read):
            return value
        found: dict[Any, Any] = {}
        key: Any = ""
        try:
            for key, item in value.items():
                if item is not None:
                    found[read_key(key)] = read(item)
        except _Wrong as wrong:
            raise wrong.under(f".{str(key)[:40]}") from None
        return found

    def write_dict(value: dict[Any, Any]) -> dict[Any, Any]:
        return {key: write(item) for key, item in value.items()}

    return read_dict, write_dict


def _record_codec(cls: type[Any]) -> tuple[Read, Write]:
    defaults: dict[str, Any] = cls._field_defaults
    fields: list[tuple[str, Read, Write, Any]] = []
    for name, hint in get_type_hints(cls, include_extras=True).items():
        first, *others = name.split("_")
        wire_name = first + "".join(word.title() for word in others)
        if get_origin(hint) is Annotated:
            (wire_name,) = (note for note in get_args(hint)[1:] if isinstance(note, str))
        fields.append((wire_name, *_codec(hint), defaults.get(name, _MISSING)))
    order = sorted(range(len(fields)), key=lambda number: fields[number][0])

    def read_record(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong(value, "an object")
        items = []
        wire_name = ""
        try:
            for wire_name, read, _, default in fields:
                item = value.get(wire_name)
                if item is not None:
                    items.append(read(item))
                elif default is _MISSING:
                    raise _Wrong("is missing")
                else:
                    items.append(default)
        except _Wrong as wrong:
            raise wrong.under(f".{wire_name}") from None
        return tuple.__new__(cls, items)

    def write_record(value: Any) -> dict[str, Any]:
        return {fields[number][0]: fields[number][2](value[number]) for number in order if value[number] is not None}

    return read_record, write_record
