"""The state of a RocketMQ cluster: the answers of its nameservers, controllers and brokers."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import trio

from bmqctl.client.remoting.link import RemotingLink
from bmqctl.systems.bundling.archive import Archive
from bmqctl.systems.rocketmq.status.asker import Asker, NobodyAnswers, body_of
from bmqctl.systems.rocketmq.status.asking import Places, hear
from bmqctl.systems.rocketmq.status.printing import json_value, status_lines
from bmqctl.systems.rocketmq.status.problems import problems_of
from bmqctl.systems.rocketmq.status.view import Unheard, view_of
from formats.errors import FormatError
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.fastjson import loads

__all__ = ["add_cluster"]

_OF_BROKER: Final = (
    ("runtime", RequestCode.GET_BROKER_RUNTIME_INFO),
    ("topics", RequestCode.GET_ALL_TOPIC_CONFIG),
    ("groups", RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    ("offsets", RequestCode.GET_ALL_CONSUMER_OFFSET),
    ("replication", RequestCode.GET_BROKER_HA_STATUS),
)
_OF_NAMESERVER: Final = (
    ("cluster", RequestCode.GET_BROKER_CLUSTER_INFO),
    ("topics", RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
)


def add_cluster(archive: Archive, places: Places, ask: Asker) -> None:
    """Add the answers of the given processes, and of others that they name; silent ones are noted as missing."""
    trio.run(_add_cluster, archive, places, ask)


async def _add_cluster(archive: Archive, places: Places, ask: Asker) -> None:
    heard = await hear(places, ask)
    view = view_of(heard)
    problems = problems_of(view)
    archive.add_json("cluster/status.json", json_value(view, problems))
    lines = status_lines(view, problems, time.time_ns() // 1_000_000)
    archive.add_lines("cluster/status.txt", (f"{line}\n" for line in lines), 1 << 20)
    for address, broker in sorted(heard.brokers.items()):
        folder = f"brokers/{address.replace(':', '_')}"
        if isinstance(broker, Unheard):
            archive.lack(folder, broker.reason)
            continue
        text = "".join(f"{name}={value}\n" for name, value in sorted(broker.properties.items()))
        archive.add_configuration(f"{folder}/broker.properties", text)
        for name, code in _OF_BROKER:
            await _add_answer(archive, f"{folder}/{name}.json", ask, address, code)
    for address, nameserver in sorted(heard.nameservers.items()):
        folder = f"nameservers/{address.replace(':', '_')}"
        if isinstance(nameserver, Unheard):
            archive.lack(folder, nameserver.reason)
            continue
        for name, code in _OF_NAMESERVER:
            await _add_answer(archive, f"{folder}/{name}.json", ask, address, code)
    for address, controller in sorted(heard.controllers.items()):
        if isinstance(controller, Unheard):
            archive.lack(f"controllers/{address.replace(':', '_')}", controller.reason)


async def _add_answer(archive: Archive, name: str, ask: Asker, address: str, code: RequestCode) -> None:
    async def asked(link: RemotingLink) -> bytes:
        return body_of(await link.call(code, {}, ask.timeout_s), code.name)

    try:
        body = await ask.over(address, asked)
    except NobodyAnswers as fault:
        archive.lack(name, str(fault))
        return
    archive.add_json(name, _value(body), code.name)


def _value(body: bytes) -> Any:
    """An answer as JSON, or fastjson's, in which numbers may be names; else as text."""
    text = body.decode("utf-8", "replace")
    for read in (json.loads, loads):
        try:
            return read(text)
        except (FormatError, ValueError, RecursionError):
            continue
    return text
