"""The part of the fuzzer's front that needs no atheris."""

from __future__ import annotations

import subprocess
import sys

from tests.fuzz.harness import load
from tests.fuzz.run import dictionary_line


def test_words_are_written_as_libfuzzer_reads_them() -> None:
    assert dictionary_line(b'a"\x00\xff') == '"\\x61\\x22\\x00\\xff"\n'


def test_schema_messages_have_words() -> None:
    words = set(load("control").words())
    assert {b'"openQueue"', b'"E_SUCCESS"', b'"clusterNodeId"', b"\xaa\x80"} <= words
    assert not set(load("put").words())


def test_an_unknown_target_is_named() -> None:
    command = [sys.executable, "-m", "tests.fuzz.run", "control", "nosuch", "--seconds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no such target: nosuch" in done.stderr
