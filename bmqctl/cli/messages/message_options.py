"""The options that the commands for messages share, and the ends of their runs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from bmqctl.carrying.messages.ends import CannotBegin
from bmqctl.cli.arguments import parse_moment
from bmqctl.common.decoding.decoder import CannotDecode, Decode, Format, Wanted, make_decoder
from bmqctl.common.render import refuse

__all__ = [
    "EXIT_INTERRUPTED",
    "Broker",
    "Decoding",
    "Since",
    "Uri",
    "run",
]

EXIT_INTERRUPTED = 130

T = TypeVar("T")

Uri = Annotated[
    str,
    typer.Argument(
        metavar="URI",
        help="A queue, bmq://DOMAIN/QUEUE, or a topic, rocketmq://NAMESERVER:PORT/TOPIC, or in the context's cluster "
        "rocketmq:///TOPIC.",
        show_default=False,
    ),
]
Since = Annotated[
    datetime | None,
    typer.Option(
        parser=parse_moment,
        metavar="TIME",
        help="Begin at the first message that was stored then or later, such as 2026-11-25T12:00:00, by default UTC.",
        show_default=False,
    ),
]
Broker = Annotated[str, typer.Option("--broker", "-b", help="The broker of BlazingMQ's queue, as tcp://HOST:PORT.")]
DecodeAs = Annotated[
    Format | None,
    typer.Option("--decode", help="Show payloads decoded; report those of another encoding.", show_default=False),
]
Schema = Annotated[
    Path | None,
    typer.Option(
        help="For avro: the schema of the records, an .avsc file; object containers bring their own.",
        show_default=False,
    ),
]
Descriptor = Annotated[
    Path | None,
    typer.Option(
        help="For protobuf: descriptors, by protoc --include_imports --descriptor_set_out=FILE.", show_default=False
    ),
]
MessageName = Annotated[
    str | None,
    typer.Option("--message", help="For protobuf: the full name of the message's type.", show_default=False),
]


@dataclass(frozen=True, slots=True)
class Decoding:
    """The options by which payloads are decoded."""

    decode: DecodeAs = None
    schema: Schema = None
    descriptor: Descriptor = None
    message: MessageName = None

    def decoder(self, command: str) -> Decode | None:
        """Make the decoder of payloads; exit with code 2 for options that contradict each other or lack a part."""
        if self.decode is None:
            for option, value in (("schema", self.schema), ("descriptor", self.descriptor), ("message", self.message)):
                if value is not None:
                    refuse(command, f"--{option} is for --decode")
            return None
        try:
            return make_decoder(Wanted(self.decode, self.schema, self.descriptor, self.message))
        except CannotDecode as fault:
            refuse(command, str(fault))


def run(command: str, work: Callable[[], Awaitable[T]]) -> T:
    """Run a command's work, with the warnings of the library on standard error; exit with code 2 if it cannot begin."""
    import trio

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"bmqctl {command}: %(message)s"))
    logger = logging.getLogger("bmqctl")
    logger.addHandler(handler)
    try:
        return trio.run(work)
    except CannotBegin as fault:
        refuse(command, str(fault))
    finally:
        logger.removeHandler(handler)
