"""A broker's membership with its controller: it gets an id, registers, and learns which broker is master.

Source: ReplicasManager. One request is sent at a time. The next one follows from the state, by the table in
`lifecycles`: at once, or a second later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from broker.rocketmq.replication.control.appointments import (
    Appointment,
    InSync,
    read_elected,
    read_in_sync,
    read_registered,
    read_replicas,
)
from broker.rocketmq.replication.lifecycles import MEMBER_TRANSITIONS, MemberEvent, MemberState
from broker.rocketmq.replication.options import ReplicationOptions
from broker.rocketmq.tables.options import BrokerOptions
from formats.errors import FormatError
from formats.rocketmq.files.identity import BrokerIdentity
from formats.rocketmq.remoting.bodies.controllers import SYNC_STATE_SET, SyncStateSet
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers import replicating
from formats.rocketmq.remoting.headers.codec import read_header, write_header
from formats.rocketmq.remoting.headers.routing import BrokerHeartbeatRequest

__all__ = ["Asked", "ControlledMembership", "IdentityFiles", "LogState", "ProposalDone", "Roles"]

log = logging.getLogger("broker.rocketmq.replication")

RETRY_MS: Final = 1_000
# In this time others in sync may be elected instead of a restarted master; see `_may_lead`.
LEAD_AGAIN_MS: Final = 20_000
# An election that no broker requests begins an epoch even if nobody can be elected.
_NOBODY: Final = -1
# Minimum interval between requests that notices cause.
NOTICE_MS: Final = 100
_ID_MAX: Final = (1 << 63) - 1


_FORGOTTEN: Final = (
    ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
    ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
)
# The answers of a controller that has changed nothing.
_REFUSED: Final = frozenset(
    {
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ResponseCode.CONTROLLER_INVALID_MASTER,
        ResponseCode.CONTROLLER_INVALID_REPLICAS,
        ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
        ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
    }
)


# Called with the accepted set, if any, and whether the proposal was refused; with neither, the outcome is unknown.
ProposalDone = Callable[[InSync | None, bool], None]


class LogState(NamedTuple):
    """The last epoch of a log, the last one with records, the log's end, and its confirmed offset."""

    epoch: int
    written: int
    end: int
    confirmed: int


class Asked(Protocol):
    """The controllers; see `controllers.Controllers`."""

    @property
    def has_leader(self) -> bool: ...
    def tell(self, request: Frame) -> None: ...
    def ask(self, request: Frame, now_ms: int, done: Callable[[Frame | None], None]) -> None: ...
    def tick(self, now_ms: int) -> None: ...
    def close(self) -> None: ...


class IdentityFiles(Protocol):
    """The files of a broker's id. Both methods may raise `OSError`."""

    known: BrokerIdentity | None

    def keep(self, identity: BrokerIdentity) -> None:
        """Write an identity; one with a check code is an applicant's."""
        ...

    def forget(self) -> None:
        """Remove an applicant's identity."""
        ...


class Roles(Protocol):
    """The broker's part in its group."""

    @property
    def log_state(self) -> LogState: ...

    def lead(self, epoch: int, in_sync: InSync) -> bool:
        """Become master of an epoch; return False if that is impossible."""
        ...

    def follow(self, appointment: Appointment) -> None: ...

    def appoint(self, in_sync: InSync) -> None:
        """Set the brokers in sync, as master."""
        ...


