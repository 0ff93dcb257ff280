"""The state file: kept over kills, for one replay, by one process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bmqctl.carrying.replay.progress import Head, Progress, ReplayStep, StateFault, open_state, read_head, replay_guid

ABOUT = {"--queue": ["bmq://a/q"], "--since": None}


def head(messages: int = 10, digest: str = "d") -> Head:
    return Head.new(digest, messages, {"bmq_0.bmq_journal": 7}, ABOUT)


def test_written_data_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "state"
    assert read_head(path) is None
    first = head()
    with open_state(path, first) as progress:
        assert progress.steps.tolist() == [ReplayStep.NEW] * 10
        progress.steps[3] = ReplayStep.POSTED
        progress.steps[4] = ReplayStep.SENT
    assert read_head(path) == first
    with open_state(path, head()) as progress:
        # The seed is the first run's: GUIDs are made of it.
        assert progress.head == first
        assert progress.steps.tolist() == [0, 0, 0, 2, 1, 0, 0, 0, 0, 0]
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


@pytest.mark.process
def test_a_killed_process_leaves_what_it_wrote(tmp_path: Path) -> None:
    path = tmp_path / "state"
    code = """
import os, signal, sys
from pathlib import Path
from bmqctl.carrying.replay.progress import Head, ReplayStep, open_state
progress = open_state(Path(sys.argv[1]), Head.new("d", 10, {}, {}))
progress.steps[:5] = ReplayStep.POSTED
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code, path], check=False)
    assert done.returncode == -signal.SIGKILL
    with open_state(path, Head.new("d", 10, {}, {})) as progress:
        assert progress.steps.tolist() == [ReplayStep.POSTED] * 5 + [ReplayStep.NEW] * 5


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (head(digest="e"), "belongs to another replay: of 10 messages, and these are 10 others"),
        (head(messages=11), "of 10 messages, and these are 11 others"),
        (
            head()._replace(about={"--queue": ["bmq://a/p"], "--since": None}),
            "--queue was bmq://a/q, and is bmq://a/p",
        ),
        (head()._replace(about={"--queue": ["bmq://a/q"], "--since": 5}), "--since was not given, and is 5"),
    ],
)
def test_another_replay_does_not_get_it(tmp_path: Path, other: Head, reason: str) -> None:
    path = tmp_path / "state"
    with open_state(path, head()):
        pass
    with pytest.raises(StateFault, match=reason):
        open_state(path, other)


def test_two_at_a_time_do_not(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with open_state(path, head()), pytest.raises(StateFault, match="in use by another replay"):
        open_state(path, head())
    with open_state(path, head()):
        pass


def replaced(content: bytes, old: bytes, new: bytes) -> bytes:
    """Put other bytes into the head, whose size stays."""
    head = content[:4096].replace(old, new)
    return head[: 4096 - 1].rstrip().ljust(4095) + b"\n" + content[4096:]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: b"", "is not the state of a replay"),
        (lambda content: b"something else\n" * 1000, "is not the state of a replay"),
        (lambda content: content.replace(b"bmqctl-replay 1", b"bmqctl-replay 2", 1), "another version"),
        (lambda content: content[:-1], "is damaged"),
        (lambda content: content + b"\0", "is damaged"),
        (lambda content: content.replace(b"{", b"[", 1), "is damaged"),
        (lambda content: content.replace(b" 4096\n", b" 9999999999\n", 1), "is damaged"),
        (lambda content: content.replace(b'"seed"', b'"sead"', 1), "is damaged"),
        (lambda content: content[:-1] + b"\x09", "message 9 has no state"),
        (lambda content: replaced(content, b'{"bmq_0.bmq_journal": 7}', b"7"), "is damaged"),
        (lambda content: replaced(content, b'"bmq_0.bmq_journal": 7', b'"bmq_0.bmq_journal": "7"'), "is damaged"),
        (lambda content: replaced(content, b'"about": {', b'"about": [], "x": {'), "is damaged"),
        (lambda content: replaced(content, b'"about": {', b'"about": ' + b"[" * 3000), "is damaged"),
    ],
)
def test_damage_is_told(tmp_path: Path, damage: Callable[[bytes], bytes], reason: str) -> None:
    path = tmp_path / "state"
    with open_state(path, head()):
        pass
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StateFault, match=reason):
        open_state(path, head())
    if reason != "message 9 has no state":
        with pytest.raises(StateFault, match=reason):
            read_head(path)


def test_where_no_file_can_be_made(tmp_path: Path) -> None:
    with pytest.raises(StateFault, match="No such file or directory"):
        open_state(tmp_path / "nowhere" / "state", head())
    with pytest.raises(StateFault, match="Is a directory"):
        open_state(tmp_path, head())


def test_an_empty_plan_needs_no_file(tmp_path: Path) -> None:
    with open_state(tmp_path / "state", head(messages=0)) as progress:
        assert len(progress.steps) == 0
    assert list(tmp_path.iterdir()) == []


def test_guids_are_made_of_seed_and_number_and_differ() -> None:
    seed = bytes(range(6))
    made = [replay_guid(seed, number) for number in (0, 1, 0xFFFF, 0x10000, 0xFFFF_FFFF)]
    assert len(set(made)) == len(made)
    assert made[3].hex() == "4000000000000001" + "0000" + "000102030405"
    assert Progress.in_memory(head()).head.seed != Progress.in_memory(head()).head.seed
