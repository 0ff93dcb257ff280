"""A cluster of RocketMQ, as commands query it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from bmqctl.carrying.bridge.ends import CannotBegin
from bmqctl.client.address import BadAddress, parse_address
from bmqctl.systems.rocketmq.status.asker import asker_of
from bmqctl.systems.rocketmq.status.asking import Places, hear
from bmqctl.systems.rocketmq.status.group import NobodyAnswers
from bmqctl.systems.rocketmq.status.printing import (
    BROKER_KEYS,
    broker_rows,
    explanation_lines,
    json_value,
    status_lines,
)
from bmqctl.systems.rocketmq.status.problems import problems_of
from bmqctl.systems.rocketmq.status.view import Unheard, View, view_of
from bmqctl.systems.system import ClusterOptions, Unanswered, Views
from formats.addresses import shown_place

if TYPE_CHECKING:
    from bmqctl.systems.bundling.archive import Archive
    from bmqctl.systems.checking.verdict import Measured
    from bmqctl.systems.watching.watcher import Watcher

__all__ = ["RocketMQCluster", "places_of"]

DEFAULT_NAMESERVER: Final = "127.0.0.1:9876"


class RocketMQCluster:
    """A cluster, by its nameservers, controllers or a broker. Raises `CannotBegin` for an invalid address."""

    def __init__(self, options: ClusterOptions) -> None:
        self._asker = asker_of(options.reach)
        nameservers, controllers = options.nameservers, options.controllers
        self._places = places_of(options.broker, nameservers, controllers, options.broker_names)
        # Samples and bundles are of the whole cluster, which no single broker knows.
        self._known = places_of(None, nameservers, controllers)
        self.place = ", ".join(nameservers or controllers or [DEFAULT_NAMESERVER])

    def status(self) -> Views:
        view = self._view()
        problems = problems_of(view)
        lines = status_lines(view, problems, time.time_ns() // 1_000_000)
        return Views(lines, json_value(view, problems), broker_rows(view), BROKER_KEYS, len(problems))

    def problems(self) -> Views:
        view = self._view()
        found = problems_of(view)
        rows = [{"problem": each.text, "remedy": each.remedy} for each in found]
        return Views(explanation_lines(view, found), None, rows, ("problem", "remedy"), len(found))

    def _view(self) -> View:
        heard = trio.run(hear, self._places, self._asker)
        answers = [*heard.nameservers.items(), *heard.controllers.items(), *heard.brokers.items()]
        if all(isinstance(answer, Unheard) for _, answer in answers):
            reasons = [f"{address}: {answer.reason}" for address, answer in answers if isinstance(answer, Unheard)]
            raise Unanswered(f"nobody answers at {'; '.join(reasons)}")
        return view_of(heard)

    def measure(self) -> Measured:
        from bmqctl.systems.checking.rocketmq import measure_view

        view = self._view()
        return measure_view(view, problems_of(view))

    def watcher(self) -> Watcher:
        from bmqctl.systems.watching.rocketmq import take_sample
        from bmqctl.systems.watching.watcher import Watcher

        return Watcher(partial(take_sample, self._known, self._asker), (NobodyAnswers,), None)

    def bundle(self, archive: Archive) -> None:
        from bmqctl.systems.bundling.rocketmq import add_cluster

        add_cluster(archive, self._known, self._asker)


def places_of(
    broker: str | None,
    nameservers: Sequence[str] | None,
    controllers: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
) -> Places:
    """The places to ask. Raises `CannotBegin` for an invalid address."""
    found = Places(
        _addresses("--nameserver", nameservers or ()),
        _addresses("--controller", controllers or ()),
        _addresses("--broker", () if broker is None else (broker,)),
        tuple(names or ()),
    )
    is_empty = not (found.nameservers or found.controllers or found.brokers)
    return found._replace(nameservers=(DEFAULT_NAMESERVER,)) if is_empty else found


def _addresses(option: str, texts: Iterable[str]) -> tuple[str, ...]:
    found = []
    for text in (part.strip() for each in texts for part in each.split(";") if part.strip()):
        try:
            host, port = parse_address(text)
        except BadAddress:
            raise CannotBegin(f"{option} {text}: expected HOST:PORT") from None
        found.append(shown_place(host, port))
    return tuple(found)
