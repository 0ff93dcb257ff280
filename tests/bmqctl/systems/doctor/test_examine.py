"""Judgements by facts, and the facts of this host."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.systems.doctor.examine import Judgement, State, of_folder, of_host
from bmqctl.systems.doctor.facts import FolderFacts, HostFacts, folder_facts, host_facts

HOST = HostFacts("bmqctl 1", "3.13.0", "Linux", {"trio": "0.35"}, 1 << 20, 65_530, True, True)
FOLDER = FolderFacts(Path("/store"), True, "ext4", 50, 100, 50, 100, 1000.0, 1060.0)


def states(judgements: list[Judgement]) -> dict[str, State]:
    return {each.subject: each.state for each in judgements}


def host(facts: HostFacts) -> dict[str, State]:
    return states(list(of_host(facts)))


def folder(facts: FolderFacts) -> dict[str, State]:
    return states(list(of_folder(facts)))


def test_a_host_and_a_folder_that_are_well() -> None:
    assert set(host(HOST).values()) | set(folder(FOLDER).values()) == {State.OK}


def test_each_judgement_that_is_not_good_has_a_remedy() -> None:
    bad_host = HostFacts("bmqctl 1", "3.13.0", "Linux", {"trio": None}, 1024, 100, False, False)
    bad_folder = FolderFacts(Path("/store"), False, "tmpfs", 1, 100, 1, 100, 2000.0, 1000.0)
    found = [*of_host(bad_host), *of_folder(bad_folder)]
    assert State.OK not in states(found).values()
    assert [each.subject for each in found if not each.remedy] == []


@pytest.mark.parametrize(
    ("limit", "state"),
    [(-1, State.OK), (65_536, State.OK), (65_535, State.WARNING), (4_095, State.PROBLEM)],
)
def test_limits_of_open_files(limit: int, state: State) -> None:
    assert host(HOST._replace(descriptors=limit))["open files"] is state


@pytest.mark.parametrize(
    ("free", "state"), [(15, State.OK), (14, State.WARNING), (5, State.WARNING), (4, State.PROBLEM), (0, State.PROBLEM)]
)
def test_room_on_the_disk(free: int, state: State) -> None:
    assert folder(FOLDER._replace(free_bytes=free))["disk"] is state
    assert folder(FOLDER._replace(free_files=free))["inodes"] is state


def test_clocks() -> None:
    assert [host(HOST._replace(is_clock_synchronized=each))["clock"] for each in (True, False, None)] == [
        State.OK,
        State.WARNING,
        State.UNKNOWN,
    ]
    assert folder(FOLDER._replace(newest_s=1062.0))["times of files"] is State.OK
    assert folder(FOLDER._replace(newest_s=1062.1))["times of files"] is State.PROBLEM


@pytest.mark.parametrize("name", ["tmpfs", "overlay", "nfs4", "fuse.sshfs"])
def test_file_systems_that_a_store_should_not_be_on(name: str) -> None:
    assert folder(FOLDER._replace(file_system=name))["file system"] is State.WARNING


def test_file_systems_without_inodes_are_not_judged_by_them() -> None:
    assert "inodes" not in folder(FOLDER._replace(free_files=0, total_files=0))


@pytest.mark.process
def test_the_facts_are_those_of_this_host(tmp_path: Path) -> None:
    facts = host_facts()
    assert facts.descriptors == -1 or facts.descriptors > 0
    assert all(facts.packages.values())
    (tmp_path / "inner").mkdir()
    file = tmp_path / "inner" / "file"
    file.touch()
    os.utime(file, (5e9, 5e9))
    found = folder_facts(tmp_path)
    assert found.newest_s == 5e9
    assert (found.is_writable, 0 < found.free_bytes <= found.total_bytes) == (True, True)
    assert folder(found)["times of files"] is State.PROBLEM


@pytest.mark.process
def test_the_command(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("listenPort=x\n")
    result = CliRunner().invoke(app, ["doctor", str(tmp_path), "--config", str(config), "--output", "jsonl"])
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 1
    assert [row["state"] for row in rows if row["subject"] == "configuration"] == ["problem"]
    assert {"versions", "open files", "clock", "folder", "disk", "file system"} <= {row["subject"] for row in rows}
    for words in (("/nowhere",), ("--config", "/nowhere")):
        result = CliRunner().invoke(app, ["doctor", *words])
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("bmqctl doctor: /nowhere: ")
