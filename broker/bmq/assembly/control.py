"""Commands of the control pipe (source: bmqbrkr.m.cpp and m_bmqbrkr_task.cpp).

    HELP           the verbs
    EXIT           a clean stop
    LOG ...        severities of the log; see LOG HELP
    CMD ...        an admin command, as over TCP

The results are in the log, in lines that programs wait for: their text is the reference's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from broker.common.faults import Faults

__all__ = ["AdminExecutor", "ControlLines"]

log = logging.getLogger("broker.control")

# Executes an admin command, given its source; returns its status, 0 for success, and its answer.
AdminExecutor = Callable[[str, str], tuple[int, str]]

# The reference's name for commands from its control pipe.
SOURCE = "MTRAP"

_MULTILINE = {"multiline": True}

HELP = """This process responds to the following messages:
    HELP                 these lines
    EXIT                 stop cleanly
    LOG <command>        severities of the log; see LOG HELP
    CMD <command>        administer the broker; see CMD HELP"""


class ControlLines:
    """Carries out one line at a time. Verbs are case-insensitive."""

    def __init__(
        self,
        execute: AdminExecutor,
        change_log: Callable[[str], tuple[int, str]],
        stop: Callable[[], None],
        faults: Faults,
    ) -> None:
        self._execute = execute
        self._change_log = change_log
        self._stop = stop
        self._faults = faults

    def __call__(self, line: str) -> None:
        try:
            self._carry_out(line)
        except Exception as error:
            self._faults.note("a command from the control pipe", error)

    def _carry_out(self, line: str) -> None:
        verb, _, rest = line.strip().partition(" ")
        match verb.upper():
            case "EXIT":
                log.info("stopping on EXIT from the control pipe")
                self._stop()
            case "HELP":
                log.info(HELP, extra=_MULTILINE)
            case "LOG":
                self._run_log_command(verb, rest)
            case "CMD":
                self._run_command(verb, rest)
            case _:
                log.error("Unknown command '%s'. Send 'HELP' to see a list of commands supported by bmqbrkr.", verb)

    def _run_log_command(self, verb: str, command: str) -> None:
        status, text = self._change_log(command)
        if status:
            log.error("Error processing command '%s %s' [rc: %d]:\n%s", verb, command, status, text, extra=_MULTILINE)
        else:
            log.info("Command '%s %s' successfully processed:\n%s", verb, command, text, extra=_MULTILINE)

    def _run_command(self, verb: str, command: str) -> None:
        began = time.perf_counter()
        status, text = self._execute(command, SOURCE)
        if status:
            log.error(
                "Error processing command [rc: %d] %s\nSend 'HELP' to see a list of commands supported by bmqbrkr.",
                status,
                text,
                extra=_MULTILINE,
            )
            return
        took_ms = (time.perf_counter() - began) * 1000
        log.info(
            "Command '%s %s' processed successfully in %.2f ms:\n%s", verb, command, took_ms, text, extra=_MULTILINE
        )
