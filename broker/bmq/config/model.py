"""Base of all configuration models: names, strictness, number ranges, choices.

Members have the reference's names (camelCase) in the files and snake_case here. As in the reference (`baljsn::Decoder`
with `skipUnknownElements`), a member that the schema does not have is skipped, and an absent one takes the schema's
default, or the empty value of its type; only members without which the broker could not run are required. Types are
strict (`0` is not a boolean), except that integers and booleans may be quoted, as in the reference: `"8"`, `"true"`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Self, get_args

from pydantic import BaseModel, ConfigDict, SecretStr, field_validator, model_validator
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

__all__ = [
    "CONFIDENTIAL",
    "Choice",
    "Model",
    "NoEffect",
    "Secret",
    "bounds_of",
    "fault",
    "fields_at",
    "model_in",
]

Secret = SecretStr
"""A string shown as asterisks wherever it is printed or dumped; `get_secret_value` returns it."""


class NoEffect(NamedTuple):
    """Marks a member (`Annotated`) that is accepted without effect; `reason` is a clause."""

    reason: str


CONFIDENTIAL = "confidential"
"""Marks a member (`Annotated`) that holds secrets: errors do not quote its value, or anything in it."""


class Model(BaseModel):
    """A `complexType` of the reference's schemas."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True, strict=True, defer_build=True)

    @field_validator("*")
    @classmethod
    def _has_no_nul(cls, value: Any) -> Any:
        """Refuse the character that no path, host or expression can have."""
        if any(isinstance(each, str) and "\0" in each for each in (value if isinstance(value, tuple) else (value,))):
            raise fault("has the character \\u0000", "remove it")
        return value


class Choice(Model):
    """A `choice` of the reference's schemas: exactly one member is not None."""

    @model_validator(mode="after")
    def _one_is_selected(self) -> Self:
        fields = type(self).model_fields
        found = [name for name in fields if getattr(self, name) is not None]
        if len(found) != 1:
            names = ", ".join(f'"{field.alias}"' for field in fields.values())
            raise fault(
                f"selects {len(found)} alternatives, must select one", f"keep exactly one of the members {names}"
            )
        return self

    @property
    def selected(self) -> Any:
        return next(value for name in type(self).model_fields if (value := getattr(self, name)) is not None)


def fault(reason: str, remedy: str) -> PydanticCustomError:
    """Make a validator's error; `load` adds file and path."""
    # The text is a template to pydantic, so it is passed as a value.
    return PydanticCustomError("config", "{reason}", {"reason": reason, "remedy": remedy})


def fields_at(model: type[Model], path: Iterable[int | str]) -> Iterator[FieldInfo]:
    """Yield the members on the path from `model` to a member, as pydantic names it; none after an unknown one."""
    found: type[Model] | None = model
    for part in path:
        if isinstance(part, int) or found is None:
            continue
        field = next((each for each in found.model_fields.values() if each.alias == part), None)
        if field is None:
            return
        yield field
        found = model_in(field.annotation)


def bounds_of(field: FieldInfo) -> tuple[Any, Any]:
    """Return the bounds of a number, whether optional or not; None for a missing one."""
    notes = [*field.metadata, *_notes(field.annotation)]
    least, greatest = (
        [found for each in notes if (found := getattr(each, name, None)) is not None] for name in ("ge", "le")
    )
    return least[-1] if least else None, greatest[-1] if greatest else None


def _notes(annotation: Any) -> Iterator[Any]:
    for each in get_args(annotation):
        yield from each.metadata if isinstance(each, FieldInfo) else (each, *_notes(each))


def model_in(annotation: Any) -> type[Model] | None:
    """Return the model of a member, whether optional or repeated, or None."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation
    return next((found for each in get_args(annotation) if (found := model_in(each)) is not None), None)
