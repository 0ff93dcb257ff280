"""A client that asks for what only the broker itself may do: all of it is refused, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

from formats.rocketmq.flags import Transaction
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, HeaderEncoding
from formats.rocketmq.topic_names import AUTO_CREATE_TOPIC, DELAY_TOPIC, HALF_TOPIC, OP_TOPIC, TIMER_TOPIC
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.process import CLUSTER
from tests.simulator.rocketmq.producers import Surroundings
from tests.simulator.rocketmq.wire import Connection

__all__ = ["Intruder"]

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
