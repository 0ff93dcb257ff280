"""Numbers of property shapes: one per producer and number, none for two shapes."""

from __future__ import annotations

import pytest

from broker.bmq.core.schemas import SchemaMultiplexer


@pytest.mark.parametrize("wire_id", [0, 1])
def test_no_number_stays_none(wire_id: int) -> None:
    assert SchemaMultiplexer().translate(1, wire_id) == wire_id


def test_each_producers_number_gets_one_of_its_own() -> None:
    mux = SchemaMultiplexer()
    assert [mux.translate(producer, 2 << 1) for producer in (1, 2, 3)] == [3, 5, 7]
    assert [mux.translate(producer, 2 << 1) for producer in (1, 2, 3)] == [2, 4, 6]


def test_another_shape_of_a_producers_number_gets_another_number() -> None:
    mux = SchemaMultiplexer()
    mux.translate(1, 7 << 1 | 1)
    assert mux.translate(1, 7 << 1) == 2
    assert [mux.translate(1, 7 << 1 | 1), mux.translate(1, 7 << 1)] == [5, 4]


def test_no_number_is_used_for_two_shapes() -> None:
    mux = SchemaMultiplexer(capacity=2)
    assert [mux.translate(1, 1 << 1), mux.translate(1, 2 << 1)] == [3, 5]
    assert [mux.translate(1, 3 << 1), mux.translate(2, 1 << 1)] == [1, 1]
    assert mux.translate(1, 1 << 1) == 2
    # The second shape of a number has none; messages that say nothing new have that shape.
    assert [mux.translate(1, 1 << 1 | 1), mux.translate(1, 1 << 1)] == [1, 1]
    assert mux.translate(1, 2 << 1) == 4


def test_stored_numbers_are_not_given_away() -> None:
    mux = SchemaMultiplexer(capacity=3)
    mux.keep(2 << 1)
    assert [mux.translate(1, 1 << 1), mux.translate(1, 2 << 1)] == [3 << 1 | 1, 1]
    mux.keep(1 << 1)
    assert mux.translate(1, 1 << 1) == 3 << 1
