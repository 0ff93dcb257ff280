"""A node with users, a log of everything and a curious administrator: the passwords are nowhere but in its file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bmqctl.client.admin import AdminClient
from bmqctl.testing import NodeProcess
from broker.bmq.admin.table import TABLE
from formats.bmq.codes import EventType
from formats.bmq.control import ber, jsonc
from formats.bmq.control.messages import AuthenticationMessage, AuthenticationRequest, AuthenticationResponse
from formats.bmq.wire.event import EncodingType, build_schema_event
from tests.rigs.config_files import spoil, write_config, write_proxy_config
from tests.rigs.raw import Raw, identity

PASSWORD, GUESS, STAND_IN = "TOPSECRET", "GUESSSECRET", "STANDINSECRET"
AUTHENTICATION = {
    "authenticators": [
        {
            "name": "BasicAuthenticator",
            "settings": [
                {"key": "ann", "value": {"stringVal": PASSWORD}},
                {"key": "guest", "value": {"stringVal": STAND_IN}},
            ],
        }
    ],
    "anonymousCredential": {"credential": {"mechanism": "BASIC", "identity": f"guest:{STAND_IN}"}},
}
WORDS = {
    "name": "mine",
    "queue_name": "q",
    "queue": "q",
    "appId": "*",
    "offset": "0",
    "count": "UNLIMITED",
    "domain": "shop.orders",
    "partitionId": "0",
}


def log_all(config: Path) -> None:
    for name in ("loggingVerbosity", "consoleSeverityThreshold"):
        spoil(config, "bmqbrkrcfg.json", "taskConfig", "logController", name, value="TRACE")
    spoil(config, "bmqbrkrcfg.json", "taskConfig", "logController", "categories", value=["*:TRACE:green"])


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    config = write_config(tmp_path / "etc")
    spoil(config, "bmqbrkrcfg.json", "appConfig", "authentication", value=AUTHENTICATION)
    log_all(config)
    with NodeProcess(tmp_path / "store", config_dir=config) as running:
        yield running


def login(node: NodeProcess, data: str, encoding: EncodingType) -> bool:
    codec = jsonc if encoding is EncodingType.JSON else ber
    message = AuthenticationMessage(choice=AuthenticationRequest(mechanism="BASIC", data=data.encode()))
    with Raw(node, identified=False) as raw:
        raw.send(build_schema_event(codec.encode(message), EventType.AUTHENTICATION, encoding))
        kind, body = raw.event()
        assert kind is EventType.AUTHENTICATION
        answer = codec.decode(AuthenticationMessage, body).choice
        assert isinstance(answer, AuthenticationResponse)
        if answer.status.code == 0:
            raw.send(identity())
            raw.event()
    return answer.status.code == 0


def commands() -> list[str]:
    """One of each row of the table, as words."""
    found = []
    for row in TABLE:
        words = re.sub(r"\[<\w+>\] |\[\w+\]|\(|\|ALL\)", "", row.words)
        words = re.sub(r"\[([^|\]]+)\|[^\]]+\]", r"\1", words)
        found.append(re.sub(r"<(\w+)>", lambda word: WORDS.get(word[1], "1"), words).strip())
    return found


def test_secrets_are_in_no_answer_and_in_no_log(node: NodeProcess) -> None:
    for encoding in EncodingType:
        assert login(node, f"ann:{PASSWORD}", encoding)
        assert not login(node, f"ann:{GUESS}", encoding)
        assert not login(node, GUESS, encoding)
    # Bytes that are no request, with something in them that might be one.
    for body in (f'{{"authenticationRequest":{{"mechanism":"BASIC","data":"{GUESS}!"}}}}', f'{{"data":"{GUESS}"'):
        with Raw(node, identified=False) as raw:
            raw.send(build_schema_event(body.encode(), EventType.AUTHENTICATION, EncodingType.JSON))
            raw.rest()
            raw.end_reason()
    answers = []
    with AdminClient("127.0.0.1", node.port) as admin:
        for command in commands():
            answers += [admin.send(command), admin.send(f"ENCODING JSON_PRETTY {command}")]
    dump = next(answer for answer in answers if '"authenticators"' in answer)
    assert '"ann"' in dump
    for line in ("CMD BROKERCONFIG DUMP", "LOG INFO"):
        fd = os.open(node.data_dir / "bmqbrkr.ctl", os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, f"{line}\n".encode())
        os.close(fd)
    node.wait_for("Command 'LOG INFO' successfully processed")
    node.stop()
    shown = [*answers, node.log, node.output]
    shown += [path.read_text(errors="replace") for path in node.data_dir.rglob("*log*") if path.is_file()]
    assert "BASIC_USER-ann" in node.log
    for secret in (PASSWORD, GUESS, STAND_IN):
        assert not [text for text in shown if secret in text]


def test_secrets_of_a_broker_that_dials_are_in_no_answer_and_in_no_log(node: NodeProcess, tmp_path: Path) -> None:
    settings = [
        {"key": key, "value": {"stringVal": value}} for key, value in (("username", "ann"), ("password", PASSWORD))
    ]
    provider = {"name": "BasicCredentialProvider", "settings": settings}
    config = write_proxy_config(tmp_path / "proxy-etc", [node.port])
    spoil(config, "bmqbrkrcfg.json", "appConfig", "authentication", value={"credentialProvider": provider})
    log_all(config)
    with NodeProcess(tmp_path / "proxy", config_dir=config) as proxy:
        proxy.wait_for("is available")
        node.wait_for("authenticated as 'BASIC_USER-ann'")
        with AdminClient("127.0.0.1", proxy.port) as admin:
            answers = [admin.send("BROKERCONFIG DUMP"), admin.send("ENCODING JSON_PRETTY CLUSTERS LIST")]
        assert "BasicCredentialProvider" in answers[0]
        proxy.stop()
        for text in (*answers, proxy.log, proxy.output, node.log, node.output):
            assert PASSWORD not in text
