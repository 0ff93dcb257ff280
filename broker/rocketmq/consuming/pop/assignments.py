"""The queues that a client consumes, by pulling or popping, where clients leave that to the broker.

Source: QueryAssignmentProcessor, MessageRequestModeManager. A client that pops gets all queues of a broker, or its own
and those of some of the clients that follow it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from broker.common.kept import Keep, KeptTable
from broker.rocketmq.consuming.pop.waiting import ALL_QUEUES
from broker.rocketmq.remoting.requests import Handlers, Refused, Request, success, with_body
from broker.rocketmq.tables.routes import FindQueues
from broker.rocketmq.tables.services import Services
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.clients import BROADCASTING, MessageQueue
from formats.rocketmq.remoting.bodies.popping import (
    ASSIGNMENT_REQUEST,
    ASSIGNMENTS,
    REQUEST_MODE,
    REQUEST_MODES,
    Assignment,
    AssignmentRequest,
    Assignments,
    RequestMode,
    RequestModes,
)
from formats.rocketmq.remoting.bodies.routes import Permission, QueueData
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.receipts import RETRY_PREFIX

__all__ = ["AssignmentRequests", "allocate", "allocate_to_pop"]

log = logging.getLogger("broker.rocketmq.assignments")

POP: Final = "POP"
PULL: Final = "PULL"
MODES_MAX: Final = 20_000

# A topic and a group; a topic and the text of its entry for a group.
_Key = tuple[str, str]
_Text = tuple[str, str]

_AVERAGE: Final = "AVG"
_CIRCLE: Final = "AVG_BY_CIRCLE"


class AssignmentRequests:
    """Answers clients, and keeps the modes that administrators set. `find_queues` finds queues on other brokers.

    `keep` writes the file; if it raises `OSError`, the change is undone. With a `Keeper`, changes are written at the
    end of the step.
    """

    def __init__(self, services: Services, find_queues: FindQueues, stored: bytes, keep: Keep) -> None:
        self._services = services
        self._find_queues = find_queues
        modes = (REQUEST_MODES.read(stored) if stored else RequestModes()).table
        table = {(topic, group): mode for topic, groups in modes.items() for group, mode in groups.items()}
        self._modes: KeptTable[_Key, RequestMode, _Text, None] = KeptTable(
            keep, table, None, _encode, lambda texts, _: _compose(texts).encode()
        )
        self.file = self._modes.file
        self.handlers: Handlers = {
            RequestCode.QUERY_ASSIGNMENT: self._query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self._set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self._all_modes,
        }

    def _all_modes(self, request: Request) -> Frame:
        return with_body(fastjson.without_lines(_compose(self._modes.texts.values())).encode())

    def _set_mode(self, request: Request) -> Frame:
        wanted = REQUEST_MODE.read(request.body)
        topic, group = wanted.topic, wanted.consumer_group
        if topic.startswith(RETRY_PREFIX):
            raise Refused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._services.topics.get(topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        if self._services.groups.find(group, request.now_ms) is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        if wanted.mode not in (POP, PULL):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"{wanted.mode[:40]} is neither {POP} nor {PULL}")
        if (topic, group) not in self._modes.table and len(self._modes.table) >= MODES_MAX:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"there are {MODES_MAX} request modes, and no more are allowed")
        self._modes.change({(topic, group): wanted}, None)
        return success()

    def _query(self, request: Request) -> None:
        wanted = ASSIGNMENT_REQUEST.read(request.body)
        answer = partial(request.peer.answer, request.frame.bare)
        self._find_queues(wanted.topic, request.now_ms, lambda others: answer(self._assign(wanted, others)))

    def _assign(self, wanted: AssignmentRequest, others: Sequence[QueueData]) -> Frame:
        mode = self._modes.table.get((wanted.topic, wanted.consumer_group))
        if mode is None:
            mode = RequestMode(wanted.topic, wanted.consumer_group)
        queues = self._queues(wanted.topic, others)
        found: list[MessageQueue] | None = None
        if wanted.message_model == BROADCASTING:
            found = queues
        elif queues:
            clients = sorted(self._services.clients.ids(wanted.consumer_group))
            found = _share(queues, clients, wanted.client_id, wanted.strategy_name, mode) if clients else None
        told = None if found is None else [Assignment(queue, mode.mode) for queue in dict.fromkeys(found)]
        return with_body(ASSIGNMENTS.write(Assignments(told)))

    def _queues(self, topic: str, others: Sequence[QueueData]) -> list[MessageQueue] | None:
        known = {queues.broker_name: queues for queues in others}
        config = self._services.topics.get(topic)
        if config is not None:
            name = self._services.options.name
            known[name] = QueueData(name, config.read_queue_nums, config.write_queue_nums, config.perm)
        found = [
            MessageQueue(name, number, topic)
            for name, queues in sorted(known.items())
            if queues.perm & Permission.READ
            for number in range(queues.read_queue_nums)
        ]
        return found if known else None


def _encode(key: _Key, mode: RequestMode) -> _Text:
    topic, group = key
    return topic, fastjson.dumps_pretty_item(group, REQUEST_MODE.write_value(mode), 2)


def _compose(texts: Iterable[_Text]) -> str:
    table: dict[str, fastjson.Items] = {}
    for topic, item in texts:
        table.setdefault(topic, fastjson.Items()).append(item)
    return fastjson.dumps_pretty({"messageRequestModeMap": table})


def _share(
    queues: list[MessageQueue], clients: list[str], client: str, strategy: str | None, mode: RequestMode
) -> list[MessageQueue] | None:
    """Return the queues of one client; None for an unknown strategy."""
    if strategy not in (_AVERAGE, _CIRCLE):
        log.warning("group %s asks for assignments by %s, which is unknown", mode.consumer_group, strategy)
        return None
    if mode.mode == POP:
        return allocate_to_pop(queues, clients, client, strategy, mode.pop_share_queues)
    return allocate(queues, clients, client, strategy)


def allocate(queues: list[MessageQueue], clients: list[str], client: str, strategy: str) -> list[MessageQueue]:
    """Return a client's queues if each queue has one client: equal shares, and one more for the first clients."""
    if client not in clients:
        return []
    place, count = clients.index(client), len(clients)
    if strategy == _CIRCLE:
        return queues[place::count]
    share, more = divmod(len(queues), count)
    begin = place * share + min(place, more)
    return queues[begin : begin + share + (place < more)]


def allocate_to_pop(
    queues: list[MessageQueue], clients: list[str], client: str, strategy: str, shared: int
) -> list[MessageQueue]:
    """Return the queues that a client pops: all, or its own and those of the next `shared` clients."""
    if shared <= 0 or shared >= len(clients) - 1:
        return [queue._replace(queue_id=ALL_QUEUES) for queue in queues]
    if client not in clients:
        return []
    place = clients.index(client)
    if len(clients) > len(queues):
        return [queues[place % len(queues)]]
    found: list[MessageQueue] = []
    for number in range(shared + 1):
        found += allocate(queues, clients, clients[(place + number) % len(clients)], strategy)
    return found
