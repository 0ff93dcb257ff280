"""The door to administration: a line of text in, a status and a text out."""

from __future__ import annotations

import logging

from broker.bmq.admin.commands import Encoding
from broker.bmq.admin.environment import Context
from broker.bmq.admin.execute import execute
from broker.bmq.admin.json_form import to_json
from broker.bmq.admin.parse import CommandError, parse
from broker.bmq.admin.results import Problem
from broker.bmq.admin.text import to_text

__all__ = ["Admin"]

log = logging.getLogger("broker.admin")

# The reference's codes (mqba::Application::processCommand).
OK = 0
FAILED = -2
NOT_A_COMMAND = -31


# Number of characters of a command that are logged.
SHOWN_MAX = 1000


class Admin:
    """Administers one node."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def run(self, line: str, source: str) -> tuple[int, str]:
        """Carry out the command in `line`, which came from `source`; a status (0: it was done) and the answer."""
        shown = line if len(line) <= SHOWN_MAX else f"{line[:SHOWN_MAX]}..."
        log.info("Received command '%s' [source: %s]", shown, source)
        try:
            command, encoding = parse(line)
        except CommandError as error:
            return NOT_A_COMMAND, f"Unable to decode command (rc: -1, error: '{error}')"
        result = execute(self._context, command, encoding)
        status = FAILED if isinstance(result, Problem) else OK
        if encoding is Encoding.TEXT:
            return status, to_text(result)
        return status, to_json(result, pretty=encoding is Encoding.JSON_PRETTY)
