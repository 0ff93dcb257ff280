"""Java's properties as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import FormatError
from formats.rocketmq.files.property_text import changed_properties, read_properties, write_properties

TEXT = """# a comment
brokerName = a
  fileReservedTime:72
! another
path=/a=b

fileReservedTime=73
"""

# Results of `java.util.Properties.load` according to its documentation.
LOADED = {
    "a=1\\\n2\nb": {"a": "12", "b": ""},
    "a=1\\\r\n    2\rb=3\r\n": {"a": "12", "b": "3"},
    "a=one \\\n  # no comment\n": {"a": "one # no comment"},
    "a=1\\\\\nb=2": {"a": "1\\", "b": "2"},
    "a=1\\": {"a": "1"},
    "\\\n#a=1\n": {"#a": "1"},
    "# a comment \\\na=1": {"a": "1"},
    "a 1\nb\t=\f2\nc   :  3": {"a": "1", "b": "2", "c": "3"},
    "a==1\nb:=2\nc = = 3": {"a": "=1", "b": "=2", "c": "= 3"},
    "a\\ b\\=c\\:d=1": {"a b=c:d": "1"},
    "a=1  \nb= ": {"a": "1  ", "b": ""},
    "a=\\ 1\\t\\n\\r\\f\\q\\\\": {"a": " 1\t\n\r\fq\\"},
    "a=\\u00fc\\uD83D\\uDE00\\u4e2D": {"a": "ü\U0001f600中"},
    "a=\\ud83d": {"a": "�"},
    "a=1\x0b2\x1c3\x854\u20285": {"a": "1\x0b2\x1c3\x854\u20285"},
    "a=1\na=2\n\na=\n": {"a": ""},
    "   \t\n\f! no\n \t# no\n": {},
    "=1": {"": "1"},
    "": {},
}


def test_properties_are_read() -> None:
    assert read_properties(TEXT) == {"brokerName": "a", "fileReservedTime": "73", "path": "/a=b"}


@pytest.mark.parametrize("text", LOADED)
def test_texts_are_read_as_java_reads_them(text: str) -> None:
    assert read_properties(text) == LOADED[text]


@pytest.mark.parametrize("text", ["a=\\u12", "a=C:\\users", "\\u00fg=1", "a=\\u"])
def test_incomplete_escape_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="is not like"):
        read_properties(text)


def test_reading_reverses_writing() -> None:
    assert read_properties(write_properties({"b": "2", "a": "1=1"}).decode()) == {"a": "1=1", "b": "2"}


def test_change_leaves_all_else_as_it_is() -> None:
    changed = changed_properties(TEXT, {"fileReservedTime": "48", "new": "x"})
    assert changed == "# a comment\nbrokerName = a\nfileReservedTime=48\n! another\npath=/a=b\n\nnew=x\n"
    assert changed_properties("", {"a": "1"}) == "a=1\n"
    assert changed_properties("a : 1 \\\r\n  2\r\nb\\u0020=3\r\nc=4", {"a": "9", "b ": "8"}) == "a=9\nb\\ =8\nc=4"
    assert changed_properties("a=1", {"b": "2"}) == "a=1\nb=2\n"
    assert changed_properties("a=1\\\n", {"b": "2"}) == "a=1\\\n\nb=2\n"


CHARACTERS = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(CHARACTERS, CHARACTERS), st.text("a=\\ #\n:1", max_size=20))
def test_any_change_is_read_back(changes: dict[str, str], text: str) -> None:
    changed = changed_properties(text, changes)
    assert read_properties(changed) == {**read_properties(text), **changes}
    assert changed.isascii()
