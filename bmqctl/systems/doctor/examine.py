"""Judgements of a host and a folder by facts alone."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from bmqctl.common.installed import COMPILING
from bmqctl.systems.doctor.facts import FolderFacts, HostFacts

__all__ = ["Judgement", "State", "of_folder", "of_host"]

DESCRIPTORS_ENOUGH: Final = 65_536
DESCRIPTORS_LEAST: Final = 4_096
MAPPINGS_ENOUGH: Final = 65_530
FREE_PERCENT_ENOUGH: Final = 15
FREE_PERCENT_LEAST: Final = 5
AHEAD_S_MAX: Final = 2.0

_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "afs", "lustre"})
_PASSING: Final = {"tmpfs": "memory", "ramfs": "memory", "overlay": "the top layer of a container"}


class State(StrEnum):
    """A state, from good to bad; `unknown` if the system does not report it."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    PROBLEM = "problem"


class Judgement(NamedTuple):
    """A subject, its state, the finding, and the remedy, if any."""

    subject: str
    state: State
    found: str
    remedy: str = ""


def of_host(facts: HostFacts) -> Iterator[Judgement]:
    packages = ", ".join(f"{name} {found or 'missing'}" for name, found in facts.packages.items())
    missing = [name for name, found in facts.packages.items() if found is None]
    yield Judgement(
        "versions",
        State.PROBLEM if missing else State.OK,
        f"{facts.program}, Python {facts.python}, {packages}, {facts.system}",
        f"install {', '.join(missing)}" if missing else "",
    )
    yield Judgement(
        "modules",
        State.OK if facts.is_compiled else State.WARNING,
        "the modules are compiled" if facts.is_compiled else "the modules are interpreted, and slower than compiled",
        "" if facts.is_compiled else COMPILING,
    )
    yield _descriptors(facts.descriptors)
    if facts.mappings is not None:
        few = facts.mappings < MAPPINGS_ENOUGH
        yield Judgement(
            "mappings",
            State.WARNING if few else State.OK,
            f"a process may have {facts.mappings:,} mappings",
            f"sysctl vm.max_map_count={MAPPINGS_ENOUGH}" if few else "",
        )
    match facts.is_clock_synchronized:
        case None:
            yield Judgement("clock", State.UNKNOWN, "the system does not report whether the clock is synchronized")
        case True:
            yield Judgement("clock", State.OK, "the clock is synchronized")
        case False:
            yield Judgement(
                "clock",
                State.WARNING,
                "the kernel reports that the clock is not synchronized",
                "run chrony, ntpd or systemd-timesyncd: messages expire by the clock, and logs are compared by it",
            )


def _descriptors(limit: int) -> Judgement:
    if limit < 0 or limit >= DESCRIPTORS_ENOUGH:
        told = "any number of" if limit < 0 else f"{limit:,}"
        return Judgement("open files", State.OK, f"a process may have {told} files and connections open")
    return Judgement(
        "open files",
        State.PROBLEM if limit < DESCRIPTORS_LEAST else State.WARNING,
        f"a process may have only {limit:,} files and connections open",
        f"raise the hard limit to {DESCRIPTORS_ENOUGH:,} (ulimit -Hn, LimitNOFILE of the service)",
    )


def of_folder(facts: FolderFacts) -> Iterator[Judgement]:
    yield Judgement(
        "folder",
        State.OK if facts.is_writable else State.PROBLEM,
        f"{facts.path} can{'' if facts.is_writable else 'not'} be written by this user",
        "" if facts.is_writable else "give the folder to the user of the broker, or run this as that user",
    )
    yield _room("disk", facts.free_bytes, facts.total_bytes, "bytes")
    if facts.total_files:
        yield _room("inodes", facts.free_files, facts.total_files, "files")
    yield _file_system(facts.file_system)
    if facts.newest_s is not None:
        yield _newest(facts.newest_s - facts.now_s)


def _room(subject: str, free: int, total: int, of: str) -> Judgement:
    percent = 100 * free / total if total else 0.0
    state = State.OK
    if percent < FREE_PERCENT_ENOUGH:
        state = State.PROBLEM if percent < FREE_PERCENT_LEAST else State.WARNING
    text = f"{percent:.1f} % free: {free:,} of {total:,} {of}"
    return Judgement(subject, state, text, "" if state is State.OK else "make room, or use a larger disk")


def _file_system(name: str | None) -> Judgement:
    if name is None:
        return Judgement("file system", State.UNKNOWN, "the system does not report its kind")
    if name in _PASSING:
        return Judgement(
            "file system",
            State.WARNING,
            f"{name} is {_PASSING[name]}: what is stored there does not outlast it",
            "put the store on a disk",
        )
    if name in _REMOTE or name.startswith("fuse."):
        return Judgement(
            "file system",
            State.WARNING,
            f"{name} is not of this host: locks, and what a write guarantees, are the server's matter",
            "put the store on a disk of this host",
        )
    return Judgement("file system", State.OK, name)


def _newest(ahead_s: float) -> Judgement:
    if ahead_s <= AHEAD_S_MAX:
        return Judgement("times of files", State.OK, f"the newest file is {max(0.0, -ahead_s):,.0f} s old")
    return Judgement(
        "times of files",
        State.PROBLEM,
        f"the newest file was written {ahead_s:,.0f} s in the future: the clock was set back, or is wrong",
        "set the clock before the broker is started: messages expire by it",
    )
