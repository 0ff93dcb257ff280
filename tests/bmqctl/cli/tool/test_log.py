from __future__ import annotations

import io
import os
import re
import threading
from pathlib import Path

from bmqctl.cli.tool.file_log import FileLog
from bmqctl.cli.tool.log import DEFAULT_FORMAT, Log, Severity


def test_only_what_is_severe_enough_is_written() -> None:
    out = io.StringIO()
    log = Log(r"%s %F %m\n", Severity.INFO, out)
    log.write(Severity.DEBUG, "X", "no")
    log.write(Severity.INFO, "X", "yes")
    log.print("plain")
    assert out.getvalue() == "INFO test_log.py yes\nplain"


def test_an_empty_format_is_the_default() -> None:
    out = io.StringIO()
    Log("", out=out).write(Severity.ERROR, "X", "why")
    assert re.fullmatch(r"\d\d[A-Z]{3}\d{4}_[\d:]{8}\.\d{3} \(\d+\) ERROR test_log.py:\d+ why\n", out.getvalue())
    assert DEFAULT_FORMAT == r"%d (%t) %s %F:%l %m\n"


def test_records_name_this_process_and_thread() -> None:
    out = io.StringIO()
    Log("%p %t %T %c", out=out).write(Severity.INFO, "X", "")
    process, decimal, hexadecimal, category = out.getvalue().split()
    assert (int(process), category) == (os.getpid(), "X")
    assert int(decimal) == int(hexadecimal, 16) == threading.get_ident()


def test_a_terminal_gets_faults_in_color() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    log = Log("%m", out=out)
    log.write(Severity.INFO, "X", "a")
    log.write(Severity.ERROR, "X", "b")
    assert out.getvalue() == "a\033[1;31mb\033[0m"


def test_the_file_has_a_line_for_each_message(tmp_path: Path) -> None:
    path = tmp_path / "tool.log"
    guid = bytes(range(16))
    with FileLog(path) as log:
        assert log.is_open
        log.session_event("CONNECTED", "")
        log.put("bmq://d/q", "[ autoValue = 2 ]", guid, b"msg000000001")
        log.ack("bmq://d/q", "[ autoValue = 2 ]", guid, -100)
        log.push("bmq://d/q", guid, b"\xff\nline")
        log.confirm("bmq://d/q", guid)
    content = path.read_bytes().decode("latin-1")
    name = guid.hex().upper()
    for expected in (
        " SESSION CONNECTED| ",
        f" PUT bmq://d/q|[ autoValue = 2 ]|{name}|msg000000001 ",
        f" ACK bmq://d/q|[ autoValue = 2 ]|{name}|-100| ",
        f" PUSH bmq://d/q|{name}|\xff\nline ",
        f" CONFIRM bmq://d/q|{name}| ",
    ):
        assert content.count(expected) == 1
    assert re.match(r"\n\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z \d+:\d+ INFO SESSION", content)


def test_without_a_file_nothing_is_written() -> None:
    with FileLog(None) as log:
        assert not log.is_open
        log.session_event("CONNECTED", "")
