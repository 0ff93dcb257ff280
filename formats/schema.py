"""Field vocabulary on `construct`: one declaration per fixed-size structure.

A structure is a `NamedTuple` whose annotations give the encoding of each field:

    class EventHeader(NamedTuple):
        fragment: Annotated[int, bits(1)]
        length: Annotated[int, bits(31)]
        ...
        type_specific: Annotated[int, u8]

    EVENT_HEADER = Layout(EventHeader, size=8, upstream="bmqp::EventHeader")

From it a `Layout` derives three codecs, which the tests check against each other:

- `construct`: readable and slow, for tools and documentation;
- `unpack`, `pack`, `pack_into`: `struct` plus generated shifts and masks, for hot paths. `words` is the bare
  `struct.Struct`, whose items are whole words;
- `dtype`: numpy, for whole-file scans; `column(array, name)` gives one field, bit fields included.

Code that needs only a few fields derives their places: `offset`, `span`, `word` and `mask` of a field, `partial` for a
`struct.Struct` of some words, `places` and `columns_dtype` for numpy columns of some words, also of consecutive
structures.

All integers are big-endian, as everywhere in BlazingMQ and RocketMQ. Adjacent bit fields share a word: they join until
they fill 8, 16, 32 or 64 bits; `bits(4, word=64)` selects a wider word than the first that fits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints

from formats.errors import FormatError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "Annotated",
    "Buffer",
    "Kind",
    "Layout",
    "bits",
    "columns_dtype",
    "i8",
    "i16",
    "i32",
    "i64",
    "raw",
    "u8",
    "u16",
    "u32",
    "u64",
    "zeros",
]

Buffer = bytes | bytearray | memoryview
T = TypeVar("T", bound=tuple[Any, ...])


@dataclass(frozen=True, slots=True)
class Kind:
    """The encoding of a field: its type codes in `struct` and numpy."""

    struct_code: str
    numpy_code: str


@dataclass(frozen=True, slots=True)
class BitField:
    """A field of `width` bits in a word; `word` is the word's width if it is not the first that fits."""

    width: int
    word: int | None = None


u8 = Kind("B", "u1")
u16 = Kind("H", ">u2")
u32 = Kind("I", ">u4")
u64 = Kind("Q", ">u8")
i8 = Kind("b", "i1")
i16 = Kind("h", ">i2")
i32 = Kind("i", ">i4")
i64 = Kind("q", ">i8")


def raw(size: int) -> Kind:
    """Declare `size` uninterpreted bytes, such as keys and GUIDs."""
    return Kind(f"{size}s", f"V{size}")


# Reserved bytes keep their value: rewriting a structure does not change it.
zeros = raw


def bits(width: int, *, word: int | None = None) -> BitField:
    """Declare a field of `width` bits, most significant first."""
    return BitField(width, word)


_WORDS = {8: u8, 16: u16, 32: u32, 64: u64}


class Bit(NamedTuple):
    """The position of a field in its word: `(word >> shift) & mask`; a whole word has shift 0 and mask None."""

    word: int
    shift: int
    mask: int | None


class _Word(NamedTuple):
    name: str
    kind: Kind
    parts: tuple[tuple[str, int], ...]  # (field, width) of each bit field; empty for a whole word


def _words_of(cls: type[Any], kinds: Mapping[str, Kind]) -> list[_Word]:
    words: list[_Word] = []
    pending: list[tuple[str, int]] = []
    width = 0
    wanted: int | None = None
    for name, hint in get_type_hints(cls, include_extras=True).items():
        (spec,) = (a for a in get_args(hint)[1:] if isinstance(a, (Kind, BitField)))
        spec = kinds.get(name, spec)
        if isinstance(spec, Kind):
            if pending:
                raise TypeError(f"{cls.__name__}.{name}: the bit fields before it fill only {width} bits")
            words.append(_Word(name, spec, ()))
            continue
        wanted = spec.word or wanted
        pending.append((name, spec.width))
        width += spec.width
        if width == wanted or (wanted is None and width in _WORDS):
            words.append(_Word("_".join(n for n, _ in pending), _WORDS[width], tuple(pending)))
            pending, width, wanted = [], 0, None
    if pending:
        raise TypeError(f"{cls.__name__}: its last bit fields fill only {width} bits")
    return words


