"""Messages from one protocol to the other as the conformance runner has them sent, with clients that only pretend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts.suites import blazingmq as runner
from scripts.suites import pairs as conformance_pairs
from scripts.suites.pairs import COUNT, Got, Place, exchange, read_got

PLACE = Place("127.0.0.1:1", "127.0.0.1:2")
# It takes the given arguments, and does more after each topic.
CLIENT = """#!/bin/sh
echo "$@" >> {told}
[ "$1" = send ] && echo sent
[ "$1" = take ] || exit 0
shift 3
for each; do
    topic=${{each%=*}} count=${{each#*=}} number=0
    while [ $number -lt $count ]; do
        printf 'got\\t%s\\tbody %s\\tk%s\\ttag\\t%s\\n' $topic $number $number $number
        number=$((number + 1))
    done
    {more}
done
"""


@pytest.fixture
def late_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times after which late messages come, from the last on; the topics are not made."""
    times = [5.0] * 10
    clock = [100.0]

    async def make_topics(nameserver: str, run: str, clients: Sequence[str]) -> None:
        assert nameserver == PLACE.nameserver

    async def arrival(nameserver: str, topic: str) -> None:
        assert topic.endswith("-late")
        clock[0] += times.pop()

    monkeypatch.setattr(conformance_pairs, "_make_topics", make_topics)
    monkeypatch.setattr(conformance_pairs, "_arrival", arrival)
    monkeypatch.setattr("scripts.suites.pairs.time.monotonic", lambda: clock[0])
    return times


def programs(folder: Path, **more: str) -> dict[str, list[str]]:
    """Clients of both protocols; `more` is what they do after each topic."""
    made = {}
    for name in ("cpp", "python", "go"):
        file = folder / name
        file.write_text(CLIENT.format(told=folder / "told", more=more.get(name, ":")))
        file.chmod(0o755)
        made[name] = [str(file)]
    return made


def test_output_of_clients_is_read() -> None:
    lines = ["client: a warning\n", "got\tt\tbody 0\tk0\ttag\t0\n", "got\tcut off\n", "got\tt\tbody 1\tk1\t\t1\n"]
    assert read_got(lines) == {"t": [Got("body 0", "k0", "tag", "0"), Got("body 1", "k1", "", "1")]}


@pytest.mark.process
def test_each_pair_of_the_two_protocols_is_a_case(tmp_path: Path, late_s: list[float]) -> None:
    with (tmp_path / "log").open("w") as log:
        outcomes = exchange(programs(tmp_path), PLACE, tmp_path, log)
    pairs = ["cpp -> go", "cpp -> python", "go -> cpp", "python -> cpp"]
    assert outcomes.found == dict.fromkeys([*pairs, "cpp late", "go late", "python late"], "passed")
    told = [line.split() for line in (tmp_path / "told").read_text().splitlines()]
    assert [each[:2] for each in told if each[0] == "send"] == [
        ["send", PLACE.nameserver],
        ["send", PLACE.endpoint],
        ["send", PLACE.endpoint],
    ]
    (taken, *_) = (each for each in told if each[0] == "take")
    assert [word.partition("=")[2] for word in taken[3:]] == [str(COUNT), "1"] * 2


@pytest.mark.process
@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        (r"printf 'got\t%s\tbody 0\tk0\ttag\t0\n' $topic", "cpp -> go"),
        (r"printf 'got\t%s-late\tbody 0\tk0\tother\t0\n' $topic", "cpp -> go"),
    ],
)
def test_a_message_that_comes_twice_or_otherwise_is_a_fault(
    tmp_path: Path, late_s: list[float], more: str, wrong: str
) -> None:
    with (tmp_path / "log").open("w") as log:
        outcomes = exchange(programs(tmp_path, go=more), PLACE, tmp_path, log)
    assert list(outcomes.reasons) == [wrong]


@pytest.mark.process
@pytest.mark.parametrize("late", [0.5, 30.5])
def test_a_late_message_that_comes_at_another_time_is_a_fault(tmp_path: Path, late_s: list[float], late: float) -> None:
    late_s[-1] = late
    with (tmp_path / "log").open("w") as log:
        outcomes = exchange(programs(tmp_path), PLACE, tmp_path, log)
    assert outcomes.reasons == {"cpp late": f"it came after {late} s"}


def test_unknown_clients_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["--rocketmq", "--pairs", "-k", "java,rust"]) == 2
    assert "no such client: rust" in capsys.readouterr().err
