"""A broker of a world in controller mode, as Apache's behaves (source: ReplicasManager), with a log of words.

A master takes a word for confirmed when all have it that may be in sync: those of whom the controller has told it, and
those whom it has proposed, as long as the controller may take the proposal.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple, Protocol

from formats.rocketmq.codes import RequestCode, ResponseCode
from formats.rocketmq.controller_bodies import ELECTED_BODY, SYNC_STATE_SET, SyncStateSet
from formats.rocketmq.frame import Frame, FrameFlag, encode_frame, next_frame
from formats.rocketmq.headers import replicating as headers
from formats.rocketmq.headers.codec import HeaderCodec

__all__ = ["Broker", "BrokerWorld", "Link", "Word"]

CLUSTER = "cluster"
CALL_MS = 3_000
BEAT_MS = 1_000
ASK_MS = 2_000
RETRY_MS = 700
BEHIND_MS = 2_500

Code = RequestCode
_METADATA = HeaderCodec(headers.GetControllerMetadataResponse)
_NEXT = HeaderCodec(headers.GetNextBrokerIdResponse)
_REGISTERED = HeaderCodec(headers.RegisterBrokerToControllerResponse)
_ELECTED = HeaderCodec(headers.ElectMasterResponse)
_INFO = HeaderCodec(headers.GetReplicaInfoResponse)
_CHANGED = HeaderCodec(headers.NotifyBrokerRoleChangedRequest)

Done = Callable[[Frame | None], None]


class Word(NamedTuple):
    """A record of a log."""

    epoch: int
    number: int


class BrokerWorld(Protocol):
    """The surroundings of brokers."""

    random: Random
    now_ms: int

    def connect_to(self, broker: Broker, controller: str) -> None: ...

    def mastered(self, broker: Broker, master: int, epoch: int) -> None:
        """Note that a broker was told that this one is master in an epoch."""
        ...

    def leads(self, broker: Broker) -> None:
        """Note that a broker begins to lead."""
        ...

    def has_id(self, broker: Broker) -> None:
        """Note that a broker was given its id."""
        ...


class Link:
    """A broker's end of a connection: it asks by it, or is told something by a controller. See `network.End`."""

    def __init__(self, broker: Broker, controller: str = "") -> None:
        self.broker = broker
        self.controller = controller
        self.finished = False
        self._output = bytearray()
        self._opaque = 0
        self._asked: dict[int, tuple[int, Done]] = {}

    def ask(self, code: int, body: bytes, fields: dict[str, Any], done: Done | None = None) -> None:
        """Send a request; without `done` it wants no answer."""
        self._opaque += 1
        told = {name: str(value) for name, value in fields.items()}
        flag = FrameFlag.ONE_WAY if done is None else 0
        if done is not None:
            self._asked[self._opaque] = (self.broker.world.now_ms + CALL_MS, done)
        self._output += encode_frame(Frame(code, self._opaque, flag, None, told, body, version=493))

    def receive(self, data: memoryview) -> int:
        at = 0
        while not self.finished and (found := next_frame(data, at, len(data))) is not None:
            frame, at = found
            if not frame.is_response:
                self.broker.told(frame)
            elif frame.opaque in self._asked:
                self._asked.pop(frame.opaque)[1](frame)
        return at

    def take_output(self) -> bytearray:
        output, self._output = self._output, bytearray()
        return output

    def tick(self, now_ms: int) -> None:
        for opaque in [opaque for opaque, (until_ms, _) in self._asked.items() if until_ms <= now_ms]:
            self._asked.pop(opaque)[1](None)

    def end(self) -> None:
        self.finished = True
        asked, self._asked = self._asked, {}
        if self.broker.links.get(self.controller) is self:
            del self.broker.links[self.controller]
        for _, done in asked.values():
            done(None)


