"""A controller behind its connections: its requests, and its elections.

Brokers send heartbeats to all controllers. The leader elects a master when the old one's connection is closed or it
falls silent, and when the state has a name with live brokers but no master.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from broker.rocketmq.access.guard import AccessDenied, Guard
from broker.rocketmq.controller.admission import ControllerAdmission
from broker.rocketmq.controller.commands import GroupMachine, encode_command
from broker.rocketmq.controller.decisions import ANYBODY, Decision, Decisions
from broker.rocketmq.controller.groups import Groups
from broker.rocketmq.controller.liveness import LAST_PRIORITY, TIMEOUT_MS, BrokerKey, Live, Liveness
from broker.rocketmq.controller.options import ControllerOptions
from broker.rocketmq.raft.journal import GrowingFile, Journal
from broker.rocketmq.raft.raft import NotLeading, Raft, Times
from broker.rocketmq.remoting.administrators import Administrators
from broker.rocketmq.remoting.broker_calls import BrokerCalls
from broker.rocketmq.remoting.outgoing import Outgoing
from broker.rocketmq.remoting.peers import KnownPeers
from broker.rocketmq.remoting.session import Session
from broker.rocketmq.settings import SettingRefused, Settings
from formats.errors import FormatError
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.controllers import SYNC_STATE_SET, SyncStateSet
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers import replicating as headers
from formats.rocketmq.remoting.headers.codec import read_header, write_header
from formats.rocketmq.remoting.headers.routing import BrokerHeartbeatRequest
from formats.rocketmq.remoting.headers.table import HEADERS
from formats.rocketmq.remoting.raft import CODE, RAFT_HEADER, Message, RaftHeader, encode_message, read_message

__all__ = ["ControllerService", "ControllerWorld"]

log = logging.getLogger("broker.rocketmq.controller")

# The longest time-out of heartbeats that a broker may state.
TIMEOUT_MS_MAX: Final = 600_000

WAITING_MAX: Final = 1_024
NOT_LEADER: Final = Decision(code=ResponseCode.CONTROLLER_NOT_LEADER, remark="The controller is not in leader state")
_BUSY: Final = Decision(code=ResponseCode.SYSTEM_BUSY, remark="too many requests wait for this controller")

Decide = Callable[[], Decision]
Done = Callable[[Decision], None]


class _Waiting(NamedTuple):
    decide: Decide
    done: Done


class _Proposed(NamedTuple):
    """A decision whose command is an entry of the log, in a term that this controller leads."""

    position: int
    term: int
    decision: Decision
    done: Done


class Turns:
    """The requests that wait, and the one whose command is not agreed yet.

    Each is decided once the command of the one before is applied, so that its command meets the state that it was
    decided about, at every controller. The leader alone sends the answer, after the command is applied; others, a
    former leader included, answer with an error.
    """

    def __init__(self, raft: Raft) -> None:
        self._raft = raft
        self._waiting: deque[_Waiting] = deque()
        self._proposed: _Proposed | None = None

    def ask(self, decide: Decide, done: Done, now_ms: int) -> None:
        """Queue a request; `done` gets the decision, perhaps at once."""
        if not self._raft.is_leader:
            done(NOT_LEADER)
        elif len(self._waiting) >= WAITING_MAX:
            done(_BUSY)
        else:
            self._waiting.append(_Waiting(decide, done))
            self.go_on(now_ms)

    def go_on(self, now_ms: int) -> None:
        self._settle()
        while self._waiting and self._proposed is None and self._raft.is_sure(now_ms):
            self._decide(self._waiting.popleft(), now_ms)
            self._settle()

    def _settle(self) -> None:
        raft, proposed = self._raft, self._proposed
        if proposed is not None:
            if not raft.is_leader or raft.term != proposed.term:
                self._proposed = None
                proposed.done(NOT_LEADER)
            elif raft.applied >= proposed.position:
                self._proposed = None
                proposed.done(proposed.decision)
        if not raft.is_leader:
            waiting, self._waiting = self._waiting, deque()
            for each in waiting:
                each.done(NOT_LEADER)

    def _decide(self, waiting: _Waiting, now_ms: int) -> None:
        decision = waiting.decide()
        if decision.command is None:
            waiting.done(decision)
            return
        try:
            position = self._raft.propose(encode_command(decision.command), now_ms)
        except NotLeading:
            waiting.done(NOT_LEADER)
        except OSError as error:
            text = f"the change cannot be stored: {error}"
            waiting.done(Decision(code=ResponseCode.SYSTEM_ERROR, remark=text))
        else:
            self._proposed = _Proposed(position, self._raft.term, decision, waiting.done)


class ControllerWorld(NamedTuple):
    """The environment: the signer of frames to others, random numbers below one, and a clock.

    `peers` recognizes the nodes that connect, and `administrators` the hosts of administrators.
    """

    seal: Callable[[Frame], Frame]
    random_below: Callable[[int], int]
    now_ms: Callable[[], int]
    times: Times | None = None
    peers: KnownPeers | None = None
    administrators: Administrators | None = None


class ControllerService:
    """A controller; see `remoting.session.Service` and `node.Part`.

    `links` are those to the other controllers. Raises `JournalDamaged` and `OSError` if the log cannot be read from
    `file`.
    """

    def __init__(
        self,
        options: ControllerOptions,
        file: GrowingFile,
        settings: Settings,
        guard: Guard,
        links: dict[str, Outgoing],
        calls: BrokerCalls,
        world: ControllerWorld,
    ) -> None:
        self._options = options
        self._settings = settings
        self._links = links
        self._calls = calls
        self._seal = world.seal
        self._now_ms = world.now_ms
        self._notifies = options.notifies
        # Why another controller's message, or a heartbeat, was refused last.
        self._refusal = ""
        self._scan_silent_ms, self._scan_masters_ms = options.scan_silent_ms, options.scan_masters_ms
        now = world.now_ms()
        self._silent_scanned_ms = self._masters_scanned_ms = now
        # The term in which this controller, as the leader, has looked for names without a master.
        self._scanned_term: int | None = None
        self.groups = Groups()
        self.liveness = Liveness(now)
        self._decisions = Decisions(self.groups, self._find_live, unclean=options.unclean, unheard=self._is_unheard)
        self._admission = ControllerAdmission(
            options, self.groups, self._find_live, guard, world.peers, world.administrators
        )
        machine = GroupMachine(self.groups)
        journal = Journal.open(file, machine.check, machine.check_state)
        send, draw = self._send_raft, world.random_below
        self.raft = Raft(options.self_id, links, journal, machine, send, draw, now, world.times)
        self._turns = Turns(self.raft)
        self._handlers: dict[int, Callable[[Frame, Session], Frame]] = {
            RequestCode.CONTROLLER_GET_METADATA_INFO: self._get_metadata,
            RequestCode.BROKER_HEARTBEAT: self._hear,
            RequestCode.GET_CONTROLLER_CONFIG: self._get_config,
            RequestCode.UPDATE_CONTROLLER_CONFIG: self._update_config,
            CODE: self._take_raft,
        }
        self._follow_settings(settings)

    @property
    def lacks(self) -> str | None:
        """The reason not to answer brokers, in one line, if any."""
        return None if self.raft.known_leader is not None else "no controller of the group leads"

    def live(self) -> list[BrokerKey]:
        return self.liveness.live(self._now_ms())

    def _follow_settings(self, settings: Settings) -> None:
        settings.on_change("enableElectUncleanMaster", self._permit_unclean)
        settings.on_change("notifyBrokerRoleChanged", self._set_notifies)
        settings.on_change("scanNotActiveBrokerInterval", self._set_scan_silent)
        settings.on_change("scanInactiveMasterInterval", self._set_scan_masters)

    def _permit_unclean(self, value: bool) -> None:
        self._decisions.unclean = value

    def _set_notifies(self, value: bool) -> None:
        self._notifies = value

    def _set_scan_silent(self, value: int) -> None:
        self._scan_silent_ms = value

    def _set_scan_masters(self, value: int) -> None:
        self._scan_masters_ms = value

    def _find_live(self, name: str, broker_id: int) -> Live | None:
        return self.liveness.get(BrokerKey(name, broker_id), self._now_ms())

    def _is_unheard(self, name: str, broker_id: int) -> bool:
        return self.liveness.is_unheard(BrokerKey(name, broker_id), self._now_ms())

    # -- requests

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        return at

    def receive(self, frame: Frame, session: Session) -> None:
        """Answer a request, at once or when its decision is agreed."""
        if frame.is_response or self._admission.take(frame, session):
            return
        try:
            self._admission.check(frame, session)
            self._take(frame, session)
        except AccessDenied as denied:
            session.doubt()
            self._note_refusal(frame, session, str(denied))
            session.answer(frame, Frame(ResponseCode.NO_PERMISSION, 0, remark=str(denied)))
        except FormatError as error:
            self._note_refusal(frame, session, str(error))
            session.answer(frame, Frame(ResponseCode.SYSTEM_ERROR, 0, remark=str(error)))
        except SettingRefused as refused:
            session.answer(frame, Frame(refused.code, 0, remark=refused.text))
        except OSError as error:
            text = f"the change cannot be stored: {error}"
            session.answer(frame, Frame(ResponseCode.SYSTEM_ERROR, 0, remark=text))

    def _note_refusal(self, frame: Frame, session: Session, text: str) -> None:
        """Log why a request is refused; for repeated messages of controllers, which get no answers, only once."""
        if frame.code not in (CODE, RequestCode.BROKER_HEARTBEAT):
            log.info("%s: request %d is refused: %s", session.description, frame.code, text)
        elif text != self._refusal:
            self._refusal = text
            who = "a controller" if frame.code == CODE else "a broker"
            log.warning("%s: what %s says is refused: %s", session.description, who, text)

    def _take(self, frame: Frame, session: Session) -> None:
        handler = self._handlers.get(frame.code)
        if handler is not None:
            session.answer(frame, handler(frame, session))
            return
        decide = decider(self._decisions, frame)
        if decide is None:
            text = f" request type {frame.code} not supported"
            session.answer(frame, Frame(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 0, remark=text))
            return
        # The body is valid during this call only, and the answer may be later.
        asked, name = frame.bare, (frame.ext_fields or {}).get("brokerName", "")

        refuse = self._admission.admit(frame, session)

        def decide_if_admitted() -> Decision:
            refusal = refuse()
            if refusal is None:
                return decide()
            self._note_refusal(asked, session, refusal)
            return Decision(code=ResponseCode.NO_PERMISSION, remark=refusal)

        def done(decision: Decision) -> None:
            self._answer(asked, name, session, decision)

        self._turns.ask(decide_if_admitted, done, self._now_ms())

    def _answer(self, asked: Frame, name: str, session: Session, decision: Decision) -> None:
        session.answer(asked, answer_frame(asked.code, decision))
        if asked.code == RequestCode.CONTROLLER_ELECT_MASTER:
            self._elected(name, decision)

    def _hear(self, request: Frame, session: Session) -> Frame:
        header = read_header(BrokerHeartbeatRequest, request.ext_fields)
        if header.broker_id is None:
            return Frame(ResponseCode.CONTROLLER_INVALID_REQUEST, 0, remark="Heart beat with empty brokerId")
        group = self.groups.by_name.get(header.broker_name)
        # Only heartbeats of registered brokers count, which bounds their number.
        if group is not None and header.broker_id in group.replicas:
            refusal = self._admission.refuse_beat(header, session)
            if refusal is not None:
                self._note_refusal(request, session, refusal)
                return Frame(ResponseCode.NO_PERMISSION, 0, remark=refusal)
            live = Live(
                self._now_ms(),
                min(max(1, header.heartbeat_timeout_ms or TIMEOUT_MS), TIMEOUT_MS_MAX),
                -1 if header.epoch is None else header.epoch,
                -1 if header.max_offset is None else header.max_offset,
                LAST_PRIORITY if header.election_priority is None else header.election_priority,
                session,
            )
            self.liveness.hear(BrokerKey(header.broker_name, header.broker_id), live)
        return Frame(ResponseCode.SUCCESS, 0, remark="Heart beat success")

    def _get_metadata(self, request: Frame, session: Session) -> Frame:
        options, leader = self._options, self.raft.known_leader
        header = headers.GetControllerMetadataResponse(
            options.group,
            leader,
            None if leader is None else options.peers[leader],
            leader == options.self_id,
            options.peer_text,
        )
        return Frame(ResponseCode.SUCCESS, 0, ext_fields=write_header(header))

    def _get_config(self, request: Frame, session: Session) -> Frame:
        return Frame(ResponseCode.SUCCESS, 0, body=self._settings.text())

    def _update_config(self, request: Frame, session: Session) -> Frame:
        refusal = self._admission.admit(request, session)()
        if refusal is not None:
            self._note_refusal(request, session, refusal)
            return Frame(ResponseCode.NO_PERMISSION, 0, remark=refusal)
        self._settings.change(bytes(request.body), str(session.host))
        return Frame(ResponseCode.SUCCESS, 0)

    # -- the other controllers

    def _take_raft(self, request: Frame, session: Session) -> Frame:
        header = RAFT_HEADER.read(request.ext_fields)
        if (header.group, header.receiver) != (self._options.group, self._options.self_id):
            text = f"this is {self._options.self_id} of {self._options.group}, not {header.receiver} of {header.group}"
            raise FormatError("RaftHeader", 0, text[:200])
        refusal = self._admission.refuse_controller(header.sender, session)
        if refusal is not None:
            raise FormatError("RaftHeader", 0, refusal)
        now_ms = self._now_ms()
        self.raft.receive(header.sender, read_message(header.kind, request.body), now_ms)
        self._turns.go_on(now_ms)
        return Frame(ResponseCode.SUCCESS, 0)

    def _send_raft(self, receiver: str, message: Message) -> None:
        kind, body = encode_message(message)
        header = RaftHeader(self._options.group, self._options.self_id, receiver, kind)
        frame = Frame(CODE, 0, ext_fields=RAFT_HEADER.write(header), body=body)
        self._links[receiver].tell(self._seal(frame))

    # -- elections

    def disconnected(self, session: Session) -> None:
        """Take the brokers of a connection for dead, and elect others if they were masters."""
        self._admission.disconnected(session)
        self._lost(self.liveness.lost(session))

    def _lost(self, keys: list[BrokerKey]) -> None:
        for key in keys:
            log.warning("broker %d of %s is gone", key.broker_id, key.name)
            group = self.groups.by_name.get(key.name)
            if group is not None and group.master == key.broker_id and self.raft.is_leader:
                self._elect(key.name)

    def _elect(self, name: str) -> None:
        asked = headers.ElectMasterRequest("", name, ANYBODY, designate_elect=False)

        def decide() -> Decision:
            group = self.groups.by_name.get(name)
            if group is None or group.master is None or self._find_live(name, group.master) is not None:
                return Decision(code=ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
            return self._decisions.elect(asked)

        self._turns.ask(decide, lambda decision: self._elected(name, decision), self._now_ms())

    def _elected(self, name: str, decision: Decision) -> None:
        header: Any = decision.header
        if decision.command is None:
            return
        if not isinstance(header, headers.ElectMasterResponse) or decision.code != ResponseCode.SUCCESS:
            log.warning("%s has no master: no broker that may be elected is alive", name)
            return
        log.info("broker %s of %s is elected, epoch %s", header.master_broker_id, name, header.master_epoch)
        group = self.groups.by_name.get(name)
        if group is None or not self._notifies:
            return
        told = headers.NotifyBrokerRoleChangedRequest(
            header.master_address, header.master_epoch, header.sync_state_set_epoch, header.master_broker_id
        )
        body = SYNC_STATE_SET.write(SyncStateSet(sorted(group.members), group.members_epoch))
        frame = Frame(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, 0, ext_fields=write_header(told), body=body)
        for broker_id, replica in group.replicas.items():
            if self._find_live(name, broker_id) is not None:
                self._calls.tell(replica.address, self._seal(frame), self._now_ms())

    # -- see `node.Part`

    def end_step(self) -> bool:
        return False

    def tick(self) -> None:
        now_ms = self._now_ms()
        for link in self._links.values():
            link.tick(now_ms)
        self._calls.tick(now_ms)
        self.raft.tick(now_ms)
        self._turns.go_on(now_ms)
        if now_ms - self._silent_scanned_ms >= self._scan_silent_ms:
            self._silent_scanned_ms = now_ms
            self._lost(self.liveness.expire(now_ms))
        # A master may have failed together with the previous leader.
        is_new = self._scanned_term != self.raft.term and self.raft.is_sure(now_ms)
        if is_new or now_ms - self._masters_scanned_ms >= self._scan_masters_ms:
            self._masters_scanned_ms = now_ms
            if self.raft.is_leader:
                self._scanned_term = self.raft.term if is_new else self._scanned_term
                for name in self._decisions.without_master():
                    self._elect(name)

    def leave(self) -> None:
        """Do nothing: others see that the connections are closed."""


# The texts of failures are the original's (ControllerRequestProcessor): brokers log them, administrators see them.
NAMES_MAX: Final = 10_000


def _alter(decisions: Decisions, header: Any, request: Frame) -> Callable[[], Decision]:
    wanted = SYNC_STATE_SET.read(request.body)
    return lambda: decisions.alter_members(header, wanted)


def _sync_state(decisions: Decisions, header: Any, request: Frame) -> Callable[[], Decision]:
    try:
        text = str(request.body, "utf-8")
    except UnicodeDecodeError as error:
        raise FormatError("names", error.start, "is not UTF-8") from None
    names = fastjson.loads(text) if text else []
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise FormatError("names", 0, "is no list of names")
    if len(names) > NAMES_MAX:
        raise FormatError("names", 0, f"has {len(names)}, more than {NAMES_MAX}")
    return lambda: decisions.sync_state(dict.fromkeys(names))


_WAYS: Final[dict[int, Callable[[Decisions, Any, Frame], Callable[[], Decision]]]] = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: _alter,
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: _sync_state,
    RequestCode.CONTROLLER_ELECT_MASTER: lambda decisions, header, _: lambda: decisions.elect(header),
    RequestCode.CONTROLLER_REGISTER_BROKER: lambda decisions, header, _: lambda: decisions.register(header),
    RequestCode.CONTROLLER_GET_REPLICA_INFO: lambda decisions, header, _: lambda: decisions.replica_info(header),
    RequestCode.CLEAN_BROKER_DATA: lambda decisions, header, _: lambda: decisions.clean(header),
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: lambda decisions, header, _: lambda: decisions.next_id(header),
    RequestCode.CONTROLLER_APPLY_BROKER_ID: lambda decisions, header, _: lambda: decisions.apply_id(header),
}


def decider(decisions: Decisions, request: Frame) -> Callable[[], Decision] | None:
    """Read a request; return the function that decides about it, or None for another kind. Raises `FormatError`.

    The request's body is no longer needed.
    """
    way = _WAYS.get(request.code)
    if way is None:
        return None
    codecs = HEADERS.get(request.code)
    header = codecs.request.read(request.ext_fields) if codecs is not None and codecs.request is not None else None
    return way(decisions, header, request)


def answer_frame(request_code: int, decision: Decision) -> Frame:
    codecs = HEADERS.get(request_code)
    fields = None
    if decision.header is not None and codecs is not None and codecs.response is not None:
        fields = codecs.response.write(decision.header)
    code = ResponseCode(decision.code)
    return Frame(code, 0, remark=decision.remark, ext_fields=fields, body=decision.body)
