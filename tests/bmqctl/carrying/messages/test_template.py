"""Lines of messages by a template."""

from __future__ import annotations

from bmqctl.carrying.messages.received import Received
from bmqctl.carrying.messages.template import Template
from formats.bmq.codes import PropertyType
from formats.bmq.wire.properties import Property


def test_values_control_no_terminal_and_stay_in_their_line() -> None:
    properties = (
        Property("name", PropertyType.STRING, "Eve\x1b[2J\nsecond"),
        Property("raw", PropertyType.BINARY, b"\x00\xff"),
    )
    message = Received("0A", {"guid": "0A"}, "ü\r\n\x07".encode() + b"\xff", properties, None, ("k\x9b",), None)
    template = Template(r"{guid}\t{payload}|{properties.name}|{properties.raw}|{key}|{properties.absent}")
    assert (
        template.form(None)(message)
        == (r"0A%bü\x0d\n\x07\xff|Eve\x1b[2J\nsecond|\x00\xff|k\x9b|".replace("%b", "\t") + "\n").encode()
    )
