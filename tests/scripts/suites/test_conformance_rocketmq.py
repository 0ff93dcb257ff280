"""RocketMQ's Java client as the conformance runner runs it, with a Java and a Maven that only pretend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts.suites import ali_ons as conformance_ali_ons
from scripts.suites import blazingmq as runner
from scripts.suites.rocketmq import Outcomes, Unfit, build, judge, read_line

JAVA = """#!/bin/sh
echo "$@" > {told}
echo noise
echo "case one passed"
echo "case two failed Judge.java:5: lost"
"""

MAVEN = """#!/bin/sh
echo "$@" >> {told}
for word in "$@"; do
    case "$word" in -Dmdep.outputFile=*) echo a.jar:b.jar > "${{word#-Dmdep.outputFile=}}" ;; esac
done
exit {code}
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path; its programs' arguments go to files in it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("java", JAVA), ("mvn", MAVEN), ("javac", "#!/bin/sh\n")):
        (folder / name).write_text(text.format(told=folder / f"{name}.told", code=0))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def test_judge_is_built_once(programs: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert build(home) == f"{home}/target/classes:a.jar:b.jar"
    assert build(home) == f"{home}/target/classes:a.jar:b.jar"
    assert (programs / "mvn.told").read_text().count("compile") == 1
    (home / "stamp").write_text("other")
    build(home)
    assert (programs / "mvn.told").read_text().count("compile") == 2


def test_build_that_fails_is_told(programs: Path, tmp_path: Path) -> None:
    (programs / "mvn").write_text("#!/bin/sh\necho no network\nexit 1\n")
    with pytest.raises(Unfit, match="no network"):
        build(tmp_path / "home")
    (programs / "mvn").unlink()
    (programs / "javac").unlink()


def test_outcomes_are_read(programs: Path, tmp_path: Path) -> None:
    outcomes = judge("a.jar", "127.0.0.1:9876", ["one", "two"], tmp_path / "log", 10)
    assert outcomes == Outcomes({"one": "passed", "two": "failed"}, {"two": "Judge.java:5: lost"})
    assert (programs / "java.told").read_text().endswith("-cp a.jar Judge 127.0.0.1:9876 one two\n")
    assert (tmp_path / "log").read_text().startswith("noise\n")


def test_other_lines_are_passed_over() -> None:
    outcomes = Outcomes({}, {})
    for line in ("", "case", "case x maybe", "in case x passed"):
        read_line(line, outcomes)
    assert outcomes == Outcomes({}, {})


def test_runner_needs_a_checkout_or_rocketmq(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        runner.main([])
    assert "name a checkout, or --rocketmq" in capsys.readouterr().err


def test_runner_judges_a_cluster_that_runs(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert runner.main(["--rocketmq", "--nameserver", "127.0.0.1:1", "-k", "one,two"]) == 1
    told = capsys.readouterr().out
    assert "FAILED two\n       Judge.java:5: lost\n" in told
    assert "rocketmq-other-broker: 1 passed, 1 failed, 0 skipped" in told
    assert "Judge 127.0.0.1:1 one two" in (programs / "java.told").read_text()


NPM = """#!/bin/sh
echo "$@" >> {told}
mkdir -p node_modules
exit {code}
"""
NODE = """#!/bin/sh
echo "$@" > {told}
echo "case push passed"
"""


def test_client_of_npm_is_installed_once(programs: Path, tmp_path: Path) -> None:
    for name, text in (("npm", NPM), ("node", NODE)):
        (programs / name).write_text(text.format(told=programs / f"{name}.told", code=0))
        (programs / name).chmod(0o755)
    home = tmp_path / "home"
    for _ in range(2):
        assert conformance_ali_ons.build(home) == home / "judge.js"
    assert (programs / "npm.told").read_text().count("install") == 1
    assert '"ali-ons": "3.12.0"' in (home / "package.json").read_text()
    (home / "package.json").write_text("{}")
    conformance_ali_ons.build(home)
    assert (programs / "npm.told").read_text().count("install") == 2
    (home / "package.json").write_text("{}")
    (programs / "npm").write_text("#!/bin/sh\necho no network\nexit 1\n")
    with pytest.raises(Unfit, match="no network"):
        conformance_ali_ons.build(home)


def test_client_of_npm_finds_its_topics(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, list[str]]] = []

    async def make_topics(nameserver: str, run: str, cases: Sequence[str]) -> None:
        made.append((nameserver, list(cases)))

    monkeypatch.setattr(conformance_ali_ons, "_make_topics", make_topics)
    (programs / "node").write_text(NODE.format(told=programs / "node.told"))
    (programs / "node").chmod(0o755)
    program = tmp_path / "judge.js"
    outcomes = conformance_ali_ons.judge(program, "127.0.0.1:1", [], tmp_path / "log", 10)
    assert outcomes.found == {"push": "passed"}
    assert {"push", "retry", "broadcast", "tags"} < set(made[0][1])
    told = (programs / "node.told").read_text().split()
    assert (told[0], told[1], len(told)) == (str(program), "127.0.0.1:1", 3)
