"""The runner of scripts/benchmark-bridge: `bmqctl bridge` between two nodes of this machine.

The source is filled, and the bridge carries its messages. The measurement begins when a part of them has arrived, so
that no program's start counts. Processor times are those of the processes and hold on a busy machine; rates by the
clock do not.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import trio

from bmqctl.client.protocol.events import Ack
from bmqctl.client.remoting.client import Client
from bmqctl.client.remoting.sending import Sender
from bmqctl.client.session import Session
from bmqctl.common.children import COMMAND
from bmqctl.systems.node_process import HOST, NodeProcess, RocketProcess
from formats.bmq.wire.ack import AckStatus
from formats.bmq.wire.properties import Property, PropertyType
from formats.rocketmq.properties import encode_properties
from formats.rocketmq.remoting.batch import BatchMessage
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from scripts.bench.figures import Figure, fresh_queue, measure_cases, parse_cases

DOMAIN: Final = "bmq.test.persistent.priority"
WANTED_PER_S: Final = 20_000
BATCH: Final = 256
# A busy machine starts nodes slowly.
START_S: Final = 600.0
# Fraction of the messages carried before the measurement begins, and after it ends.
BEGIN: Final = 0.1
END: Final = 0.9
REPORT_S: Final = "0.1"
TYPED: Final = (
    Property("customer", PropertyType.STRING, "c-4711"),
    Property("amount", PropertyType.INT64, 123_456),
    Property("paid", PropertyType.BOOL, True),
)


class Moment(NamedTuple):
    """The messages carried up to a moment, its time, and the processor time of each process, in seconds."""

    carried: int
    at_s: float
    cpu_s: tuple[float, float, float]


class Measured(NamedTuple):
    """Messages per second, and the processor time per message of the bridge, the node and the RocketMQ node, in us."""

    per_s: float
    bridge_us: float
    node_us: float
    rocket_us: float


async def fill_blazingmq(node: NodeProcess, uri: str, arguments: argparse.Namespace) -> None:
    acked = 0
    done = trio.Event()

    def take(acks: list[Ack]) -> None:
        nonlocal acked
        if any(ack.status is not AckStatus.SUCCESS for ack in acks):
            raise SystemExit("benchmark-bridge: the node refuses messages")
        acked += len(acks)
        if acked == arguments.messages:
            done.set()

    properties = list(TYPED) if arguments.properties else None
    payload = bytes(arguments.bytes)
    async with Session.connect(HOST, node.port, on_acks=take) as session:
        queue = await session.open_queue(uri, write=True)
        for number in range(arguments.messages):
            queue.post_nowait(payload, properties, correlation=number)
            if number % BATCH == 0:
                await session.drain()
        await done.wait()


async def fill_rocketmq(rocket: RocketProcess, topic: str, queues: int, arguments: argparse.Namespace) -> None:
    more = {each.name: str(each.value) for each in TYPED} if arguments.properties else {}
    sender = Sender("benchmark", topic)
    body = bytes(arguments.bytes)
    async with Client.connect(HOST, rocket.nameserver_port) as client:
        found = await client.create_topic(topic, queues)
        link = await client.link_to(found[0].address)
        for at, begin in enumerate(range(0, arguments.messages, BATCH)):
            count = min(BATCH, arguments.messages - begin)
            properties = encode_properties({"UNIQ_KEY": secrets.token_hex(16).upper(), **more})
            fields, batch = sender.encoded_batch(
                at % queues, time.time_ns() // 1_000_000, [BatchMessage(0, body, properties)] * count
            )
            answer = await link.call(RequestCode.SEND_BATCH_MESSAGE, fields, 30.0, batch)
            if answer.code != ResponseCode.SUCCESS:
                raise SystemExit(f"benchmark-bridge: the RocketMQ node refuses messages: {answer.remark}")


def carry(words: Sequence[str], nodes: tuple[NodeProcess, RocketProcess], messages: int) -> Measured:
    """Run the bridge until it has carried all messages."""
    options = ("--json", "--report", REPORT_S, "--until-idle", "1")
    moments: list[Moment] = []
    with subprocess.Popen(
        [*COMMAND, "bridge", *options, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        for line in process.stderr:
            if not line.startswith("{"):
                raise SystemExit(f"benchmark-bridge: {line}")
            carried = json.loads(line)["delivered"]
            if messages * BEGIN <= carried <= messages * END:
                spent = _cpu_s(process.pid), nodes[0].cpu_s(), nodes[1].cpu_s()
                moments.append(Moment(carried, time.monotonic(), spent))
        (account,) = json.loads(process.stdout.read())["bridges"]
    if account["delivered"] != messages or len(moments) < 2 or moments[0].carried == moments[-1].carried:
        raise SystemExit(f"benchmark-bridge: the run is too short, or not whole: {account}")
    first, last = moments[0], moments[-1]
    count = last.carried - first.carried
    each = [1e6 * (after - before) / count for before, after in zip(first.cpu_s, last.cpu_s, strict=True)]
    return Measured(count / (last.at_s - first.at_s), *each)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def measure(case: str, arguments: argparse.Namespace) -> Measured:
    """Measure one direction with new nodes."""
    topic = f"bench{secrets.token_hex(4)}"
    uri = fresh_queue(DOMAIN)
    with tempfile.TemporaryDirectory(prefix="bmqctl-bridge-") as directory:
        folder = Path(directory)
        with (
            NodeProcess(folder / "bmq", timeout_s=START_S) as node,
            RocketProcess(folder / "rocketmq", grpc_port=0, timeout_s=START_S) as rocket,
        ):
            there = f"rocketmq://{rocket.nameserver}/{topic}"
            if case.startswith("to-rocketmq"):
                trio.run(fill_blazingmq, node, uri, arguments)
                words = [uri, there]
            else:
                trio.run(fill_rocketmq, rocket, topic, QUEUES[case], arguments)
                words = [there, uri]
            return carry(["-b", node.uri, *words], (node, rocket), arguments.messages)


def figures_of(case: str, arguments: argparse.Namespace) -> list[Figure]:
    """Measure one direction `arguments.rounds` times, and return the medians."""
    found = [measure(case, arguments) for _ in range(arguments.rounds)]
    per_s, bridge_us, node_us, rocket_us = (median(column) for column in zip(*found, strict=True))
    return [
        Figure("carried", per_s, "messages/s", f">= {WANTED_PER_S:,}", per_s >= WANTED_PER_S),
        Figure("processor time of the bridge, a message", bridge_us, "us"),
        Figure("  of the BlazingMQ node", node_us, "us"),
        Figure("  of the RocketMQ node", rocket_us, "us"),
        Figure("bridge / both nodes", bridge_us / (node_us + rocket_us), "x"),
        Figure("what the processor times allow on 2 processors", 2e6 / (bridge_us + node_us + rocket_us), "messages/s"),
    ]


QUEUES: Final = {"to-blazingmq": 1, "to-blazingmq-4": 4}
CASES: Final[dict[str, Callable[[argparse.Namespace], list[Figure]]]] = {
    case: partial(figures_of, case) for case in ("to-rocketmq", *QUEUES)
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure `bmqctl bridge` between two nodes on this machine.")
    parser.add_argument("--rounds", type=int, default=1, help="number of runs of each; the median counts (%(default)s)")
    parser.add_argument("--messages", type=int, default=100_000, help="in the source (%(default)s)")
    parser.add_argument("--bytes", type=int, default=1024, help="size of a message (%(default)s)")
    parser.add_argument("--properties", action="store_true", help="give each message three properties")
    arguments = parse_cases(parser, CASES)
    measure_cases(arguments.cases or CASES, lambda name: CASES[name](arguments))


if __name__ == "__main__":
    main()
