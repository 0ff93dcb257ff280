"""Hostile texts, and a check that a command prints none of them raw."""

from __future__ import annotations

import csv
import io
import re

HOSTILE = (
    "\x1b[31mred\x1b]0;title\x07",
    "\x9b2J\x90q\x9c",
    "a\rb\x08c\x7f\x00",
    "turned \u202eround \u2066isolated",
    "zero\u200bwidth\ufeff\u2028line",
    "[bold red]markup[/] [link=x]",
    "a\nOK - all is well",
    "=HYPERLINK(1)",
    "+1+cmd|' /C calc'!A0",
    "@SUM(1)",
    "-2+3",
    "\udcff\ud800",
    "\t=1",
)
# The characters that may be printed; others' texts may have fewer.
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def assert_harmless(text: str) -> None:
    assert not ACTS.search(text), ascii(text)


def cells(text: str) -> list[str]:
    return [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
