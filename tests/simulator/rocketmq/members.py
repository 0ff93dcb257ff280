"""Two clients of one group that lock queues, as consumers in order do: a queue has one holder at a time."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from formats.rocketmq.remoting.bodies.clients import LOCK_ANSWER, LOCK_REQUEST, LockRequest, MessageQueue
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.process import BROKER
from tests.simulator.rocketmq.producers import Surroundings
from tests.simulator.rocketmq.wire import Connection

__all__ = ["LockClients"]

# The time for which a lock lasts.
LOCK_MS = 60_000
TOPIC, GROUP, CLIENTS = "t0", "gk", ("k0", "k1")
# The chance that the other client goes on; the one before it keeps its locks until they expire.
SWITCH_LUCK = 0.04
UNLOCK_LUCK = 0.2


class _Hold(NamedTuple):
    """A lock: its holder, and the times between which the broker gave or renewed it."""

    client: str
    from_ms: int
    to_ms: int


class LockClients:
    """Both clients, on one connection, with one request at a time. Locks end with the process of the broker."""

    name = "locks"

    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self._client = CLIENTS[0]
        self._holds: dict[int, _Hold] = {}
        self._is_waiting = False
        self.connection: Connection

    def connect(self) -> None:
        """Connect, after a start of the broker."""
        self.connection = self.world.connect(self.name, lambda frame: None)
        self._holds.clear()
        self._is_waiting = False

    def heartbeat(self) -> None:
        """Do nothing: locks need no heartbeat."""

    def act(self) -> None:
        """Lock or unlock some queues."""
        random = self.world.random
        if self._is_waiting:
            return
        self._is_waiting = True
        if random.random() < SWITCH_LUCK:
            self._client = CLIENTS[self._client == CLIENTS[0]]
        count = self.world.topics[TOPIC]
        queues = random.sample(range(count), random.randrange(1, count + 1))
        code, answered = RequestCode.LOCK_BATCH_MQ, self._locked
        if random.random() < UNLOCK_LUCK:
            code, answered = RequestCode.UNLOCK_BATCH_MQ, self._unlocked
        wanted = LockRequest(GROUP, self._client, [MessageQueue(BROKER, each, TOPIC) for each in queues])
        done = partial(answered, self._client, queues, self.world.wall_ms)
        self.connection.ask(code, {}, done, LOCK_REQUEST.write(wanted))

    def _locked(self, client: str, queues: list[int], from_ms: int, answer: Frame | None) -> None:
        if not self._is_done(answer):
            return
        assert answer is not None
        locked = {each.queue_id for each in LOCK_ANSWER.read(answer.body).lock_ok_mq_set}
        to_ms = self.world.wall_ms
        for queue_id in queues:
            hold = self._holds.get(queue_id)
            is_free = hold is None or hold.client == client
            if queue_id in locked:
                if hold is not None and not is_free and to_ms <= hold.from_ms + LOCK_MS:
                    left_ms = hold.from_ms + LOCK_MS - to_ms
                    raise Violation(f"{client} locks queue {queue_id}, which {hold.client} has for {left_ms} ms more")
                self._holds[queue_id] = _Hold(client, from_ms, to_ms)
            elif hold is None or is_free or from_ms > hold.to_ms + LOCK_MS:
                raise Violation(f"{client} cannot lock queue {queue_id}, and the last lock of it was {hold}")

    def _unlocked(self, client: str, queues: list[int], from_ms: int, answer: Frame | None) -> None:
        if self._is_done(answer):
            for queue_id in queues:
                hold = self._holds.get(queue_id)
                if hold is not None and hold.client == client:
                    del self._holds[queue_id]

    def _is_done(self, answer: Frame | None) -> bool:
        self._is_waiting = False
        if answer is not None and answer.code != ResponseCode.SUCCESS:
            raise Violation(f"a request for locks is answered with {answer.code}: {answer.remark}")
        return answer is not None
