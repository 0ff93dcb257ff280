"""Each number of a node's properties has a range, and a value beyond it is refused with the property's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.rocketmq.config.property_readers import PropertyError
from broker.rocketmq.config.property_tables import TABLES, read_property

FILE = Path("broker.conf")
ODD_NUMBERS = (-1, -(1 << 31), 1 << 31, 1 << 63)
# These are accepted all the same.
HEEDED = {
    # With -1, a controller gives the id.
    "brokerId": {-1, 1 << 31},
    # Times in milliseconds, and bytes.
    "cleanFileForciblyInterval": {1 << 31},
    "transactionCheckInterval": {1 << 31},
    "transactionTimeOut": {1 << 31},
    "maxConnectionBufferSize": {1 << 31},
    "haMaxGapNotInSync": {1 << 31},
}


def refusal(part: str, name: str, text: str) -> str | None:
    try:
        read_property(FILE, part, name, text)
    except PropertyError as fault:
        return str(fault)
    return None


def test_each_number_refuses_what_means_nothing_to_it() -> None:
    taken: dict[str, set[int]] = {}
    numbers = [
        (part, name)
        for part, table in TABLES.items()
        for name, each in table.items()
        if each.kind.about.startswith("number")
    ]
    assert len(numbers) > 50
    for part, name in numbers:
        for value in ODD_NUMBERS:
            refused = refusal(part, name, str(value))
            if refused is None:
                taken.setdefault(name, set()).add(value)
            else:
                assert refused.startswith(f"broker.conf: {name}: '{value}' is not a number between ")
    assert taken == HEEDED


@pytest.mark.parametrize("text", ["-1s", "1s 2147483648s", "24856d", "9223372036854775807d", "9223372036854775808s"])
def test_a_delay_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(PropertyError, match=r"broker.conf: messageDelayLevel: .* '\S+"):
        read_property(FILE, "broker", "messageDelayLevel", text)
    assert read_property(FILE, "broker", "messageDelayLevel", "2147483647s 24855d")[0] == 2147483647000
