"""The answers of a controller to brokers and administrators, and the commands that they need.

Source: ReplicasInfoManager. Nothing is changed here: an answer holds once its command is agreed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from broker.rocketmq.controller.election import choose_master
from broker.rocketmq.controller.groups import (
    FIRST_ID,
    ApplyId,
    CleanBrokers,
    Command,
    Elect,
    Group,
    Groups,
    Replica,
    SetAddress,
    SetMembers,
)
from broker.rocketmq.controller.liveness import Live
from formats.rocketmq.hosts import split_address
from formats.rocketmq.numbers import read_long
from formats.rocketmq.remoting.bodies.controllers import (
    BROKER_REPLICAS,
    ELECTED_BODY,
    SYNC_STATE_SET,
    BrokerReplicas,
    ElectedBody,
    ReplicaIdentity,
    Replicas,
    SyncStateSet,
)
from formats.rocketmq.remoting.bodies.routes import BrokerMemberGroup
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.headers import replicating as headers

__all__ = ["ANYBODY", "Decision", "Decisions"]

ANYBODY: Final = -1
# The data of all brokers is bounded, as it may have to be sent to a controller in one frame.
REPLICAS_MAX: Final = 8_000
TEXT_CHARS_MAX: Final = 128
CHECK_CODE_CHARS_MAX: Final = 256
BROKER_ID_MAX: Final = 1 << 40
# Returns the state of a broker, by name and id, if it is alive.
FindLive = Callable[[str, int], Live | None]


class Decision(NamedTuple):
    """An answer, with its header, if any, and the command after which it holds."""

    header: tuple[Any, ...] | None = None
    body: bytes = b""
    code: ResponseCode = ResponseCode.SUCCESS
    remark: str | None = None
    command: Command | None = None


def _no(code: ResponseCode, remark: str) -> Decision:
    return Decision(code=code, remark=remark)


def _is_text(text: str, most: int = TEXT_CHARS_MAX) -> bool:
    return 0 < len(text) <= most and text.isascii() and text.isprintable()


def _is_address(text: str) -> bool:
    return _is_text(text) and split_address(text) is not None


def _invalid(what: str, text: str) -> Decision:
    return _no(ResponseCode.CONTROLLER_INVALID_REQUEST, f"{text[:80]!r} is no {what}")


def _members_body(group: Group) -> bytes:
    return SYNC_STATE_SET.write(SyncStateSet(sorted(group.members), group.members_epoch))


class Decisions:
    """The decisions about some groups. `unclean` permits a master that was not in sync.

    `unheard` finds brokers that may be alive without a heartbeat so far, as the controller has just started.
    """

    def __init__(
        self,
        groups: Groups,
        live: FindLive,
        *,
        unclean: bool = False,
        unheard: Callable[[str, int], bool] = lambda name, broker_id: False,
    ) -> None:
        self._groups = groups.by_name
        self._live = live
        self._unheard = unheard
        self.unclean = unclean

    def _alive(self, group: Group) -> dict[int, Live]:
        found = {each: self._live(group.name, each) for each in group.replicas}
        return {each: live for each, live in found.items() if live is not None}

    # -- new brokers

    def next_id(self, asked: headers.GetNextBrokerIdRequest) -> Decision:
        group = self._groups.get(asked.broker_name or "")
        found = FIRST_ID if group is None else group.next_id
        return Decision(headers.GetNextBrokerIdResponse(asked.cluster_name, asked.broker_name, found))

    def apply_id(self, asked: headers.ApplyBrokerIdRequest) -> Decision:
        """Give a broker the id that it applies for, unless another one has it."""
        name, broker_id, code = asked.broker_name or "", asked.applied_broker_id or 0, asked.register_check_code or ""
        cluster, address = asked.cluster_name or "", code.partition(";")[0]
        if not _is_text(name) or not _is_text(cluster):
            return _invalid("name of a broker and its cluster", f"{name}, {cluster}")
        if not _is_text(code, CHECK_CODE_CHARS_MAX) or not _is_address(address):
            return _invalid("check code, which begins with an address", code)
        group = self._groups.get(name)
        if group is None and broker_id != FIRST_ID:
            text = f"Broker-set: {name} hasn't been registered in controller, but broker try to apply brokerId:"
            return _no(ResponseCode.CONTROLLER_BROKER_ID_INVALID, f"{text} {broker_id}")
        known = None if group is None else group.replicas.get(broker_id)
        if not FIRST_ID <= broker_id <= BROKER_ID_MAX or (known is not None and known.check_code != code):
            text = f"Fail to apply brokerId: {broker_id} in broker-set: {name}"
            return _no(ResponseCode.CONTROLLER_BROKER_ID_INVALID, text)
        if known is None and sum(len(each.replicas) for each in self._groups.values()) >= REPLICAS_MAX:
            return _no(ResponseCode.SYSTEM_BUSY, f"there are {REPLICAS_MAX} brokers; clean those that are gone")
        command = None if known is not None else ApplyId(cluster, name, broker_id, Replica(address, code))
        return Decision(headers.ApplyBrokerIdResponse(asked.cluster_name, asked.broker_name), command=command)

    def register(self, asked: headers.RegisterBrokerToControllerRequest) -> Decision:
        """Register a broker; the answer has the master, if that is alive, and the brokers in sync."""
        name, broker_id = asked.broker_name or "", asked.broker_id or 0
        group = self._groups.get(name)
        need = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        if group is None:
            return _no(need, f"Broker-set: {name} hasn't been registered in controller")
        if broker_id not in group.replicas:
            return _no(need, f"BrokerId: {broker_id} hasn't been registered in broker-set: {name}")
        header = headers.RegisterBrokerToControllerResponse(asked.cluster_name, asked.broker_name)
        if group.master is not None and self._live(name, group.master) is not None:
            header = header._replace(
                master_broker_id=group.master,
                master_address=group.address(group.master),
                master_epoch=group.master_epoch,
                sync_state_set_epoch=group.members_epoch,
            )
        address = asked.broker_address or ""
        if not _is_address(address):
            return _invalid("address", address)
        command = SetAddress(name, broker_id, address) if address != group.address(broker_id) else None
        return Decision(header, _members_body(group), command=command)

    # -- masters

    def alter_members(self, asked: headers.AlterSyncStateSetRequest, wanted: SyncStateSet) -> Decision:
        """Let a master change the brokers in sync; not a former one, or one that does not know the latest set."""
        group = self._groups.get(asked.broker_name or "")
        failed = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
        if group is None:
            return _no(failed, "Broker metadata is not existed")
        members = frozenset(wanted.sync_state_set)
        refused = self._refuse_members(group, asked, members, wanted.sync_state_set_epoch)
        if refused is not None:
            code, text = refused
            return _no(code, text if code is failed else f"Rejecting alter syncStateSet request because {text}")
        epoch = group.members_epoch + 1
        body = SYNC_STATE_SET.write(SyncStateSet(sorted(members), epoch))
        return Decision(headers.AlterSyncStateSetResponse(epoch), body, command=SetMembers(group.name, members))

    def _refuse_members(
        self, group: Group, asked: headers.AlterSyncStateSetRequest, members: frozenset[int], epoch: int
    ) -> tuple[ResponseCode, str] | None:
        failed = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
        if members == group.members:
            return failed, "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet"
        if group.master is None or group.master != asked.master_broker_id:
            text = f"the current leader is:{{{group.master}}}, not {{{asked.master_broker_id}}}"
            return ResponseCode.CONTROLLER_INVALID_MASTER, text
        if asked.master_epoch != group.master_epoch:
            text = f"the current master epoch is:{{{group.master_epoch}}}, not {{{asked.master_epoch}}}"
            return ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, text
        if epoch != group.members_epoch:
            text = f"the current syncStateSet epoch is:{{{group.members_epoch}}}, not {{{epoch}}}"
            return ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, text
        for each in sorted(members):
            if each not in group.replicas:
                return ResponseCode.CONTROLLER_INVALID_REPLICAS, f"the replicas {{{each}}} don't exist"
            if self._live(group.name, each) is None:
                return ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, f"the replicas {{{each}}} don't alive"
        if group.master not in members:
            text = "Rejecting alter syncStateSet request because the newSyncStateSet don't contains origin leader"
            return failed, f"{text} {{{group.master}}}"
        return None

    def elect(self, asked: headers.ElectMasterRequest) -> Decision:
        """Elect a master. A name that never had one gets the broker that asks, if any."""
        group = self._groups.get(asked.broker_name)
        if group is None:
            return _no(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "Broker hasn't been registered")
        asks_itself = asked.broker_id in group.replicas
        if group.master_epoch == 0 and asks_itself:
            return self._elected(group, asked.broker_id)
        if not asked.designate_elect and group.master is not None and self._unheard(group.name, group.master):
            text = f"The old master {group.master} may still be alive: this controller has just started"
            return _no(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, text)
        others = group.replicas if self.unclean else ()
        wanted = asked.broker_id if asked.designate_elect else None
        chosen = choose_master(group.members, others, self._alive(group), group.master, wanted)
        if chosen is None:
            if asked.broker_id == ANYBODY:
                text = "Old master has down and failed to elect a new broker master"
                return Decision(
                    code=ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE, remark=text, command=Elect(group.name, None)
                )
            return _no(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, "Failed to elect a new master")
        if chosen != group.master:
            return self._elected(group, chosen)
        header = headers.ElectMasterResponse(chosen, group.address(chosen), group.master_epoch, group.members_epoch)
        text = f"The old master {chosen} is still alive, not need to elect new master for broker {group.name}"
        body = ELECTED_BODY.write(ElectedBody(sorted(group.members)))
        return Decision(header, body, ResponseCode.CONTROLLER_MASTER_STILL_EXIST, text)

    def _elected(self, group: Group, master: int) -> Decision:
        addresses = {each: replica.address for each, replica in sorted(group.replicas.items())}
        known = BrokerMemberGroup(group.cluster, group.name, addresses)
        header = headers.ElectMasterResponse(
            master, group.address(master), group.master_epoch + 1, group.members_epoch + 1
        )
        return Decision(header, ELECTED_BODY.write(ElectedBody([master], known)), command=Elect(group.name, master))

    def without_master(self) -> list[str]:
        """Return the names whose master is not alive, while another broker of the name is."""
        return [
            group.name
            for group in self._groups.values()
            if group.master is not None
            and self._live(group.name, group.master) is None
            and not self._unheard(group.name, group.master)
            and self._alive(group)
        ]

    # -- queries, and requests of administrators

    def replica_info(self, asked: headers.GetReplicaInfoRequest) -> Decision:
        group = self._groups.get(asked.broker_name or "")
        if group is None:
            return _no(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, "Broker metadata is not existed")
        header = headers.GetReplicaInfoResponse(group.master, group.address(group.master), group.master_epoch)
        return Decision(header, _members_body(group))

    def sync_state(self, names: Iterable[str]) -> Decision:
        groups = [self._groups[name] for name in names if name in self._groups]
        return Decision(
            body=BROKER_REPLICAS.write(BrokerReplicas({each.name: self._describe(each) for each in groups}))
        )

    def _describe(self, group: Group) -> Replicas:
        alive = self._alive(group)
        all_of_it = [
            ReplicaIdentity(group.name, each, replica.address, each in alive)
            for each, replica in sorted(group.replicas.items())
        ]
        return Replicas(
            group.master,
            group.address(group.master),
            group.master_epoch,
            group.members_epoch,
            [each for each in all_of_it if each.broker_id in group.members],
            [each for each in all_of_it if each.broker_id not in group.members],
        )

    def clean(self, asked: headers.CleanBrokerDataRequest) -> Decision:
        """Forget brokers of a name, or all of it; live ones only if the request says so."""
        invalid = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        group = self._groups.get(asked.broker_name)
        text = (asked.broker_controller_ids_to_clean or "").strip()
        ids = [read_long(word) for word in text.split(";")] if text else []
        if None in ids:
            return _no(
                invalid, f"Please set the option <brokerControllerIdsToClean> according to the format: {text[:80]!r}"
            )
        broker_ids = frozenset(each for each in ids if each is not None) if text else None
        if group is None:
            return _no(invalid, f"Broker {asked.broker_name} is not existed,clean broker data failure.")
        if not asked.clean_living:
            if broker_ids is None and group.master is not None:
                return _no(invalid, f"Broker {asked.broker_name} is still alive, clean up failure")
            for each in sorted(broker_ids or ()):
                if self._live(group.name, each) is not None or self._unheard(group.name, each):
                    return _no(invalid, f"Broker [{group.name},  {each}] is still alive, clean up failure")
        known = None if broker_ids is None else broker_ids & group.replicas.keys()
        return Decision(command=CleanBrokers(group.name, known))