class ControlledMembership:
    """The life of a broker with a controller; `epoch` is the highest known epoch that has a leader."""

    def __init__(
        self,
        broker: BrokerOptions,
        options: ReplicationOptions,
        controllers: Asked,
        files: IdentityFiles,
        roles: Roles,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        self.state = MemberState.NAMELESS
        self.epoch = 0
        self.broker_id = 0
        self._broker = broker
        self._options = options
        self._controllers = controllers
        self._files = files
        self._roles = roles
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._is_asking = False
        self._next_ms = self._beat_ms = now_ms()
        self._noticed_ms: int | None = None
        # When a broker that may not lead its last epoch requests an election.
        self._waiting_ms: int | None = None
        self._reason = ""
        if files.known is not None:
            self.state = MemberState.APPLYING
            if not files.known.check_code:
                self._take_id(files.known.broker_id)

    def _enter(self, event: MemberEvent) -> None:
        before, self.state = self.state, MEMBER_TRANSITIONS[self.state, event]
        if before is not self.state:
            log.info("%s: this broker %s", event.value, self.state.value)

    def _take_id(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self._enter(MemberEvent.GRANTED)

    # -- requests

    def tick(self) -> None:
        now_ms = self._now_ms()
        self._controllers.tick(now_ms)
        if self._is_registered and now_ms - self._beat_ms >= self._options.beat_ms:
            self._beat()
        if now_ms >= self._next_ms:
            self._ask()

    @property
    def _is_registered(self) -> bool:
        """True if the controllers may count this broker among the candidates."""
        if self._waiting_ms is not None:
            return False
        return self.state in (MemberState.REGISTERED, MemberState.LEADING, MemberState.FOLLOWING)

    def _beat(self) -> None:
        self._beat_ms = self._now_ms()
        state = self._roles.log_state
        header = BrokerHeartbeatRequest(
            self._broker.cluster,
            str(self._broker.address),
            self._broker.name,
            self.broker_id,
            state.epoch,
            state.end,
            state.confirmed,
            self._options.gone_ms,
            self._options.priority,
        )
        self._controllers.tell(Frame(RequestCode.BROKER_HEARTBEAT, 0, ext_fields=write_header(header)))

    def _ask(self) -> None:
        if self._is_asking or not self._controllers.has_leader:
            return
        cluster, name = self._broker.cluster, self._broker.name
        if self.state is MemberState.NAMELESS:
            next_id = replicating.GetNextBrokerIdRequest(cluster, name)
            self._send(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, write_header(next_id), self._take_next_id)
        elif self.state is MemberState.APPLYING:
            known = self._files.known
            assert known is not None
            applied = replicating.ApplyBrokerIdRequest(cluster, name, known.broker_id, known.check_code)
            self._send(RequestCode.CONTROLLER_APPLY_BROKER_ID, write_header(applied), self._take_granted)
        elif self.state is MemberState.NAMED:
            self._register()
        elif self.state is MemberState.REGISTERED and self._waiting_ms is None:
            # A controller elects only brokers with a heartbeat.
            self._beat()
            elected = replicating.ElectMasterRequest(cluster, name, self.broker_id, False, self._wall_ms())
            self._send(RequestCode.CONTROLLER_ELECT_MASTER, write_header(elected), self._take_elected)
        elif self._waiting_ms is not None and self._now_ms() >= self._waiting_ms:
            elected = replicating.ElectMasterRequest(cluster, name, _NOBODY, False, self._wall_ms())
            self._send(RequestCode.CONTROLLER_ELECT_MASTER, write_header(elected), self._take_elected)
        elif self.state is not MemberState.STOPPED:
            self._ask_replicas()

    def _ask_replicas(self) -> None:
        asked = replicating.GetReplicaInfoRequest(self._broker.name)
        self._send(RequestCode.CONTROLLER_GET_REPLICA_INFO, write_header(asked), self._take_replicas)

    def _register(self) -> None:
        header = replicating.RegisterBrokerToControllerRequest(
            self._broker.cluster, self._broker.name, self.broker_id, str(self._broker.address), self._wall_ms()
        )
        self._send(RequestCode.CONTROLLER_REGISTER_BROKER, write_header(header), self._take_registered)

    def _send(self, code: RequestCode, fields: dict[str, str], take: Callable[[Frame], bool]) -> None:
        """Send a request; `take` handles the answer, and returns whether to send the next request at once."""

        def answered(answer: Frame | None) -> None:
            self._is_asking = False
            if self.state is MemberState.STOPPED:
                return
            goes_on = False
            if answer is not None:
                try:
                    goes_on = take(answer)
                    self._reason = ""
                except FormatError as error:
                    self._complain(code, str(error))
                except OSError as error:
                    self._complain(code, f"the broker's id cannot be stored: {error.strerror}")
            settled = self.state in (MemberState.LEADING, MemberState.FOLLOWING)
            pause_ms = self._options.sync_ms if settled and answer is not None else RETRY_MS
            self._next_ms = self._now_ms() + (0 if goes_on else pause_ms)
            if goes_on:
                self._ask()

        self._is_asking = True
        self._controllers.ask(Frame(code, 0, ext_fields=fields), self._now_ms(), answered)

    def _complain(self, code: RequestCode, reason: str) -> None:
        if reason != self._reason:
            self._reason = reason
            log.warning("the controller's answer to %s cannot be taken: %s", code.name, reason)

    # -- answers

    def _check(self, answer: Frame, *codes: ResponseCode) -> None:
        """Raise `FormatError` unless an answer has one of the codes."""
        if answer.code not in codes:
            raise FormatError("Answer.code", 0, f"code {answer.code}, {(answer.remark or '')[:200]!r}")

    def _take_next_id(self, answer: Frame) -> bool:
        self._check(answer, ResponseCode.SUCCESS)
        broker_id = read_header(replicating.GetNextBrokerIdResponse, answer.ext_fields).next_broker_id
        if broker_id is None or not 1 <= broker_id <= _ID_MAX:
            raise FormatError("nextBrokerId", 0, f"{broker_id} cannot be an id")
        code = f"{self._broker.address};{self._wall_ms()}"
        self._files.keep(BrokerIdentity(self._broker.cluster, self._broker.name, broker_id, code))
        self._enter(MemberEvent.OFFERED)
        return True

    def _take_granted(self, answer: Frame) -> bool:
        known = self._files.known
        assert known is not None
        if answer.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
            self._files.forget()
            self._enter(MemberEvent.DENIED)
            return False
        self._check(answer, ResponseCode.SUCCESS)
        self._files.keep(known._replace(check_code=""))
        self._take_id(known.broker_id)
        return True

    def _take_registered(self, answer: Frame) -> bool:
        self._check(answer, ResponseCode.SUCCESS)
        appointment = read_registered(answer)
        if self.state is MemberState.NAMED:
            self._enter(MemberEvent.REGISTERED)
        self.appointed(appointment)
        return self.state is MemberState.REGISTERED and self._waiting_ms is None

    def _take_elected(self, answer: Frame) -> bool:
        if answer.code in _FORGOTTEN:
            self._enter(MemberEvent.FORGOTTEN)
            return True
        if answer.code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE:
            self._ask_replicas()
            return False
        self._check(answer, ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
        self.appointed(read_elected(answer))
        return False

    def _take_replicas(self, answer: Frame) -> bool:
        if answer.code in _FORGOTTEN:
            self._enter(MemberEvent.FORGOTTEN)
            self._register()
            return False
        self._check(answer, ResponseCode.SUCCESS)
        self.appointed(read_replicas(answer))
        return False

    # -- the master

    def notified(self, told: Appointment) -> None:
        """Ask the controllers at once whether they have elected another master.

        Any process can send a notice; only the answers of the configured controllers count.
        """
        now_ms = self._now_ms()
        is_news = told.epoch > self.epoch or (told.epoch == self.epoch and self.state is MemberState.LEADING)
        if not is_news or self.state not in (MemberState.REGISTERED, MemberState.LEADING, MemberState.FOLLOWING):
            return
        if self._noticed_ms is None or now_ms - self._noticed_ms >= NOTICE_MS:
            self._noticed_ms = now_ms
            self._next_ms = now_ms
            self._ask()

    def appointed(self, appointment: Appointment) -> None:
        """Handle a controller's appointment, unless it is older than the known one."""
        if self.state not in (MemberState.REGISTERED, MemberState.LEADING, MemberState.FOLLOWING):
            return
        if appointment.master_id is None:
            if appointment.epoch > self.epoch:
                # The controller decides which broker may be elected.
                self._waiting_ms = None
                self._elect()
        elif appointment.epoch > self.epoch:
            self._obey(appointment)
        elif appointment.epoch == self.epoch and self.state is MemberState.LEADING:
            self._roles.appoint(appointment.in_sync)

    def _elect(self) -> None:
        """Request an election; this broker keeps its role until then."""
        if self._is_asking or self.state is MemberState.REGISTERED:
            return
        self._beat()
        header = replicating.ElectMasterRequest(
            self._broker.cluster, self._broker.name, self.broker_id, False, self._wall_ms()
        )
        self._send(RequestCode.CONTROLLER_ELECT_MASTER, write_header(header), self._take_elected)

    def _obey(self, appointment: Appointment) -> None:
        written = self._roles.log_state.written
        if appointment.epoch < written:
            reason = f"it says that epoch {appointment.epoch} is led, and this log has records of epoch {written}"
            self._complain(RequestCode.CONTROLLER_GET_REPLICA_INFO, reason)
        elif appointment.master_id != self.broker_id:
            self._waiting_ms = None
            self.epoch = appointment.epoch
            self._enter(MemberEvent.LED)
            self._roles.follow(appointment)
        elif self._may_lead(appointment) and self._roles.lead(appointment.epoch, appointment.in_sync):
            self._waiting_ms = None
            self.epoch = appointment.epoch
            self._enter(MemberEvent.APPOINTED)

    def _may_lead(self, appointment: Appointment) -> bool:
        """Return whether this broker may write to an epoch: not if an earlier process has noted the epoch.

        A loss of power may have taken records of that epoch that a slave has, and other records at their offsets would
        pass for the same. The broker sends the controllers no heartbeat until another epoch has begun. The log alone
        does not show this: it may have lost all records of the epoch.
        """
        if appointment.epoch > self._roles.log_state.epoch:
            return True
        if self._waiting_ms is None:
            pause_ms = 0 if appointment.in_sync.members == {self.broker_id} else LEAD_AGAIN_MS
            self._waiting_ms = self._now_ms() + pause_ms
            log.warning(
                "this broker was master of epoch %d before it was started: it requests an election in %d s",
                appointment.epoch,
                pause_ms // 1000,
            )
        return False

    def propose(self, members: frozenset[int], set_epoch: int, done: ProposalDone) -> None:
        header = replicating.AlterSyncStateSetRequest(self._broker.name, self.broker_id, self.epoch, self._wall_ms())
        body = SYNC_STATE_SET.write(SyncStateSet(sorted(members), set_epoch))
        frame = Frame(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, 0, ext_fields=write_header(header), body=body)
        self._controllers.ask(frame, self._now_ms(), lambda answer: self._proposed(done, answer))

    def _proposed(self, done: ProposalDone, answer: Frame | None) -> None:
        taken = None
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            try:
                taken = read_in_sync(answer)
            except FormatError as error:
                self._complain(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, str(error))
        elif answer is not None:
            log.info("the controller refuses another set of brokers in sync: %s", answer.remark)
            # The set, or the master, may be another one.
            self._next_ms = min(self._next_ms, self._now_ms() + RETRY_MS)
        done(taken, answer is not None and answer.code in _REFUSED)

    def stop(self) -> None:
        if self.state is not MemberState.STOPPED:
            self._enter(MemberEvent.STOP)
            self._controllers.close()
