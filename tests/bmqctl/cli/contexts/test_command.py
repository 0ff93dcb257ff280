"""`bmqctl context`, and what commands that connect to a broker take from a context."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner, Result

from bmqctl.app import app
from bmqctl.cli.contexts.command import DialingCommand

Run = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "bmqctl" / "contexts.json"


@pytest.fixture
def context(home: Path) -> Run:
    return lambda *words: CliRunner().invoke(app, ["context", *words])


dialing = typer.Typer(add_completion=False)
ROCKETMQ_OPTIONS = {"rocketmq": False, "nameserver": None, "controller": None}


@dialing.command(cls=DialingCommand)
def both(
    broker: str = "tcp://localhost:30114",
    rocketmq: Annotated[bool, typer.Option("--rocketmq")] = False,
    nameserver: list[str] | None = None,
    controller: list[str] | None = None,
    tls_authority: Path | None = None,
    authn_mechanism: str | None = None,
    authn_data: Annotated[str, typer.Option(envvar="BMQCTL_AUTHN_DATA")] = "",
    output: Annotated[str, typer.Option(envvar="BMQCTL_OUTPUT")] = "table",
) -> None:
    """Print the options."""
    print(json.dumps({name: str(value) if isinstance(value, Path) else value for name, value in locals().items()}))


@dialing.command(cls=DialingCommand)
def between(
    source: str,
    destination: str,
    broker: str = "tcp://localhost:30114",
    to_broker: str | None = None,
    authn_mechanism: str | None = None,
    authn_data: str = "",
    to_authn_mechanism: str | None = None,
    to_authn_data: str = "",
) -> None:
    """Print the options of a command with two ends, of which one may be a topic."""
    given = locals()
    print(json.dumps({name: value for name, value in given.items() if name not in ("source", "destination") and value}))


@dialing.command(cls=DialingCommand)
def of_uri(
    uri: str,
    broker: str = "tcp://localhost:30114",
    authn_data: Annotated[str, typer.Option(envvar="BMQCTL_AUTHN_DATA")] = "",
    output: str = "table",
) -> None:
    """Print the options of a command for a queue or a topic."""
    print(json.dumps([uri, broker, authn_data, output]))


@dialing.command(cls=DialingCommand)
def ends(source: str, destination: str, broker: str = "", authn_data: str = "", to_authn_data: str = "") -> None:
    """Print the ends of a command."""
    print(json.dumps([source, destination]))


@dialing.command(cls=DialingCommand)
def bridged(source: str, destination: str, broker: str = "", authn_data: str = "") -> None:
    """Print the ends and credentials of a command that signs for no topic."""
    print(json.dumps([source, destination, authn_data]))


@dialing.command(cls=DialingCommand)
def plain(broker: str = "tcp://localhost:30114") -> None:
    """Print the options of a command without credentials."""
    print(json.dumps({"broker": broker}))


@dialing.command(cls=DialingCommand)
def several(broker: list[str] | None = None) -> None:
    """Print the brokers."""
    print(json.dumps({"broker": broker}))


@dialing.command(cls=DialingCommand)
def rocket(nameserver: list[str] | None = None) -> None:
    """Print the options of a command for RocketMQ."""
    print(json.dumps({"nameserver": nameserver}))


@dialing.command(cls=DialingCommand)
def local(folder: str = "here") -> None:
    """Print the options of a command that connects to nobody."""
    print(json.dumps({"folder": folder}))


def options(*words: str, command: str = "both", **environment: str) -> Any:
    result = CliRunner().invoke(dialing, [command, *words], env=environment)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refusal(*words: str, command: str = "both", **environment: str) -> str:
    result = CliRunner().invoke(dialing, [command, *words], env=environment)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"bmqctl {command}: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def add(context: Run, *words: str) -> None:
    result = context("add", *words)
    assert (result.exit_code, result.output) == (0, "")


def test_options_go_before_the_environment_and_that_before_the_context(context: Run, tmp_path: Path) -> None:
    assert options()["broker"] == "tcp://localhost:30114"
    authority, secret = tmp_path / "ca.pem", tmp_path / "secret"
    authority.touch()
    secret.write_text("ops:from the file\n")
    given = ("--tls-authority", str(authority), "--authn-mechanism", "BASIC", "--authn-data-file", str(secret))
    add(context, "prod", "tcp://10.0.0.5:30114", *given, "--output", "csv", "--use")
    assert options() == {
        **ROCKETMQ_OPTIONS,
        "broker": "tcp://10.0.0.5:30114",
        "tls_authority": str(authority),
        "authn_mechanism": "BASIC",
        "authn_data": "ops:from the file",
        "output": "csv",
    }
    inherited = options(BMQCTL_AUTHN_DATA="ops:x", BMQCTL_OUTPUT="json")
    assert (inherited["authn_data"], inherited["output"]) == ("ops:x", "json")
    assert options("--authn-data", "ops:y", BMQCTL_AUTHN_DATA="ops:x")["authn_data"] == "ops:y"
    assert options("--output", "jsonl", BMQCTL_OUTPUT="json")["output"] == "jsonl"


def test_credentials_of_the_current_context_go_to_no_other_broker(context: Run) -> None:
    add(context, "prod", "tcp://10.0.0.5:30114", "--authn-mechanism", "BASIC", "--authn-data", "ops:x", "--use")
    found = options("--broker", "tcp://other:1")
    assert (found["broker"], found["authn_mechanism"], found["authn_data"]) == ("tcp://other:1", None, "")
    found = options("--broker", "tcp://other:1", BMQCTL_CONTEXT="prod")
    assert (found["authn_mechanism"], found["authn_data"]) == (None, "")
    # Somebody who names both means both.
    found = options("--broker", "tcp://other:1", "--context", "prod")
    assert (found["broker"], found["authn_data"]) == ("tcp://other:1", "ops:x")


def test_credentials_go_to_the_end_whose_broker_the_context_is(context: Run) -> None:
    add(context, "prod", "tcp://10.0.0.5:30114", "--authn-mechanism", "BASIC", "--authn-data", "ops:x", "--use")
    queue, topic, usual = "bmq://my.domain/q", "rocketmq://mq:9876/t", "tcp://localhost:30114"
    own = {"authn_mechanism": "BASIC", "authn_data": "ops:x"}
    of_destination = {f"to_{name}": value for name, value in own.items()}
    for destination in (queue, topic):
        assert options(queue, destination, command="between") == {"broker": "tcp://10.0.0.5:30114", **own}
    found = options(topic, queue, command="between")
    assert found == {"broker": usual, "to_broker": "tcp://10.0.0.5:30114", **of_destination}
    assert options(topic, topic, command="between") == {"broker": usual}
    found = options(topic, queue, "--to-broker", "tcp://other:1", command="between")
    assert found == {"broker": usual, "to_broker": "tcp://other:1"}
    found = options(queue, queue, "--to-broker", "tcp://other:1", command="between")
    assert found == {"broker": "tcp://10.0.0.5:30114", "to_broker": "tcp://other:1", **own}


def test_a_topic_without_a_nameserver_has_the_context_s(context: Run) -> None:
    usual, bare, whole = "tcp://localhost:30114", "rocketmq:///t?group=g", "rocketmq://other:9/t"
    assert "rocketmq:///t?group=g names no nameserver" in refusal(bare, command="of-uri")
    add(context, "prod", "tcp://a:1", "--authn-mechanism", "BASIC", "--authn-data", "ops:x", "--use")
    reason = "context prod: is of BlazingMQ, and rocketmq:///t?group=g names no nameserver: give rocketmq://HOST:PORT/"
    assert reason in refusal(bare, command="of-uri")
    assert reason in refusal(bare, "--broker", "tcp://b:1", command="of-uri")
    add(context, "orders", "rocketmq://mq:9876;b:2", "--authn-data", "key:secret", "--output", "csv", "--use")
    assert options(bare, command="of-uri") == ["rocketmq://mq:9876/t?group=g", usual, "key:secret", "csv"]
    found = options(bare, "--authn-data", "my:own", "--output", "json", command="of-uri")
    assert found == ["rocketmq://mq:9876/t?group=g", usual, "my:own", "json"]
    assert options(bare, command="of-uri", BMQCTL_AUTHN_DATA="my:own")[2:] == ["my:own", "csv"]
    # A topic that names its nameserver has nothing of the current context, and all of one that is named with it.
    assert options(whole, command="of-uri") == [whole, usual, "", "table"]
    assert options(whole, "--context", "orders", command="of-uri") == [whole, usual, "key:secret", "csv"]
    assert "context orders: is of RocketMQ, and this command needs a broker" in refusal("bmq://a/b", command="of-uri")


def test_credentials_go_to_the_ends_that_are_in_the_context_s_cluster(context: Run) -> None:
    add(context, "orders", "rocketmq://mq:9876", "--authn-data", "key:secret", "--use")
    queue, bare, whole = "bmq://my.domain/q", "rocketmq:///t", "rocketmq://other:9/t"
    of_source, of_destination = {"authn_data": "key:secret"}, {"to_authn_data": "key:secret"}
    usual = {"broker": "tcp://localhost:30114"}
    for source, destination, own in (
        (bare, queue, of_source),
        (bare, whole, of_source),
        (bare, bare, of_source),
        (queue, bare, of_destination),
        (whole, bare, of_destination),
        (whole, whole, {}),
    ):
        assert options(source, destination, command="between") == usual | own, (source, destination)
    found = options(queue, bare, "--to-authn-data", "my:own", command="between")
    assert found == usual | {"to_authn_data": "my:own"}
    assert options(whole, bare, command="ends") == [whole, "rocketmq://mq:9876/t"]
    assert options(bare, bare, command="ends") == ["rocketmq://mq:9876/t"] * 2
    # One that names its nameserver has them only from a context that is named with it, even beside a queue.
    for source, destination, own in ((queue, whole, of_destination), (whole, queue, of_source)):
        assert "is of RocketMQ, and this command needs a broker" in refusal(source, destination, command="between")
        assert "is of RocketMQ" in refusal(source, destination, command="between", BMQCTL_CONTEXT="orders")
        assert options(source, destination, "--context", "orders", command="between") == usual | own
    # Of two it is the one that the context names, too.
    known = "rocketmq://mq:9876/t"
    assert options(whole, known, "--context", "orders", command="between") == usual | of_destination
    assert options(known, whole, "--context", "orders", command="between") == usual | of_source
    assert "context orders: names the nameserver of neither" in refusal(
        whole, whole, "--context", "orders", command="between"
    )
    # Credentials of a command that are for a broker of BlazingMQ are none of a topic's.
    assert "is of RocketMQ, and this command needs a broker of BlazingMQ" in refusal(queue, bare, command="bridged")
    assert "is of RocketMQ" in refusal(queue, whole, "--context", "orders", command="bridged")


def test_the_context_of_the_option_goes_before_the_variable_s_and_that_before_the_current(context: Run) -> None:
    for name in ("a", "b", "c"):
        add(context, name, f"tcp://{name}:1")
    assert context("use", "a").exit_code == 0
    assert options()["broker"] == "tcp://a:1"
    assert options(BMQCTL_CONTEXT="b")["broker"] == "tcp://b:1"
    assert options("--context", "c", BMQCTL_CONTEXT="b")["broker"] == "tcp://c:1"
    assert "no context 'd'; there are: a, b, c" in refusal("--context", "d")
    assert context("use", "--none").exit_code == 0
    assert options()["broker"] == "tcp://localhost:30114"


def test_a_context_of_rocketmq_names_the_system_too(context: Run) -> None:
    add(context, "orders", "rocketmq://a:1;b:2", "--controller", "c:3", "--authn-data-env", "ORDERS", "--use")
    found = options(ORDERS="user:password")
    assert (found["rocketmq"], found["nameserver"], found["controller"]) == (True, ["a:1", "b:2"], ["c:3"])
    assert (found["broker"], found["authn_data"]) == ("tcp://localhost:30114", "user:password")
    assert "variable ORDERS, which is not set" in refusal()
    assert options("--authn-data", "x:y")["authn_data"] == "x:y"
    assert "context orders: is of RocketMQ" in refusal(command="plain")
    assert options("--broker", "tcp://x:1", command="plain") == {"broker": "tcp://x:1"}


def test_a_context_that_a_command_cannot_use_is_refused(context: Run, tmp_path: Path) -> None:
    add(context, "secret", "tcp://a:1", "--authn-mechanism", "BASIC", "--authn-data", "ops:x")
    assert "has credentials, and this command cannot use any" in refusal("--context", "secret", command="plain")
    (tmp_path / "ca.pem").touch()
    add(context, "tls", "tcp://a:1", "--tls-authority", str(tmp_path / "ca.pem"))
    assert "has --tls-authority, which this command does not have" in refusal("--context", "tls", command="plain")
    assert "is of BlazingMQ, and --rocketmq is given" in refusal("--context", "tls", "--rocketmq")


def test_a_command_takes_only_contexts_of_its_system(context: Run, home: Path) -> None:
    add(context, "prod", "tcp://a:1", "--use")
    add(context, "orders", "rocketmq://a:1")
    assert "is of BlazingMQ, and this command needs RocketMQ" in refusal(command="rocket")
    assert options("--context", "orders", command="rocket") == {"nameserver": ["a:1"]}
    home.write_text("damaged")
    assert options(command="local") == {"folder": "here"}


def test_a_damaged_file_is_refused_by_each_command_but_help_and_one_with_an_address(context: Run, home: Path) -> None:
    home.parent.mkdir()
    home.write_text('{"contexts": {"prod": 1}}')
    reason = f"{home}: contexts.prod: the context: expected an object; move it away, or mend it\n"
    assert refusal() == f"bmqctl both: {reason}"
    for words in (("list",), ("show",), ("use", "prod"), ("remove", "prod"), ("add", "x", "tcp://a:1")):
        result = context(*words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"bmqctl context {words[0]}: {reason}"
    assert home.read_text() == '{"contexts": {"prod": 1}}'
    assert CliRunner().invoke(dialing, ["both", "--help"]).exit_code == 0
    assert options("--broker", "tcp://x:1")["broker"] == "tcp://x:1"


def test_a_list_without_contexts_names_the_command_that_adds_one(context: Run) -> None:
    result = context("list", "--output", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, [])
    assert "bmqctl context add NAME ADDRESS" in result.stderr


def test_contexts_are_listed_and_shown_without_their_secrets(context: Run) -> None:
    add(context, "prod", "tcp://a:1", "--authn-mechanism", "BASIC", "--authn-data", "ops:hush", "--use")
    add(context, "orders", "rocketmq://b:2", "--authn-data-env", "ORDERS")
    listed = json.loads(context("list", "--output", "json").stdout)
    assert [(each["current"], each["name"], each["credentials"]) for each in listed] == [
        (False, "orders", "in $ORDERS"),
        (True, "prod", "in the file of contexts"),
    ]
    for words in (("show",), ("show", "prod", "--output", "json"), ("list",), ("show", "prod", "--output", "csv")):
        result = context(*words)
        assert result.exit_code == 0
        assert "tcp://a:1" in result.stdout
        assert "hush" not in result.stdout
    assert json.loads(context("show", "--output", "jsonl").stdout)["authnData"] == "(not shown)"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("add", "prod", "tcp://b:1"), "there is a context prod already"),
        (("add", "x y", "tcp://b:1"), "a name is 1 to 64"),
        (("add", "x", "localhost"), "expected tcp://HOST:PORT"),
        (("add", "x", "tcp://b:1", "--tls-authority", "/nowhere"), "--tls-authority /nowhere: no such file"),
        (("add", "x", "tcp://b:1", "--authn-data", "a", "--authn-data-env", "b"), "give one of"),
        (("use",), "expected NAME, or --none"),
        (("use", "x"), "no context 'x'; there are: prod"),
        (("remove", "x"), "no context 'x'; there are: prod"),
        (("show",), "no context is current"),
        (("show", "x"), "no context 'x'"),
    ],
)
def test_impossible_command_is_refused(context: Run, home: Path, words: tuple[str, ...], reason: str) -> None:
    add(context, "prod", "tcp://a:1")
    before = home.read_text()
    result = context(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in result.stderr
    assert home.read_text() == before


def test_a_context_is_replaced_and_removed(context: Run) -> None:
    add(context, "prod", "tcp://a:1", "--use")
    add(context, "prod", "tcp://b:1", "--replace")
    assert options()["broker"] == "tcp://b:1"
    assert context("remove", "prod").exit_code == 0
    assert options()["broker"] == "tcp://localhost:30114"


def test_credentials_are_not_removed_without_a_yes(context: Run, home: Path) -> None:
    add(context, "prod", "tcp://a:1", "--authn-mechanism", "BASIC", "--authn-data", "me:hush")
    add(context, "other", "tcp://b:1", "--authn-mechanism", "BASIC", "--authn-data-env", "HUSH")
    before = home.read_text()
    result = context("remove", "prod")
    assert result.exit_code == 2
    assert "which are kept nowhere else? Standard input is not a terminal: give --yes, or --dry-run" in result.stderr
    result = context("remove", "prod", "--dry-run")
    assert (result.exit_code, result.stdout) == (
        0,
        "would remove context prod (tcp://a:1), with the credentials that it keeps\n",
    )
    assert context("remove", "other", "--dry-run").stdout == "would remove context other (tcp://b:1)\n"
    assert home.read_text() == before
    assert context("remove", "prod", "--yes").exit_code == 0
    assert context("remove", "other").exit_code == 0
    assert json.loads(context("list", "--output", "json").stdout) == []


def test_a_command_to_which_several_brokers_may_be_named(context: Run) -> None:
    add(context, "prod", "tcp://prod:1", "--use")
    assert options(command="several") == {"broker": ["tcp://prod:1"]}
    assert options("--broker", "tcp://a:1", "--broker", "tcp://b:2", command="several") == {
        "broker": ["tcp://a:1", "tcp://b:2"]
    }
