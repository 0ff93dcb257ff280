"""`bmqctl bridge` without its ends: refusals, and ends that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bmqctl.app import app
from bmqctl.testing import free_port

QUEUE = "bmq://my.domain/orders"


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, ["bridge", *map(str, arguments)], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def check_refused(result: Result, reason: str) -> None:
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("bmqctl bridge: ")
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "expected FROM and TO, or --config FILE"),
        ([QUEUE], "expected FROM and TO, or --config FILE"),
        ([QUEUE, QUEUE], "from one system to the other"),
        ([QUEUE, "--config", "bridges.toml"], "not both"),
        (["--config", "/nowhere/bridges.toml"], "/nowhere/bridges.toml: No such file or directory"),
        (["-b", "broker", QUEUE, "rocketmq://mq:1/orders"], "is not the address of a broker"),
    ],
)
def test_invalid_bridge_is_refused(arguments: list[str], reason: str) -> None:
    check_refused(run(*arguments), reason)


def test_a_file_that_is_not_understood_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "bridges.toml"
    file.write_text("bridges = 1")
    check_refused(run("--config", file), f"{file}: expected tables [[bridge]]")
    file.write_bytes(b"\xff")
    check_refused(run("--config", file), f"{file}: is not UTF-8")


@pytest.mark.parametrize("there", [True, False])
def test_ends_that_are_not_there_are_told(there: bool) -> None:
    """The destination is looked for first."""
    topic = f"rocketmq://127.0.0.1:{free_port()}/orders"
    ends = (QUEUE, topic) if there else (topic, QUEUE)
    words = ("--wait", "0", "-b", f"tcp://127.0.0.1:{free_port()}")
    check_refused(run(*ends, *words), f"bmqctl bridge: {ends[1]}: all attempts to connect")
