"""Requests about popped messages with any numbers and words: each is answered, and does no harm."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.receipts import ORDERED
from tests.broker.rocketmq.rig import Rig
from tests.families import examples

LONG_MAX = (1 << 63) - 1
NOW_MS = 1_700_000_000_000

numbers = st.one_of(
    st.sampled_from([-1, 0, 1, 2, 7, 8, 31, 32, 33, ORDERED, NOW_MS, NOW_MS + 5_000, -LONG_MAX - 1, LONG_MAX]),
    st.integers(-LONG_MAX - 1, LONG_MAX),
)
small = st.sampled_from([-2, -1, 0, 1, 2, 8, ORDERED])
topics = st.sampled_from(["t", "%RETRY%g_t", "%RETRY%g", "none", "", "rmq_sys_REVIVE_LOG_GoldenCluster"])
groups = st.sampled_from(["g", "h", "", "!", "g" * 200])
words = st.one_of(numbers.map(str), st.text(max_size=8))
handles = st.one_of(
    st.lists(words, max_size=9).map(" ".join),
    st.tuples(numbers, numbers, numbers, small, small, st.just("broker-g"), small, numbers).map(
        lambda parts: " ".join(map(str, parts))
    ),
)
places = {"consumerGroup": groups, "topic": topics, "queueId": small}
pops = st.fixed_dictionaries(
    {
        **places,
        "maxMsgNums": small,
        "invisibleTime": numbers,
        "pollTime": numbers,
        "bornTime": numbers,
        "initMode": small,
    },
    optional={"order": st.just("true"), "exp": st.text(max_size=8), "expType": st.sampled_from(["TAG", "SQL92"])},
)
changes = st.fixed_dictionaries({**places, "extraInfo": handles, "offset": numbers, "invisibleTime": numbers})
requests = st.one_of(
    st.tuples(st.just(RequestCode.POP_MESSAGE), pops),
    st.tuples(st.sampled_from([RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME]), changes),
    st.tuples(st.just(RequestCode.NOTIFICATION), pops),
    st.tuples(st.sampled_from([RequestCode.PEEK_MESSAGE, RequestCode.POLLING_INFO]), pops),
)
batches = st.fixed_dictionaries(
    {
        "c": groups,
        "t": topics,
        "r": st.sampled_from(["0", "1", "2", "x"]),
        "so": numbers,
        "q": small,
        "rq": small,
        "pt": numbers,
        "it": numbers,
        "b": st.sampled_from(["", "AQ==", "/w==", "x"]),
    }
)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.lists(requests, max_size=12), st.lists(batches, max_size=3))
def test_any_request_is_answered(told: list[tuple[RequestCode, dict[str, Any]]], acks: list[dict[str, Any]]) -> None:
    rig = Rig()
    rig.wall_ms = NOW_MS
    peer = rig.peer()
    for number in range(3):
        peer.send(b"%d" % number)
    waiting = []
    for code, fields in told:
        # A handler that fails in another way than by a refusal makes this raise.
        opaque = peer.ask(code, **fields)
        if peer.answer(opaque) is None:
            waiting.append(opaque)
    assert peer.call(RequestCode.BATCH_ACK_MESSAGE, json.dumps({"acks": acks}).encode()).code != 0 or acks
    rig.pass_time(30_000)
    assert rig.faults.next_failed() is None
    # Whatever the groups that were asked for are at, another one gets everything.
    assert set(rig.peer().popped(group="other")) == {"0", "1", "2"}
    assert peer.send(b"more").code == ResponseCode.SUCCESS
