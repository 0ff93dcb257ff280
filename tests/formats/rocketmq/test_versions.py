"""Names of versions (facts: the constants of MQVersion, counted in Apache's source)."""

from __future__ import annotations

import pytest

from formats.rocketmq.remoting.versions import STANDARD_JSON_VERSION, VERSION, VERSION_NAME, version_name


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (-1, "UNKNOWN"),
        (0, "V3_0_0_SNAPSHOT"),
        (8, "V3_0_0_BETA6"),
        (15, "V3_0_0_FINAL"),
        (16, "V3_0_1_SNAPSHOT"),
        (45, "V3_0_15"),
        (46, "V3_1_0_SNAPSHOT"),
        (121, "V3_4_9"),
        (211, "V3_9_9"),
        (212, "V4_0_0_SNAPSHOT"),
        (STANDARD_JSON_VERSION, "V4_9_4"),
        (VERSION, VERSION_NAME),
        (611, "V5_9_9"),
        (612, "HIGHER_VERSION"),
        (1 << 31, "HIGHER_VERSION"),
    ],
)
def test_name(number: int, name: str) -> None:
    assert version_name(number) == name
