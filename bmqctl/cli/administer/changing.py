"""Changes of definitions: listed, confirmed, and made at each place that has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from bmqctl.carrying.bridge.ends import CannotBegin
from bmqctl.cli.administer.admin import AuthnData
from bmqctl.cli.administer.asking import ask
from bmqctl.cli.watch.cluster_options import Nameserver
from bmqctl.common.refusal import refuse
from bmqctl.common.render import Column, Output, OutputFormat, print_rows, until_reader_leaves
from bmqctl.systems.administration import ClusterAdministration, DefinitionHolder
from bmqctl.systems.definitions.model import Action, Change, Definitions, changes_between, whole_changes
from bmqctl.systems.opening import open_administration
from bmqctl.systems.system import ClusterOptions, Unanswered

__all__ = ["Changing", "FieldSetting", "Masters", "make_changes", "print_changes", "refusing"]

BrokerName = Annotated[
    list[str] | None,
    typer.Option("--broker-name", help="Only RocketMQ brokers of this name; by default all.", show_default=False),
]
Timeout = Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each answer.")]

_COLUMNS = [Column(name, name) for name in ("place", "action", "kind", "name", "field", "found", "wanted")]


@dataclass(frozen=True, slots=True)
class Masters:
    """The options that name the masters of a cluster of RocketMQ."""

    nameserver: Nameserver = None
    broker_name: BrokerName = None
    timeout: Timeout = 5
    authn_data: AuthnData = ""

    def administration(self, command: str) -> ClusterAdministration:
        """Open the cluster; exit with code 2 for options that are not valid."""
        options = ClusterOptions(
            nameservers=self.nameserver,
            broker_names=self.broker_name,
            timeout_s=self.timeout,
            data=self.authn_data,
        )
        try:
            return open_administration(options)
        except CannotBegin as fault:
            refuse(command, str(fault))

    def places(self, command: str) -> list[DefinitionHolder]:
        """Ask the masters for their definitions; exit with code 2 if one does not answer, or a name is unknown."""
        with refusing(command):
            return self.administration(command).places()


@contextmanager
def refusing(command: str) -> Iterator[None]:
    """Exit with code 2 and one line on standard error when a cluster does not answer, or refuses."""
    try:
        yield
    except Unanswered as fault:
        refuse(command, str(fault))


# The parameter is not called dry_run: commands with an option of that name connect to nobody, and take no broker from
# a context.
OnlyList = Annotated[bool, typer.Option("--dry-run", help="Only list what would be done.")]


@dataclass(frozen=True, slots=True)
class Changing:
    """The options of commands that change what cannot be had back."""

    only_list: OnlyList = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    output: Output = None


@dataclass(frozen=True, slots=True)
class FieldSetting:
    """The options of commands that set fields of a definition."""

    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="A field, by the name that `show` prints, such as attributes.message.type; repeatable.",
            show_default=False,
        ),
    ] = None
    only_list: OnlyList = False
    output: Output = None

    def changing(self) -> Changing:
        """Return the options of a change that does not ask."""
        return Changing(self.only_list, True, self.output)


def make_changes(
    command: str,
    places: Sequence[DefinitionHolder],
    wanted: Callable[[DefinitionHolder], Definitions],
    changing: Changing,
    masters: Masters,
    *,
    prune: bool = False,
) -> None:
    """List the changes that make each place as it is wanted, ask, and make them; exit with code 2 at a refusal.

    Definitions are deleted only with `prune`.
    """
    found = [(each, _to_do(whole_changes(each.definitions, wanted(each)), prune)) for each in places]
    print_changes(
        [(each, _to_do(changes_between(each.definitions, wanted(each)), prune)) for each in places], changing.output
    )
    if changing.only_list or not any(changes for _, changes in found):
        return
    if not changing.yes:
        count = sum(len(changes) for _, changes in found)
        ask(command, f"Make {'this change' if count == 1 else f'these {count} changes'}?", "nothing is changed")
    deleted: set[str] = set()
    for place, changes in found:
        try:
            place.apply(changes)
        except Unanswered as fault:
            refuse(command, f"{place.name}: {fault}; what is listed before it is done")
        except OSError as fault:
            refuse(command, f"{fault.filename}: {fault.strerror}")
        deleted |= {each.name for each in changes if each.kind == "topics" and each.action is Action.DELETE}
    if deleted:
        with refusing(command):
            masters.administration(command).forget_topics(sorted(deleted))


def _to_do(changes: Iterable[Change], prune: bool) -> list[Change]:
    """Return the changes that are made: without deletions unless they are wanted."""
    return [each for each in changes if prune or each.action is not Action.DELETE]


def print_changes(found: list[tuple[DefinitionHolder, list[Change]]], output: OutputFormat | None) -> None:
    """Print the changes at each place."""
    rows = [{"place": place.name, **each._asdict()} for place, changes in found for each in changes]
    with until_reader_leaves():
        if rows or output not in (None, OutputFormat.TABLE):
            print_rows(rows, _COLUMNS, output or OutputFormat.TABLE)
        else:
            print("Nothing differs.")
