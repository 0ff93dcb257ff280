"""The Java SDK's tests as the conformance runner runs them, with a Maven that only pretends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.suites import blazingmq as runner
from scripts.suites.java import NEEDED, JavaRun, Unfit, read_reports, run
from tests.waiting import eventually

REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="com.bloomberg.bmq.it.SessionIT">
  <properties><property name="java.version" value="17"/></properties>
  <testcase name="good" classname="com.bloomberg.bmq.it.SessionIT" time="1.0"><system-err>noise</system-err></testcase>
  <testcase name="bad" classname="com.bloomberg.bmq.it.SessionIT" time="1.0">
    <failure message="expected: &lt;1&gt; but was: &lt;2&gt;&#10;more" type="AssertionFailedError">trace
	at com.bloomberg.bmq.Session.start(Session.java:483)
	at com.bloomberg.bmq.it.SessionIT.bad(SessionIT.java:77)
	at com.bloomberg.bmq.it.SessionIT.all(SessionIT.java:12)</failure>
    <rerunFailure message="again" type="AssertionFailedError"/>
  </testcase>
  <testcase name="broken[1]" classname="com.bloomberg.bmq.it.SessionIT"><error type="java.io.IOException"/></testcase>
  <testcase name="unsteady" classname="com.bloomberg.bmq.it.SessionIT">
    <flakyError message="Failed to start session: TIMEOUT" type="BMQException"/>
  </testcase>
  <testcase name="later" classname="com.bloomberg.bmq.it.SessionIT"><skipped message="not yet"/></testcase>
  <testcase name="" classname="com.bloomberg.bmq.it.PayloadIT"><error message="no broker" type="Error"/></testcase>
</testsuite>
"""

# It prints its arguments and leaves a program running, as a test that is cut short leaves its broker.
MAVEN = """#!/bin/sh
echo "$@" > {told}
sleep 600 > /dev/null 2>&1 &
echo $! > {left}
ls bmq-sdk > {seen}
mkdir -p bmq-sdk/target/failsafe-reports
cp {report} bmq-sdk/target/failsafe-reports/TEST-com.bloomberg.bmq.it.SessionIT.xml
echo "[INFO] Tests run: 6, Failures: 1, Errors: 2, Skipped: 1, Time elapsed: 9 s - in com.bloomberg.bmq.it.SessionIT"
exit 1
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / NEEDED).mkdir(parents=True)
    (folder / "bmq-sdk" / "target").mkdir()
    (folder / "bmq-sdk" / "pom.xml").write_text("<project/>")
    return folder


def programs(tmp_path: Path, *, fails: bool = False) -> dict[str, str]:
    """An environment with a Maven, and a compiler."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (tmp_path / "report.xml").write_text(REPORT)
    names = {name: tmp_path / name for name in ("told", "left", "seen")}
    text = MAVEN.format(report=tmp_path / "report.xml", **names)
    for name, content in (("mvn", "#!/bin/sh\nexit 1\n" if fails else text), ("javac", "")):
        (folder / name).write_text(content)
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def wanted(tmp_path: Path, checkout: Path, tests: str | None = None) -> JavaRun:
    broker = tmp_path / "bmqctl"
    broker.write_text("")
    (tmp_path / "scratch").mkdir()
    return JavaRun(checkout, broker, tmp_path / "scratch", tmp_path / "log", tests, forks=3)


def test_a_report_is_read_case_by_case(tmp_path: Path) -> None:
    (tmp_path / "TEST-com.bloomberg.bmq.it.SessionIT.xml").write_text(REPORT)
    reports = read_reports(tmp_path)
    assert reports.found == {
        "SessionIT.good": "passed",
        "SessionIT.bad": "failed",
        "SessionIT.broken[1]": "failed",
        "SessionIT.unsteady": "passed",
        "SessionIT.later": "skipped",
        "PayloadIT": "failed",
    }
    assert reports.reasons == {
        "SessionIT.bad": "SessionIT.java:77: expected: <1> but was: <2>",
        "SessionIT.broken[1]": "java.io.IOException",
        "PayloadIT": "no broker",
    }
    assert reports.unsteady == {"SessionIT.unsteady": "Failed to start session: TIMEOUT"}


def test_a_copy_is_built_and_nothing_is_left_behind(
    tmp_path: Path, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = run(wanted(tmp_path, checkout, "SessionIT"), programs(tmp_path))
    assert len(reports.found) == 6
    told = (tmp_path / "told").read_text()
    folder = tmp_path / "scratch" / "broker"
    for word in ("verify", f"-Dit.brokerDir={folder}", "-Dfailsafe.forkCount=3", "-Dit.test=SessionIT"):
        assert word in told.split()
    assert (folder / "bmqbrkr.tsk").resolve() == tmp_path / "bmqctl"
    # It saw no build of before, and the checkout sees none of it.
    assert (tmp_path / "seen").read_text().split() == ["pom.xml", "src"]
    assert [path.name for path in (checkout / "bmq-sdk" / "target").iterdir()] == []
    assert capsys.readouterr().out.startswith("Tests run: 6, Failures: 1, Errors: 2, Skipped: 1")
    pid = int((tmp_path / "left").read_text())
    status = Path(f"/proc/{pid}/stat")
    eventually(lambda: not status.exists() or status.read_text().rpartition(") ")[2][0] == "Z")


def test_a_build_that_fails_is_no_result(tmp_path: Path, checkout: Path) -> None:
    with pytest.raises(Unfit, match="no test ran; Maven's output is in "):
        run(wanted(tmp_path, checkout), programs(tmp_path, fails=True))


def test_without_maven_it_says_what_is_missing(tmp_path: Path, checkout: Path) -> None:
    with pytest.raises(Unfit, match="needs Maven"):
        run(wanted(tmp_path, checkout), {"PATH": str(tmp_path)})


def test_the_command_keeps_the_results_and_says_what_failed(
    tmp_path: Path, checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, value in programs(tmp_path).items():
        monkeypatch.setenv(name, value)
    assert runner.main(["--java", str(checkout)]) == 1
    told = capsys.readouterr().out.splitlines()
    assert "unsteady, passed when run again: SessionIT.unsteady" in told
    assert "FAILED SessionIT.bad" in told
    assert "java: 2 passed, 3 failed, 1 skipped; of 0 that ran before, 0 more pass and 0 no longer pass" in told
    assert runner.main(["--java", str(checkout), "--failed"]) == 1
    selected = next(word for word in (tmp_path / "told").read_text().split() if word.startswith("-Dit.test="))
    assert selected == "-Dit.test=PayloadIT,SessionIT#bad,SessionIT#broken"


def test_a_checkout_of_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["--java", str(tmp_path)]) == 2
    assert f"{tmp_path} has no {NEEDED}" in capsys.readouterr().err
