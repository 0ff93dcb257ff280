"""Description vocabulary of schema messages: one declaration per message yields its BER and its JSON.

A message is a frozen dataclass whose fields stand in the order of the reference's schema:

    @sequence
    class SubQueueIdInfo:
        sub_id: UInt = 0
        app_id: str = "__default"

`describe(SubQueueIdInfo)` turns it into the table that `ber` and `jsonc` interpret. Annotations stand for:

| annotation | XML schema |
| --- | --- |
| `Int`, `UInt`, `Long`, `ULong` | `int`, `unsignedInt`, `long`, `unsignedLong` |
| `bool`, `str` | `boolean`, `string` |
| `bytes` | `hexBinary`, `base64Binary` (one wire form for both) |
| an `IntEnum` | enumeration; member `PULL` is written `E_PULL` |
| another message | element of that type |
| `X | None` | `minOccurs='0'` |
| `tuple[X, ...]` | `maxOccurs='unbounded'`; only messages repeat |
| `Annotated[A | B, alternatives()]` | `<choice>`, as an anonymous element; the value is the selected message itself |

An element's tag is its position, and its name is the field's in camelCase. An alternative's tag is its position unless
`alternatives` gives the tags; its name is its class's with the first letter lowered, so no type may occur twice in one
choice. A field's default is the schema's. An absent element has its default, or the empty value of its type, as in the
reference's generated classes; only a choice must be present. A field declared as `field(repr=False)` is a secret, which
no printed form of a message shows.
"""

from __future__ import annotations

import types
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import IntEnum
from functools import cached_property
from typing import Annotated, Any, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

from formats.record import keyword_record

__all__ = [
    "Alternative",
    "Boolean",
    "Choice",
    "Description",
    "Element",
    "Enumeration",
    "Int",
    "Integer",
    "Kind",
    "Long",
    "Octets",
    "Text",
    "UInt",
    "ULong",
    "alternatives",
    "describe",
    "sequence",
]

T = TypeVar("T")

# Both codecs write a tag as one byte, which holds at most this number.
MAX_TAG = 30


@dataclass(frozen=True, slots=True)
class Integer:
    """A two's complement or unsigned integer of `size` bytes, in the inclusive range `low`..`high`."""

    size: int
    signed: bool
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Boolean:
    pass


@dataclass(frozen=True, slots=True)
class Text:
    """UTF-8."""


@dataclass(frozen=True, slots=True)
class Octets:
    pass


@dataclass(frozen=True, slots=True)
class Enumeration:
    """An enumeration: an integer in BER, a name in JSON. `names` maps the name in JSON to the member."""

    cls: type[IntEnum]
    names: dict[str, IntEnum]


@dataclass(frozen=True, slots=True)
class Alternative:
    tag: int
    name: str
    description: Description


@dataclass(frozen=True, slots=True)
class Choice:
    """An anonymous choice: JSON writes the selected alternative in place, BER wraps it in the choice's own tag."""

    alternatives: tuple[Alternative, ...]
    by_tag: dict[int, Alternative]
    by_name: dict[str, Alternative]
    by_class: dict[type[Any], Alternative]


@dataclass(frozen=True, slots=True)
class Element:
    """One field of a message: `attribute` in Python, `name` in JSON, context-specific `tag` in BER."""

    attribute: str
    name: str
    tag: int
    kind: Kind
    optional: bool
    array: bool
    default: Any  # MISSING if the schema gives none
    secret: bool  # not to be printed

    def absent(self) -> Any:
        """The value of an absent element; `LookupError` for a choice."""
        if self.default is not MISSING:
            return self.default
        if self.optional:
            return None
        if self.array:
            return ()
        match self.kind:
            case Integer():
                return 0
            case Boolean():
                return False
            case Text():
                return ""
            case Octets():
                return b""
            case Enumeration(cls):
                return cls(0)
            case Description() as nested:
                return nested.blank
            case Choice():
                raise LookupError(self.name)


