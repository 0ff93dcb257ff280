"""Log lines in the reference's format language."""

from __future__ import annotations

import logging
import sys

import pytest

from broker.shell.process.logs import DEFAULT_FORMAT, LEVELS, LineFormatter, severity_name


def record(message: str, *args: object, level: int = logging.WARNING, **attributes: object) -> logging.LogRecord:
    made = logging.LogRecord("broker.session", level, "/there/session.py", 42, message, args, None)
    # 2026-11-05 16:20:01.123456 UTC
    made.created = 1793895601.123456
    made.process, made.thread = 77, 255
    made.__dict__.update(attributes)
    return made


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("%d (%t) %s %F:%l %m\\n", "05NOV2026_16:20:01.123 (255) WARN session.py:42 hello\n"),
        ("%D", "05NOV2026_16:20:01.123456"),
        # Output of bmqbrkr.tsk with this format, with TZ=America/New_York, too.
        ("%i|%I|%O|%o", "2026-11-05T16:20:01Z|2026-11-05T16:20:01.123Z|2026-11-05T16:20:01.123456Z|%o"),
        ("%c~@~%p~@~%T~@~%f%u%a\n\n", "broker.session~@~77~@~FF~@~/there/session.py\n\n"),
        ("100%% %z \\x%", "100% %z \\x%"),
        (DEFAULT_FORMAT, "2026-11-05T16:20:01.123Z WARN broker.session hello\n"),
    ],
)
def test_fields(spec: str, line: str) -> None:
    assert LineFormatter(spec).format(record("hello")) == line


@pytest.mark.parametrize("level", ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF"])
def test_severities_have_the_words_of_the_reference(level: str) -> None:
    assert severity_name(LEVELS[level]) == level
    assert severity_name(LEVELS[level] + 1) == level
    assert severity_name(0) == "TRACE"


def test_nothing_in_a_message_begins_a_line_or_speaks_to_the_terminal() -> None:
    hostile = "name\nFATAL all is lost\x1b[31m\u2028"
    assert LineFormatter("%m\n").format(record("%s", hostile)) == "name\\nFATAL all is lost\\x1b[31m\\u2028\n"


def test_lines_that_were_meant_are_kept_and_cleaned_one_by_one() -> None:
    text = LineFormatter("> %m\n").format(record("two:\n  lines\x07", multiline=True))
    assert text == "> two:\n  lines\\x07\n"


def test_traceback_follows_its_message() -> None:
    try:
        raise ValueError("no\x1b")
    except ValueError:
        text = LineFormatter("%m\n").format(record("failed", exc_info=sys.exc_info()))
    lines = text.splitlines()
    assert lines[0] == "failed"
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: no\\x1b"
