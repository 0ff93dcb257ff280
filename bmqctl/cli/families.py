"""Families of options: a command has one parameter for each family, a dataclass, whose fields are its options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

__all__ = ["expanded"]


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command whose options are, in place of each parameter that is a dataclass, the fields of this class."""
    hints = get_type_hints(command, include_extras=True)
    families = {name: hints[name] for name in signature(command).parameters if is_dataclass(hints[name])}
    options: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name not in families:
            options.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))
            continue
        types = get_type_hints(families[name], include_extras=True)
        for field in fields(families[name]):
            default = Parameter.empty if field.default is MISSING else field.default
            options.append(Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=types[field.name]))

    @wraps(command)
    def run(**given: Any) -> None:
        for name, family in families.items():
            names = [field.name for field in fields(family) if field.name in given]
            given[name] = family(**{each: given.pop(each) for each in names})
        command(**given)

    run.__annotations__ = {option.name: option.annotation for option in options}
    vars(run)["__signature__"] = Signature(options)
    return run
