"""The start of Apache's own processes, with a program in Java's place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.judges.rocketmq_reference import STARTS, ReferenceProcess

pytestmark = pytest.mark.process


def java(folder: Path, failures: int, text: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a `java` on the path that fails a number of times, and then runs; return the file that counts its runs."""
    count = folder / "count"
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\necho x >> {count}\n"
        f'if [ "$(wc -l < {count})" -le {failures} ]; then echo "{text}"; exit 1; fi\n'
        "echo boot success\nexec sleep 60\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return count


def test_broker_whose_port_is_taken_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = java(tmp_path, STARTS - 1, "java.net.BindException: Address already in use", monkeypatch)
    broker = ReferenceProcess("", tmp_path / "broker", nameserver="127.0.0.1:1")
    broker.start()
    try:
        assert len(broker.pids) == 1
        assert count.read_text().count("x") == STARTS
    finally:
        broker.kill()


@pytest.mark.parametrize(
    ("failures", "text", "starts"), [(STARTS, "Address already in use", STARTS), (1, "another fault", 1)]
)
def test_broker_that_cannot_be_started_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, text: str, starts: int
) -> None:
    count = java(tmp_path, failures, text, monkeypatch)
    with pytest.raises(SystemExit, match=text):
        ReferenceProcess("", tmp_path / "broker", nameserver="127.0.0.1:1").start()
    assert count.read_text().count("x") == starts
