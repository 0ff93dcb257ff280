"""Clients that neither send nor consume: one asks for what only the broker may do, the others are administrators'.

The first is refused, and changes nothing. Of the others one looks for messages, compares offsets, and sets those of a
group of its own; the other keeps values at a nameserver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

from formats.rocketmq.files.record import Record, decode_record
from formats.rocketmq.flags import Transaction
from formats.rocketmq.remoting.bodies.inspection import KEY_VALUE_TABLE
from formats.rocketmq.remoting.bodies.routes import TOPIC_ROUTE
from formats.rocketmq.remoting.bodies.statistics import read_consume_stats, read_topic_stats
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, HeaderEncoding
from formats.rocketmq.topic_names import AUTO_CREATE_TOPIC, DELAY_TOPIC, HALF_TOPIC, OP_TOPIC, TIMER_TOPIC
from tests.broker.rocketmq.answers import records_of
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.consumers import PullGroup
from tests.simulator.rocketmq.process import BROKER, CLUSTER
from tests.simulator.rocketmq.producers import Link, Surroundings
from tests.simulator.rocketmq.wire import Connection, name_of

__all__ = ["INSPECTED", "Inspector", "Intruder", "Registrar"]

WAITING_MAX = 4
OWN = (HALF_TOPIC, OP_TOPIC, DELAY_TOPIC, TIMER_TOPIC, f"rmq_sys_REVIVE_LOG_{CLUSTER}", "rmq_sys_ANOTHER")
# An offset that no log reaches.
FAR = 1 << 40

Asked = tuple[RequestCode, dict[str, Any]]


class Intruder:
    """The client. `random` decides what it asks for."""

    name = "intruder"

    def __init__(self, world: Surroundings, random: Random) -> None:
        self._world = world
        self._random = random
        self.connection: Connection

    def connect(self) -> None:
        """Connect, after a start of the broker."""
        self.connection = self._world.connect(self.name, lambda frame: None, HeaderEncoding.JSON)

    def heartbeat(self) -> None:
        """Do nothing: nobody expects a heartbeat."""

    def act(self) -> None:
        """Ask for something."""
        if self.connection.waiting < WAITING_MAX:
            code, fields = self._random.choice(list(_wrongs(self._random.choice(OWN), self._world.wall_ms)))
            self.connection.ask(code, fields, partial(self._answered, code, fields), b"intruder ")

    @staticmethod
    def _answered(code: RequestCode, fields: dict[str, Any], answer: Frame | None) -> None:
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            raise Violation(f"{code.name} of a client is carried out: {fields}")


def _wrongs(topic: str, now_ms: int) -> Iterator[Asked]:
    """Yield requests that are refused, some of them about one of the broker's own topics."""
    yield RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}
    queues = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    changed = {"topic": topic, "defaultTopic": AUTO_CREATE_TOPIC, "topicSysFlag": 0, "order": "false", **queues}
    yield RequestCode.UPDATE_AND_CREATE_TOPIC, changed
    sent = ("p", topic, AUTO_CREATE_TOPIC, 4, 0, 0, now_ms, 0, "", 0, "false", "false")
    yield RequestCode.SEND_MESSAGE_V2, dict(zip("abcdefghijkm", sent, strict=True))
    ended = {"producerGroup": "p", "tranStateTableOffset": 0, "commitLogOffset": FAR, "fromTransactionCheck": "false"}
    yield RequestCode.END_TRANSACTION, {**ended, "commitOrRollback": int(Transaction.COMMIT), "msgId": "intruder"}
    yield RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": FAR, "group": "g0", "delayLevel": 0}
    yield RequestCode.RECALL_MESSAGE, {"producerGroup": "p", "topic": "t0", "recallHandle": "bm90IGEgaGFuZGxl"}
    acked = {"consumerGroup": "g2", "topic": "t0", "queueId": 0, "offset": FAR}
    yield RequestCode.ACK_MESSAGE, {**acked, "extraInfo": "0 1 2"}


