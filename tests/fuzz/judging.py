"""Judges of fuzzed brokers: an ended process, and faults in its log."""

from __future__ import annotations

from pathlib import Path

from bmqctl.systems.node_process import NodeProcess

__all__ = ["LOG_SHOWN", "MARKS", "Fault", "Find", "Watch"]

LOG_SHOWN = 4_000
LOG_KEPT = 200
MARKS = (b"because of a fault of this broker", b"Traceback (most recent call last)", b"internal error")


class Find(Exception):
    """A violated property. If it `goes_on`, the broker can be tried further."""

    goes_on = False


class Fault(Find):
    """A fault in the log of a broker that still runs."""

    goes_on = True


class Watch:
    """A broker's log, read as it grows; `marks` are the texts that no log may have."""

    def __init__(self, broker: NodeProcess, log: Path, marks: tuple[bytes, ...] = MARKS) -> None:
        self.broker = broker
        self._log = log
        self._marks = marks
        self._at = 0
        self._last = b""

    def judge(self) -> None:
        """Raise `Find` if the broker has ended or logged a failure."""
        broker = self.broker
        try:
            self.judge_log()
        except Fault as fault:
            if broker.is_running:
                raise
            raise Find(str(fault)) from fault
        if not broker.is_running:
            raise Find(f"the broker at port {broker.port} has ended:\n{broker.output[-LOG_SHOWN:]}")

    def judge_log(self) -> None:
        """Raise `Fault` if the log's new part has a failure."""
        with self._log.open("rb") as file:
            file.seek(self._at)
            # A mark may be half written.
            new = self._last + file.read()
            self._at = file.tell()
        self._last = new[-LOG_KEPT:]
        for mark in self._marks:
            at = new.find(mark)
            if at >= 0:
                # The rest is for the next call, without this fault's traceback.
                self._last = new[at + LOG_SHOWN :]
                start = new.rfind(b"\n", 0, max(0, at - 200)) + 1
                text = new[start : at + LOG_SHOWN].decode(errors="replace")
                raise Fault(f"the broker at port {self.broker.port} says:\n{text}")
