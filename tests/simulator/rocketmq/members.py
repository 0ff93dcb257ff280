"""Clients of one group: two that lock queues, of which one at a time has each, and some that come and go.

Of the latter the broker says who is in the group, who gets what, and to all others that there is a change.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any, NamedTuple

from formats.rocketmq.remoting.bodies.clients import (
    CONSUMER_IDS,
    HEARTBEAT,
    LOCK_ANSWER,
    LOCK_REQUEST,
    ConsumerData,
    Heartbeat,
    LockRequest,
    MessageQueue,
    make_subscription,
)
from formats.rocketmq.remoting.bodies.popping import (
    ASSIGNMENT_REQUEST,
    ASSIGNMENTS,
    REQUEST_MODE,
    AssignmentRequest,
    RequestMode,
)
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, HeaderEncoding
from tests.broker.rocketmq.answers import records_of
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.process import BROKER
from tests.simulator.rocketmq.producers import Surroundings
from tests.simulator.rocketmq.wire import Connection, name_of

__all__ = ["LockClients", "Members"]

# The time for which a lock lasts.
LOCK_MS = 60_000
TOPIC, LOCKING, CLIENTS = "t0", "gk", ("k0", "k1")
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
        wanted = LockRequest(LOCKING, self._client, [MessageQueue(BROKER, each, TOPIC) for each in queues])
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


GROUP = "gm"
MEMBERS_MAX = 3
STRATEGIES = ("AVG", "AVG_BY_CIRCLE")
EXPRESSIONS = {"*": "AB", "A": "A", "B || C": "B"}
PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
FOUND = (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
# A consumer hears that its group has other members within this time.
TOLD_MS = 2_000
ALL_QUEUES = -1


class Members:
    """The clients, with one request at a time of all of them. `random` decides what they do."""

    name = "members"

    def __init__(self, world: Surroundings, random: Random) -> None:
        self._world = world
        self._random = random
        self._connections: list[Connection] = []
        self._joined: set[int] = set()
        self._expression, self._version = "*", 0
        # The members that are to hear of a change, and by when; the time at which each has heard of one, and that at
        # which the last request was made.
        self._untold: dict[int, int] = {}
        self._told_ms: dict[int, int] = {}
        self._asked_ms = 0
        # By strategy, the queues that members were given since the last change.
        self._shares: dict[str, dict[int, set[int]]] = {}
        # Whether clients pop; None while nobody knows.
        self._pops: bool | None = False
        self._is_waiting = False

    def connect(self) -> None:
        """Connect, after a start of the broker, which knows no members."""
        self._connections = [self._open(number) for number in range(MEMBERS_MAX)]
        self._joined.clear()
        self._changed()
        self._untold.clear()
        self._is_waiting = False

    def _open(self, number: int) -> Connection:
        encoding = self._random.choice(list(HeaderEncoding))
        return self._world.connect(self.name, partial(self._asked, number), encoding)

    def heartbeat(self) -> None:
        """Repeat the heartbeat of each member, with the subscription or without, but not after a farewell."""
        for number in sorted(self._joined) if not self._is_waiting else ():
            self._beat(number, lambda answer: None, is_whole=self._random.random() < 0.5)

    def _beat(self, number: int, answered: Any, *, is_whole: bool = True) -> None:
        told = [make_subscription(TOPIC, self._expression, self._version)] if is_whole else []
        beat = Heartbeat(_id(number), [ConsumerData(GROUP, subscription_data_set=told)], [], 7, not is_whole)
        self._connections[number].ask(RequestCode.HEART_BEAT, {}, answered, HEARTBEAT.write(beat))

    def act(self) -> None:
        """Join, leave, or ask."""
        late = [number for number, ms in self._untold.items() if ms < self._world.wall_ms]
        if late and not self._is_waiting:
            raise Violation(f"{_id(late[0])} has not heard for {TOLD_MS} ms that {GROUP} has changed")
        if self._is_waiting:
            return
        number, kind = self._random.randrange(MEMBERS_MAX), self._random.randrange(20)
        self._is_waiting, self._asked_ms = True, self._world.wall_ms
        if number not in self._joined and kind < 10:
            self._beat(number, partial(self._joined_now, number))
        elif number in self._joined and kind < 2:
            fields = {"clientID": _id(number), "consumerGroup": GROUP}
            self._connections[number].ask(RequestCode.UNREGISTER_CLIENT, fields, partial(self._left, number))
        elif number in self._joined and kind < 3:
            old = self._connections[number]
            self._world.disconnect(old)
            self._connections[number] = self._open(number)
            self._left(number, Frame(ResponseCode.SUCCESS, 0))
        elif number in self._joined and kind < 5:
            self._subscribe(number)
        elif kind < 6:
            self._set_mode(pops=self._random.random() < 0.5)
        elif kind < 12:
            fields = {"consumerGroup": GROUP}
            self._ask(number, RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields, self._listed)
        elif kind < 16 and number in self._joined:
            strategy = self._random.choice(STRATEGIES)
            body = ASSIGNMENT_REQUEST.write(AssignmentRequest(TOPIC, GROUP, _id(number), strategy))
            self._ask(number, RequestCode.QUERY_ASSIGNMENT, {}, partial(self._assigned, number, strategy), body)
        elif self._joined:
            self._pull(number)
        else:
            self._is_waiting = False

    def _ask(self, number: int, code: RequestCode, fields: dict[str, Any], taken: Any, body: bytes = b"") -> None:
        def answered(answer: Frame | None) -> None:
            self._is_waiting = False
            if answer is not None:
                taken(answer)

        self._connections[number].ask(code, fields, answered, body)

    # -- changes

    def _asked(self, number: int, frame: Frame) -> None:
        if frame.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self._untold.pop(number, None)
            self._told_ms[number] = self._world.wall_ms

    def _changed(self, *told: int) -> None:
        """Note a change, of which these members are to hear, unless they have before its answer."""
        self._shares = {strategy: {} for strategy in STRATEGIES}
        for number in told:
            if self._told_ms.get(number, -1) < self._asked_ms:
                self._untold.setdefault(number, self._world.wall_ms + TOLD_MS)

    def _joined_now(self, number: int, answer: Frame | None) -> None:
        self._is_waiting = False
        if self._is_done(answer, "a heartbeat"):
            self._joined.add(number)
            self._changed(*self._joined)

    def _left(self, number: int, answer: Frame | None) -> None:
        self._is_waiting = False
        if self._is_done(answer, "a farewell"):
            self._joined.discard(number)
            self._untold.pop(number, None)
            self._changed(*self._joined)

    def _subscribe(self, number: int) -> None:
        """Change the subscription of the group, which has that of the greatest version."""
        self._expression, self._version = self._random.choice(list(EXPRESSIONS)), self._version + 1

        def answered(answer: Frame | None) -> None:
            self._is_waiting = False
            self._is_done(answer, "a heartbeat")

        self._beat(number, answered)

    def _set_mode(self, *, pops: bool) -> None:
        self._pops = None

        def answered(answer: Frame) -> None:
            if self._is_done(answer, "a mode"):
                self._pops = pops
                self._changed()

        body = REQUEST_MODE.write(RequestMode(TOPIC, GROUP, "POP" if pops else "PULL"))
        self._ask(0, RequestCode.SET_MESSAGE_REQUEST_MODE, {}, answered, body)

    @staticmethod
    def _is_done(answer: Frame | None, what: str) -> bool:
        if answer is not None and answer.code != ResponseCode.SUCCESS:
            raise Violation(f"{what} of {GROUP} is answered with {answer.code}: {answer.remark}")
        return answer is not None

    # -- questions

    def _listed(self, answer: Frame) -> None:
        known = sorted(map(_id, self._joined))
        ids = CONSUMER_IDS.read(answer.body).consumer_id_list if answer.code == ResponseCode.SUCCESS else []
        if sorted(ids) != known:
            raise Violation(f"{GROUP} has {known}, and the broker says {ids}")

    def _assigned(self, number: int, strategy: str, answer: Frame) -> None:
        self._is_done(answer, "a question for queues")
        found = ASSIGNMENTS.read(answer.body).message_queue_assignments or []
        queues = [each.message_queue.queue_id for each in found]
        if {each.mode for each in found} - {"POP" if self._pops else "PULL"} and self._pops is not None:
            raise Violation(f"{_id(number)} is to use {found}, and pops: {self._pops}")
        if self._pops:
            if queues != [ALL_QUEUES]:
                raise Violation(f"{_id(number)} pops from {queues}")
        elif self._pops is not None:
            self._check_shares(number, strategy, queues)

    def _check_shares(self, number: int, strategy: str, queues: list[int]) -> None:
        shares = self._shares[strategy]
        if shares.setdefault(number, set(queues)) != set(queues) or len(set(queues)) != len(queues):
            raise Violation(f"{_id(number)} is given {queues}, and was given {shares[number]}")
        given = sorted(queue for each in shares.values() for queue in each)
        every = list(range(self._world.topics[TOPIC]))
        if len(set(given)) != len(given) or (len(shares) == len(self._joined) and given != every):
            raise Violation(f"the members of {GROUP} are given {shares}, of queues {every}")
        sizes = [len(each) for each in shares.values()]
        if max(sizes) > min(sizes) + 1:
            raise Violation(f"the members of {GROUP} are given unequal shares: {shares}")

    def _pull(self, number: int) -> None:
        queue_id = self._random.randrange(self._world.topics[TOPIC])
        known = self._world.promises.places.get((TOPIC, queue_id), {})
        begin = self._random.choice([0, len(known) // 2, max(0, len(known) - 5)])
        fields = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": queue_id,
            "queueOffset": begin,
            "maxMsgNums": 8,
            "sysFlag": 0,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subVersion": self._version,
        }
        taken = partial(self._pulled, queue_id, begin, EXPRESSIONS[self._expression])
        self._ask(number, self._random.choice(PULLS), fields, taken)

    def _pulled(self, queue_id: int, begin: int, tags: str, answer: Frame) -> None:
        # A loss of power may have taken what was known of the queue.
        if answer.code not in (*FOUND, ResponseCode.PULL_OFFSET_MOVED):
            raise Violation(f"{GROUP} pulls by the subscription that it has, and gets {answer.code}")
        if answer.code not in FOUND:
            return
        promises, end = self._world.promises, int((answer.ext_fields or {})["nextBeginOffset"])
        records = records_of(answer) if answer.code == ResponseCode.SUCCESS else []
        got = {record.queue_offset: name_of(record.body) for record in records}
        known = promises.places.get((TOPIC, queue_id), {})
        for offset in range(begin, end):
            name = known.get(offset, got.get(offset))
            if name is not None and (offset in got) != (promises.messages[name].tag in tags):
                raise Violation(f"{GROUP}, which wants {tags}, is given {got} from {begin} on, and {offset} is {name}")


def _id(number: int) -> str:
    return f"{Members.name}-{number}"
