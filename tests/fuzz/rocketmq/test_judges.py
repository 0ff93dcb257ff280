"""The judges of the fuzzer of RocketMQ's ports: each can fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import ROCKETMQ_LOG_NAME, RocketProcess
from formats.rocketmq.remoting.codes import RequestCode
from tests.fuzz.judging import Fault, Find, Watch
from tests.fuzz.rocketmq import ground as rocketmq_ground
from tests.fuzz.rocketmq import probe as rocketmq_probe
from tests.fuzz.rocketmq import run as rocketmq
from tests.fuzz.rocketmq.clients import Called, Plain, Popped, Prepared, Suffered, Timed
from tests.fuzz.rocketmq.ground import LongStep, Running, Signature, disk_bytes, files_outside
from tests.fuzz.rocketmq.probe import Probe
from tests.fuzz.rocketmq.requests import frame_of
from tests.fuzz.rocketmq.run import Fuzzer, replay
from tests.fuzz.rocketmq.wire import Action, Sender
from tests.rigs.remoting import Remote
from tests.waiting import eventually

TRACEBACK = """ERROR session is closed because of a fault of this broker: KeyError: 'a'
Traceback (most recent call last):
  File "/x/broker/rocketmq/remoting/requests.py", line 1, in a
  File "/x/broker/rocketmq/broker/{place}.py", line {line}, in b
