"""The commands for messages without a broker: what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.testing import free_port

QUEUE = "bmq://my.domain/orders"
TOPIC = "rocketmq://127.0.0.1:PORT/orders"


def check_refused(folder: Path, arguments: list[str], reason: str) -> None:
    """Check that a command ends with one line; PORT is one that nobody listens on."""
    port = str(free_port())
    words = [each.replace("PORT", port).replace("FOLDER", str(folder)) for each in arguments]
    (folder / "empty.pem").touch()
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"bmqctl {words[0]}: ")
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["http://x/y", "x"], "expected bmq://DOMAIN/QUEUE or rocketmq://HOST:PORT/TOPIC"),
        ([QUEUE, "x", "-b", "broker"], "'broker' is not the address of a broker"),
        ([QUEUE, "x", "-b", "tcp://127.0.0.1:PORT"], "no connection to 127.0.0.1:PORT: Connection refused"),
        ([TOPIC, "x"], "is it running there?"),
        ([f"{QUEUE}?id=a", "x"], "not to an app of it"),
        ([f"{TOPIC}?queue=1", "x"], "?key=NAME"),
        ([TOPIC, "x", "--compress"], "--compress is for queues of BlazingMQ"),
        ([TOPIC, "x", "--authn-data", "shop"], "expected KEY:SECRET"),
        ([TOPIC, "x", "--authn-mechanism", "BASIC"], "is for BlazingMQ"),
        ([QUEUE, "x", "--authn-data", "a:b"], "name its mechanism"),
        ([QUEUE, "x", "--tls-authority", "FOLDER/none.pem"], "none.pem: No such file or directory"),
        ([QUEUE, "x", "--tls-authority", "FOLDER/empty.pem"], "has no certificates in PEM"),
        ([QUEUE, "--file", "FOLDER/none"], "none: No such file or directory"),
        ([QUEUE, "--file", "FOLDER"], "is a directory"),
        ([QUEUE, "x", "--lines"], "not both"),
        ([QUEUE, "--lines", "--jsonl"], "--lines or --jsonl, not both"),
        ([QUEUE, "x", "-p", "a"], "expected NAME=TEXT or NAME:=JSON"),
        ([QUEUE, "x", "-p", "a=1", "-p", "a=2"], "a comes twice"),
        ([QUEUE, "x", "-p", "a:=one"], "expected a whole number, true or false"),
        ([QUEUE, "x", "-p", "a:=1.5"], "no whole number"),
        ([QUEUE, "x", "-p", "a:=" + "[" * 100_000], "expected a whole number, true or false"),
    ],
)
def test_impossible_post_is_refused(tmp_path: Path, arguments: list[str], reason: str) -> None:
    check_refused(tmp_path, ["post", *arguments], reason.removesuffix(":PORT: Connection refused"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["queue"], "expected bmq://DOMAIN/QUEUE or rocketmq://HOST:PORT/TOPIC"),
        ([QUEUE, "-b", "tcp://127.0.0.1:PORT"], "no connection to 127.0.0.1:"),
        ([TOPIC], "is it running there?"),
        ([QUEUE, "--tags", "a"], "--tags, --from-start and --since are for topics"),
        ([QUEUE, "--from-start"], "--tags, --from-start and --since are for topics"),
        ([f"{TOPIC}?queue=1"], "there may be group= only"),
        ([f"{TOPIC}?key=a"], "there may be group= only"),
        ([f"{TOPIC}?group=a b"], "a group is a name"),
        ([TOPIC, "--tags", "a", "-e", "b > 1"], "--tags or --expression, not both"),
        ([QUEUE, "--json", "--raw"], "--json or --raw, not both"),
        ([QUEUE, "--output", "csv", "--raw"], "--output or --raw, not both"),
        ([QUEUE, "--json", "--output", "csv"], "--json or --output csv, not both"),
        ([QUEUE, "--json", "--output", "jsonl", "-b", "tcp://127.0.0.1:PORT"], "no connection to 127.0.0.1:"),
        ([QUEUE, "--raw", "--decode", "json"], "leave out --decode"),
        ([QUEUE, "--schema", "a.avsc"], "--schema is for --decode"),
        ([QUEUE, "--message", "a"], "--message is for --decode"),
        ([QUEUE, "--decode", "avro", "--schema", "FOLDER/none.avsc"], "none.avsc: No such file or directory"),
        ([QUEUE, "--decode", "protobuf"], "needs --descriptor FILE and --message NAME"),
    ],
)
def test_impossible_tail_is_refused(tmp_path: Path, arguments: list[str], reason: str) -> None:
    check_refused(tmp_path, ["tail", *arguments], reason)


def test_a_format_of_the_environment_does_not_contradict_raw() -> None:
    words = ["tail", QUEUE, "--raw", "-b", f"tcp://127.0.0.1:{free_port()}"]
    result = CliRunner().invoke(app, words, env={"BMQCTL_OUTPUT": "csv", "COLUMNS": "200"})
    assert (result.exit_code, "no connection to 127.0.0.1:" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["queue"], "expected bmq://DOMAIN/QUEUE or rocketmq://HOST:PORT/TOPIC"),
        ([QUEUE, "-b", "tcp://127.0.0.1:PORT"], "no broker at 127.0.0.1:"),
        ([TOPIC], "is it running there?"),
        ([TOPIC, "--raw", "--decode", "json"], "leave out --decode"),
        ([TOPIC, "--descriptor", "a.desc"], "--descriptor is for --decode"),
        ([TOPIC, "--json", "--raw"], "--json or --raw, not both"),
        ([TOPIC, "--output", "table", "--raw"], "--output or --raw, not both"),
        ([f"{TOPIC}?group=a"], "there may be queue= only"),
        ([f"{TOPIC}?key=a"], "there may be queue= only"),
        ([QUEUE, "--authn-data", "a:b"], "name its mechanism"),
        ([QUEUE, "--tls-authority", "FOLDER/empty.pem"], "has no certificates in PEM"),
    ],
)
def test_impossible_browse_is_refused(tmp_path: Path, arguments: list[str], reason: str) -> None:
    check_refused(tmp_path, ["browse", *arguments], reason)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["copy", QUEUE, "queue"], "expected bmq://DOMAIN/QUEUE or rocketmq://HOST:PORT/TOPIC"),
        (["copy", QUEUE, f"{QUEUE}-2", "-b", "tcp://127.0.0.1:PORT"], "all attempts to connect to 127.0.0.1:"),
        (["copy", TOPIC, f"{TOPIC}-2"], "Connection refused"),
        (["copy", QUEUE, QUEUE], "is both"),
        (["copy", f"{QUEUE}?id=a", QUEUE], "is both"),
        (["copy", TOPIC, TOPIC], "is both"),
        (["copy", QUEUE, f"{QUEUE}-2?id=a"], "not to an app of it"),
        (["copy", QUEUE, f"{QUEUE}-2", "-e", "amount >"], "--expression: "),
        (["copy", QUEUE, f"{QUEUE}-2", "--tags", "a"], "--tags is for topics of RocketMQ"),
        (["copy", TOPIC, QUEUE, "--tags", "a", "-e", "b > 1"], "--tags or --expression, not both"),
        (["copy", f"{TOPIC}?group=a", QUEUE], "no group gets what is copied"),
        (["copy", f"{TOPIC}?key=a", QUEUE], "?key= is for the topic that messages go to"),
        (["copy", TOPIC, f"{TOPIC}-2?key=a"], "leave out key="),
        (["copy", TOPIC, f"{TOPIC}-2", "--to-broker", "tcp://127.0.0.1:PORT"], "--to-broker is for a queue"),
        (["copy", TOPIC, QUEUE, "--authn-data", "me"], "expected KEY:SECRET"),
        (["copy", TOPIC, QUEUE, "--authn-mechanism", "BASIC"], "is for BlazingMQ"),
        (["copy", QUEUE, f"{QUEUE}-2", "--authn-data", "a:b"], "name its mechanism"),
        (["copy", QUEUE, f"{QUEUE}-2", "--tls-authority", "FOLDER/empty.pem"], "has no certificates in PEM"),
        (["copy", QUEUE, f"{QUEUE}-2", "--dry-run", "-b", "tcp://127.0.0.1:PORT"], "no broker at 127.0.0.1:"),
        (["copy", TOPIC, QUEUE, "--dry-run"], "Connection refused"),
        (["move", QUEUE, QUEUE, "--yes"], "is both"),
        (["move", TOPIC, QUEUE, "--yes"], "name the group that is to have consumed them, ?group=GROUP"),
        (["move", f"{TOPIC}?group=a&queue=1", QUEUE, "--yes"], "leave out queue="),
        (["move", f"{TOPIC}?group=a", QUEUE, "-e", "b > 1", "--yes"], "use copy, which leaves it alone"),
        (["move", QUEUE, f"{QUEUE}-2", "-b", "tcp://127.0.0.1:PORT"], "give --yes, or --dry-run"),
    ],
)
def test_impossible_copy_or_move_is_refused(tmp_path: Path, arguments: list[str], reason: str) -> None:
    check_refused(tmp_path, arguments, reason)


def test_the_credentials_of_a_context_do_not_go_to_a_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    words = ["add", "mine", "tcp://127.0.0.1:PORT", "--authn-mechanism", "BASIC", "--authn-data", "me:secret", "--use"]
    result = CliRunner().invoke(app, ["context", *(each.replace("PORT", str(free_port())) for each in words)])
    assert result.exit_code == 0, result.output
    check_refused(tmp_path, ["post", QUEUE, "x"], "no connection to 127.0.0.1:")
    check_refused(tmp_path, ["post", TOPIC, "x"], "is it running there?")
