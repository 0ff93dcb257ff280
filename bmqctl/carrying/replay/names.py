"""Names of replayed queues and topics and of their targets: renames, and checks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from bmqctl.carrying.bridge.ends import is_topic_name
from bmqctl.stores.blazingmq.read.wanted import parse_key
from formats.bmq.uri import parse_uri
from formats.errors import FormatError

__all__ = ["BadRename", "Renames", "check_queue", "check_topic"]

Check = Callable[[str], None]


class BadRename(ValueError):
    """A rename that is invalid or matches nothing, or an invalid name; one line."""


def check_queue(name: str) -> None:
    """Raise `BadRename` unless this can be the name of a BlazingMQ queue to post to."""
    if parse_key(name) is not None:
        raise BadRename(f"the queue with key {name} has no name in this store: give it one, {name}=bmq://...")
    if not name.startswith("bmq://") and is_topic_name(name):
        raise BadRename(
            f"{name} is a topic, and BlazingMQ has queues: name one, --rename {name}=bmq://DOMAIN/QUEUE, or the "
            "nameserver of a RocketMQ cluster, --to rocketmq://HOST:PORT"
        )
    try:
        uri = parse_uri(name)
    except FormatError as error:
        raise BadRename(f"{name}: {error.reason}") from None
    if uri.app_id:
        raise BadRename(f"{name}: messages are posted to a queue, not to one of its apps")


def check_topic(name: str) -> None:
    """Raise `BadRename` unless this can be the name of a RocketMQ topic."""
    if not is_topic_name(name):
        raise BadRename(
            f"{name} is no topic: name one, --rename {name}=TOPIC, or one for all messages, "
            "--to rocketmq://HOST:PORT/TOPIC; a topic has up to 127 of a-z, A-Z, 0-9, %, |, _ and -"
        )


class Renames:
    """`FROM=TO` for queues and topics: FROM is a topic, a URI, or a key in hex, or a prefix of these with a final `*`.

    A `*` at the end of TO is replaced by the match of FROM's. The first matching rule decides.
    """

    def __init__(self, rules: Iterable[str]) -> None:
        self._rules: list[tuple[str, str]] = []
        for rule in rules:
            source, equals, target = rule.partition("=")
            if not (source and equals and target):
                raise BadRename(f"{rule!r}: write FROM=TO")
            if target.endswith("*") and not source.endswith("*"):
                raise BadRename(f"{rule!r}: TO has a * but FROM does not")
            self._rules.append((source, target))

    def targets(self, queues: Iterable[str], known: Collection[str], check: Check = check_queue) -> list[str]:
        """The target of each of `queues`, checked by `check`.

        Raises `BadRename` if one fails, or a rule matches none of the `known` queues, selected or not.
        """
        for source, _ in self._rules:
            if not any(_fits(source, queue) for queue in known):
                raise BadRename(f"--rename {source}: the store has no such queue or topic")
        targets = [self._target(queue) for queue in queues]
        for target in dict.fromkeys(targets):
            check(target)
        return targets

    def _target(self, queue: str) -> str:
        for source, target in self._rules:
            if _fits(source, queue):
                return target[:-1] + queue[len(source) - 1 :] if target.endswith("*") else target
        return queue


def _fits(source: str, queue: str) -> bool:
    return queue.startswith(source[:-1]) if source.endswith("*") else queue == source
