"""Records are like frozen dataclasses with slots: the same declarations are made both ways and compared."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from formats.record import keyword_record, record


@record
class Pair:
    first: int
    second: str = "two"
    more: list[int] = field(default_factory=list, compare=True)
    secret: str = field(default="hidden", repr=False)


@record
class Nothing:
    pass


@record
class Other:
    first: int
    second: str = "two"
    more: list[int] = field(default_factory=list)
    secret: str = "hidden"


@keyword_record
class Named:
    first: int
    second: tuple[int, ...] = ()


def declared(make: Callable[[type[Any]], type[Any]]) -> type[Any]:
    class Declared:
        first: int
        second: str = "two"

    return make(Declared)


def test_values_are_given_by_place_or_name_or_by_default() -> None:
    found = Pair(1, more=[3])
    assert (found.first, found.second, found.more, found.secret) == (1, "two", [3], "hidden")
    assert Pair(1).more is not Pair(1).more
    assert Named(second=(1, 2), first=0).second == (1, 2)


@pytest.mark.parametrize(
    ("values", "named", "fault"),
    [
        ((), {}, "Pair lacks first"),
        ((1, "", [], "", 5), {}, "Pair takes 4 positional arguments, 5 were given"),
        ((1,), {"first": 2}, "Pair: first is given twice"),
        ((1,), {"third": 2}, "Pair: third is no field"),
    ],
)
def test_wrong_arguments(values: tuple[Any, ...], named: dict[str, Any], fault: str) -> None:
    with pytest.raises(TypeError, match=fault):
        Pair(*values, **named)


def test_keyword_record_takes_no_positional_arguments() -> None:
    with pytest.raises(TypeError, match="Named takes 0 positional arguments, 1 were given"):
        Named(1)  # type: ignore[call-arg]


def test_equal_ones_are_of_one_class_and_have_equal_fields() -> None:
    assert Pair(1) == Pair(1)
    assert Pair(1) != Pair(2)
    assert Pair(1) != Other(1)  # type: ignore[comparison-overlap]
    assert Nothing() == Nothing()
    assert len({Named(first=1), Named(first=1), Named(first=2)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Pair(1))


def test_text_is_that_of_a_dataclass_without_secrets() -> None:
    assert repr(Pair(1)) == "Pair(first=1, second='two', more=[])"
    assert repr(declared(record)(1)) == repr(declared(dataclass(frozen=True, slots=True))(1))


def test_nothing_can_be_changed_or_added() -> None:
    found = Pair(1)
    for name in ("first", "third"):
        with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(found, name, 2)
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'first'"):
        del found.first
    assert not hasattr(found, "__dict__")


def test_records_are_dataclasses() -> None:
    assert [each.name for each in fields(Pair)] == ["first", "second", "more", "secret"]
    assert replace(Named(first=1), second=(2,)) == Named(first=1, second=(2,))
    match Pair(5):
        case Pair(first, second):
            assert (first, second) == (5, "two")


def test_copies_and_pickles_are_equal() -> None:
    found = Pair(1, more=[2])
    assert copy.copy(found) == copy.deepcopy(found) == pickle.loads(pickle.dumps(found)) == found


class WithMethod:
    first: int

    def __post_init__(self) -> None: ...


class NotCompared:
    first: int = field(compare=False)


class NotGiven:
    first: int = field(init=False, default=1)


class InNoOrder:
    first: int = 1
    second: int


@pytest.mark.parametrize(
    ("cls", "fault"),
    [
        (WithMethod, "WithMethod: a record has no __post_init__ of its own"),
        (NotCompared, "NotCompared.first: a record's field may have a default, repr and metadata only"),
        (NotGiven, "NotGiven.first: a record's field may"),
        (InNoOrder, "InNoOrder.second: a field without a default follows one with a default"),
    ],
)
def test_declaration_with_another_meaning_than_in_a_dataclass_is_refused(cls: type[Any], fault: str) -> None:
    with pytest.raises(TypeError, match=fault):
        record(cls)


def test_keywords_may_be_declared_in_any_order() -> None:
    found: Any = keyword_record(InNoOrder)
    assert repr(found(second=2)) == "InNoOrder(first=1, second=2)"
