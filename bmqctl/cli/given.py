"""The options given on the command line, rather than by the environment, a context or a default."""

from __future__ import annotations

from collections.abc import Container, Iterator

import typer

__all__ = ["given_options"]


def given_options(context: typer.Context, names: Container[str]) -> Iterator[str]:
    """Yield the options, of the parameters with these names, that are on the command line."""
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in names and source is not None and source.name == "COMMANDLINE":
            yield parameter.opts[0]
