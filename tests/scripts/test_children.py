"""The end of what a program of scripts/ has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from scripts.judges.children import descendants, is_running
from tests.waiting import WAIT_S

# The child is started where nothing else would end it, as if the signal had come before anybody could hold it.
PROGRAM = """
import subprocess, time
from scripts.judges.children import ending_with_children
with ending_with_children():
    child = subprocess.Popen(["sh", "-c", "echo started; sleep 600; true"])
    time.sleep({seconds})
"""


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_children_that_nothing_else_would_end(number: signal.Signals) -> None:
    words = [sys.executable, "-c", PROGRAM.format(seconds=600)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        (child, *_) = started = descendants(process.pid)
        assert is_running(child)
        process.send_signal(number)
        # The end of the output is the end of all that hold it, grandchildren too.
        assert process.stdout.read() == b""
        assert process.wait(WAIT_S) != 0
    assert not [pid for pid in started if is_running(pid)]


@pytest.mark.process
def test_descendants_are_found_while_threads_begin_and_end() -> None:
    is_over = threading.Event()

    def churn() -> None:
        while not is_over.is_set():
            threads = [threading.Thread(target=int) for _ in range(20)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()

    with subprocess.Popen(["sleep", "600"]) as child:
        churning = threading.Thread(target=churn)
        churning.start()
        try:
            for _ in range(100):
                assert child.pid in descendants(os.getpid())
        finally:
            is_over.set()
            churning.join()
            child.kill()


@pytest.mark.process
def test_children_end_with_a_program_that_ends_by_itself() -> None:
    words = [sys.executable, "-c", PROGRAM.format(seconds=0)]
    done = subprocess.run(words, capture_output=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0
    assert done.stderr == b""
