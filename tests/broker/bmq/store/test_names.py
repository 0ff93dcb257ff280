"""Names of new files sort after the existing ones."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from broker.bmq.store.names import next_timestamp

NOW = datetime(2026, 11, 21, 5, 11, 4, 999_999, tzinfo=UTC)
PREFIX = "bmq_0."


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], "20261121_051104"),
        (["bmq_0.20261121_051103.bmq_data"], "20261121_051104"),
        (["bmq_0.20261121_051104.bmq_data"], "20261121_051105"),
        (["bmq_0.20261121_051104.bmq_data", "bmq_0.20261121_051105.bmq_data"], "20261121_051106"),
        (["bmq_0.20261121_051105.bmq_data"], "20261121_051106"),
        (["bmq_0.20270101_000000.bmq_data"], "20270101_000001"),
        (["bmq_0.20261231_235959.bmq_data"], "20270101_000000"),
        (["bmq_1.20270101_000000.bmq_data"], "20261121_051104"),
        (["bmq_0.99999999_999999.bmq_data", "bmq_0.notes", "bmq_0."], "20261121_051104"),
    ],
)
def test_a_new_name_is_the_newest(names: list[str], expected: str) -> None:
    assert next_timestamp(PREFIX, names, NOW) == expected