KeyError: '{key}'
"""


class Idle(RocketProcess):
    """A process that is not started, and has the memory given."""

    size = 0
    running = True

    def rss_bytes(self) -> int:
        return self.size

    @property
    def is_running(self) -> bool:
        return self.running


@pytest.fixture
def idle(tmp_path: Path) -> Idle:
    (tmp_path / ROCKETMQ_LOG_NAME).write_text("")
    return Idle(tmp_path, port=1, nameserver_port=1, grpc_port=1)


def test_a_step_that_runs_for_too_long_is_found_once(
    idle: Idle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fuzz.rocketmq.ground.slowness", lambda: 1.0)
    running = Running(idle, tmp_path, "node")
    line = json.dumps([10, 900.0, 51.0, 800.0, 1, 0, [["write", 9.0]]]) + "\n"
    running.steps.write_text(line)
    with pytest.raises(LongStep, match=r"ran for 51 ms in one step.*write") as found:
        running.judge(50.0)
    assert found.value.step.start_ns == 10
    running.judge(50.0)
    # It waited for a processor; half a line is read once it is whole.
    running.steps.write_text(line + line.replace("51.0", "49.0") + line[:20])
    running.judge(50.0)
    running.steps.write_text(line + line.replace("51.0", "49.0") + line)
    with pytest.raises(LongStep):
        running.judge(50.0)
    running.steps.write_text(line * 4)
    running.warm()
    running.judge(50.0)


def test_memory_beyond_the_bound_is_found(idle: Idle, tmp_path: Path) -> None:
    running = Running(idle, tmp_path, "node")
    idle.size = rocketmq_ground.RSS_BYTES_MAX
    running.judge_memory()
    idle.size += 1
    with pytest.raises(Find, match="MiB of memory"):
        running.judge_memory()


def test_a_fault_in_the_log_goes_on_unless_the_process_has_ended(idle: Idle, tmp_path: Path) -> None:
    watch = Running(idle, tmp_path, "node").watch()
    watch.judge()
    log = tmp_path / ROCKETMQ_LOG_NAME
    with log.open("a") as file:
        file.write(TRACEBACK.format(place="topics", line=7, key="a"))
    with pytest.raises(Fault) as found:
        watch.judge()
    assert found.value.goes_on
    watch.judge()
    with log.open("a") as file:
        file.write("FATAL PANIC the node terminates deliberately: storing a message was interrupted\n")
    idle.running = False
    with pytest.raises(Find, match="PANIC") as ended:
        watch.judge()
    assert not ended.value.goes_on
    with pytest.raises(Find, match="has ended"):
        Watch(idle, log, (b"nothing",)).judge()


def test_files_outside_the_store_are_found(tmp_path: Path) -> None:
    store = tmp_path / "a" / "b" / "store"
    (store / "consumequeue" / "x").mkdir(parents=True)
    (store / "log").write_text("x")
    assert list(files_outside(tmp_path, [store])) == []
    (tmp_path / "a" / "outside" / "0").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("x")
    found = {str(path.relative_to(tmp_path)) for path in files_outside(tmp_path, [store])}
    assert found == {"a/outside", "a/outside/0", "a/b/file"}


def test_disk_is_counted_as_it_is_allocated(tmp_path: Path) -> None:
    (tmp_path / "sparse").touch()
    with (tmp_path / "sparse").open("r+b") as file:
        file.truncate(64 << 20)
    assert disk_bytes(tmp_path) < 1 << 20
    (tmp_path / "full").write_bytes(b"x" * (1 << 20))
    assert disk_bytes(tmp_path) >= 1 << 20


def test_finds_of_one_cause_have_one_signature() -> None:
    first, same, other = (
        TRACEBACK.format(place=place, line=line, key=key)
        for place, line, key in (("a", 7, "x"), ("a", 7, "y"), ("b", 7, "x"))
    )
    assert Signature.of(first) == Signature.of(same) == ("KeyError broker/rocketmq/broker/a.py:7",)
    assert Signature.of(first) != Signature.of(other)
    assert Signature.of("node has 900 MiB of memory\nx") == Signature.of("node has 701 MiB of memory")


def test_silence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocketmq_probe, "SILENT_S", 0.2)
    monkeypatch.setattr(rocketmq_probe, "PERIOD_S", 0.02)
    port = free_port()
    probe = Probe([port], [port], None)
    probe.begin()
    eventually(lambda: len(probe.faults) >= 2)
    probe.end()
    probe.join()
    assert {fault.partition(" has been silent")[0] for fault in probe.faults} == {
        f"/healthz at {port}",
        f"the broker at {port}",
    }


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    folder = tmp_path_factory.mktemp("node")
    (folder / "broker.conf").write_text("transactionTimeOut=100\ntransactionCheckInterval=100\n")
    with RocketProcess(folder / "store", config_file=folder / "broker.conf") as node:
        yield node


@pytest.mark.process
@pytest.mark.parametrize("kind", [Plain, Timed, Popped, Prepared])
def test_clients_are_served_and_say_what_they_suffer(
    node: RocketProcess, kind: type[Plain | Timed | Popped | Prepared]
) -> None:
    client = kind([node.port], 60.0)
    client.begin()
    eventually(lambda: bool(client.done or client.faults))
    client.end()
    client.join()
    assert client.faults == []
    hasty = kind([free_port()], 0.1)
    hasty.begin()
    eventually(lambda: bool(hasty.faults))
    assert "ConnectionRefused" in hasty.faults[0]
    patient = kind([free_port()], 0.1, patient=True)
    patient.begin()
    patient.end()
    patient.join()
    assert patient.faults == []


@pytest.mark.process
def test_a_client_by_grpc_is_served(node: RocketProcess) -> None:
    client = Called([node.port], node.grpc_port, 60.0)
    client.begin()
    eventually(lambda: client.done >= 2 or bool(client.faults))
    client.end()
    client.join()
    assert client.faults == []


@pytest.mark.process
def test_a_wait_that_takes_too_long_is_suffered(node: RocketProcess) -> None:
    client = Popped([node.port], 0.01)
    with Remote(node.port) as remote, pytest.raises(Suffered, match="comes again"):
        client.turn(remote)
    waiting = Prepared([node.port], 0.01)
    with Remote(node.port) as remote, pytest.raises(Suffered, match="is asked"):
        waiting.turn(remote)


@pytest.mark.process
def test_a_lost_message_is_found(node: RocketProcess) -> None:
    client = Plain([node.port], 60.0)
    client.begin()
    eventually(lambda: client.done >= 5)
    client.end()
    client.join()
    client.check(node.port)
    place = next(iter(client.stored))
    client.stored[place] += b"x"
    with pytest.raises(Suffered, match=r"1 of .* acknowledged messages are lost"):
        client.check(node.port)


@pytest.mark.process
def test_a_broker_that_its_nameserver_does_not_know_is_found(
    node: RocketProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocketmq_probe, "ROUTES_EVERY", 0.1)
    found = []
    for port in (node.port, 1):
        probe = Probe([port], [], node.nameserver_port)
        probe.begin()
        eventually(lambda probe=probe: probe.looked >= 5)  # type: ignore[misc]
        probe.end()
        probe.join()
        found.append(probe.faults)
    assert found[0] == []
    assert "has forgotten the broker" in found[1][0]


@pytest.mark.process
def test_answers_are_those_to_the_action(node: RocketProcess) -> None:
    sender = Sender({"broker": [node.port], "pages": [free_port()], "grpc": [node.grpc_port]})
    fields = [("topic", "TBW102"), ("queueId", "0")]
    frame = frame_of(RequestCode.GET_MAX_OFFSET, fields)
    answers = sender.send(Action("broker", "x", ((frame, 3),), answers=3, wait_s=20.0))
    assert [each.code for each in answers.frames] == [0, 0, 0]
    assert sender.sent == 3 * len(frame)
    assert sender.send(Action("broker", "x", ((b"\xff" * 8, 1),), 1, wait_s=20.0)).is_lost
    assert sender.send(Action("pages", "x", ((b"x", 1),))).is_lost
    (answer,) = sender.send(Action("grpc", "x", ((b"", 1),), call="QueryRoute", wait_s=20.0)).messages
    assert answer.status.code
    sender.close()


@pytest.mark.slow
@pytest.mark.process
def test_a_round_finds_nothing_where_nothing_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocketmq, "PART_S", 5.0)
    monkeypatch.setattr(rocketmq, "PARTS", 1)
    fuzzer = Fuzzer(["pages"], ["node"], 7, tmp_path)
    fuzzer.run(float("inf"), 1)
    assert fuzzer.found == {}
    assert fuzzer.sessions["pages"] > 5
    assert fuzzer.told > 5


@pytest.mark.slow
@pytest.mark.process
def test_findings_are_written_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rocketmq_ground, "RSS_BYTES_MAX", 1)
    fuzzer = Fuzzer(["pages"], ["node"], 7, tmp_path)
    fuzzer.run(float("inf"), 1)
    assert list(fuzzer.found) == ["node has # MiB of memory, more than #"]
    (file,) = tmp_path.glob("*.jsonl")
    out = capsys.readouterr().out
    assert f"{file} has all" in out
    assert "seed 7, round 0 at a node" in out
    assert replay(file, 1) == 1
    monkeypatch.undo()
    assert replay(file, 1) == 0