class Layout(Generic[T]):
    """A fixed-size structure and the codecs derived from its declaration.

    `size` is in bytes; the import fails if it disagrees with the fields. `kinds` gives some fields another kind than
    their annotation, for structures that have a field of two widths.
    """

    def __init__(self, cls: type[T], *, size: int, upstream: str, kinds: Mapping[str, Kind] | None = None) -> None:
        self.cls = cls
        self.name = cls.__name__
        self.upstream = upstream
        self._words = _words_of(cls, kinds or {})
        self.words = struct.Struct(">" + "".join(w.kind.struct_code for w in self._words))
        self.size = size
        if self.words.size != size:
            raise TypeError(f"{self.name}: declared {size} bytes, its fields fill {self.words.size}")
        self.bit: dict[str, Bit] = {}
        for index, word in enumerate(self._words):
            shift = sum(width for _, width in word.parts)
            for name, width in word.parts:
                shift -= width
                self.bit[name] = Bit(index, shift, (1 << width) - 1)
            if not word.parts:
                self.bit[word.name] = Bit(index, 0, None)
        self.unpack: Callable[..., T]
        self.pack: Callable[[T], bytes]
        self.pack_into: Callable[[bytearray | memoryview, int, T], None]
        self._generate()

    def _generate(self) -> None:
        """Write and compile `unpack`, `pack` and `pack_into`: straight-line code, no loop over fields."""
        names = [f"w{i}" for i in range(len(self._words))]
        fields: list[str] = []
        items: list[str] = []
        for index, word in enumerate(self._words):
            if not word.parts:
                fields.append(f"w{index}")
                items.append(f"v.{word.name}")
                continue
            joined: list[str] = []
            for name, _ in word.parts:
                _, shift, mask = self.bit[name]
                fields.append(f"w{index} >> {shift} & {mask:#x}")
                joined.append(f"fit(v.{name}, {mask:#x}, {name!r}) << {shift}")
            items.append(" | ".join(joined))
        source = f"""
def unpack(buffer, offset=0):
    try:
        {", ".join(names)}, = unpack_from(buffer, offset)
    except StructError:
        raise FormatError({self.name!r}, offset,
            f"needs {self.size} bytes, {{max(0, len(buffer) - offset)}} left") from None
    return new(cls, ({", ".join(fields)},))

def pack(v):
    return pack_words({", ".join(items)})

def pack_into(buffer, offset, v):
    pack_words_into(buffer, offset, {", ".join(items)})
"""

        def fit(value: int, mask: int, field: str) -> int:
            if not 0 <= value <= mask:
                raise OverflowError(f"{self.name}.{field} = {value} does not fit 0..{mask}")
            return value

        scope: dict[str, Any] = {
            "unpack_from": self.words.unpack_from,
            "pack_words": self.words.pack,
            "pack_words_into": self.words.pack_into,
            "StructError": struct.error,
            "FormatError": FormatError,
            "new": tuple.__new__,
            "cls": self.cls,
            "fit": fit,
        }
        exec(compile(source, f"<codec of {self.name}>", "exec"), scope)
        self.unpack, self.pack, self.pack_into = scope["unpack"], scope["pack"], scope["pack_into"]

    @cached_property
    def field_bits(self) -> dict[str, int]:
        """The width of every field, in bits and in order."""
        return {
            name: width
            for word in self._words
            for name, width in word.parts or ((word.name, struct.calcsize(f">{word.kind.struct_code}") * 8),)
        }

    @cached_property
    def _offsets(self) -> list[int]:
        """The offset in bytes of each word, and the end of the last."""
        return list(accumulate((struct.calcsize(f">{word.kind.struct_code}") for word in self._words), initial=0))

    def offset(self, name: str) -> int:
        """The offset in bytes of field `name`; of a bit field, that of its word."""
        return self._offsets[self.bit[name].word]

    def span(self, name: str) -> slice:
        """The bytes of field `name`; of a bit field, those of its word."""
        word = self.bit[name].word
        return slice(self._offsets[word], self._offsets[word + 1])

    def mask(self, name: str) -> int:
        """The bits of bit field `name` in its word, set. Raises ValueError for a field that is a whole word."""
        _, shift, mask = self.bit[name]
        if mask is None:
            raise ValueError(f"{self.name}.{name} is a whole word")
        return mask << shift

    def word(self, name: str) -> struct.Struct:
        """A `struct` of nothing but the word that holds field `name`, for its `offset`."""
        return struct.Struct(f">{self._words[self.bit[name].word].kind.struct_code}")

    def partial(self, *names: str) -> struct.Struct:
        """A `struct` of this layout's size whose items are the words that hold `names`, in the declaration's order."""
        words = list(dict.fromkeys(self.bit[name].word for name in names))
        if words != sorted(words):
            raise ValueError(f"{self.name}: {', '.join(names)} are not in the order of the declaration")
        code, at = ">", 0
        for word in words:
            code += f"{self._offsets[word] - at}x" * (self._offsets[word] > at) + self._words[word].kind.struct_code
            at = self._offsets[word + 1]
        return struct.Struct(code + f"{self.size - at}x" * (self.size > at))

    def places(self, at: int = 0, **names: str) -> dict[str, tuple[str, int]]:
        """The columns of words for `columns_dtype`: by column name, the field in the word.

        `at` is the start of the structure.
        """
        return {
            column: (self._words[self.bit[name].word].kind.numpy_code, at + self.offset(name))
            for column, name in names.items()
        }

    @cached_property
    def construct(self) -> Any:
        """The declaration as a `construct.Struct`; bit fields lie in a nested `BitStruct` of their word."""
        import construct as cs

        def field(kind: Kind) -> Any:
            code, size = kind.struct_code[-1], struct.calcsize(f">{kind.struct_code}")
            return cs.Bytes(size) if code == "s" else cs.BytesInteger(size, signed=code.islower())

        return cs.Struct(
            *(
                word.name
                / (cs.BitStruct(*(n / cs.BitsInteger(w) for n, w in word.parts)) if word.parts else field(word.kind))
                for word in self._words
            )
        )

    def parse_readable(self, data: Buffer) -> dict[str, Any]:
        """Decode the fields by name with `construct`: a slow, independent check of `unpack`."""
        parsed = self.construct.parse(bytes(data))
        out: dict[str, Any] = {}
        for word in self._words:
            value = parsed[word.name]
            if word.parts:
                out.update((name, value[name]) for name, _ in word.parts)
            else:
                out[word.name] = value
        return out

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type with one field per word; use `column` for bit fields."""
        import numpy as np

        return np.dtype([(w.name, w.kind.numpy_code) for w in self._words])

    def column(self, array: NDArray[Any], name: str) -> NDArray[Any]:
        """Field `name` of every record of `array` (shape (n,), this layout's `dtype`), in native byte order."""
        index, shift, mask = self.bit[name]
        values = array[self._words[index].name]
        if values.dtype.kind == "V":
            return values
        native = values.astype(values.dtype.newbyteorder("="))
        return native if mask is None else (native >> shift) & mask


def columns_dtype(columns: Mapping[str, tuple[str, int]], size: int) -> np.dtype[Any]:
    """A dtype with some columns of a structure of `size` bytes: by name, the numpy type and the offset in bytes."""
    import numpy as np

    formats, offsets = zip(*columns.values(), strict=True)
    return np.dtype({"names": list(columns), "formats": list(formats), "offsets": list(offsets), "itemsize": size})
