from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmqctl.cli.tool.commands import (
    BatchPost,
    Confirm,
    ListMessages,
    MessageProperty,
    OpenQueue,
    Post,
    Start,
    Subscription,
    properties_of,
    stream_options,
    subscription_faults,
)
from bmqctl.cli.tool.grammar import CommandError, camel, decode, encode, parse_line, show
from formats.bmq.wire.properties import Property, PropertyType


@pytest.mark.parametrize(
    ("line", "verb", "values"),
    [
        ("", "", {}),
        ("  start", "start", {}),
        ("start async=true", "start", {"async": True}),
        ('open uri="bmq://d/q" flags="read,write"', "open", {"uri": "bmq://d/q", "flags": "read,write"}),
        (
            "open maxUnconfirmedMessages = 7  consumerPriority=-1",
            "open",
            {"maxUnconfirmedMessages": 7, "consumerPriority": -1},
        ),
        ('post payload=["a b","c=d ]", "é"]', "post", {"payload": ["a b", "c=d ]", "é"]}),
        (
            'post "uri"="x" messageProperties=[{"name": "x", "value": "1"}]',
            "post",
            {"uri": "x", "messageProperties": [{"name": "x", "value": "1"}]},
        ),
        ("batch-post postInterval=100.0 payload=null", "batch-post", {"postInterval": 100.0, "payload": None}),
        ('confirm guid="*"', "confirm", {"guid": "*"}),
    ],
)
def test_a_line_is_a_verb_and_values(line: str, verb: str, values: dict[str, Any]) -> None:
    assert parse_line(line) == (verb, values)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("post uri=", "no value for 'uri'"),
        ("post uri", "no value for 'uri'"),
        ("post uri=bmq", "'bmq' is no value"),
        ('post uri="bmq', "Unterminated string"),
        ('post payload=["a"', "delimiter"),
        ("post n=1-2", "'1-2' is no value"),
    ],
)
def test_invalid_value_is_refused(line: str, why: str) -> None:
    with pytest.raises(CommandError, match=why):
        parse_line(line)


@given(st.text(max_size=60))
def test_any_line_is_taken_or_refused(line: str) -> None:
    try:
        verb, values = parse_line(f"post {line}")
        decode(Post, values)
    except CommandError:
        return
    assert verb == "post"


def test_fields_have_the_references_names() -> None:
    assert [camel(name) for name in ("uri", "async_", "max_unconfirmed_messages")] == [
        "uri",
        "async",
        "maxUnconfirmedMessages",
    ]


def test_a_command_takes_what_it_knows() -> None:
    values = {
        "uri": "bmq://d/q",
        "flags": "read",
        "unknown": 1,
        "subscriptions": [{"expression": "x > 1", "correlationId": 3}],
        "maxUnconfirmedBytes": None,
    }
    command = decode(OpenQueue, values)
    assert command == OpenQueue("bmq://d/q", "read", subscriptions=(Subscription(3, "x > 1"),))
    assert decode(BatchPost, {"postInterval": 100.0}).post_interval == 100
    assert decode(ListMessages, {}) == ListMessages(None)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"uri": 1}, "'uri' must be of type string"),
        ({"async": "true"}, "'async' must be of type boolean"),
        ({"maxUnconfirmedMessages": True}, "must be of type integer"),
        ({"maxUnconfirmedMessages": 1 << 70}, "must be of type integer"),
        ({"subscriptions": {}}, "'subscriptions' must be a list"),
        ({"subscriptions": [1]}, "'subscriptions' must be an object"),
        ({"subscriptions": [{"expression": 1}]}, "'expression' must be of type string"),
    ],
)
def test_values_of_the_wrong_type_are_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(CommandError, match=why):
        decode(OpenQueue, values)


def test_a_command_is_shown_with_all_its_fields() -> None:
    assert show(Start()) == "[ async = false ]"
    command = Post("bmq://d/q", ("a", "b"), message_properties=(MessageProperty("x", "1", "E_INT"),))
    assert show(command) == (
        '[ uri = "bmq://d/q" payload = [ "a" "b" ] async = false compressionAlgorithmType = "none" '
        'messageProperties = [ [ name = "x" value = "1" type = "E_INT" ] ] ]'
    )
    assert show(Subscription()) == (
        "[ correlationId = NULL expression = NULL maxUnconfirmedMessages = NULL maxUnconfirmedBytes = NULL "
        "consumerPriority = NULL ]"
    )


def test_decoding_reverses_encoding() -> None:
    command = OpenQueue("bmq://d/q", "read", True, 1, 2, 3, (Subscription(1, "x"), Subscription()))
    assert decode(OpenQueue, encode(command)) == command
    assert encode(Confirm("u", "g")) == {"uri": "u", "guid": "g"}


def test_properties_are_strings_and_integers() -> None:
    wanted = (MessageProperty("s", "1"), MessageProperty("n", " -7", "E_INT"), MessageProperty("s", "2"))
    assert properties_of(wanted) == [Property("s", PropertyType.STRING, "2"), Property("n", PropertyType.INT32, -7)]


@pytest.mark.parametrize(
    ("value", "kind", "why"),
    [("x", "E_INT", "no integer"), (str(1 << 31), "E_INT", "does not fit"), ("x", "E_CHAR", "is no type")],
)
def test_properties_of_no_type_are_refused(value: str, kind: str, why: str) -> None:
    with pytest.raises(CommandError, match=why):
        properties_of((MessageProperty("n", value, kind),))


def test_a_command_says_how_to_consume() -> None:
    options = stream_options(OpenQueue(max_unconfirmed_messages=5, subscriptions=(Subscription(9, "x", 1, 2, 3),)))
    (subscription,) = options.subscriptions
    assert (options.max_unconfirmed_messages, options.max_unconfirmed_bytes, options.priority) == (5, 33554432, 0)
    assert (subscription.expression, subscription.priority, subscription.correlation) == ("x", 3, 9)


def test_an_expression_that_is_there_says_something() -> None:
    assert subscription_faults((Subscription(), Subscription(expression="x"))) == []
    wrong = ("", " ", "()", "((true)", "x >", "true && (>>)", "x == 9223372036854775808", "1 > 0")
    faults = subscription_faults(tuple(Subscription(expression=each) for each in wrong))
    assert len(faults) == len(wrong)
    assert faults[2].startswith('Expression validation failed: [ expression: "()", reason: "syntax error, ')
