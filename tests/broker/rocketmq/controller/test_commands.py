"""Commands and states as text."""

from __future__ import annotations

import pytest

from broker.rocketmq.controller.commands import GroupMachine, decode_command, encode_command
from broker.rocketmq.controller.groups import (
    ApplyId,
    CleanBrokers,
    Command,
    Elect,
    Groups,
    Replica,
    SetAddress,
    SetMembers,
)
from formats.errors import FormatError
from formats.rocketmq.remoting.raft import (
    Install,
    JournalRecord,
    encode_block,
    encode_message,
    read_block,
    read_message,
)

COMMANDS: list[Command] = [
    ApplyId("c", "n", 1, Replica("10.0.0.1:10911", "10.0.0.1:10911;x")),
    ApplyId("c", "n", 2, Replica("10.0.0.2:10911", "10.0.0.2:10911;y")),
    ApplyId("c", "m", 1, Replica("10.0.0.3:10911", "10.0.0.3:10911;z")),
    SetAddress("n", 2, "10.0.0.9:10911"),
    Elect("n", 1),
    SetMembers("n", frozenset({2, 1})),
    Elect("n", None),
    CleanBrokers("n", frozenset({2})),
    CleanBrokers("m", None),
]


@pytest.mark.parametrize("command", COMMANDS, ids=repr)
def test_command_is_read_as_it_was_written(command: Command) -> None:
    assert decode_command(encode_command(command)) == command


def test_state_is_restored_after_each_command() -> None:
    groups = Groups()
    machine = GroupMachine(groups)
    for command in COMMANDS:
        machine.apply(encode_command(command))
        others = Groups()
        other = GroupMachine(others)
        other.apply(encode_command(COMMANDS[2]))
        other.check_state(machine.state())
        other.restore(machine.state())
        assert others.by_name == groups.by_name
    assert list(groups.by_name) == ["n"]
    assert groups.by_name["n"].master_epoch == 2


@pytest.mark.parametrize("name", ["broker-", "[" * 100])
def test_a_large_state_is_read_from_the_file_and_by_followers(name: str) -> None:
    groups = Groups()
    machine = GroupMachine(groups)
    for number in range(8_000):
        machine.apply(encode_command(ApplyId("c", f"{name}{number}", 1, Replica("10.0.0.1:10911", "[{"))))
    state = machine.state()
    kind, body = encode_message(Install(1, 2, 1, 0, state))
    message = read_message(kind, body)
    assert isinstance(message, Install)
    block = read_block(encode_block([JournalRecord("snapshot", 1, 2, state)]), 0)
    assert block is not None
    for text in (message.text, block.records[0].text):
        other = Groups()
        GroupMachine(other).restore(text)
        assert other.by_name == groups.by_name


UNFIT = ["", "x", "{}", '{"what":"applyId","name":"n"}', '{"what":"setMembers","name":"n"}', '{"what":"x","name":"n"}']


@pytest.mark.parametrize("text", UNFIT)
def test_text_that_is_no_command_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        GroupMachine(Groups()).check(text)


def test_text_that_is_no_state_is_refused() -> None:
    group = '"cluster":"c","name":"n","nextId":2,"masterEpoch":1,"membersEpoch":1,"members":[1]'
    machine = GroupMachine(Groups())
    machine.check_state(f'{{"groups":[{{{group}}}]}}')
    for text in ("x", "[]", '{"groups":[{}]}', f'{{"groups":[{{{group},"addresses":{{"1":"a"}}}}]}}'):
        with pytest.raises(FormatError):
            machine.check_state(text)
