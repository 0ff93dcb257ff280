"""npm's client ali-ons 3.12.0 as the judge of our RocketMQ node, or of any cluster: see `ali_ons_judge/`."""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import trio

from bmqctl.client.remoting.client import Client
from scripts.suites.rocketmq import Outcomes, Unfit, judge_with

__all__ = ["build", "case_names", "judge"]

SOURCE = Path(__file__).parents[1] / "judges" / "ali_ons_judge"
QUEUES = 4

_CASE = re.compile(r"^  async (\w+)\(self\) \{$", re.MULTILINE)


def case_names() -> list[str]:
    """The cases of the judge, in order."""
    return _CASE.findall((SOURCE / "judge.js").read_text())


def build(home: Path, source: Path = SOURCE) -> Path:
    """Install this client, or another, in a folder with npm, unless it is there; return the program. Raises `Unfit`."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Unfit("a client of npm needs Node.js (node) and npm on the path")
    home.mkdir(parents=True, exist_ok=True)
    package, program = home / "package.json", home / "judge.js"
    wanted = (source / "package.json").read_bytes()
    if not (home / "node_modules").is_dir() or not package.exists() or package.read_bytes() != wanted:
        package.write_bytes(wanted)
        words = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        done = subprocess.run(words, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            package.unlink()
            raise Unfit(f"npm cannot install {home}: {(done.stdout + done.stderr)[-2000:]}")
    for each in source.glob("*.js"):
        shutil.copyfile(each, home / each.name)
    return program


def judge(program: Path, nameserver: str, cases: Sequence[str], log: Path, timeout_s: float) -> Outcomes:
    """Let the client use a cluster; return the outcome of each case. Its other output goes to the log."""
    run = secrets.token_hex(4)
    trio.run(_make_topics, nameserver, run, list(cases) or case_names())
    return judge_with(["node", str(program), nameserver, run, *cases], log, timeout_s)


async def _make_topics(nameserver: str, run: str, cases: Sequence[str]) -> None:
    """Make the topics of the cases: the client does not create them."""
    host, _, port = nameserver.rpartition(":")
    async with Client.connect(host, int(port)) as client:
        for case in cases:
            await client.create_topic(f"ons-{case}-{run}", QUEUES)
            await client.create_topic(f"%RETRY%ons-group-{case}-{run}", 1)
