"""Changes of definitions: listed, confirmed, and made at each place that has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import typer

from bmqctl.carrying.bridge.ends import CannotBegin
from bmqctl.cli.administer.asking import ask
from bmqctl.cli.securing import AuthnData, Keys, TlsAuthority
from bmqctl.cli.watch.cluster_options import Nameserver
from bmqctl.common.refusal import refuse
from bmqctl.common.render import Column, Output, OutputFormat, print_rows, until_reader_leaves
from bmqctl.systems.administration import ClusterAdministration, DefinitionHolder
from bmqctl.systems.definitions.model import Action, Change, Definitions, changes_between, whole_changes
from bmqctl.systems.opening import open_administration
from bmqctl.systems.system import ClusterOptions, Unanswered

__all__ = [
    "Changing",
    "FieldSetting",
    "Holders",
    "Masters",
    "OnlyList",
    "Within",
    "make_changes",
    "print_changes",
    "refusing",
]

BrokerName = Annotated[
    list[str] | None,
    typer.Option("--broker-name", help="Only RocketMQ brokers of this name; by default all.", show_default=False),
]
# A context of BlazingMQ gives it.
Broker = Annotated[str | None, typer.Option("--broker", "-b", hidden=True)]
Timeout = Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each answer.")]

DEPTH_MAX = 16
PASSWORD = "password"
HIDDEN = "***"
_COLUMNS = [Column(name, name) for name in ("place", "action", "kind", "name", "field", "found", "wanted")]


class Holders(Protocol):
    """The options that name the holders of definitions."""

    def places(self, command: str, kinds: Sequence[str]) -> list[DefinitionHolder]:
        """Return the holders with their definitions of some kinds; exit with code 2 if one does not answer."""
        ...

    def begin(self, command: str, changes: Sequence[Change]) -> None:
        """Do what comes before changes at the holders; exit with code 2 if that fails."""
        ...

    def end(self, command: str, changes: Sequence[Change]) -> None:
        """Do what comes after changes at all holders; exit with code 2 if that fails."""
        ...


@dataclass(frozen=True, slots=True)
class Masters:
    """The options that name the masters of a cluster of RocketMQ; a broker of BlazingMQ is refused with the reason."""

    broker: Broker = None
    nameserver: Nameserver = None
    broker_name: BrokerName = None
    timeout: Timeout = 5
    tls_authority: TlsAuthority = None
    authn_data: AuthnData = ""

    def administration(self, command: str) -> ClusterAdministration:
        """Open the cluster; exit with code 2 for invalid options."""
        options = ClusterOptions(
            self.broker,
            nameservers=self.nameserver,
            broker_names=self.broker_name,
            reach=Keys(self.tls_authority, self.authn_data).reach(command, self.timeout),
        )
        try:
            return open_administration(options)
        except CannotBegin as fault:
            refuse(command, str(fault))

    def places(self, command: str, kinds: Sequence[str]) -> list[DefinitionHolder]:
        with refusing(command):
            return self.administration(command).places(kinds)

    def begin(self, command: str, changes: Sequence[Change]) -> None:
        pass

    def end(self, command: str, changes: Sequence[Change]) -> None:
        deleted = {each.name for each in changes if each.kind == "topics" and each.action is Action.DELETE}
        if deleted:
            with refusing(command):
                self.administration(command).forget_topics(sorted(deleted))


@contextmanager
def refusing(command: str) -> Iterator[None]:
    """Exit with code 2 and one line on standard error when a cluster does not answer, or refuses."""
    try:
        yield
    except Unanswered as fault:
        refuse(command, str(fault))


# Not called dry_run: commands with an option of that name connect to nobody, and take no broker from a context.
OnlyList = Annotated[bool, typer.Option("--dry-run", help="Only list what would be done.")]


@dataclass(frozen=True, slots=True)
class Changing:
    """The options of commands that make irreversible changes."""

    only_list: OnlyList = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    output: Output = None


class Within(dict[str, Any]):
    """Fields to change within a field; its other fields stay. Any other object replaces the whole field."""


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
        return Changing(self.only_list, True, self.output)

    def fields(self, command: str, named: Mapping[str, object], *, is_nested: bool = False) -> dict[str, Any]:
        """Return the fields that options name: those of --set, and those of `named` that are given.

        With `is_nested` each dot of a name leads into an object; otherwise attributes, whose own names have dots, are
        texts by name.
        """
        found: dict[str, Any] = {
            name: Within(value) if isinstance(value, dict) else value
            for name, value in named.items()
            if value is not None
        }
        for text in self.settings or ():
            name, equals, value = text.partition("=")
            if not name or not equals:
                refuse(command, f"--set {text}: expected FIELD=VALUE")
            *path, last = name.split(".", DEPTH_MAX if is_nested else 1)
            table = found
            for step in path:
                table = table.setdefault(step, Within())
                if not isinstance(table, Within):
                    refuse(command, f"--set {text}: {step} is given a value of its own, too")
            table[last] = _value(value) if is_nested or not path else value
        return found


def _value(text: str) -> Any:
    """Read a number, `true`, `false` or other JSON; anything else is text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def make_changes(
    command: str,
    places: Sequence[DefinitionHolder],
    wanted: Callable[[DefinitionHolder], Definitions],
    changing: Changing,
    at: Holders,
    *,
    prune: bool = False,
) -> None:
    """List the changes that make each place as wanted, ask, and make them; exit with code 2 at a refusal.

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
    made = [change for _, changes in found for change in changes]
    at.begin(command, made)
    for place, changes in found:
        try:
            place.apply(changes)
        except Unanswered as fault:
            refuse(command, f"{place.name}: {fault}; what is listed before it is done")
        except OSError as fault:
            refuse(command, f"{fault.filename}: {fault.strerror}")
    at.end(command, made)


def _to_do(changes: Iterable[Change], prune: bool) -> list[Change]:
    return [each for each in changes if prune or each.action is not Action.DELETE]


def _without_password(change: Change) -> Change:
    if change.field == PASSWORD:
        return change._replace(wanted=HIDDEN)
    if isinstance(change.wanted, dict) and PASSWORD in change.wanted:
        return change._replace(wanted={**change.wanted, PASSWORD: HIDDEN})
    return change


def print_changes(found: list[tuple[DefinitionHolder, list[Change]]], output: OutputFormat | None) -> None:
    rows = [{"place": place.name, **_without_password(each)._asdict()} for place, changes in found for each in changes]
    with until_reader_leaves():
        if rows or output not in (None, OutputFormat.TABLE):
            print_rows(rows, _COLUMNS, output or OutputFormat.TABLE)
        else:
            print("Nothing differs.")
