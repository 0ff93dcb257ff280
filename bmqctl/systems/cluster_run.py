"""The nodes of a local cluster as processes, started, watched and stopped together.

They end with the process that started them, even if that is killed.
"""

from __future__ import annotations

import selectors
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import IO, NamedTuple

from bmqctl.common.children import release, start_child

__all__ = ["Member", "run_members"]

EXIT_FAILED = 1
READ_BYTES = 4096
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Member(NamedTuple):
    """A node: its name, and its arguments of `bmqctl`, for this start and for a person's later one."""

    name: str
    words: tuple[str, ...]
    again: tuple[str, ...]


def run_members(members: Sequence[Member], available: str, ready: Callable[[], None]) -> int:
    """Run the nodes until SIGINT, SIGTERM, SIGHUP, or the end of all of them; return the exit code.

    Once each has printed `available`, `ready` is called in a thread, and may wait for further conditions. Reports a
    node that ends by itself; the others continue.
    """
    nodes = [_start(member) for member in members]
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()
        for node in nodes:
            if node.poll() is None:
                node.send_signal(signal.SIGTERM)

    # Under nohup the end of the terminal is ignored.
    heeded = [number for number in ENDS if signal.getsignal(number) is not signal.SIG_IGN]
    handlers = {number: signal.signal(number, stop) for number in heeded}
    exit_code = 0
    try:
        for member, code in _follow(nodes, members, available.encode(), ready):
            # SIGTERM kills a node that has just been started.
            if code and not (stopping.is_set() and code == -signal.SIGTERM):
                _say_ended(code, member)
                exit_code = EXIT_FAILED
        return exit_code
    finally:
        stop(signal.SIGTERM, None)
        for node in nodes:
            node.wait()
            release(node)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _start(member: Member) -> subprocess.Popen[bytes]:
    # In a new session: a terminal's ^C must reach the nodes once, through this process.
    return start_child(member.words, stdout=subprocess.PIPE, bufsize=0, start_new_session=True)


def _follow(
    nodes: list[subprocess.Popen[bytes]], members: Sequence[Member], available: bytes, ready: Callable[[], None]
) -> Iterator[tuple[Member, int]]:
    """Read the nodes' output until all have ended; yield each that ends, with its exit code."""
    there: set[int] = set()
    said = [b""] * len(nodes)
    with selectors.DefaultSelector() as selector:
        for index, node in enumerate(nodes):
            assert node.stdout is not None
            selector.register(node.stdout, selectors.EVENT_READ, index)
        while selector.get_map():
            for key, _ in selector.select():
                index = key.data
                pipe: IO[bytes] = key.fileobj  # type: ignore[assignment]
                data = pipe.read(READ_BYTES)
                said[index] += data
                if not data:
                    selector.unregister(pipe)
                    pipe.close()
                    yield members[index], nodes[index].wait()
                elif available in said[index] and index not in there:
                    there.add(index)
                    if len(there) == len(nodes):
                        threading.Thread(target=ready, daemon=True).start()


def _say_ended(code: int, member: Member) -> None:
    again = shlex.join(["bmqctl", *member.again])
    what = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    print(f"bmqctl: {member.name} {what}; to start it again: {again}", file=sys.stderr, flush=True)
