"""JSON bodies declared as one `NamedTuple` each, from which a codec is derived.

A field's type is `str`, `int`, `bool`, another declaration, or a list, dict or `| None` of those; keys of dicts are
`str` or `int`. Its name in JSON is its Python name in camel case, unless `Annotated` gives another. A field without a
default is required; null counts as missing. Undeclared fields are ignored, as by fastjson.

Fields are written in the order of their names, and None is omitted, as by fastjson.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Annotated, Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from formats.errors import FormatError
from formats.rocketmq import fastjson
from formats.rocketmq.numbers import read_long

__all__ = ["BodyCodec"]

B = TypeVar("B", bound=tuple[Any, ...])
_MISSING: Final = object()
_INT_BITS: Final = 63

Read = Callable[[Any, str], Any]
Write = Callable[[Any], Any]


class BodyCodec(Generic[B]):
    """Reads and writes the bodies of one declaration."""

    def __init__(self, cls: type[B]) -> None:
        self.name = cls.__name__
        self._read, self._write = _record_codec(cls)

    def read(self, body: bytes | bytearray | memoryview) -> B:
        """Decode a body. Raises `FormatError` with the path of a value that does not match the declaration."""
        try:
            text = str(body, "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(self.name, error.start, "is not UTF-8") from None
        return self.read_value(fastjson.loads(text))

    def read_value(self, value: Any) -> B:
        """Decode parsed JSON, like `read`."""
        found: B = self._read(value, self.name)
        return found

    def write(self, value: B) -> bytes:
        """Encode `value` as fastjson does."""
        return fastjson.dumps(self._write(value)).encode()

    def write_value(self, value: B) -> dict[str, Any]:
        """Convert `value` to a JSON object."""
        written: dict[str, Any] = self._write(value)
        return written


def _wrong(path: str, value: Any, wanted: str) -> FormatError:
    return FormatError(path, 0, f"{str(value)[:40]!r} is not {wanted}")


def _read_str(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong(path, value, "a string")
    return value


def _read_int(value: Any, path: str) -> int:
    # Some clients write numbers as text, and fastjson takes them.
    if isinstance(value, str):
        number = read_long(value)
        value = value if number is None else number
    if type(value) is not int or value.bit_length() > _INT_BITS:
        raise _wrong(path, value, "an integer of 64 bits")
    return value


def _read_bool(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(path, value, "true or false")
    return value


def _same(value: Any) -> Any:
    return value


_PLAIN: Final[dict[type, tuple[Read, Write]]] = {
    str: (_read_str, _same),
    int: (_read_int, _same),
    bool: (_read_bool, _same),
}


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


def _list_codec(read: Read, write: Write) -> tuple[Read, Write]:
    def read_list(value: Any, path: str) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise _wrong(path, value, "a list")
        return [read(item, f"{path}[{number}]") for number, item in enumerate(value)]

    def write_list(value: list[Any]) -> list[Any]:
        return [write(item) for item in value]

    return read_list, write_list


def _dict_codec(key_type: type, read: Read, write: Write) -> tuple[Read, Write]:
    read_key, _ = _PLAIN[key_type]

    def read_dict(value: Any, path: str) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise _wrong(path, value, "an object")
        return {
            read_key(key, path): read(item, f"{path}.{str(key)[:40]}")
            for key, item in value.items()
            if item is not None
        }

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

    def read_record(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(path, value, "an object")
        items = []
        for wire_name, read, _, default in fields:
            item = value.get(wire_name)
            if item is not None:
                items.append(read(item, f"{path}.{wire_name}"))
            elif default is _MISSING:
                raise FormatError(f"{path}.{wire_name}", 0, "is missing")
            else:
                items.append(default)
        return tuple.__new__(cls, items)

    def write_record(value: Any) -> dict[str, Any]:
        return {fields[number][0]: fields[number][2](value[number]) for number in order if value[number] is not None}

    return read_record, write_record
