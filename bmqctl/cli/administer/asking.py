"""Questions before something is lost."""

from __future__ import annotations

import sys

import typer

from bmqctl.common.refusal import refuse

__all__ = ["ask"]


def ask(command: str, question: str, if_no: str) -> None:
    """Ask the person at the terminal; exit with code 2 unless the answer is yes, or without a terminal.

    `if_no` is the line printed after another answer.
    """
    if not sys.stdin.isatty():
        refuse(command, f"{question} Standard input is not a terminal: give --yes, or --dry-run")
    if not typer.confirm(question, err=True):
        refuse(command, if_no)
