"""The file of contexts as text: what is written is read again, and what is damaged is refused by the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bmqctl.cli.contexts.model import BadContext, Context, Contexts, SecretSource, System, parse_contexts

PROD = Context("tcp://10.0.0.5:30114", (), "/ca.pem", "BASIC", SecretSource.FILE, "/secret", "json")
ORDERS = Context("rocketmq://a:1;[::1]:2", ("c:3",), secret_source=SecretSource.HERE, secret="user:password")


def of(fields: Any) -> str:
    return json.dumps({"contexts": {"prod": fields}})


def test_contexts_are_read_as_they_were_written() -> None:
    contexts = Contexts().with_context("prod", PROD).with_context("orders", ORDERS).using("orders")
    assert parse_contexts(contexts.to_text()) == contexts
    assert contexts.has_secrets
    assert not contexts.without("orders").has_secrets
    assert (PROD.system, ORDERS.system) == (System.BLAZINGMQ, System.ROCKETMQ)
    assert ORDERS.nameservers == ("a:1", "[::1]:2")


def test_no_context_is_current_after_it_was_removed() -> None:
    contexts = Contexts().with_context("prod", PROD).with_context("orders", ORDERS).using("prod")
    assert contexts.without("orders").current == "prod"
    assert contexts.without("prod").current is None
    with pytest.raises(BadContext, match="no context 'prod'; there are: orders"):
        contexts.without("prod").using("prod")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "the file: expected an object"),
        ('{"context": {}}', "the file: unknown field 'context'"),
        ('{"contexts": []}', "contexts: expected an object"),
        ('{"current": 1}', "current: expected a printable text"),
        ('{"current": "x"}', "current: there is no context 'x'"),
        ('{"contexts": {"a b": {"address": "tcp://a:1"}}}', "contexts.a b: a name is"),
        (of(1), "contexts.prod: the context: expected an object"),
        (of({}), "contexts.prod: address is missing"),
        (of({"address": ""}), "contexts.prod: address: expected a printable text"),
        (of({"address": "tcp://a:1\n"}), "contexts.prod: address: expected a printable text"),
        (of({"address": "http://a:1"}), "contexts.prod: 'http://a:1': expected tcp://HOST:PORT"),
        (of({"address": "rocketmq://a:1;b"}), "'b': expected rocketmq://HOST:PORT"),
        (of({"address": "rocketmq://a:1", "controllers": "c"}), "controllers: expected a list of texts"),
        (of({"address": "rocketmq://a:1", "controllers": ["c"]}), "'c': expected HOST:PORT of a controller"),
        (of({"address": "tcp://a:1", "controllers": ["c:1"]}), "has no controllers"),
        (of({"address": "tcp://a:1", "output": "yaml"}), "output 'yaml': expected table, json, jsonl, csv"),
        (of({"address": "tcp://a:1", "authnData": "x:y"}), "needs an authentication mechanism"),
        (of({"address": "rocketmq://a:1", "authnData": "x"}), "are USER:PASSWORD"),
        (of({"address": "rocketmq://a:1", "authnMechanism": "BASIC"}), "no authentication mechanism"),
        (of({"address": "tcp://a:1", "authnData": "x", "authnDataFile": "y"}), "only one of authnDataFile, authnData"),
        (of({"address": "tcp://a:1", "tls": True}), "unknown field 'tls'"),
        (of({"address": "tcp://a:1", "tlsAuthority": True}), "tlsAuthority: expected a printable text"),
    ],
)
def test_a_damaged_file_is_refused_by_the_field(text: str, reason: str) -> None:
    with pytest.raises(BadContext) as caught:
        parse_contexts(text)
    assert reason in str(caught.value)


def test_secrets_are_in_no_representation() -> None:
    assert "password" not in repr(Contexts().with_context("orders", ORDERS))
