"""The exit code of a process and its last line, for each fault that ends it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import pytest

from broker.bmq.assembly.app import _ENDS as BMQ
from broker.bmq.assembly.app import ConfigError
from broker.bmq.core.messages import Full
from broker.common.faults import Inconsistent
from broker.rocketmq.assembly.process import run_to_end as run_rocketmq
from broker.rocketmq.config.node import PropertyError
from broker.rocketmq.store.errors import DiskFull
from broker.shell.loop.server import ListenError
from broker.shell.process.process_end import run_to_end

INCONSISTENT = Inconsistent("a change", KeyError("x"))
TOO_FEW = "Too many open files; raise the limit of open files (ulimit -n)"
DELIBERATE = "the {} terminated deliberately: a change was interrupted by KeyError: 'x'; start it again"


def fail_with(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("etc/a.json", "/a", "is no number", "set one"), 2, "etc/a.json"),
        (ListenError("the port is taken"), 2, "the port is taken"),
        (OSError(28, "No space left on device", "/there/file"), 1, "/there/file: No space left on device"),
        (PermissionError(13, "Permission denied", "/there/file"), 2, "/there/file: Permission denied"),
        (Full("STORAGE_FAILURE", "Too many open files"), 1, TOO_FEW),
        (INCONSISTENT, 3, DELIBERATE.format("broker")),
    ],
)
def test_a_blazingmq_process_ends_with_one_line(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check(partial(run_to_end, fail_with(error), BMQ), code, line, capsys)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (PropertyError("no such property"), 2, "no such property"),
        (ListenError("the port is taken"), 2, "the port is taken"),
        (DiskFull("the disk is full"), 1, "the disk is full"),
        (DiskFull("Too many open files"), 1, TOO_FEW),
        (OSError(28, "No space left on device", "/there/file"), 1, "/there/file: No space left on device"),
        (INCONSISTENT, 3, DELIBERATE.format("node")),
    ],
)
def test_a_rocketmq_process_ends_with_one_line(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check(partial(run_rocketmq, fail_with(error)), code, line, capsys)


def check(run: Callable[[], int], code: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == code
    told = capsys.readouterr()
    assert told.out == ""
    (last,) = told.err.splitlines()
    assert last.startswith(f"bmqctl: {line}")


def test_a_process_that_is_told_to_stop_says_so_in_its_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert run_to_end(lambda: None, BMQ) == run_rocketmq(lambda: None) == 0
    assert [each.getMessage() for each in caplog.records] == ["BMQbrkr stopped", "stopped"]


def test_the_log_has_the_alarm_of_a_process_that_ends_itself(caplog: pytest.LogCaptureFixture) -> None:
    run_to_end(fail_with(INCONSISTENT), BMQ)
    run_rocketmq(fail_with(INCONSISTENT))
    first, second = (each.getMessage() for each in caplog.records)
    assert first.startswith("PANIC [NODE_INCONSISTENT] the broker terminates deliberately: ")
    assert second.startswith("PANIC the node terminates deliberately: ")


def test_other_faults_are_not_hidden() -> None:
    with pytest.raises(KeyError):
        run_rocketmq(fail_with(KeyError("x")))
