"""RocketMQ 5's official clients for Node.js, Java, Go and Python as judges of our node, or of any proxy.

The programs in `grpc_judges/`, one for each language, use the clients case by case; the tools of the languages fetch
these once. The clients make no topics and groups: administrators' requests make these first.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import trio
import trustme

from bmqctl.client.remoting.client import Client
from bmqctl.client.remoting.link import RemotingLink
from bmqctl.systems.node_process import HOST
from formats.rocketmq.remoting.bodies.clients import GROUP_CONFIG, GroupConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.administration import CreateTopicRequest
from formats.rocketmq.remoting.headers.codec import write_header
from scripts.judges.client_environment import CannotInstall, client_python
from scripts.suites import ali_ons as conformance_ali_ons
from scripts.suites import rocketmq as conformance_rocketmq
from scripts.suites.rocketmq import Outcomes, Unfit, judge_with

__all__ = [
    "CASES",
    "LANGUAGES",
    "SOURCE",
    "Place",
    "Program",
    "build",
    "build_python",
    "client_environment",
    "judge",
    "make_topic",
    "prepare",
]

SOURCE: Final = Path(__file__).parents[1] / "judges" / "grpc_judges"
PYTHON_PACKAGE: Final = "rocketmq-python-client==5.1.2"
QUEUES: Final = 4
TIMEOUT_S: Final = 10.0

_SENT = ("send", "burst", "simple", "unknown", "large", "tags", "sql", "fifo", "delay")
_SETTLED = ("commit", "rollback", "orphan", "nack", "redelivery", "push", "push_retry", "push_fifo", "dead", "tls")
# Apache RocketMQ has these from 5.5.0 on.
_LITE = ("lite", "lite_exclusive")
# Its proxy has no priorities in 5.4.0.
_LATER = (*_LITE, "priority")
CASES: Final[Mapping[str, Sequence[str]]] = {
    "node": (*_SENT, "recall", *_SETTLED, *_LATER),
    "java": (*_SENT, "recall", *_SETTLED, *_LATER),
    # This client cannot recall messages, and has neither lite topics nor priorities.
    "go": (*_SENT, *_SETTLED),
    "python": (*_SENT, "recall", *_SETTLED, *_LATER),
}
LANGUAGES: Final = tuple(CASES)

# The topics of other cases take normal messages.
_KINDS: Final = {
    "fifo": "FIFO",
    "push_fifo": "FIFO",
    "delay": "DELAY",
    "recall": "DELAY",
    "commit": "TRANSACTION",
    "rollback": "TRANSACTION",
    "orphan": "TRANSACTION",
    "lite": "LITE",
    "lite_exclusive": "LITE",
    "priority": "PRIORITY",
}
_ATTRIBUTES: Final = {"lite_exclusive": {"+lite.sub.model": "Exclusive", "+lite.sub.client.quota": "2"}}


class Place(NamedTuple):
    """A cluster: its nameserver, its gRPC endpoint, and a file with the certificate authority unless it is well
    known.
    """

    nameserver: str
    endpoint: str
    authority: Path | None = None


class Program(NamedTuple):
    """A judge that is built: its language, and the words that start it."""

    language: str
    words: list[str]


# -- building


def build(language: str, home: Path) -> Program:
    """Build a judge in a folder, as far as it is not there. Raises `Unfit`."""
    return Program(language, _BUILDERS[language](home))


def _build_node(home: Path) -> list[str]:
    return ["node", str(conformance_ali_ons.build(home, SOURCE / "node"))]


def _build_java(home: Path) -> list[str]:
    class_path = conformance_rocketmq.build(home, SOURCE / "java")
    # One compiler: most of a short program's time is its own start.
    return ["java", "-XX:TieredStopAtLevel=1", f"-Drocketmq.log.root={home / 'logs'}", "-cp", class_path, "Judge"]


def _build_go(home: Path) -> list[str]:
    go = shutil.which("go")
    if go is None:
        raise Unfit("the Go client needs Go (go) on the path")
    shutil.copytree(SOURCE / "go", home, dirs_exist_ok=True)
    done = subprocess.run(
        [go, "build", "-o", "judge", "."], cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        raise Unfit(f"Go cannot build {home}: {(done.stdout + done.stderr)[-2000:]}")
    return [str(home / "judge")]


def build_python(program: str) -> list[str]:
    """Install the Python client in its own environment; return the words that start a program with it. Raises
    `Unfit`.
    """
    try:
        python = client_python(PYTHON_PACKAGE, "rocketmq-grpc")
    except CannotInstall as reason:
        raise Unfit(str(reason)) from None
    return [str(python), str(SOURCE / "python" / program)]


_BUILDERS: Final[Mapping[str, Callable[[Path], list[str]]]] = {
    "node": _build_node,
    "java": _build_java,
    "go": _build_go,
    "python": lambda home: build_python("judge.py"),
}

# -- judging


def prepare(folder: Path, more: str = conformance_rocketmq.CONFIG) -> tuple[Path, str]:
    """Make a node's certificate; return its authority's file, and the configuration, which begins with `more`."""
    authority = trustme.CA()
    certificate = authority.issue_cert(HOST)
    vouching, chain, key = folder / "authority.pem", folder / "chain.pem", folder / "key.pem"
    authority.cert_pem.write_to_path(str(vouching))
    chain.write_bytes(b"".join(each.bytes() for each in certificate.cert_chain_pems))
    key.write_bytes(certificate.private_key_pem.bytes())
    config = f"{more}tlsCertPath={chain}\ntlsKeyPath={key}\n"
    return vouching, config


def judge(program: Program, place: Place, cases: Sequence[str], log: Path, timeout_s: float) -> Outcomes:
    """Let a client use a cluster; return the outcome of each case. Its other output goes to the log."""
    run = secrets.token_hex(4)
    chosen = list(cases) or list(CASES[program.language])
    trio.run(_make_topics, place.nameserver, run, chosen)
    environment = client_environment(log.parent)
    if place.authority is not None:
        environment["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = str(place.authority)
    return judge_with([*program.words, place.endpoint, run, *chosen], log, timeout_s, environment)


def client_environment(folder: Path) -> dict[str, str]:
    """Our environment, with a folder for the clients' logs."""
    return {**os.environ, "rocketmq.client.logRoot": str(folder / "rocketmq-grpc-logs")}


