"""The odd machines and users: what a process is given before a command begins, and what the words become."""

from __future__ import annotations

import datetime
import os
import pwd
import resource
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

__all__ = ["CONDITIONS", "FEW_DESCRIPTORS", "Condition"]

YEAR_S = 31_556_952
FEW_DESCRIPTORS: Final = {f"{count} descriptors": count for count in (6, 8, 9, 12, 15, 24)}


class Condition(NamedTuple):
    """A condition of a process. `begin` is called in it; `environment` replaces variables, empty ones are removed."""

    begin: Callable[[], None]
    environment: Mapping[str, str] = {}


def _usual() -> None:
    pass


def _closed(*numbers: int) -> None:
    for number in numbers:
        os.close(number)


def _full(number: int) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, number)
    os.close(full)


def _unread(number: int) -> None:
    reading, writing = os.pipe()
    os.dup2(writing, number)
    os.close(reading)
    os.close(writing)


def _no_entry() -> None:
    """Have no user id an entry in the password file."""

    def missing(number: int) -> NoReturn:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    pwd.getpwuid = missing


def _few(count: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def _clock(year: int) -> None:
    """Set the clock of this process to another year."""
    shift_s = (year - 2026) * YEAR_S
    now, now_ns, real = time.time, time.time_ns, datetime.datetime
    time.time = lambda: now() + shift_s
    time.time_ns = lambda: now_ns() + shift_s * 1_000_000_000

    class Far(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real.fromtimestamp(time.time(), tz)

    for module in list(sys.modules.values()):
        is_ours = getattr(module, "__name__", "").startswith(("bmqctl.", "broker.", "formats."))
        if is_ours and getattr(module, "datetime", None) is real:
            module.datetime = Far  # type: ignore[attr-defined]


_NO_HOME = {"HOME": "", "XDG_CONFIG_HOME": ""}

CONDITIONS: Mapping[str, Condition] = {
    "usual": Condition(_usual),
    "no HOME and no entry": Condition(_no_entry, _NO_HOME),
    "HOME is no folder": Condition(_usual, {"HOME": "/dev/null", "XDG_CONFIG_HOME": ""}),
    "stdout closed": Condition(partial(_closed, 1)),
    "stderr closed": Condition(partial(_closed, 2)),
    "all closed": Condition(partial(_closed, 0, 1, 2)),
    "stdout full": Condition(partial(_full, 1)),
    "stderr full": Condition(partial(_full, 2)),
    "stdout unread": Condition(partial(_unread, 1)),
    "stderr unread": Condition(partial(_unread, 2)),
    "ASCII": Condition(_usual, {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}),
    **{name: Condition(partial(_few, count)) for name, count in FEW_DESCRIPTORS.items()},
    "the year 1900": Condition(partial(_clock, 1900)),
    "the year 2300": Condition(partial(_clock, 2300)),
}
