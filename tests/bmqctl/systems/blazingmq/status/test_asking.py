from __future__ import annotations

from typing import cast

import pytest

from bmqctl.client.admin import AdminClient, AdminLost
from bmqctl.systems.blazingmq.status.asking import Refused, ask_for, endpoint_parts


class _Answering:
    """A connection to a broker that has one answer."""

    def __init__(self, text: str) -> None:
        self._text = text

    def send(self, command: str) -> str:
        assert command == "ENCODING JSON_COMPACT CLUSTERS LIST"
        return self._text


def ask(text: str) -> object:
    return ask_for(cast("AdminClient", _Answering(text)), "CLUSTERS LIST", "clusterList")


def test_an_answer_is_what_has_its_name() -> None:
    assert ask('{"clusterList": {"clusters": []}}') == {"clusters": []}


def test_a_broker_that_has_no_such_command_is_said_to_be_another_one() -> None:
    # As the C++ broker answers CLUSTERS CLUSTER local HEALTH.
    text = "Unable to decode command (rc: -1, error: 'Invalid subcommand after CLUSTERS CLUSTER local: HEALTH')"
    with pytest.raises(Refused, match="does not know CLUSTERS LIST: it is BlazingMQ's own"):
        ask(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("hello", "with no JSON: 'hello'"), ("[]", "without clusterList"), ('{"clusterList": 1}', "without clusterList")],
)
def test_invalid_answer_is_refused(text: str, reason: str) -> None:
    with pytest.raises(AdminLost, match=reason):
        ask(text)


def test_a_refusal_has_the_reason_of_the_broker() -> None:
    with pytest.raises(Refused, match=r"^no such cluster$"):
        ask('{"error": {"message": "no such cluster"}}')


def test_an_endpoint_has_a_host_and_a_port() -> None:
    assert endpoint_parts("tcp://node:30114") == ("node", 30114)
    assert endpoint_parts("tcp://[::1]:65535") == ("::1", 65535)


@pytest.mark.parametrize(
    "endpoint", ["", "node", ":1", "node:", "node:x", "node:-1", "node:65536", "node:99999", "n:²"]
)
def test_invalid_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(AdminLost, match="is no endpoint"):
        endpoint_parts(endpoint)


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "\ud800"])
def test_a_name_that_no_host_can_have_is_no_broker(host: str) -> None:
    with pytest.raises(AdminLost, match="cannot be the name of a host"):
        AdminClient(host, 1)
