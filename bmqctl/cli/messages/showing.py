"""The place where `browse` and `find` show messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bmqctl.carrying.messages.framing import Frame, Framer
from bmqctl.carrying.messages.received import Received, Undecodable, place_text
from bmqctl.common.refusal import say
from bmqctl.common.render import OutputFormat, aligned, print_values, until_reader_leaves

if TYPE_CHECKING:
    from bmqctl.carrying.messages.listing import Listing

__all__ = ["Showing"]

STANDARD_OUTPUT = 1


class Showing:
    """Prints the messages of a queue as a list, and those of a topic in a frame."""

    def __init__(self, command: str, frame: Frame, wanted: OutputFormat | None) -> None:
        from bmqctl.carrying.messages.writing import Writer

        self.undecoded = 0
        self._command = command
        self._frame = frame
        self._framer = Framer(frame)
        self._wanted = wanted
        self._writer = Writer(STANDARD_OUTPUT)

    def tell(self, text: str) -> None:
        say(self._command, text)

    def show_list(self, listing: Listing) -> None:
        from bmqctl.carrying.messages.listing import Listed

        with until_reader_leaves():
            if self._wanted not in (None, OutputFormat.TABLE):
                print_values((each._asdict() for each in listing.messages), Listed._fields, self._wanted)
                return
            rows = (
                (str(number), each.guid, f"{each.size:,}", each.arrived_at)
                for number, each in enumerate(listing.messages, listing.offset)
            )
            for line in aligned(("", "GUID", "bytes", "stored"), rows):
                print(line)

    async def show(self, messages: Sequence[Received]) -> None:
        lines = []
        for message in messages:
            try:
                lines.append(self._frame.form(message))
            except Undecodable as fault:
                self.undecoded += 1
                where = place_text(message)
                say(self._command, f"{fault} ({where})" if where else str(fault))
        await self._writer.write(self._framer.join(lines))

    async def end(self, is_cut: bool) -> None:
        await self._writer.write(self._framer.cut() if is_cut else self._framer.end())
