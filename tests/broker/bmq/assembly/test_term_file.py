"""The kept term."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.bmq.assembly.term_file import NAME, TermFile, TermUnreadable
from broker.bmq.consensus.election import TERM_MAX
from broker.shell.host.calls import HOST


def test_a_term_is_there_again(tmp_path: Path) -> None:
    file = TermFile(tmp_path)
    assert file.read() == 0
    file.write(7)
    assert file.read() == 7
    file.write(TERM_MAX)
    file.close()
    again = TermFile(tmp_path)
    assert again.read() == TERM_MAX
    again.close()
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_file_of_an_older_release_is_read_and_gets_a_checksum(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"00000000000000000012\n")
    for _ in range(2):
        file = TermFile(tmp_path)
        assert file.read() == 12
        file.close()
    assert path.read_bytes().startswith(b"00000000000000000012 ")


def _sound(tmp_path: Path) -> bytes:
    file = TermFile(tmp_path)
    file.write(12)
    file.close()
    return (tmp_path / NAME).read_bytes()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "has 0 bytes, not 30"),
        (b"12\n", "has 3 bytes, not 30"),
        (b"x" * 30, "does not begin with a number"),
        (b"0" * 30, "does not match its checksum"),
        (b"0" * 21, "does not match its checksum"),
        (b"18446744073709551615\n", "holds 18446744073709551615, which no election can reach"),
    ],
)
def test_invalid_term_file_is_an_error(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(TermUnreadable) as failure:
        TermFile(tmp_path)
    text = str(failure.value)
    assert text.startswith(f"{tmp_path / NAME}: {reason}; ")
    assert "remove the file" in text
    assert (tmp_path / NAME).read_bytes() == content


def test_each_bit_that_rots_and_each_length_is_noticed(tmp_path: Path) -> None:
    sound = _sound(tmp_path)
    damaged = [sound[:length] for length in range(len(sound)) if length != len(b"00000000000000000012\n")]
    for bit in range(len(sound) * 8):
        rotten = bytearray(sound)
        rotten[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(rotten))
    for content in damaged:
        (tmp_path / NAME).write_bytes(content)
        with pytest.raises(TermUnreadable):
            TermFile(tmp_path)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    with pytest.raises(TermUnreadable, match=r"elector\.term: is not a regular file; "):
        TermFile(tmp_path)


def test_a_term_is_on_the_disk_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write is synced, and the folder is once the file is new."""
    synced: list[str] = []

    def note(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)

    monkeypatch.setattr(HOST, "flush", note)
    monkeypatch.setattr(HOST, "flush_data", note)
    file = TermFile(tmp_path)
    assert synced == [f"{NAME.removesuffix('.term')}.new", tmp_path.name]
    file.write(1)
    assert synced[2:] == [NAME]
    file.close()


def test_a_term_that_is_not_synced_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = TermFile(tmp_path)

    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(HOST, "flush_data", fail)
        with pytest.raises(OSError, match="Input/output"):
            file.write(1)
    assert file.read() == 0
    file.write(1)
    assert file.read() == 1
    file.close()
