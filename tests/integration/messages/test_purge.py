"""`bmqctl queue purge` against a real node."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

from bmqctl.testing import NodeProcess
from tests.rigs.messages_at_hand import COMMAND, run
from tests.waiting import WAIT_S

PRIORITY = "bmq://bmq.test.persistent.priority"
FANOUT = "bmq://bmq.test.persistent.fanout"


def facts_of(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("queue", "purge", *words, "--output", "json")[0])
    return found


def is_about(time: str, other: str) -> bool:
    """Brokers tell times of arrival to the second."""
    return abs((datetime.fromisoformat(time) - datetime.fromisoformat(other)).total_seconds()) < 2


def test_a_dry_run_tells_what_a_purge_removes(node: NodeProcess) -> None:
    at = ("-b", node.uri)
    run("post", f"{FANOUT}/purge", *at, "--lines", stdin=b"one\nthree\n")
    run("tail", f"{FANOUT}/purge?id=foo", *at, "--count", "1")
    told = facts_of(f"{FANOUT}/purge?id=foo", *at, "--dry-run")
    assert (told["dry_run"], told["messages"], told["bytes"]) == (True, 1, 5)
    listed = run("browse", f"{FANOUT}/purge?id=foo", *at, "--json")[0]
    assert is_about(told["oldest_at"], json.loads(listed)["arrived_at"])
    whole = facts_of(f"{FANOUT}/purge", *at, "--dry-run")
    assert (whole["messages"], whole["bytes"]) == (2, 8)
    # Nothing has changed; the purge of an app leaves the others theirs.
    done = facts_of(f"{FANOUT}/purge?id=foo", *at, "--yes")
    assert is_about(done.pop("oldest_at"), told.pop("oldest_at"))
    assert done == {**told, "dry_run": False}
    assert facts_of(f"{FANOUT}/purge?id=bar", *at, "--dry-run")["messages"] == 2
    output, _ = run("queue", "purge", f"{FANOUT}/purge", *at, "--yes")
    assert output.startswith("2 messages, 8 bytes, the oldest of 20")
    assert output.endswith(f", were removed from {FANOUT}/purge\n")
    assert run("queue", "purge", f"{FANOUT}/purge", *at, "--dry-run")[0] == (
        f"0 messages, 0 bytes, would be removed from {FANOUT}/purge\n"
    )


def test_many_messages_are_added_up(node: NodeProcess) -> None:
    at = (f"{PRIORITY}/purge-many", "-b", node.uri)
    run("post", *at, "x" * 10, "--count", "25000")
    told = facts_of(*at, "--dry-run")
    assert (told["messages"], told["bytes"]) == (25_000, 250_000)
    done = facts_of(*at, "--yes")
    assert (done["messages"], done["bytes"]) == (25_000, 250_000)


def test_a_queue_that_nobody_has_opened_since_a_start(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "store") as node:
        at = (f"{PRIORITY}/unopened", "-b", node.uri)
        run("post", *at, "--lines", stdin=b"one\ntwo\n")
        run("post", f"{FANOUT}/unopened", "-b", node.uri, "one")
        node.restart(signal.SIGTERM)
        told = facts_of(*at, "--dry-run")
        assert (told["messages"], told["bytes"], told["oldest_at"] is None) == (2, 6, False)
        assert facts_of(f"{FANOUT}/unopened?id=foo", "-b", node.uri, "--dry-run")["messages"] == 1
        done = facts_of(*at, "--yes")
        assert (done["messages"], done["bytes"]) == (2, 6)


def answered(word: str, *words: object) -> tuple[int, str]:
    """Run a command on a terminal, and answer its question; return its exit code and what it printed."""
    terminal, other = pty.openpty()
    try:
        with subprocess.Popen(
            [*COMMAND, *map(str, words)], stdin=other, stdout=subprocess.PIPE, stderr=other
        ) as process:
            os.write(terminal, f"{word}\n".encode())
            output, _ = process.communicate(timeout=WAIT_S)
        return process.returncode, output.decode() + os.read(terminal, 4096).decode()
    finally:
        os.close(terminal)
        os.close(other)


def test_it_asks(node: NodeProcess) -> None:
    at = ("queue", "purge", f"{PRIORITY}/purge-asked", "-b", node.uri)
    run("post", *at[2:], "one")
    _, errors = run(*at, code=2)
    assert errors.startswith("bmqctl queue purge: Remove 1 message, 3 bytes, the oldest of ")
    assert errors.endswith("Standard input is not a terminal: give --yes, or --dry-run\n")
    code, text = answered("n", *at)
    assert code == 2
    assert "nothing is removed" in text
    assert facts_of(*at[2:], "--dry-run")["messages"] == 1
    code, text = answered("y", *at)
    assert code == 0
    assert "were removed" in text
    assert facts_of(*at[2:], "--dry-run")["messages"] == 0


def test_impossible_purge_is_refused(node: NodeProcess) -> None:
    for uri, reason in (
        (f"{PRIORITY}/purge-none", "there is no queue"),
        (f"{PRIORITY}/purge-many?id=app", "invalid APPID"),
        ("queue", "queue: "),
    ):
        _, errors = run("queue", "purge", uri, "-b", node.uri, "--yes", code=2)
        assert reason in errors
        assert errors.count("\n") == 1
    _, errors = run("queue", "purge", f"{PRIORITY}/q", "-b", "tcp://127.0.0.1:1", "--yes", code=2)
    assert "no broker at 127.0.0.1:1" in errors
