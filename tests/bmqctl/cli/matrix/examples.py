"""An invocation of each command, which the matrix runs under every condition.

Words are in braces where the place differs between runs: `{bmq}` is a store, `{export}` an export of it if spark-verify
is to run, `{folder}` is a folder for output, `{config}` a configuration, `{broker}` and `{nameserver}` are brokers that
run, `{port}` is a free port.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from typer.main import get_command

from bmqctl.app import app

__all__ = ["EXAMPLES", "QUEUE", "TOPIC", "Example", "commands"]

QUEUE: Final = "bmq://bmq.test.persistent.priority/matrix"
TOPIC: Final = "rocketmq://{nameserver}/matrix"


class Example(NamedTuple):
    """The words of an invocation, and its exit code on a usual machine; None if that depends on the machine.

    With `listens` it runs until SIGTERM. One that is `slow` is run under the conditions only that concern it.
    """

    words: tuple[str, ...]
    code: int | None = 0
    listens: bool = False
    slow: bool = False


def _words(*words: str, code: int | None = 0, listens: bool = False, slow: bool = False) -> Example:
    return Example(words, code, listens, slow)


_AT = ("--broker", "{broker}")
_ROCKET = ("--nameserver", "{nameserver}")

EXAMPLES: Mapping[str, Example] = {
    "acl alter": _words("no-user", "Topic:matrix", "--act", "Pub", *_ROCKET, code=2),
    "acl create": _words("no-user", "Topic:matrix", "--act", "Pub", "--dry-run", *_ROCKET),
    "acl delete": _words("no-user", "Topic:matrix", "--yes", *_ROCKET, code=2),
    "acl list": _words(*_ROCKET),
    "admin": _words(*_AT, "CLUSTERS", "LIST"),
    "bench": _words("--broker", "tcp://127.0.0.1:{port}", "--count", "10", code=2),
    "bridge": _words(*_AT, f"{QUEUE}-1", TOPIC, "--until-idle", "0.2", "--wait", "1"),
    "browse": _words(*_AT, QUEUE),
    "bundle": _words("{bmq}", "--offline", "--file", "{folder}/bundle.tar.gz"),
    "check certificate": _words("{nameserver}"),
    "check cluster": _words(*_AT),
    "check disk": _words("{bmq}", "-w", "free=0:", "-c", "free=0:"),
    "check group": _words("no-group", "--topic", "matrix", *_ROCKET),
    "check queue": _words(*_AT, QUEUE),
    "client list": _words(*_ROCKET),
    "cluster explain": _words(*_AT),
    "cluster status": _words(*_AT),
    "cluster step-down": _words("no-broker", *_ROCKET, code=2),
    "config init": _words("{folder}/config"),
    "config set": _words("maxMessageSize", "4000000", "--dry-run", *_ROCKET),
    "config show": _words("{config}"),
    "config validate": _words("{config}"),
    "console": _words(*_AT, "--port", "{port}", "--host", "127.0.0.1", listens=True),
    "context add": _words("local", "tcp://127.0.0.1:30114"),
    "context list": _words(),
    "context remove": _words("local", code=2),
    "context show": _words("local", code=2),
    "context use": _words("--none"),
    "copy": _words(*_AT, QUEUE, f"{QUEUE}-2", "--until-idle", "0.2"),
    "dead-letters list": _words(*_ROCKET),
    "dead-letters resend": _words("no-group", "--to", "topic", *_ROCKET, "--dry-run", code=2),
    "dead-letters show": _words("no-group", *_ROCKET, code=2),
    "definitions apply": _words("{file}", *_ROCKET, "--dry-run"),
    "definitions diff": _words("{file}", *_ROCKET),
    "definitions export": _words(*_ROCKET),
    "doctor": _words("{bmq}", code=None),
    "domain alter": _words("no-domain", "--in", "{config}", "--set", "a=1", code=2),
    "domain create": _words("matrix", "--in", "{config}", "--replace"),
    "domain delete": _words("no-domain", "--in", "{config}", "--yes", code=2),
    "domain list": _words("--in", "{config}"),
    "domain show": _words("no-domain", "--in", "{config}", code=2),
    "find": _words(*_AT, QUEUE, "--id", "40000000000000CDB805BF1837EE82B1", code=1),
    "group alter": _words("no-group", "--retries", "3", *_ROCKET, code=2),
    "group create": _words("matrix-made", "--retries", "3", "--dry-run", *_ROCKET),
    "group delete": _words("no-group", "--yes", *_ROCKET, code=2),
    "group list": _words(*_ROCKET),
    "group members": _words("no-group", *_ROCKET),
    "group seek": _words("no-group", "--topic", "no-topic", "--to", "begin", *_ROCKET, code=2),
    "group show": _words("no-group", *_ROCKET, code=2),
    "help": _words("post"),
    "journal build": _words("{lines}", "--out", "{folder}/built"),
    "journal diff": _words("{bmq}", "{bmq}"),
    "journal dump": _words("{bmq}"),
    "journal guid": _words("40000000000000CDB805BF1837EE82B1"),
    "journal ledger dump": _words("{bmq}"),
    "journal queues": _words("{bmq}"),
    "journal rejected": _words("{bmq}"),
    "journal repair": _words("{bmq}", "--out", "{folder}/repaired"),
    "journal summary": _words("{bmq}"),
    "journal validate": _words("{bmq}"),
    "move": _words(*_AT, f"{QUEUE}-3", f"{QUEUE}-2", "--yes", "--until-idle", "0.2"),
    "post": _words(*_AT, QUEUE, "payload"),
    "queue explain": _words(*_AT, QUEUE, code=1),
    "queue list": _words(*_AT),
    "queue purge": _words(*_AT, QUEUE, "--dry-run"),
    "replay": _words("--dry-run", "{bmq}"),
    "spark-export": _words("{bmq}", "--out", "{folder}/export", slow=True),
    "spark-report": _words("{bmq}", slow=True),
    "spark-verify": _words("{export}", "--store", "{bmq}", slow=True),
    "start cluster": _words("--dir", "{folder}/cluster", "--port", "{port}", listens=True, slow=True),
    "start node": _words("--data-dir", "{folder}/node", "--port", "{port}", "--host", "127.0.0.1", listens=True),
    "start proxy": _words(
        "-u", "{address}", "--data-dir", "{folder}/proxy", "--port", "{port}", "--host", "127.0.0.1", listens=True
    ),
    "start rocketmq": _words(
        *("--store", "{folder}/rocketmq", "--port", "{port}", "--nameserver-port", "{port1}", "--host", "127.0.0.1"),
        *("--grpc-port", "{port2}", "--remoting-port", "{port3}"),
        listens=True,
    ),
    "start rocketmq-controller": _words(
        *("--store", "{folder}/controller", "--port", "{port}", "--host", "127.0.0.1"), listens=True
    ),
    "start rocketmq-nameserver": _words(
        *("--store", "{folder}/nameserver", "--port", "{port}", "--host", "127.0.0.1"), listens=True
    ),
    "start rocketmq-proxy": _words(
        *("--nameserver", "{nameserver}", "--data-dir", "{folder}/rocketmq-proxy", "--host", "127.0.0.1"),
        *("--grpc-port", "{port}", "--remoting-port", "{port1}"),
        listens=True,
    ),
    "tail": _words(*_AT, f"{QUEUE}-4", "--until-idle", "0.2"),
    "tool": _words("--mode", "syschk", "-b", "{broker}", "--timeout", "2"),
    "top": _words(*_AT, "--once", "--interval", "0.5"),
    "topic alter": _words("no-topic", "--queues", "3", *_ROCKET, code=2),
    "topic create": _words("matrix-made", "--queues", "3", "--dry-run", *_ROCKET),
    "topic delete": _words("no-topic", "--yes", *_ROCKET, code=2),
    "topic list": _words(*_ROCKET),
    "topic show": _words("no-topic", *_ROCKET, code=2),
    "user alter": _words("no-user", "--disable", *_ROCKET, code=2),
    "user create": _words("matrix-made", "--dry-run", *_ROCKET),
    "user delete": _words("no-user", "--yes", *_ROCKET, code=2),
    "user list": _words(*_ROCKET),
    "version": _words(),
}


def commands() -> Iterator[str]:
    """Yield the names of all commands, as the command line knows them."""
    yield from _below(get_command(app), "")


def _below(group: Any, name: str) -> Iterator[str]:
    if not hasattr(group, "commands"):
        yield name
        return
    for each in group.commands:
        _, found, _ = group.resolve_command(None, [each])
        yield from _below(found, f"{name} {each}".strip())
