"""The causes for which a queue of BlazingMQ is stuck, from its primary's answers.

`internals` is the answer to `QUEUE ... INTERNALS`, and `view` that to `CLUSTERS CLUSTER ... HEALTH`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from bmqctl.carrying.bridge.ends import BlazingEnd
from bmqctl.carrying.messages.ends import CannotBegin, Reach
from bmqctl.client.admin import AdminLost
from bmqctl.systems.blazingmq.status.asking import Refused, asking_of
from bmqctl.systems.blazingmq.status.queues import UnknownApp, apps_of, ask_about_queue
from bmqctl.systems.explaining.cause import Cause, counted
from formats.bmq.uri import parse_uri

__all__ = ["causes_of_queue", "causes_of_unopened", "explain"]

DEFAULT_APP = "__default"


def explain(end: BlazingEnd, reach: Reach) -> list[Cause]:
    """Ask the primary of a queue why its messages wait. Raises `CannotBegin`."""
    queue = parse_uri(end.uri)
    try:
        answers = ask_about_queue(end.host, end.port, asking_of(reach), queue)
        if answers.internals is None:
            return causes_of_unopened(answers.messages)
        return causes_of_queue(answers.internals, answers.view, queue.app_id)
    except (AdminLost, Refused, UnknownApp) as fault:
        raise CannotBegin(str(fault)) from None


class _Consumer(NamedTuple):
    """A client's subscription: its unconfirmed messages, and their limit."""

    client: str
    unconfirmed: int
    limit: int
    is_full: bool


def causes_of_queue(internals: dict[str, Any], view: dict[str, Any], app_id: str = "") -> list[Cause]:
    """The causes for a queue in use, of one app or of all. Raises `UnknownApp`."""
    state = internals["state"]
    found = list(_of_room(state["capacityMeter"]))
    found += _of_replication(view, state["partitionId"])
    waiting = {each["appId"]: int(each["numMessages"]) for each in state["storage"].get("virtualStorages", [])}
    for each in apps_of(internals, app_id):
        app = each["appId"]
        messages = waiting.get(app, int(state["storage"]["numMessages"]) if app == DEFAULT_APP else 0)
        if messages and app_id in ("", app):
            found += _of_app(each, messages, _consumers(state, app))
    return found


def causes_of_unopened(messages: int) -> list[Cause]:
    if not messages:
        return []
    return [
        Cause(
            "no consumer",
            "",
            messages,
            f"nobody has opened the queue since its primary started; it has {counted(messages)}",
            "start a consumer, for each app that there is",
        )
    ]


def _of_room(meter: dict[str, Any]) -> Iterator[Cause]:
    """Yield the quotas, of the queue and of its domain, that leave no room for a further message."""
    for each, what in ((meter, "queue"), (meter.get("parent"), "domain")):
        if each is None:
            continue
        messages, bytes_ = int(each["numMessages"]), int(each["numBytes"])
        if 0 < int(each["messageCapacity"]) <= messages:
            yield _full(what, messages, f"{counted(messages)}, as many as it may have")
        elif 0 < int(each["byteCapacity"]) <= bytes_:
            yield _full(what, messages, f"{bytes_:,} bytes, as many as it may have")


def _full(what: str, messages: int, text: str) -> Cause:
    return Cause(
        "quota",
        "",
        messages,
        f"the {what} has {text}: posts are refused",
        f"consume or purge messages, or raise {what}Limits in the domain's file and send DOMAINS RECONFIGURE",
    )


def _of_replication(view: dict[str, Any], partition: int) -> Iterator[Cause]:
    own = next((each for each in view["partitions"] if each["partitionId"] == partition), None)
    waiting = 0 if own is None else int(own.get("waiting", 0))
    if waiting:
        yield Cause(
            "no quorum",
            "",
            waiting,
            f"{counted(waiting)} of partition {partition} without enough replicas yet, and so not delivered",
            "start the nodes that are gone: see `bmqctl cluster explain`",
        )


