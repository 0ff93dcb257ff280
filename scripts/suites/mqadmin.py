"""RocketMQ's own `mqadmin`, command by command, against our node or another cluster: see `mqadmin_cases`.

One Java program (`rocketmq_judge/`) runs the commands, which are those of Apache's own class `MQAdminStartup`.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Final, NamedTuple, Protocol

from bmqctl.systems.node_process import HOST
from scripts.suites.mqadmin_cases import ACL_CASES, CASES, NEEDED, Case
from scripts.suites.rocketmq import Outcomes

__all__ = ["APACHE", "PROVIDERS", "Group", "Place", "chosen", "fault_of", "place_of", "run_commands", "run_groups"]

# The Maven project that fetches Apache's own nameserver and broker.
APACHE: Final = Path(__file__).parents[1] / "judges" / "rocketmq_load"
CONFIG: Final = "brokerName=broker-a\ntraceTopicEnable=true\n"
# The places of users and policies in Apache's broker, which has none by default.
PROVIDERS: Final = (
    "authenticationMetadataProvider=org.apache.rocketmq.auth.authentication.provider."
    "LocalAuthenticationMetadataProvider\n"
    "authorizationMetadataProvider=org.apache.rocketmq.auth.authorization.provider."
    "LocalAuthorizationMetadataProvider\n"
)
# Additional configuration for a node that checks requests.
ACL_CONFIG: Final = (
    "authenticationEnabled=true\nauthorizationEnabled=true\n"
    'initAuthenticationUser={"username":"root","password":"root-secret"}\n'
    "authenticationProvider=org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider\n"
    "authorizationProvider=org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider\n"
    'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"inner-secret"}\n'
)

_SET: Final = re.compile(r"(?m)^set (\w+)=(.*)$")
_NO_VALUE: Final = "-"
_FILES: Final = {
    "topics.json": [{"topicName": "ListedTopic", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}],
    "groups.json": [{"groupName": "listedGroup", "retryMaxTimes": 3}],
}


class Place(NamedTuple):
    """A cluster: its nameserver, the address of its only broker, and their names."""

    nameserver: str
    broker: str
    cluster: str
    name: str


class _Node(Protocol):
    @property
    def nameserver(self) -> str: ...

    @property
    def port(self) -> int: ...


class Group(NamedTuple):
    """Cases, and the node configuration that they need."""

    config: str
    cases: list[Case]


def place_of(node: _Node) -> Place:
    """A node that runs with `CONFIG`."""
    return Place(node.nameserver, f"{HOST}:{node.port}", "DefaultCluster", "broker-a")


def chosen(names: Sequence[str] | None, *, of_apache: bool = False) -> list[Group]:
    """Return the cases of these names and those they need; without names, all. Raises `SystemExit` for an unknown
    one.
    """
    unknown = set(names or ()) - {case.name for case in (*CASES, *ACL_CASES)}
    if unknown:
        raise SystemExit(f"conformance: no such command: {', '.join(sorted(unknown))}")
    wanted = [case for case in CASES if names is None or case.name in names]
    plain = [case for case in CASES if (case in wanted or case.name in NEEDED) and not (of_apache and case.is_absent)]
    # The cases about access control depend on each other.
    is_secured = names is None or any(case.name in names for case in ACL_CASES)
    groups = [Group(CONFIG, plain)] if wanted else []
    return [*groups, Group(CONFIG + ACL_CONFIG, list(ACL_CASES))] if is_secured else groups


def run_groups(
    class_path: str,
    start: Callable[[str, Path], AbstractContextManager[_Node]],
    groups: Iterable[Group],
    log: Path,
) -> Outcomes:
    """Run each group of commands against its own cluster; return the outcomes. The commands' output goes to the log."""
    outcomes = Outcomes({}, {})
    log.write_text("")
    for group in groups:
        with tempfile.TemporaryDirectory(prefix="bmqctl-conformance-") as scratch:
            folder = Path(scratch)
            with start(group.config, folder / "store") as node:
                found = run_commands(class_path, place_of(node), group.cases, folder, log)
        outcomes.found.update(found.found)
        outcomes.reasons.update(found.reasons)
    return outcomes


def run_commands(
    class_path: str, place: Place, cases: Iterable[Case], folder: Path, log: Path, more: Mapping[str, str] | None = None
) -> Outcomes:
    """Run commands one after the other; return the outcomes. Their output goes to the log.

    `more` are additional substitutions in commands.
    """
    for name, value in _FILES.items():
        (folder / name).write_text(json.dumps(value))
    known = {**place._asdict(), "folder": str(folder), **(more or {})}
    words = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Drocketmq.client.logRoot={folder}"]
    outcomes = Outcomes({}, {})
    with (
        log.open("a") as out,
        subprocess.Popen(
            [*words, "-cp", class_path, "Administer"],
            # Some commands write files to the working directory.
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for case in cases:
                text = _run(case, known, process.stdin, process.stdout)
                out.write(f"--- {case.name}: {case.words}\n{text}\n")
                out.flush()
                known |= dict(_SET.findall(text))
                reason = fault_of(case, text, known)
                outcomes.found[case.name] = "passed" if reason is None else "failed"
                if reason is not None:
                    outcomes.reasons[case.name] = reason
            process.stdin.close()
            process.wait(60)
        finally:
            process.kill()
    return outcomes


def _run(case: Case, known: Mapping[str, str], words: IO[str], lines: IO[str]) -> str:
    told = [_put_in(word, known) for word in case.words.split(" ")]
    if not told[0].startswith("@"):
        told += ["-n", known["nameserver"]]
    words.write("\t".join([str(case.seconds), *told]) + "\n")
    words.flush()
    heard: list[str] = []
    for line in lines:
        if line.rstrip("\n") == "end":
            break
        heard.append(line)
    return "".join(heard)


def fault_of(case: Case, text: str, known: Mapping[str, str]) -> str | None:
    """Return the fault of a command's output, or None."""
    found = re.search(case.unwanted, text)
    if found is not None:
        line = next((line for line in text.splitlines() if "CODE: " in line or "refused" in line), None)
        begin = text.rfind("\n", 0, found.start()) + 1
        return (line or text[begin:].partition("\n")[0]).strip()[:200]
    for wanted in case.wanted:
        pattern = _put_in(wanted, {name: re.escape(value) for name, value in known.items()})
        if re.search(pattern, text) is None:
            return f"nothing matches {pattern}"
    return None


def _put_in(text: str, known: Mapping[str, str]) -> str:
    """Fill in the names in braces. Other braces, which expressions have, stay."""
    return re.sub(r"\{([a-z]+)\}", lambda found: known.get(found[1], _NO_VALUE), text)
