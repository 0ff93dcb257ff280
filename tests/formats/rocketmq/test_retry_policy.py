"""The delays before a message is delivered again, by the policy of its group."""

from __future__ import annotations

import pytest

from formats.rocketmq.remoting.bodies.clients import CustomizedRetryPolicy, ExponentialRetryPolicy, GroupRetryPolicy

DEFAULT = (10_000, 30_000, 60_000)


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (GroupRetryPolicy(), DEFAULT),
        (GroupRetryPolicy("OTHER", customized_retry_policy=CustomizedRetryPolicy([7])), DEFAULT),
        (GroupRetryPolicy("EXPONENTIAL"), DEFAULT),
        (GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy([])), DEFAULT),
        (GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy([7])), (7, 7, 7)),
        (GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy([1, 2, 3, 4])), (3, 4, 4)),
        (GroupRetryPolicy("EXPONENTIAL", ExponentialRetryPolicy(5, 19, 2)), (5, 10, 19)),
        (GroupRetryPolicy("EXPONENTIAL", ExponentialRetryPolicy(5, 7, 1 << 62)), (5, 7, 7)),
    ],
)
def test_delays(policy: GroupRetryPolicy, delays: tuple[int, ...]) -> None:
    assert tuple(policy.delay_ms(retries) for retries in range(3)) == delays
    assert policy.delay_ms(-1) == delays[0]


def test_the_last_delays() -> None:
    assert GroupRetryPolicy().delay_ms(1 << 31) == 7_200_000
    steep = GroupRetryPolicy("EXPONENTIAL", ExponentialRetryPolicy(1, 1 << 40, 2))
    assert steep.delay_ms(32) == steep.delay_ms(1 << 31) == 1 << 32
