"""Answers of brokers about the apps of a queue, of the expected shape and of others."""

from __future__ import annotations

from typing import Any

import pytest

from bmqctl.systems.blazingmq.status import queues
from formats.bmq.uri import parse_uri

QUEUE = parse_uri("bmq://d/q?id=fo")
ENGINE = {"queueEngine": {"fanout": {"consumerStates": [{"appId": "fo"}, {"appId": "foo"}]}}}


def check(monkeypatch: pytest.MonkeyPatch, internals: Any) -> None:
    monkeypatch.setattr(queues, "ask_about_queue", lambda *_: queues.QueueAnswers({}, internals, 0))
    unused: Any = None
    queues.check_app("h", 1, unused, QUEUE)


def test_an_app_for_which_nothing_is_stored_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"uri": "bmq://d/q", "storage": {"virtualStorages": [{"appId": "foo"}]}}
    with pytest.raises(queues.UnknownApp, match="bmq://d/q has no app fo, but foo"):
        check(monkeypatch, {"queue": {"localQueue": ENGINE}, "state": state})


@pytest.mark.parametrize(
    "internals",
    [
        None,
        {},
        {"queue": {"remoteQueue": {}}},
        {"queue": {"localQueue": {"queueEngine": {}}}},
        {"queue": {"localQueue": ENGINE}, "state": {"storage": {"virtualStorages": 7}}},
        {"queue": {"localQueue": ENGINE}, "state": []},
    ],
)
def test_an_answer_of_another_shape_is_no_obstacle(monkeypatch: pytest.MonkeyPatch, internals: Any) -> None:
    check(monkeypatch, internals)
