"""Topics and groups of RocketMQ's brokers: what they have, and requests that change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio

from bmqctl.clients.rocketmq.link import AccessKeys, RemotingLink
from bmqctl.systems.definitions.model import ROCKETMQ, Action, BadDefinitions, Change, Definitions
from bmqctl.systems.rocketmq.status.asker import Asker, NobodyAnswers, body_of
from bmqctl.systems.rocketmq.status.asking import Places, Secret, hear
from bmqctl.systems.rocketmq.status.names import is_own_group, is_own_topic
from bmqctl.systems.rocketmq.status.view import Unheard, view_of
from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.clients import GROUP_CONFIG, GROUPS
from formats.rocketmq.remoting.bodies.routes import TOPIC_CONFIG, TOPIC_CONFIGS, TopicConfig
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.headers.administration import (
    CreateTopicRequest,
    DeleteSubscriptionGroupRequest,
    DeleteTopicRequest,
)
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.routing import DeleteTopicFromNameserverRequest
from formats.rocketmq.topic_names import AUTO_CREATE_TOPIC

__all__ = ["Master", "apply_changes", "checked", "forget_topics", "masters_of"]

_NAMED_BY: Final = {"topics": "topicName", "groups": "groupName"}
_CODECS: Final[Mapping[str, Any]] = {"topics": TOPIC_CONFIG, "groups": GROUP_CONFIG}


class Master:
    """The master of a name of brokers, and its definitions."""

    def __init__(self, name: str, address: str, definitions: Definitions) -> None:
        self.name = name
        self.address = address
        self.definitions = definitions


def checked(wanted: Definitions) -> Definitions:
    """Return definitions with their defaults. Raises `BadDefinitions` for fields and values that cannot be."""
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    for kind, table in wanted.tables.items():
        tables[kind] = {}
        for name, fields in table.items():
            try:
                config = _CODECS[kind].read_value({**fields, _NAMED_BY[kind]: name})
            except FormatError as fault:
                raise BadDefinitions(f"{kind}.{name}: {fault}") from None
            found = _fields(kind, config)
            if unknown := sorted(fields.keys() - found.keys()):
                raise BadDefinitions(
                    f"{kind}.{name}.{unknown[0]}: there is no such field; there are {', '.join(found)}"
                )
            tables[kind][name] = found
    return Definitions(ROCKETMQ, tables)


def _fields(kind: str, config: Any) -> dict[str, Any]:
    found: dict[str, Any] = _CODECS[kind].write_value(config)
    del found[_NAMED_BY[kind]]
    return found


def masters_of(places: Places, timeout_s: float, secret: Secret | None) -> list[Master]:
    """Ask all masters of a cluster. Raises `NobodyAnswers` if one does not answer, or there is none."""
    return trio.run(_masters_of, places, timeout_s, secret)


async def _masters_of(places: Places, timeout_s: float, secret: Secret | None) -> list[Master]:
    heard = await hear(places, timeout_s, secret)
    silent = [f"{address}: {each.reason}" for address, each in heard.nameservers.items() if isinstance(each, Unheard)]
    view = view_of(heard)
    ask = Asker(timeout_s, None if secret is None else AccessKeys(*secret))
    own = frozenset(name for each in view.names for name in (each.name, each.cluster))
    found = []
    for each in view.names:
        master = each.master
        if master is None:
            raise NobodyAnswers(f"brokers {each.name} have no master")
        if master.error is not None:
            raise NobodyAnswers(f"{master.address}: {master.error}")
        tables = await ask.over(master.address, lambda link: _tables(link, own, timeout_s))
        found.append(Master(each.name, master.address, Definitions(ROCKETMQ, tables)))
    if not found:
        raise NobodyAnswers("; ".join(silent) or "no broker is registered")
    return found


async def _tables(link: RemotingLink, own: frozenset[str], timeout_s: float) -> dict[str, dict[str, dict[str, Any]]]:
    body = body_of(await link.call(RequestCode.GET_ALL_TOPIC_CONFIG, {}, timeout_s), "topics")
    topics = TOPIC_CONFIGS.read(body).topic_config_table
    body = body_of(await link.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}, timeout_s), "groups")
    groups = GROUPS.read(body).subscription_group_table
    return {
        "topics": {name: _fields("topics", each) for name, each in topics.items() if not is_own_topic(name, own)},
        "groups": {name: _fields("groups", each) for name, each in groups.items() if not is_own_group(name)},
    }


def apply_changes(master: Master, changes: Sequence[Change], timeout_s: float, secret: Secret | None) -> None:
    """Have a master make changes, one after the other. Raises `NobodyAnswers`, also if it refuses one."""
    trio.run(_apply, master, changes, timeout_s, secret)


async def _apply(master: Master, changes: Sequence[Change], timeout_s: float, secret: Secret | None) -> None:
    ask = Asker(timeout_s, None if secret is None else AccessKeys(*secret))
    for change in changes:
        code, fields, body = _request(change)

        async def send(
            link: RemotingLink,
            code: RequestCode = code,
            fields: Mapping[str, str] = fields,
            body: bytes = body,
            what: str = f"{change.action} {change.kind} {change.name}",
        ) -> bytes:
            return body_of(await link.call(code, fields, timeout_s, body), what)

        await ask.over(master.address, send)


def forget_topics(places: Places, names: Sequence[str], timeout_s: float, secret: Secret | None) -> None:
    """Have all nameservers forget topics that the brokers have deleted. Raises `NobodyAnswers`."""
    trio.run(_forget, places, names, timeout_s, secret)


async def _forget(places: Places, names: Sequence[str], timeout_s: float, secret: Secret | None) -> None:
    ask = Asker(timeout_s, None if secret is None else AccessKeys(*secret))
    requests = [write_header(DeleteTopicFromNameserverRequest(name)) for name in names]

    async def send(link: RemotingLink) -> None:
        for fields in requests:
            body_of(await link.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, fields, timeout_s), "delete a topic")

    for address in places.nameservers:
        await ask.over(address, send)


def _request(change: Change) -> tuple[RequestCode, Mapping[str, str], bytes]:
    """Return the request that makes a whole definition as it is wanted, or deletes it."""
    if change.action is Action.DELETE:
        if change.kind == "topics":
            return RequestCode.DELETE_TOPIC_IN_BROKER, write_header(DeleteTopicRequest(change.name)), b""
        fields = write_header(DeleteSubscriptionGroupRequest(change.name, clean_offset=False))
        return RequestCode.DELETE_SUBSCRIPTIONGROUP, fields, b""
    before = (change.found or {}).get("attributes", {})
    after = change.wanted.get("attributes", {})
    signed = {f"+{name}": value for name, value in after.items() if before.get(name) != value}
    signed |= {f"-{name}": "" for name in before.keys() - after.keys()}
    if change.kind == "groups":
        config = GROUP_CONFIG.read_value({**change.wanted, "groupName": change.name, "attributes": signed})
        return RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, GROUP_CONFIG.write(config)
    topic: TopicConfig = TOPIC_CONFIG.read_value({**change.wanted, "topicName": change.name})
    text = ",".join(f"{name}={value}" if name[0] == "+" else name for name, value in signed.items())
    request = CreateTopicRequest(
        topic.topic_name,
        AUTO_CREATE_TOPIC,
        topic.read_queue_nums,
        topic.write_queue_nums,
        topic.perm,
        topic.topic_filter_type,
        topic.order,
        topic.topic_sys_flag,
        text,
    )
    return RequestCode.UPDATE_AND_CREATE_TOPIC, write_header(request), b""