class Description:
    """A message type: its class and its elements in schema order."""

    def __init__(self, cls: type[Any], elements: tuple[Element, ...]) -> None:
        self.cls = cls
        self.name = cls.__name__
        self.elements = elements
        self.by_tag = {element.tag: element for element in elements}
        self.by_name = {element.name: element for element in elements if not isinstance(element.kind, Choice)}
        self.choice = next((element for element in elements if isinstance(element.kind, Choice)), None)

    @cached_property
    def blank(self) -> Any:
        """The message without any element; shared, since messages are immutable."""
        return self.cls(**{element.attribute: element.absent() for element in self.elements})


Kind = Integer | Boolean | Text | Octets | Enumeration | Description | Choice

Int = Annotated[int, Integer(4, True, -(1 << 31), (1 << 31) - 1)]
UInt = Annotated[int, Integer(4, False, 0, (1 << 32) - 1)]
Long = Annotated[int, Integer(8, True, -(1 << 63), (1 << 63) - 1)]
ULong = Annotated[int, Integer(8, False, 0, (1 << 64) - 1)]


@dataclass(frozen=True, slots=True)
class _Alternatives:
    tags: tuple[int, ...] | None


def alternatives(*tags: int) -> _Alternatives:
    """Mark a union as a choice; `tags` if they are not the positions 0, 1, 2..."""
    return _Alternatives(tags or None)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def sequence(cls: type[T]) -> type[T]:
    return keyword_record(cls)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _choice(union: Any, tags: tuple[int, ...] | None) -> Choice:
    classes = get_args(union) or (union,)
    numbers = tags or tuple(range(len(classes)))
    if len(numbers) != len(classes):
        raise TypeError(f"{union}: {len(classes)} alternatives, {len(numbers)} tags")
    found = tuple(
        Alternative(tag, cls.__name__[0].lower() + cls.__name__[1:], describe(cls))
        for tag, cls in zip(numbers, classes, strict=True)
    )
    return Choice(found, {a.tag: a for a in found}, {a.name: a for a in found}, {a.description.cls: a for a in found})


def _kind(hint: Any) -> Kind:
    if get_origin(hint) is Annotated:
        base, mark = get_args(hint)
        if isinstance(mark, _Alternatives):
            return _choice(base, mark.tags)
        assert isinstance(mark, Integer)
        return mark
    if hint is bool:
        return Boolean()
    if hint is str:
        return Text()
    if hint is bytes:
        return Octets()
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return Enumeration(hint, {f"E_{member.name}": member for member in hint})
    return describe(hint)


def _element(tag: int, field: Field[Any], hint: Any) -> Element:
    optional = array = False
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (arm for arm in get_args(hint) if arm is not types.NoneType)
        optional = True
    elif get_origin(hint) is tuple:
        hint, ellipsis = get_args(hint)
        array = ellipsis is ...
    kind = _kind(hint)
    if array and not isinstance(kind, Description):
        raise TypeError(f"{field.name}: only messages repeat")
    return Element(field.name, _camel(field.name), tag, kind, optional, array, field.default, not field.repr)


_DESCRIPTIONS: dict[type[Any], Description] = {}


def describe(cls: type[Any]) -> Description:
    """Build the table of a message class; `TypeError` for a declaration outside this vocabulary."""
    known = _DESCRIPTIONS.get(cls)
    if known is None:
        known = _DESCRIPTIONS[cls] = _derive(cls)
    return known


def _derive(cls: type[Any]) -> Description:
    if not is_dataclass(cls):
        raise TypeError(f"{cls!r} is not a message")
    hints = get_type_hints(cls, include_extras=True)
    elements = tuple(_element(tag, field, hints[field.name]) for tag, field in enumerate(fields(cls)))
    for element in elements:
        choices = element.kind.alternatives if isinstance(element.kind, Choice) else ()
        if max((element.tag, *(a.tag for a in choices))) > MAX_TAG:
            raise TypeError(f"{cls.__name__}.{element.attribute}: a tag beyond {MAX_TAG}")
    return Description(cls, elements)