class Broker:
    """A broker. On its disk are the id that it was given and its log."""

    def __init__(self, world: BrokerWorld, name: str, number: int, controllers: tuple[str, ...]) -> None:
        self.world = world
        self.name = name
        self.key = f"{name}-{number}"
        self.address = f"10.1.{number}.{len(name)}:10911"
        self.controllers = controllers
        self.broker_id: int | None = None
        self._applied_id: int | None = None
        self.log: list[Word] = []
        self.is_up = False
        self.is_paused = False
        self.links: dict[str, Link] = {}

    # -- lives

    def start(self) -> None:
        """Begin, with what the disk has."""
        self.is_up, self.is_paused = True, False
        self.links = {}
        self.leader: str | None = None
        self.is_registered = False
        self.is_asking = False
        self.master: int | None = None
        self.master_epoch = 0
        self.members: frozenset[int] = frozenset()
        self.members_epoch = 0
        # What was proposed, by the number of the set that it was to follow.
        self.proposed: list[tuple[int, frozenset[int]]] = []
        self.is_proposing = False
        # By slave: how many words it has of this master's, and when it had all of them.
        self.copied: dict[int, int] = {}
        self.current_ms: dict[int, int] = {}
        # The master with whose log this one's was made to agree, and in which epoch.
        self.agreed: tuple[int, int] | None = None
        self._due_ms = self._beat_ms = self._led_ms = self.world.now_ms

    def kill(self) -> None:
        """End at once."""
        self.is_up = False
        self.links = {}

    @property
    def is_awake(self) -> bool:
        return self.is_up and not self.is_paused

    @property
    def is_master(self) -> bool:
        """Return whether it believes to be master."""
        return self.is_up and self.broker_id is not None and self.master == self.broker_id

    def follows(self, master: Broker) -> bool:
        """Return whether it follows this master, in the same epoch."""
        if not self.is_awake or self is master or self.name != master.name:
            return False
        return (self.master, self.master_epoch) == (master.broker_id, master.master_epoch)

    # -- what it asks

    def tick(self) -> None:
        """Connect where it is not connected, and do what is next."""
        now_ms, random = self.world.now_ms, self.world.random
        for link in list(self.links.values()):
            link.tick(now_ms)
        if now_ms >= self._beat_ms:
            self._beat_ms = now_ms + BEAT_MS
            for controller in self.controllers:
                if controller not in self.links:
                    self.world.connect_to(self, controller)
            self._beat()
        if now_ms >= self._due_ms and not self.is_asking:
            self._due_ms = now_ms + random.choice((RETRY_MS, ASK_MS) if not self.is_registered else (ASK_MS,))
            self._ask_next()
        if self.is_master:
            self._look_at_copies()

    def _beat(self) -> None:
        if self.broker_id is None or not self.is_registered:
            return
        fields = {
            "clusterName": CLUSTER,
            "brokerName": self.name,
            "brokerAddr": self.address,
            "brokerId": self.broker_id,
            "epoch": self.log[-1].epoch if self.log else -1,
            "maxOffset": len(self.log),
            "heartbeatTimeoutMills": 5_000,
        }
        for link in self.links.values():
            link.ask(Code.BROKER_HEARTBEAT, b"", fields)

    def _ask_next(self) -> None:
        fields: dict[str, Any] = {"clusterName": CLUSTER, "brokerName": self.name}
        if self.leader is None or self.leader not in self.links:
            self._ask_anybody()
        elif self.broker_id is None and self._applied_id is None:
            self._ask(Code.CONTROLLER_GET_NEXT_BROKER_ID, fields, self._take_next)
        elif self.broker_id is None:
            fields |= {"appliedBrokerId": self._applied_id, "registerCheckCode": f"{self.address};{self.key}"}
            self._ask(Code.CONTROLLER_APPLY_BROKER_ID, fields, self._take_id)
        elif not self.is_registered:
            fields |= {"brokerId": self.broker_id, "brokerAddress": self.address}
            self._ask(Code.CONTROLLER_REGISTER_BROKER, fields, self._take_registered)
        elif self.master is None:
            self._elect()
        else:
            self._ask(Code.CONTROLLER_GET_REPLICA_INFO, {"brokerName": self.name}, self._take_info)

    def _ask_anybody(self) -> None:
        if self.links:
            link = self.links[self.world.random.choice(sorted(self.links))]
            self.is_asking = True
            link.ask(Code.CONTROLLER_GET_METADATA_INFO, b"", {}, self._answered(self._take_leader))

    def _ask(self, code: int, fields: dict[str, Any], done: Done, body: bytes = b"") -> None:
        """Ask the leader."""
        assert self.leader is not None
        self.is_asking = True
        self.links[self.leader].ask(code, body, fields, self._answered(done))

    def _answered(self, done: Done) -> Done:
        def answered(frame: Frame | None) -> None:
            self.is_asking = False
            if frame is None or frame.code == ResponseCode.CONTROLLER_NOT_LEADER:
                self.leader = None
            done(frame)

        return answered

    def _elect(self) -> None:
        fields = {"clusterName": CLUSTER, "brokerName": self.name, "brokerId": self.broker_id}
        self._ask(Code.CONTROLLER_ELECT_MASTER, {**fields, "designateElect": "false"}, self._take_elected)

    # -- what it is answered

    def _take_leader(self, frame: Frame | None) -> None:
        if frame is not None and frame.code == 0:
            self.leader = _METADATA.read(frame.ext_fields).controller_leader_id

    def _take_next(self, frame: Frame | None) -> None:
        if frame is not None and frame.code == 0:
            self._applied_id = _NEXT.read(frame.ext_fields).next_broker_id

    def _take_id(self, frame: Frame | None) -> None:
        if frame is None:
            return
        if frame.code == 0:
            self.broker_id = self._applied_id
            self.world.has_id(self)
        elif frame.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
            self._applied_id = None

    def _take_registered(self, frame: Frame | None) -> None:
        if frame is None or frame.code:
            return
        self.is_registered = True
        self._beat()
        header = _REGISTERED.read(frame.ext_fields)
        found = SYNC_STATE_SET.read(frame.body)
        self._change(header.master_broker_id, header.master_epoch, found)

    def _take_elected(self, frame: Frame | None) -> None:
        if frame is not None and frame.code in (0, ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
            header, body = _ELECTED.read(frame.ext_fields), ELECTED_BODY.read(frame.body)
            members = SyncStateSet(body.sync_state_set, header.sync_state_set_epoch or 0)
            self._change(header.master_broker_id, header.master_epoch, members)

    def _take_info(self, frame: Frame | None) -> None:
        if frame is None or frame.code:
            return
        header, found = _INFO.read(frame.ext_fields), SYNC_STATE_SET.read(frame.body)
        epoch = header.master_epoch or 0
        if epoch > self.master_epoch and header.master_broker_id is None:
            self._elect()
        elif epoch > self.master_epoch:
            self._change(header.master_broker_id, epoch, found)
        elif epoch == self.master_epoch and self.is_master:
            self._set_members(found)

    def told(self, frame: Frame) -> None:
        """Take a controller's word."""
        if frame.code == Code.NOTIFY_BROKER_ROLE_CHANGED and self.is_registered:
            header, found = _CHANGED.read(frame.ext_fields), SYNC_STATE_SET.read(frame.body)
            self._change(header.master_broker_id, header.master_epoch, found)

    def _change(self, master: int | None, epoch: int | None, members: SyncStateSet) -> None:
        if master is None or epoch is None:
            return
        self.world.mastered(self, master, epoch)
        if epoch <= self.master_epoch:
            return
        self.master, self.master_epoch = master, epoch
        self.copied, self.current_ms, self.proposed = {}, {}, []
        self.is_proposing = False
        self.members_epoch = 0
        if master == self.broker_id:
            self._led_ms = self.world.now_ms
            self._set_members(members)
            self.world.leads(self)

    def _set_members(self, found: SyncStateSet) -> None:
        if found.sync_state_set_epoch > self.members_epoch:
            self.members, self.members_epoch = frozenset(found.sync_state_set), found.sync_state_set_epoch
            self.proposed = [each for each in self.proposed if each[0] >= self.members_epoch]

    # -- a master's work

    def required(self) -> frozenset[int]:
        """Find who has to have a word before it is confirmed."""
        return self.members.union(*(members for _, members in self.proposed))

    def confirmed(self) -> int:
        """Count the words that all have who have to."""
        others = self.required() - {self.broker_id or 0}
        return min((self.copied.get(each, 0) for each in others), default=len(self.log))

    def _look_at_copies(self) -> None:
        """Propose a set with those who have everything, and without those who have been behind for long."""
        if self.is_proposing or self.leader is None or self.leader not in self.links:
            return
        now_ms, confirmed = self.world.now_ms, self.confirmed()
        come = {each for each, count in self.copied.items() if count >= confirmed and each not in self.members}
        behind = {
            each
            for each in self.members - {self.broker_id or 0}
            if now_ms - self.current_ms.get(each, self._led_ms) > BEHIND_MS
        }
        come = {each for each in come if now_ms - self.current_ms.get(each, 0) < BEHIND_MS}
        if not come and not behind:
            return
        wanted = (self.members | come) - behind
        self.proposed.append((self.members_epoch, wanted))
        self.is_proposing = True
        epoch, fields = self.master_epoch, {"brokerName": self.name, "masterBrokerId": self.broker_id}
        body = SYNC_STATE_SET.write(SyncStateSet(sorted(wanted), self.members_epoch))

        def done(frame: Frame | None) -> None:
            if self.master_epoch == epoch and self.is_master:
                self.is_proposing = False
                if frame is not None and frame.code == 0:
                    self._set_members(SYNC_STATE_SET.read(frame.body))

        code = Code.CONTROLLER_ALTER_SYNC_STATE_SET
        self.links[self.leader].ask(code, body, {**fields, "masterEpoch": epoch}, self._answered(done))

    def copy(self, slave: Broker, most: int) -> None:
        """Let a slave take some words of this master's."""
        assert slave.broker_id is not None
        key = (self.broker_id or 0, self.master_epoch)
        if slave.agreed != key:
            same = 0
            for mine, other in zip(self.log, slave.log, strict=False):
                if mine != other:
                    break
                same += 1
            del slave.log[same:]
            slave.agreed = key
        slave.log += self.log[len(slave.log) : len(slave.log) + most]
        self.copied[slave.broker_id] = len(slave.log)
        if len(slave.log) == len(self.log):
            self.current_ms[slave.broker_id] = self.world.now_ms
