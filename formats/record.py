"""Immutable classes of named fields, declared like dataclasses in a fifth of the time.

Python compiles six methods for each frozen dataclass, in half a millisecond: with a command's hundreds of messages and
results, a noticeable part of its start. Here all classes share the methods. Objects take longer to make than a
dataclass's, so these classes are not for hot paths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, NoReturn, TypeVar, dataclass_transform

__all__ = ["keyword_record", "record"]

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Declare a class as `dataclass(frozen=True, slots=True)` does."""
    return _complete(cls, keywords_only=False)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def keyword_record(cls: type[T]) -> type[T]:
    """Declare a class as `dataclass(frozen=True, slots=True, kw_only=True)` does."""
    return _complete(cls, keywords_only=True)


# Attributes that all records share, or that none may have.
_FOREIGN: Final = frozenset(
    {"__delattr__", "__eq__", "__getstate__", "__hash__", "__init__", "__post_init__"}
    | {"__repr__", "__setattr__", "__setstate__"}
)


def _complete(cls: type[T], *, keywords_only: bool) -> type[T]:
    if own := _FOREIGN & vars(cls).keys():
        raise TypeError(f"{cls.__name__}: a record has no {min(own)} of its own")
    # With these arguments, dataclass compiles nothing.
    found: Any = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=keywords_only)(cls)
    _check_fields(found, keywords_only=keywords_only)
    names = tuple(each.name for each in fields(found))
    found.__init__ = _initializer(found, 0 if keywords_only else len(names))
    found.__eq__, found.__hash__ = _comparison(names)
    for method in (__repr__, __setattr__, __delattr__, __getstate__, __setstate__):
        setattr(found, method.__name__, method)
    return found  # type: ignore[no-any-return]


def _check_fields(cls: type[Any], *, keywords_only: bool) -> None:
    """Raise `TypeError` for a field that would differ from a dataclass's."""
    follows_default = False
    for each in fields(cls):
        if not each.init or not each.compare or each.hash is not None or (each.kw_only and not keywords_only):
            raise TypeError(f"{cls.__name__}.{each.name}: a record's field may have a default, repr and metadata only")
        has_default = each.default is not MISSING or each.default_factory is not MISSING
        if follows_default and not has_default and not keywords_only:
            raise TypeError(f"{cls.__name__}.{each.name}: a field without a default follows one with a default")
        follows_default |= has_default


def _initializer(cls: type[Any], positions: int) -> Callable[..., None]:
    """Make `__init__`; the first `positions` fields may be positional."""
    names = tuple(each.name for each in fields(cls))
    defaults = {each.name: each.default for each in fields(cls) if each.default is not MISSING}
    factories = {each.name: each.default_factory for each in fields(cls) if each.default_factory is not MISSING}
    known = frozenset(names)
    put = object.__setattr__

    def __init__(self: object, *values: Any, **named: Any) -> None:
        if len(values) > positions:
            raise TypeError(f"{cls.__name__} takes {positions} positional arguments, {len(values)} were given")
        given = dict(zip(names, values, strict=False))
        if not known.issuperset(named) or not given.keys().isdisjoint(named):
            wrong = next(name for name in named if name not in known or name in given)
            raise TypeError(f"{cls.__name__}: {wrong} is {'given twice' if wrong in known else 'no field'}")
        given.update(named)
        for name in names:
            if name in given:
                put(self, name, given[name])
            elif name in defaults:
                put(self, name, defaults[name])
            elif name in factories:
                put(self, name, factories[name]())
            else:
                raise TypeError(f"{cls.__name__} lacks {name}")

    return __init__


def _comparison(names: tuple[str, ...]) -> tuple[Callable[[object, object], bool], Callable[[object], int]]:
    read: Callable[[object], Any] = attrgetter(*names) if names else lambda _: ()

    def __eq__(self: object, other: object) -> bool:
        return NotImplemented if type(self) is not type(other) else bool(read(self) == read(other))

    def __hash__(self: object) -> int:
        return hash(read(self))

    return __eq__, __hash__


# The methods of all records.


def __repr__(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({shown})"


def __setattr__(self: object, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def __delattr__(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def __getstate__(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def __setstate__(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
