"""Commands and states of controllers as text, on which they agree by `broker.rocketmq.raft`."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.rocketmq.controller.groups import (
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
from formats.errors import FormatError
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.rocketmq.remoting.raft import TEXT_CHARS_MAX

__all__ = ["GroupMachine", "decode_command", "encode_command"]


class _CommandText(NamedTuple):
    """A command as JSON. `what` is its kind; the others are the kind's fields."""

    what: str
    name: str
    cluster: str = ""
    broker_id: int | None = None
    address: str = ""
    check_code: str = ""
    broker_ids: list[int] | None = None


class _Group(NamedTuple):
    cluster: str
    name: str
    next_id: int
    master_epoch: int
    members_epoch: int
    members: list[int]
    master: int | None = None
    addresses: dict[int, str] = {}
    check_codes: dict[int, str] = {}


class _GroupState(NamedTuple):
    groups: list[_Group] = []


_TEXT: Final = BodyCodec(_CommandText)
_STATE: Final = BodyCodec(_GroupState)


def encode_command(command: Command) -> str:
    if isinstance(command, ApplyId):
        address, code = command.replica
        text = _CommandText("applyId", command.name, command.cluster, command.broker_id, address, code)
    elif isinstance(command, SetAddress):
        text = _CommandText("setAddress", command.name, broker_id=command.broker_id, address=command.address)
    elif isinstance(command, SetMembers):
        text = _CommandText("setMembers", command.name, broker_ids=sorted(command.members))
    elif isinstance(command, Elect):
        text = _CommandText("elect", command.name, broker_id=command.master)
    else:
        ids = None if command.broker_ids is None else sorted(command.broker_ids)
        text = _CommandText("clean", command.name, broker_ids=ids)
    return _TEXT.write(text).decode()


def decode_command(text: str) -> Command:
    """Decode a command. Raises `FormatError`."""
    read = _TEXT.read_value(fastjson.loads(text))
    broker_id, ids = read.broker_id, read.broker_ids
    if read.what == "applyId" and broker_id is not None:
        return ApplyId(read.cluster, read.name, broker_id, Replica(read.address, read.check_code))
    if read.what == "setAddress" and broker_id is not None:
        return SetAddress(read.name, broker_id, read.address)
    if read.what == "setMembers" and ids is not None:
        return SetMembers(read.name, frozenset(ids))
    if read.what == "elect":
        return Elect(read.name, broker_id)
    if read.what == "clean":
        return CleanBrokers(read.name, None if ids is None else frozenset(ids))
    raise FormatError("command", 0, f"{text[:80]!r} is no command")


def _group_value(group: Group) -> _Group:
    return _Group(
        group.cluster,
        group.name,
        group.next_id,
        group.master_epoch,
        group.members_epoch,
        sorted(group.members),
        group.master,
        {each: replica.address for each, replica in sorted(group.replicas.items())},
        {each: replica.check_code for each, replica in sorted(group.replicas.items())},
    )


def _read_group(value: _Group) -> Group:
    if value.addresses.keys() != value.check_codes.keys():
        raise FormatError("group", 0, f"{value.name[:40]!r} has other brokers with addresses than with check codes")
    replicas = {each: Replica(value.addresses[each], value.check_codes[each]) for each in value.addresses}
    return Group(
        value.cluster,
        value.name,
        replicas,
        value.next_id,
        value.master,
        value.master_epoch,
        frozenset(value.members),
        value.members_epoch,
    )


def _read_state(text: str) -> dict[str, Group]:
    state = _STATE.read_value(fastjson.loads(text, fastjson.FILE))
    return {value.name: _read_group(value) for value in state.groups}


class GroupMachine:
    """The groups as the state machine of commands; see `broker.rocketmq.raft.raft.Machine`."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def check(self, text: str) -> None:
        """Check that a text is a command. Raises `FormatError`."""
        decode_command(text)

    def check_state(self, text: str) -> None:
        """Check that a text is a state. Raises `FormatError`."""
        _read_state(text)

    def apply(self, text: str) -> None:
        self._groups.apply(decode_command(text))

    def restore(self, text: str) -> None:
        groups = _read_state(text)
        self._groups.by_name.clear()
        self._groups.by_name.update(groups)

    def state(self) -> str:
        """Return the state. The bounds on brokers keep it short enough to be sent."""
        text = fastjson.dumps(
            _STATE.write_value(_GroupState([_group_value(each) for each in self._groups.by_name.values()]))
        )
        assert len(text) <= TEXT_CHARS_MAX
        return text
