"""Samples of the counters of queues, topics and nodes, and the rows made from two of them: pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

__all__ = ["COLUMNS", "Counted", "NodeState", "Row", "Sample", "Selection", "rows_of", "selected", "whole"]


class Counted(NamedTuple):
    """The counters of a queue or topic on a node, or with `part` of one of its apps or groups.

    `put` and `taken` count messages since a beginning that only the node knows: rates are differences. `oldest_s` is
    the age of the oldest unconfirmed message. `node` is a primary, or the name of brokers. The node does not report
    values that are None.
    """

    name: str
    part: str
    node: str
    put: int | None
    taken: int | None
    backlog: int | None
    oldest_s: float | None = None
    consumers: int | None = None
    lag: int | None = None


class NodeState(NamedTuple):
    """A node: its role, its state, and by how much its last copy lags."""

    node: str
    address: str
    role: str
    state: str
    lag: int | None = None


class Sample(NamedTuple):
    """The counters of a cluster at a time, in seconds of a steady clock; `faults` are the silent nodes with reasons."""

    at_s: float
    system: str
    counted: tuple[Counted, ...]
    nodes: tuple[NodeState, ...] = ()
    faults: tuple[str, ...] = ()


class Row(NamedTuple):
    """A row for a queue, a topic, or a part of one; rates are per second, None without an earlier sample."""

    name: str
    part: str
    node: str
    rate_in: float | None
    rate_out: float | None
    backlog: int | None
    oldest_s: float | None
    consumers: int | None
    lag: int | None


COLUMNS: Final = Row._fields
_NUMBERS: Final = COLUMNS[3:]


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows to show, filtered and sorted: wholes, `all_parts`, or the parts of one queue or topic (`within`)."""

    sort: str = "backlog"
    is_descending: bool = True
    text: str = ""
    within: str | None = None
    node: str | None = None
    all_parts: bool = False


def rows_of(before: Sample | None, after: Sample) -> list[Row]:
    """The rows of a sample, with rates since an earlier one.

    A counter that has fallen was reset, by a restart or another primary: there is no rate until the next sample.
    """
    earlier: Mapping[tuple[str, str, str], Counted] = {}
    elapsed_s = 0.0
    if before is not None and before.system == after.system:
        earlier = {each[:3]: each for each in before.counted}
        elapsed_s = after.at_s - before.at_s
    return [_row(earlier.get(each[:3]), each, elapsed_s) for each in after.counted]


def _row(before: Counted | None, after: Counted, elapsed_s: float) -> Row:
    rate_in = rate_out = None
    if before is not None and elapsed_s > 0:
        rate_in = _rate(before.put, after.put, elapsed_s)
        rate_out = _rate(before.taken, after.taken, elapsed_s)
    rest = (after.backlog, after.oldest_s, after.consumers, after.lag)
    return Row(after.name, after.part, after.node, rate_in, rate_out, *rest)


def _rate(before: int | None, after: int | None, elapsed_s: float) -> float | None:
    if before is None or after is None or after < before:
        return None
    return (after - before) / elapsed_s


def whole(name: str, rows: Iterable[Row]) -> Row:
    """Sum the rows of a name over nodes: numbers are added, ages and lags are the greatest."""
    rows = list(rows)

    def over(field_name: str, join: Callable[[list[Any]], Any]) -> Any:
        known = [value for each in rows if (value := getattr(each, field_name)) is not None]
        return join(known) if known else None

    nodes = sorted({each.node for each in rows})
    return Row(
        name,
        rows[0].part,
        nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes",
        over("rate_in", sum),
        over("rate_out", sum),
        over("backlog", sum),
        over("oldest_s", max),
        over("consumers", sum),
        over("lag", max),
    )


def selected(rows: Sequence[Row], selection: Selection) -> list[Row]:
    """The rows to show, in order; unknown values are always last."""
    if selection.node is not None:
        rows = [each for each in rows if each.node == selection.node]
    if selection.within is None:
        rows = [each for each in rows if bool(each.part) == selection.all_parts]
    else:
        rows = [each for each in rows if each.name == selection.within and each.part]
    grouped: dict[tuple[str, str], list[Row]] = {}
    for each in rows:
        grouped.setdefault((each.name, each.part), []).append(each)
    merged = [whole(name, same) for (name, _), same in grouped.items()]
    text = selection.text.casefold()
    found = [each for each in merged if text in each.name.casefold() or text in each.part.casefold()]
    found.sort(key=lambda each: (each.name, each.part))
    column = selection.sort
    if column in _NUMBERS:
        known = [each for each in found if getattr(each, column) is not None]
        known.sort(key=lambda each: getattr(each, column), reverse=selection.is_descending)
        return known + [each for each in found if getattr(each, column) is None]
    found.sort(key=lambda each: str(getattr(each, column)), reverse=selection.is_descending)
    return found