async def make_topic(link: RemotingLink, topic: str, kind: str, queues: int = QUEUES) -> None:
    """Make a topic for a kind of messages: NORMAL, FIFO, DELAY, TRANSACTION or LITE. Raises `Unfit`."""
    header = CreateTopicRequest(topic, "TBW102", queues, queues, 6, "SINGLE_TAG", False, 0, f"+message.type={kind}")
    _check(topic, await link.call(RequestCode.UPDATE_AND_CREATE_TOPIC, write_header(header), TIMEOUT_S))


async def _make_topics(nameserver: str, run: str, cases: Sequence[str]) -> None:
    host, _, port = nameserver.rpartition(":")
    async with Client.connect(host, int(port)) as client:
        for address in await client.masters():
            link = await client.link_to(address)
            for case in cases:
                kind, topic = _KINDS.get(case, "NORMAL"), f"grpc-{case}-{run}"
                await make_topic(link, topic, kind)
                bound = {"+lite.bind.topic": topic} if kind == "LITE" else {}
                group = GroupConfig(
                    f"grpc-group-{case}-{run}",
                    consume_message_orderly=kind in ("FIFO", "LITE"),
                    retry_max_times=1 if case == "dead" else 16,
                    attributes={**bound, **_ATTRIBUTES.get(case, {})},
                )
                body = GROUP_CONFIG.write(group)
                made = await link.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, TIMEOUT_S, body)
                _check(group.group_name, made)
        # A proxy learns of topics from the nameserver.
        with trio.fail_after(TIMEOUT_S):
            for case in cases:
                while not await client.queues(f"grpc-{case}-{run}"):
                    await trio.sleep(0.1)


def _check(what: str, answer: Frame) -> None:
    if answer.code != ResponseCode.SUCCESS:
        raise Unfit(f"cannot make {what}: {answer.code} {answer.remark or ''}")