# The group whose offsets it sets.
INSPECTED = "gi"
FOREVER_MS = 1 << 60
# The first one has the order of topics.
NAMESPACES = ("ORDER_TOPIC_CONFIG", "another")


class Inspector:
    """The program, with one request at a time. It knows the progress of `groups`, by what these were answered."""

    name = "inspector"

    def __init__(self, world: Surroundings, random: Random, groups: list[PullGroup]) -> None:
        self._world = world
        self._random = random
        self._groups = groups
        self._is_waiting = False
        # The offset of its group in each queue, where it has just set that.
        self._set: dict[tuple[str, int], tuple[int, int]] = {}
        self.connection: Connection

    def connect(self) -> None:
        """Connect, after a start of the broker, which may have lost the offsets that were set last."""
        self.connection = self._world.connect(self.name, lambda frame: None, HeaderEncoding.JSON)
        self._set.clear()
        self._is_waiting = False

    def heartbeat(self) -> None:
        """Do nothing: nobody expects a heartbeat."""

    def act(self) -> None:
        """Ask something."""
        if not self._is_waiting:
            topic = self._random.choice(list(self._world.topics))
            queue_id = self._random.randrange(self._world.topics[topic])
            ask = self._random.choice(
                (self._look_for, self._look_at, self._compare, self._clone, self._reset, self._peek)
            )
            ask(topic, queue_id)

    def _ask(self, code: RequestCode, fields: dict[str, Any], taken: Callable[[Frame], None]) -> None:
        def answered(answer: Frame | None) -> None:
            self._is_waiting = False
            if answer is not None:
                taken(answer)

        self._is_waiting = True
        self.connection.ask(code, fields, answered)

    @staticmethod
    def _check(answer: Frame, what: str) -> dict[str, str]:
        if answer.code != ResponseCode.SUCCESS:
            raise Violation(f"{what} is answered with {answer.code}: {answer.remark}")
        return answer.ext_fields or {}

    # -- messages

    def _look_for(self, topic: str, queue_id: int) -> None:
        """Look for a message by its key, or by its id."""
        known = self._world.promises.places.get((topic, queue_id))
        if not known:
            return
        offset = self._random.choice(list(known))
        name = known[offset]
        key = self._random.choice((f"U{name}", *self._world.promises.messages[name].keys))
        fields = {"topic": topic, "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": FOREVER_MS}
        if key[0] == "U":
            fields["_UNIQUE_KEY_QUERY"] = "true"

        def taken(answer: Frame) -> None:
            records = records_of(answer) if answer.code == ResponseCode.SUCCESS else []
            found = {(each.queue_id, each.queue_offset): each for each in records}
            is_there = known.get(offset) == name and not self._world.was_full_since(0)
            # A message whose place no client knows may be lost with power.
            if is_there and (queue_id, offset) not in found:
                raise Violation(f"{name} is at {offset} of queue {queue_id} of {topic}, and not found by {key}")
            for each in records:
                if each.topic != topic:
                    raise Violation(f"{key} of {topic} is looked for, and {each.topic} has what is found")
            if records:
                self._view(self._random.choice(records))

        self._ask(RequestCode.QUERY_MESSAGE, fields, taken)

    def _view(self, found: Record) -> None:
        def taken(answer: Frame) -> None:
            self._check(answer, f"a look at {found.physical_offset}")
            record = decode_record(answer.body)
            if not isinstance(record, Record) or record != found._replace(body=record.body):
                raise Violation(f"{found} was found, and {record} is at its place")
            if bytes(record.body) != bytes(found.body):
                raise Violation(f"{name_of(found.body)} was found, and {name_of(record.body)} is at its place")

        fields = {"offset": found.physical_offset}
        self._ask(RequestCode.VIEW_MESSAGE_BY_ID, fields, taken)

    def _peek(self, topic: str, queue_id: int) -> None:
        """Peek at messages, which stay where they are."""
        fields = {"topic": topic, "queueId": queue_id, "maxMsgNums": 8, "consumerGroup": INSPECTED}

        def taken(answer: Frame) -> None:
            if answer.code not in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND):
                raise Violation(f"{INSPECTED} peeks at {topic}, and gets {answer.code}: {answer.remark}")
            for record in records_of(answer) if answer.code == ResponseCode.SUCCESS else []:
                place = topic, record.queue_id, record.queue_offset
                self._world.promises.found(*place, name_of(record.body), record.stored_ms)

        self._ask(RequestCode.PEEK_MESSAGE, fields, taken)

    # -- offsets

    def _look_at(self, topic: str, queue_id: int) -> None:
        """Look at the ends of a topic's queues."""
        ends = {each: max(places, default=-1) + 1 for each, places in self._world.promises.places.items()}

        def taken(answer: Frame) -> None:
            self._check(answer, f"a look at {topic}")
            found = {each.queue_id: told for each, told in read_topic_stats(answer.body).items()}
            for number in range(self._world.topics[topic]):
                told = found.get(number)
                if told is None or told.min_offset or told.max_offset < ends.get((topic, number), 0):
                    raise Violation(f"queue {number} of {topic} is said to be {told}, and has {ends}")

        self._ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}, taken)

    def _compare(self, topic: str, queue_id: int) -> None:
        """Look at a group's offset beside the end of its queue."""
        group = self._random.choice(self._groups)
        floor = group.queues[topic, queue_id].floor
        end = max(self._world.promises.places.get((topic, queue_id), {}), default=-1) + 1

        def taken(answer: Frame) -> None:
            self._check(answer, f"a look at {group.name}")
            found = {each.queue_id: told for each, told in read_consume_stats(answer.body).items()}
            told, ceiling = found.get(queue_id), max(0, group.queues[topic, queue_id].ceiling)
            if told is None or not floor <= told.consumer_offset <= ceiling or told.broker_offset < end:
                wanted = f"{floor} to {ceiling} of {end}"
                raise Violation(f"{group.name} is said to be at {told} in queue {queue_id} of {topic}: {wanted}")

        self._ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": group.name, "topic": topic}, taken)

    def _clone(self, topic: str, queue_id: int) -> None:
        """Set the offsets of its group to those of another."""
        group = self._random.choice(self._groups)
        floor = group.queues[topic, queue_id].floor
        fields = {"srcGroup": group.name, "destGroup": INSPECTED, "topic": topic, "offline": "true"}

        def taken(answer: Frame) -> None:
            self._check(answer, f"a copy of the offsets of {group.name}")
            ceiling = group.queues[topic, queue_id].ceiling
            if floor:
                self._set[topic, queue_id] = floor, ceiling
                self._ask_offset(topic, queue_id)

        self._set.clear()
        self._ask(RequestCode.CLONE_GROUP_OFFSET, fields, taken)

    def _reset(self, topic: str, queue_id: int) -> None:
        """Set the offsets of its group to the beginning, to the end, or to an offset."""
        end = max(self._world.promises.places.get((topic, queue_id), {}), default=-1) + 1
        fields = {"topic": topic, "group": INSPECTED, "timestamp": 0, "isForce": "true", "queueId": queue_id}
        kind = self._random.randrange(3)
        low, high = 0, 0
        if kind == 1:
            fields["timestamp"], low, high = -1, end, FOREVER_MS
        elif kind == 2:
            fields["offset"] = low = high = self._random.randint(0, end)

        def taken(answer: Frame) -> None:
            self._check(answer, f"a reset of {INSPECTED}")
            self._set[topic, queue_id] = low, high
            self._ask_offset(topic, queue_id)

        self._ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields, taken)

    def _ask_offset(self, topic: str, queue_id: int) -> None:
        fields = {"consumerGroup": INSPECTED, "topic": topic, "queueId": queue_id, "setZeroIfNotFound": "false"}

        def taken(answer: Frame) -> None:
            offset = int(self._check(answer, f"the offset of {INSPECTED}")["offset"])
            low, high = self._set[topic, queue_id]
            if not low <= offset <= high:
                raise Violation(
                    f"{INSPECTED} is at {offset} of queue {queue_id} of {topic}, and was set to {low}..{high}"
                )

        self._ask(RequestCode.QUERY_CONSUMER_OFFSET, fields, taken)


