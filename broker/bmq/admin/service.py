"""The entry to administration: takes a line of text, returns a status and a text."""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.bmq.admin.answers.json_form import to_json
from broker.bmq.admin.answers.results import Problem
from broker.bmq.admin.answers.text import to_text
from broker.bmq.admin.commands import Command, Encoding, QueueMessage
from broker.bmq.admin.environment import CommandContext
from broker.bmq.admin.execute import execute
from broker.bmq.admin.parse import AdminCommandError, parse

__all__ = ["Admin"]

log = logging.getLogger("broker.admin")

# The reference's codes (mqba::Application::processCommand).
OK = 0
FAILED = -2
NOT_A_COMMAND = -31


# Maximum number of logged characters of a command.
SHOWN_MAX = 1000


def _may_read_all(uri: str) -> bool:
    """Permit every queue, as for the control pipe."""
    return True


class Admin:
    def __init__(self, context: CommandContext) -> None:
        self._context = context

    def run(self, line: str, source: str, may_read: Callable[[str], bool] = _may_read_all) -> tuple[int, str]:
        """Carry out the command in `line` from `source`; return a status, 0 for success, and the answer.

        `may_read` returns True for a queue that the source may read: a command may show its contents.
        """
        shown = line if len(line) <= SHOWN_MAX else f"{line[:SHOWN_MAX]}..."
        log.info("Received command '%s' [source: %s]", shown, source)
        try:
            command, encoding = parse(line)
        except AdminCommandError as error:
            return NOT_A_COMMAND, f"Unable to decode command (rc: -1, error: '{error}')"
        result = _unreadable(command, may_read) or execute(self._context, command, encoding)
        status = FAILED if isinstance(result, Problem) else OK
        if encoding is Encoding.TEXT:
            return status, to_text(result)
        return status, to_json(result, pretty=encoding is Encoding.JSON_PRETTY)


def _unreadable(command: Command, may_read: Callable[[str], bool]) -> Problem | None:
    """Refuse to show a message of a queue that the source may not read."""
    if not isinstance(command, QueueMessage):
        return None
    uri = f"bmq://{command.domain}/{command.queue}"
    return None if may_read(uri) else Problem(f"Not authorized to read from queue '{uri}'")
