from __future__ import annotations

import json
from typing import Any

import pytest

from bmqctl.cli.tool.commands import MessageProperty, Subscription
from bmqctl.cli.tool.parameters import ParameterError, Parameters, default_broker, dump_profile, load_profile
from bmqctl.cli.tool.results import CloseResult, ConfigureResult, GenericResult, OpenResult, result_of
from bmqctl.cli.tool.session import parse_endpoint
from bmqctl.client.address import BadAddress
from formats.bmq.control.messages import Status, StatusCategory


def test_the_broker_is_on_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BMQ_PORT", raising=False)
    assert default_broker() == "tcp://localhost:30114"
    monkeypatch.setenv("BMQ_PORT", "4711")
    assert default_broker() == "tcp://localhost:4711"


def test_an_endpoint_is_a_host_and_a_port() -> None:
    assert parse_endpoint("tcp://broker.example:1234")[:2] == ("broker.example", 1234)


@pytest.mark.parametrize(
    "text", ["", "localhost:30114", "http://x:1", "tcp://x", "tcp://:1", "tcp://x:70000", "tcp://[x:1", "tcp://x:1/y"]
)
def test_invalid_endpoint_is_refused(text: str) -> None:
    with pytest.raises(BadAddress, match="is not the address of a broker"):
        parse_endpoint(text)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"mode": "manual"}, "mode must be one of"),
        ({"latency": "fast"}, "latency must be one of"),
        ({"verbosity": "loud"}, "verbosity must be one of"),
        ({"mode": "auto", "queue_flags": "read"}, "--queueuri"),
        ({"mode": "auto", "queue_uri": "bmq://d/q"}, "--queueflags"),
        ({"mode": "syschk", "no_session_event_handler": True}, "--nosessioneventhandler"),
        ({"latency": "hires", "sequential_message_pattern": "m"}, "exclude"),
        ({"max_unconfirmed": "5"}, "--maxunconfirmed"),
        ({"events_count": "5m"}, "--eventscount"),
        ({"events_count": "5s", "post_interval": 0}, "needs a --postinterval"),
        ({"post_rate": -1}, "--postrate must not be negative"),
        ({"timeout_sec": -1}, "--timeout must not be negative"),
    ],
)
def test_contradictory_parameters_are_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(ParameterError, match=why):
        Parameters(**changed).check()


def test_words_are_taken_in_any_case() -> None:
    parameters = Parameters(mode="SYSCHK", latency="None", verbosity="Info")
    parameters.check()
    assert (parameters.mode, parameters.latency, parameters.verbosity) == ("syschk", "none", "info")


def test_events_are_counted_or_timed() -> None:
    assert Parameters(events_count="12").events() == 12
    assert Parameters(events_count="3S", post_interval=500, post_rate=4).events() == 24
    assert Parameters(max_unconfirmed=" 7 : 70 ").limits() == (7, 70)


def test_a_profile_is_read_back() -> None:
    parameters = Parameters(
        broker="tcp://x:1",
        mode="auto",
        dump_msg=True,
        msg_size=7,
        message_properties=(MessageProperty("x", "1", "E_INT"),),
        subscriptions=(Subscription(1, "x > 1"), Subscription()),
    )
    text = dump_profile(parameters)
    assert load_profile(text) == parameters
    assert json.loads(text)["autoPubSubModulo"] == 0
    assert load_profile('{"broker": "tcp://x:1", "tlsVersions": "TLSv1.3"}') == Parameters(broker="tcp://x:1")
    assert load_profile("{}").broker == default_broker()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"msgSize": "x"}', '{"subscriptions": [1]}'])
def test_invalid_profile_is_refused(text: str) -> None:
    with pytest.raises(ParameterError):
        load_profile(text)


@pytest.mark.parametrize(
    ("category", "code", "result"),
    [
        (StatusCategory.UNKNOWN, -1, GenericResult.UNKNOWN),
        (StatusCategory.REFUSED, -1, GenericResult.REFUSED),
        (StatusCategory.UNKNOWN, -6, GenericResult.REFUSED),
        (StatusCategory.TIMEOUT, -77, GenericResult.TIMEOUT),
        (StatusCategory.UNKNOWN, 100, OpenResult.ALREADY_OPENED),
    ],
)
def test_a_brokers_status_is_a_result(category: StatusCategory, code: int, result: Any) -> None:
    assert result_of(Status(category=category, code=code), OpenResult) is result


def test_a_code_means_what_the_request_makes_of_it() -> None:
    status = Status(category=StatusCategory.UNKNOWN, code=-101)
    assert result_of(status, ConfigureResult) is ConfigureResult.INVALID_QUEUE
    assert result_of(status, CloseResult) is CloseResult.INVALID_QUEUE
