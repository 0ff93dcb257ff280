"""Apache's end-to-end suites as the conformance runner runs them, with tools that only pretend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.suites import blazingmq as runner
from scripts.suites.e2e import read_go
from scripts.suites.rocketmq import Outcomes

POM = """<project>
    <modules>
        <module>e2e</module>
        <module>e2e-v4</module>
        <module>e2e-spring</module>
    </modules>
    <dependency>
        <artifactId>lombok</artifactId>
        <version>1.18.8</version>
    </dependency>
    <argLine>-Xmx1024m -XX:MaxPermSize=256m</argLine>
</project>
"""
MODULE_POM = "<project><argLine>-Xmx1024m -XX:MaxPermSize=256m</argLine></project>\n"
REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="org.apache.rocketmq.broker.server.DelayMessageTest">
  <testcase name="testDelay" classname="org.apache.rocketmq.broker.server.DelayMessageTest"/>
  <testcase name="testTag" classname="org.apache.rocketmq.broker.client.message.MessageTagTest">
    <failure message="not consumed" type="AssertionFailedError">trace
	at org.apache.rocketmq.broker.client.message.MessageTagTest.testTag(MessageTagTest.java:12)</failure>
  </testcase>
</testsuite>
"""
MAVEN = """#!/bin/sh
echo "$cluster $ALL_IP $@" > {folder}/mvn.told
cp pom.xml {folder}/mvn.pom
cat $3/pom.xml > {folder}/module.pom
mkdir -p $3/target/surefire-reports
cp {folder}/report.xml $3/target/surefire-reports/TEST-DelayMessageTest.xml
echo "[INFO] Tests run: 2, Failures: 1, Errors: 0, Skipped: 0 - in org.apache.rocketmq.broker.server.DelayMessageTest"
"""
GO = """#!/bin/sh
echo "$NAMESERVER $GRPC_ENDPOINT $CLUSTER_NAME $@" > {folder}/go.told
sh ../rocketmq-admintools/bin/mqadmin updateTopic -t Topic
echo '{{"Action":"pass","Package":"rocketmq-go-e2e/mqgotest/delay","Test":"TestDelayMsg"}}'
"""
PACKAGE = "rocketmq-go-e2e/mqgotest/fifo"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path; its programs' arguments go to files in it. The home of the runner is `tmp_path`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "report.xml").write_text(REPORT)
    java = f'#!/bin/sh\necho "$@" > {folder}/java.told\n'
    for name, text in (("mvn", MAVEN.format(folder=folder)), ("go", GO.format(folder=folder)), ("java", java)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("ALL_IP", "elsewhere")
    monkeypatch.setattr("scripts.suites.rocketmq.build", lambda home: "jars")
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    for module in ("e2e", "e2e-v4"):
        (folder / "java" / module).mkdir(parents=True)
        (folder / "java" / module / "pom.xml").write_text(MODULE_POM)
    (folder / "java" / "pom.xml").write_text(POM)
    (folder / "golang").mkdir()
    return folder


def words(checkout: Path, suite: str, *more: str) -> list[str]:
    place = ["--nameserver", "127.0.0.1:1", "--endpoint", "127.0.0.1:2"]
    return ["--rocketmq", str(checkout), "--e2e", suite, *place, *more]


@pytest.mark.process
def test_the_java_suite_is_built_alone_and_told_the_cluster(
    programs: Path, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runner.main(words(checkout, "java")) == 1
    told = capsys.readouterr().out
    assert "FAILED MessageTagTest.testTag\n       MessageTagTest.java:12: not consumed\n" in told
    assert "rocketmq-e2e-java-other-broker: 1 passed, 1 failed, 0 skipped" in told
    asked = (programs / "mvn.told").read_text().split()
    assert asked[:6] == ["DefaultCluster", "--batch-mode", "-pl", "e2e", "-am", "test"]
    assert {"-DnamesrvAddr=127.0.0.1:1", "-DendPoint=127.0.0.1:2", "-DrocketmqV5.client.version=5.2.0"} <= set(asked)
    assert not any(word.startswith(("-Dtest=", "-Djunit")) for word in asked)
    pom = (programs / "mvn.pom").read_text()
    assert pom.count("<module>") == 1
    assert "<module>e2e</module>" in pom
    assert "<version>1.18.34</version>" in pom
    assert "PermSize" not in pom + (programs / "module.pom").read_text()
    assert (checkout / "java" / "pom.xml").read_text() == POM


@pytest.mark.process
def test_cases_that_failed_are_run_again(programs: Path, checkout: Path) -> None:
    assert runner.main(words(checkout, "v4")) == 1
    assert runner.main(words(checkout, "v4", "--failed", "-n", "1")) == 1
    asked = (programs / "mvn.told").read_text().split()
    assert asked[3] == "e2e-v4"
    assert {"-Dtest=MessageTagTest#testTag", "-Djunit.jupiter.execution.parallel.enabled=false"} <= set(asked)


@pytest.mark.process
def test_the_suite_in_go_makes_topics_by_mqadmin(programs: Path, checkout: Path) -> None:
    assert runner.main(words(checkout, "go", "-k", "TestDelayMsg")) == 0
    asked = (programs / "go.told").read_text().split()
    assert asked[:4] == ["127.0.0.1:1", "127.0.0.1:2", "DefaultCluster", "test"]
    assert asked[-2:] == ["-run", "^(TestDelayMsg)$"]
    started = "-XX:TieredStopAtLevel=1 -cp jars org.apache.rocketmq.tools.command.MQAdminStartup"
    assert (programs / "java.told").read_text() == f"{started} updateTopic -t Topic\n"


def test_a_failed_test_in_go_has_its_reason() -> None:
    def event(action: str, **more: str) -> str:
        return json.dumps({"Action": action, "Package": PACKAGE, **more}) + "\n"

    lines = [
        "go: downloading something\n",
        event("output", Test="TestFiFOMsg", Output="    ordermsg_test.go:70: \n"),
        event("output", Test="TestFiFOMsg", Output="    \tError:      \tNot equal\n"),
        event("fail", Test="TestFiFOMsg"),
        event("skip", Test="TestOther"),
        event("fail"),
    ]
    outcomes = read_go(lines)
    assert outcomes == Outcomes(
        {"fifo.TestFiFOMsg": "failed", "fifo.TestOther": "skipped"}, {"fifo.TestFiFOMsg": "Error:      \tNot equal"}
    )


def test_a_package_in_go_that_cannot_be_built_is_a_failed_case() -> None:
    lines = [
        json.dumps({"Action": "output", "Package": PACKAGE, "Output": "FAIL\tfifo [build failed]\n"}),
        json.dumps({"Action": "fail", "Package": PACKAGE}),
    ]
    assert read_go(lines) == Outcomes({"fifo.": "failed"}, {"fifo.": "FAIL\tfifo [build failed]"})


def test_suite_that_cannot_be_run_is_refused(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runner.main(words(tmp_path / "none", "java")) == 2
    assert "is no checkout of apache/rocketmq-e2e" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        runner.main(["--rocketmq", "--e2e", "go"])
    with pytest.raises(SystemExit):
        runner.main(["--rocketmq", str(tmp_path), "--e2e", "go", "--nameserver", "127.0.0.1:1"])
    assert "--nameserver and --endpoint go together" in capsys.readouterr().err