def _consumers(state: dict[str, Any], app: str) -> list[_Consumer]:
    found = []
    for handle in state.get("handles", []):
        for stream in handle.get("subStreams", []):
            if stream.get("appId", DEFAULT_APP) != app:
                continue
            for monitor in stream.get("unconfirmedMonitors", []):
                full = monitor["state"] == "STATE_FULL"
                held, limit = int(monitor["numMessages"]), int(monitor["messagesCapacity"])
                found.append(_Consumer(handle["clientDescription"], held, limit, full))
    return found


def _of_app(state: dict[str, Any], messages: int, consumers: list[_Consumer]) -> Iterator[Cause]:
    app = "" if state["appId"] == DEFAULT_APP else state["appId"]
    of = f"app {app}" if app else "the queue"
    if state["status"] == "unauthorized":
        yield Cause(
            "no app",
            app,
            messages,
            f"{of} is not one of the domain's apps, and gets nothing",
            "add it to the domain's file and send DOMAINS RECONFIGURE, or end its consumers",
        )
        return
    yield from _of_failing(state["appState"].get("failing"), app, of)
    if not consumers:
        yield Cause(
            "no consumer",
            app,
            messages,
            f"nobody consumes {of}, which has {counted(messages)}",
            "start a consumer, or remove the app from the domain's file and send DOMAINS RECONFIGURE"
            if app
            else "start a consumer, or purge the queue",
        )
        return
    held = sum(each.unconfirmed for each in consumers)
    if held:
        yield from _of_unconfirmed(app, of, held, messages, consumers)
    free = [each for each in consumers if not each.is_full]
    waiting = messages - held
    if free and waiting > 0:
        yield _of_waiting(state, app, of, waiting, len(free))


def _of_failing(failing: dict[str, Any] | None, app: str, of: str) -> Iterator[Cause]:
    """Yield messages returned more than once, or on their last delivery; C++ brokers do not report them."""
    if failing is None:
        return
    messages, left = int(failing["numMessages"]), int(failing["attemptsLeft"])
    attempts_max = int(failing["maxDeliveryAttempts"])
    failed = attempts_max - left
    if failed < 2 and left > 1:
        return
    yield Cause(
        "poison",
        app,
        messages,
        f"{counted(messages)} of {of} came back from consumers that were lost or rejected them; {failing['guid']} has "
        f"had {failed:,} of {attempts_max:,} attempts",
        "see the logs of its consumers, and the message by `bmqctl journal dump STORE --payload auto --guid ...`; "
        "purge the queue or the app, or let it be removed after the last attempt",
    )


def _of_unconfirmed(app: str, of: str, held: int, messages: int, consumers: list[_Consumer]) -> Iterator[Cause]:
    full = [each for each in consumers if each.is_full]
    if full and len(full) == len(consumers):
        clients = ", ".join(f"{each.client} ({each.unconfirmed:,} of {each.limit:,})" for each in full[:5])
        yield Cause(
            "flow control",
            app,
            messages - held,
            f"each consumer of {of} has as many unconfirmed messages as it allows: {clients}",
            "see that they confirm; end one that hangs, and others get what it had; or raise maxUnconfirmedMessages",
        )
        return
    most = max(consumers, key=lambda each: each.unconfirmed)
    yield Cause(
        "unconfirmed",
        app,
        held,
        f"consumers of {of} hold {counted(held)} that they have not confirmed, most of them {most.client}",
        "see that it confirms; end it if it hangs, and others get what it had",
    )


def _of_waiting(state: dict[str, Any], app: str, of: str, waiting: int, free: int) -> Cause:
    routed = state["appState"]["roundRobinRouter"].get("consumers", [])
    expressions = sorted({each["expression"] for each in routed})
    if expressions and "" not in expressions:
        listed = "; ".join(expressions[:5])
        return Cause(
            "put aside",
            app,
            waiting,
            f"{counted(waiting)} of {of} put aside, although there are consumers with room ({free}): no expression "
            f"matches, or only those of consumers without room ({listed})",
            "add a subscription that matches, or purge the queue or the app",
        )
    return Cause(
        "waiting",
        app,
        waiting,
        f"{counted(waiting)} of {of} waiting, although there are consumers with room ({free})",
        "ask again in a few seconds: delivery goes on, or waits for the delay between redeliveries",
    )
