"""A store that was damaged: the node does not start, says what is wrong and where, and how to go on."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.testing import NodeFailed, NodeProcess
from tests.rigs.official import Client, queue_name

RECORD = 60
MESSAGES = 50
PAYLOAD = b"a payload that is easily found"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a stopped node, with messages in it."""
    node = NodeProcess(tmp_path_factory.mktemp("written") / "store")
    with node, Client(node.uri) as client:
        uri = queue_name()
        client.open(uri, write=True)
        client.post_all(uri, [PAYLOAD] * MESSAGES)
    return node.data_dir


@pytest.fixture
def stopped(store: Path, tmp_path: Path) -> Iterator[NodeProcess]:
    """A node on a copy of it that has not started yet."""
    node = NodeProcess(Path(shutil.copytree(store, tmp_path / "store")))
    yield node
    node.close()


def only(folder: Path, extension: str) -> Path:
    (found,) = folder.glob(f"bmq_*{extension}")
    return found


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x55
    path.write_bytes(data)


def fault_of(node: NodeProcess) -> str:
    """Return the error of a node that must not start."""
    before = {path.name: path.read_bytes() for path in node.data_dir.glob("bmq_*")}
    with pytest.raises(NodeFailed) as failed:
        node.start()
    assert failed.value.exit_code == 1, failed.value.output
    assert "Traceback" not in failed.value.output
    # It has not touched the evidence.
    for name, data in before.items():
        with (node.data_dir / name).open("rb") as file:
            assert file.read(len(data)) == data, name
    return failed.value.output


def damage_payload(folder: Path) -> tuple[Path, int]:
    path = only(folder, ".bmq_data")
    at = -1
    for _ in range(3):
        at = path.read_bytes().index(PAYLOAD, at + 1)
    flip(path, at + 5)
    return path, at


def damage_record(folder: Path) -> tuple[Path, int]:
    path = only(folder, ".bmq_journal")
    at = path.stat().st_size - 20 * RECORD
    flip(path, at + RECORD - 1)  # the magic that ends a record
    return path, at


def damage_sequence(folder: Path) -> tuple[Path, int]:
    path = only(folder, ".bmq_journal")
    at = path.stat().st_size - 20 * RECORD
    flip(path, at + 11)  # the low byte of its sequence number
    return path, at


def damage_reference(folder: Path) -> tuple[Path, int]:
    path = only(folder, ".bmq_journal")
    flip(path, path.stat().st_size - 20 * RECORD + 35)  # where its payload lies
    return only(folder, ".bmq_data"), 0


def damage_journal_header(folder: Path) -> tuple[Path, int]:
    path = only(folder, ".bmq_journal")
    flip(path, 0)
    return path, 0


def damage_data_header(folder: Path) -> tuple[Path, int]:
    path = only(folder, ".bmq_data")
    flip(path, 0)
    return path, 0


def damage_queue(folder: Path) -> tuple[Path, int]:
    path = only(folder, ".bmq_qlist")
    flip(path, path.stat().st_size - 1)
    return path, 0


DAMAGES = [
    damage_payload,
    damage_record,
    damage_sequence,
    damage_reference,
    damage_journal_header,
    damage_data_header,
    damage_queue,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_before_it_is_served(stopped: NodeProcess, damage: Callable[[Path], tuple[Path, int]]) -> None:
    path, offset = damage(stopped.data_dir)
    said = fault_of(stopped)
    assert f"{stopped.data_dir}: the store is damaged; the node does not start" in said
    offsets = [int(found) for found in re.findall(rf"  {re.escape(path.name)} at offset (\d+): ", said)]
    assert offsets, said
    if offset:
        assert any(abs(found - offset) < 2 * RECORD for found in offsets), said
    assert f"bmqctl journal validate {stopped.data_dir}" in said
    assert "move the files named above to another folder" in said
    # The command that it names finds the same.
    result = CliRunner().invoke(app, ["journal", "validate", str(stopped.data_dir)])
    assert result.exit_code == 1
    assert path.name in result.output.replace("\n", "")
    # And what it advises helps: without the files it starts, empty.
    aside = stopped.data_dir.with_name("aside")
    aside.mkdir()
    for file in stopped.data_dir.glob("bmq_0.*"):
        file.rename(aside / file.name)
    stopped.start()
    assert "messages: 0, " in stopped.ready_line


def test_a_damaged_ledger(stopped: NodeProcess) -> None:
    path = only(stopped.data_dir, ".bmq_csl")
    flip(path, 60)
    said = fault_of(stopped)
    assert path.name in said
    assert "move " in said


@pytest.mark.parametrize("kind", ["DATA", "JOURNAL"])
def test_a_file_that_is_gone(stopped: NodeProcess, kind: str) -> None:
    only(stopped.data_dir, f".bmq_{kind.lower()}").unlink()
    assert f"its {kind} file is missing" in fault_of(stopped)


@pytest.mark.parametrize("extension", [".bmq_data", ".bmq_journal"])
def test_a_file_that_is_cut_off(stopped: NodeProcess, extension: str) -> None:
    path = only(stopped.data_dir, extension)
    whole = path.read_bytes()
    # Half a header: nothing can be made of it.
    path.write_bytes(whole[:7])
    assert path.name in fault_of(stopped)


def test_half_a_record_at_the_end_is_no_damage(stopped: NodeProcess) -> None:
    """A crash leaves such a record, which was never acknowledged."""
    path = only(stopped.data_dir, ".bmq_journal")
    path.write_bytes(path.read_bytes() + b"\x40\0\0\0\0\1half")
    stopped.start()
    assert f"messages: {MESSAGES}, " in stopped.ready_line
