"""The kept term."""

from __future__ import annotations

from pathlib import Path

from broker.shell.term_file import NAME, TermFile


def test_a_term_is_there_again(tmp_path: Path) -> None:
    file = TermFile(tmp_path)
    assert file.read() == 0
    file.write(7)
    file.write((1 << 64) - 1)
    file.close()
    again = TermFile(tmp_path)
    assert again.read() == (1 << 64) - 1
    again.close()


def test_what_is_no_term_counts_as_none(tmp_path: Path) -> None:
    for content in (b"", b"12\n", b"x" * 20):
        (tmp_path / NAME).write_bytes(content)
        file = TermFile(tmp_path)
        assert file.read() == 0
        file.close()
