"""Java's properties as text."""

from __future__ import annotations

from formats.rocketmq.property_text import changed_properties, read_properties, write_properties

TEXT = """# a comment
brokerName = a
  fileReservedTime:72
! another
path=/a=b

fileReservedTime=73
"""


def test_properties_are_read() -> None:
    assert read_properties(TEXT) == {"brokerName": "a", "fileReservedTime": "73", "path": "/a=b"}
    assert read_properties("a=1\\\n2\nb") == {"a": "12", "b": ""}


def test_what_is_written_is_read() -> None:
    assert read_properties(write_properties({"b": "2", "a": "1=1"}).decode()) == {"a": "1=1", "b": "2"}


def test_change_leaves_all_else_as_it_is() -> None:
    changed = changed_properties(TEXT, {"fileReservedTime": "48", "new": "x"})
    assert changed == "# a comment\nbrokerName = a\nfileReservedTime=48\n! another\npath=/a=b\n\nnew=x\n"
    assert changed_properties("", {"a": "1"}) == "a=1\n"