class Registrar:
    """An administrator's program that keeps values at a nameserver, with one request at a time."""

    def __init__(self, world: Surroundings, random: Random, nameserver: str) -> None:
        self.name = f"registrar of {nameserver}"
        self._nameserver = nameserver
        self._world = world
        self._random = random
        # The values that each key may have.
        self._values: dict[tuple[str, str], set[str | None]] = {}
        self._count = 0
        self._is_waiting = False
        self.link: Link

    def connect(self) -> None:
        """Connect, after a start of the nameserver, or of the broker."""
        self.link = self._world.connect_nameserver(self._nameserver)
        self._is_waiting = False

    def heartbeat(self) -> None:
        """Do nothing: nobody expects a heartbeat."""

    def act(self) -> None:
        """Put a value, delete one, or ask for some."""
        if self._is_waiting:
            return
        self._is_waiting = True
        namespace, key = self._random.choice(NAMESPACES), self._random.choice(("t0", "t1", "other"))
        kind = self._random.randrange(6)
        fields = {"namespace": namespace, "key": key}
        if kind < 2:
            self._count += 1
            value = f"v{self._count}" if kind == 0 else None
            before = self._values.get((namespace, key), {None})
            self._values[namespace, key] = {value, *before}
            code = RequestCode.DELETE_KV_CONFIG if value is None else RequestCode.PUT_KV_CONFIG
            told = fields if value is None else {**fields, "value": value}
            self._ask(code, told, partial(self._changed, namespace, key, value))
        elif kind < 3:
            self._ask(RequestCode.GET_KV_CONFIG, fields, partial(self._got, namespace, key))
        elif kind < 5:
            fields = {"namespace": namespace}
            self._ask(RequestCode.GET_KVLIST_BY_NAMESPACE, fields, partial(self._listed, namespace))
        else:
            topic = self._random.choice(list(self._world.topics))
            self._ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, partial(self._routed, topic))

    def _ask(self, code: RequestCode, fields: dict[str, Any], taken: Callable[[Frame], None]) -> None:
        def answered(answer: Frame | None) -> None:
            self._is_waiting = False
            if answer is not None:
                taken(answer)

        assert isinstance(self.link, Connection)
        self.link.ask(code, fields, answered)

    def _changed(self, namespace: str, key: str, value: str | None, answer: Frame) -> None:
        if answer.code != ResponseCode.SUCCESS:
            raise Violation(f"a change of {key} in {namespace} is answered with {answer.code}: {answer.remark}")
        self._values[namespace, key] = {value}

    def _check(self, namespace: str, key: str, value: str | None) -> None:
        may_be = self._values.get((namespace, key), {None})
        if value not in may_be:
            raise Violation(f"{key} of {namespace} is {value} at {self._nameserver}, and may be {may_be}")

    def _got(self, namespace: str, key: str, answer: Frame) -> None:
        is_there = answer.code == ResponseCode.SUCCESS
        self._check(namespace, key, (answer.ext_fields or {}).get("value") if is_there else None)

    def _listed(self, namespace: str, answer: Frame) -> None:
        table = KEY_VALUE_TABLE.read(answer.body).table if answer.code == ResponseCode.SUCCESS else {}
        for key in {*table, *(key for name, key in self._values if name == namespace)}:
            self._check(namespace, key, table.get(key))

    def _routed(self, topic: str, answer: Frame) -> None:
        """Check the route of a topic. One that was started a moment ago knows none."""
        if answer.code != ResponseCode.SUCCESS:
            return
        route = TOPIC_ROUTE.read(answer.body)
        self._check(NAMESPACES[0], topic, route.order_topic_conf or None)
        queues = [(each.broker_name, each.write_queue_nums) for each in route.queue_datas]
        if queues != [(BROKER, self._world.topics[topic])]:
            raise Violation(f"the route of {topic} at {self._nameserver} has {queues}")
