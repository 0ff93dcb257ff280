"""All generated pages of the manual, by their paths in `docs`, made from declarations and source alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import formats.bmq.disk.data
import formats.bmq.disk.files
import formats.bmq.disk.journal
import formats.bmq.disk.ledger
import formats.bmq.disk.qlist
import formats.bmq.guid
import formats.bmq.wire.ack
import formats.bmq.wire.confirm
import formats.bmq.wire.event
import formats.bmq.wire.options
import formats.bmq.wire.properties
import formats.bmq.wire.push
import formats.bmq.wire.put
import formats.bmq.wire.rda
import formats.bmq.wire.receipt
import formats.bmq.wire.recovery
import formats.bmq.wire.reject
import formats.bmq.wire.storage
from bmqctl.stores.rocketmq.faults import CATALOGUE as ROCKETMQ_CATALOGUE
from formats.bmq.stores.faults import CATALOGUE, FaultKind, Severity
from formats.rocketmq.files import checkpoints, consume_queue, index, record, timer
from formats.rocketmq.remoting import batch, frame, replication
from formats.schema import Layout
from scripts.manual.alarms import alarms_page
from scripts.manual.commands import command_pages
from scripts.manual.configuration import configuration_pages
from scripts.manual.markdown import code, page, table, text
from scripts.manual.messages import control_page, requests_page
from scripts.manual.structures import described, enumeration_sections, enumerations, layouts, structure_section

__all__ = ["generated_pages"]

# The modules of each page in a reader's order, with the titles of their sections.
_WIRE = {
    "Events": formats.bmq.wire.event,
    "PUT": formats.bmq.wire.put,
    "ACK": formats.bmq.wire.ack,
    "PUSH": formats.bmq.wire.push,
    "CONFIRM": formats.bmq.wire.confirm,
    "REJECT": formats.bmq.wire.reject,
    "Options": formats.bmq.wire.options,
    "Remaining delivery attempts": formats.bmq.wire.rda,
    "Message properties": formats.bmq.wire.properties,
    "STORAGE and PARTITION_SYNC": formats.bmq.wire.storage,
    "REPLICATION_RECEIPT": formats.bmq.wire.receipt,
    "RECOVERY": formats.bmq.wire.recovery,
}
_FILES = {
    "Files of a partition": formats.bmq.disk.files,
    "JOURNAL": formats.bmq.disk.journal,
    "DATA": formats.bmq.disk.data,
    "QLIST": formats.bmq.disk.qlist,
    "Cluster-state ledger": formats.bmq.disk.ledger,
    "Message GUIDs": formats.bmq.guid,
}
_ROCKETMQ_WIRE = {"Frames": frame, "Batches": batch, "Replication": replication}
_ROCKETMQ_FILES = {
    "Commit log": record,
    "Consume queues": consume_queue,
    "Index": index,
    "Checkpoints": checkpoints,
    "Timer wheel and timer log": timer,
}
_BIG_ENDIAN = (
    "All integers are big-endian. A word is 4 bytes. Bit 0 is the most significant one. Every structure below is "
    "generated from the declaration that the codecs are made of, and compared with the original in the tests."
)


@cache
def generated_pages() -> Mapping[str, str]:
    """The text of each path, in the order of the navigation."""
    pages = {f"reference/cli/{path}": content for path, content in command_pages().items()}
    pages |= {f"reference/configuration/{path}": content for path, content in configuration_pages().items()}
    return pages | {
        "reference/blazingmq/wire.md": _structures_page("Wire protocol", _WIRE),
        "reference/blazingmq/control.md": control_page(),
        "reference/blazingmq/files.md": _structures_page("Files", _FILES),
        "reference/blazingmq/numbers.md": _numbers_page(rocketmq=False),
        "reference/rocketmq/wire.md": _structures_page("Remoting protocol", _ROCKETMQ_WIRE),
        "reference/rocketmq/requests.md": requests_page(),
        "reference/rocketmq/files.md": _structures_page("Files", _ROCKETMQ_FILES),
        "reference/rocketmq/numbers.md": _numbers_page(rocketmq=True),
        "reference/faults.md": _faults_page(),
        "reference/alarms.md": alarms_page(),
    }


def _structures_page(title: str, modules: dict[str, Any]) -> str:
    blocks: list[str] = []
    for name, module in modules.items():
        # The declarations of compiled functions are in a separate module.
        package, _, name = module.__name__.rpartition(".")
        declaring = {module.__name__, f"{module.__name__}_layout", f"{package}.layouts.{name}_layout"}
        own: Iterable[Layout[Any]] = [each for each in layouts() if each.cls.__module__ in declaring]
        blocks += [f"## {name}", described(module), *(structure_section(each) for each in own)]
    return page(f"# {title}", _BIG_ENDIAN, *blocks)


def _numbers_page(*, rocketmq: bool) -> str:
    own = (each for each in enumerations() if each.__module__.startswith("formats.rocketmq") == rocketmq)
    return page(
        "# Numbers",
        "Kinds, states and flags. A flag's value is that of its bit; a field of flags holds the sum of those "
        "that are set.",
        enumeration_sections(own),
    )


def _faults_page() -> str:
    return page(
        "# Fault codes",
        "`bmqctl journal validate` reports each fault with its code, the file, the offset, a reason and an advice. An "
        "error says that the files differ from what was written, or contradict each other. A warning says that "
        "they hold what a crash may leave behind, or something unusual but harmless.",
        *_fault_tables(CATALOGUE, "stores of BlazingMQ"),
        *_fault_tables(ROCKETMQ_CATALOGUE, "stores of RocketMQ"),
    )


def _fault_tables(catalogue: Mapping[str, FaultKind], stores: str) -> list[str]:
    return [
        f"## {severity.value.capitalize()}s in {stores}\n\n"
        + table(
            ["code", "what to do"],
            [[code(name), text(kind.advice)] for name, kind in catalogue.items() if kind.severity is severity],
        )
        for severity in Severity
    ]
