"""Version 5's clients as the conformance runner runs them, with tools that only pretend."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts.judges.client_environment import CannotInstall
from scripts.suites import blazingmq as runner
from scripts.suites import grpc as conformance_grpc
from scripts.suites import pairs as conformance_pairs
from scripts.suites.grpc import CASES, LANGUAGES, SOURCE, Place, Program, build, judge, prepare
from scripts.suites.rocketmq import Outcomes, Unfit

# How each program names its cases.
NAMES = {
    "node": ("judge.js", r"^  (?:async )?(\w+)(?:\(self\) \{|: sendAndReceive,)$"),
    "java": ("src/main/java/Judge.java", r'CASES\.put\("(\w+)"'),
    "go": ("judge.go", r'^\t"(\w+)": +\w+,$'),
    "python": ("judge.py", r'^    "(\w+)": \w+,$'),
}
CLIENT = """#!/bin/sh
echo "$@" > {folder}/client.told
echo "$GRPC_DEFAULT_SSL_ROOTS_FILE_PATH" > {folder}/client.roots
echo "case send passed"
echo "case sql failed more came"
"""
GO = """#!/bin/sh
echo "$@" > {folder}/go.told
printf '#!/bin/sh\\necho "case send passed"\\n' > judge
chmod +x judge
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path; its programs' arguments go to files in it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("node", CLIENT), ("go", GO), ("npm", "#!/bin/sh\nmkdir -p node_modules\n")):
        (folder / name).write_text(text.format(folder=folder))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """The topics that are asked for: at which nameserver, and for which cases."""
    asked: list[tuple[str, list[str]]] = []

    async def make_topics(nameserver: str, run: str, cases: Sequence[str]) -> None:
        asked.append((nameserver, list(cases)))

    monkeypatch.setattr(conformance_grpc, "_make_topics", make_topics)
    return asked


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_case_of_a_program_is_run(language: str) -> None:
    file, pattern = NAMES[language]
    found = re.findall(pattern, (SOURCE / language / file).read_text(), re.MULTILINE)
    assert sorted(found) == sorted(CASES[language])


def test_programs_are_built(programs: Path, tmp_path: Path) -> None:
    assert build("node", tmp_path / "node") == Program("node", ["node", str(tmp_path / "node" / "judge.js")])
    assert '"rocketmq-client-nodejs": "1.0.8"' in (tmp_path / "node" / "package.json").read_text()
    assert build("go", tmp_path / "go").words == [str(tmp_path / "go" / "judge")]
    assert (tmp_path / "go" / "judge.go").exists()
    assert (programs / "go.told").read_text() == "build -o judge .\n"
    (programs / "go").write_text("#!/bin/sh\necho no network\nexit 1\n")
    with pytest.raises(Unfit, match="no network"):
        build("go", tmp_path / "go")
    (programs / "go").unlink()
    with pytest.raises(Unfit, match="needs Go"):
        build("go", tmp_path / "go")


def test_python_client_has_an_environment_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def client_python(package: str, name: str) -> Path:
        asked.append((package, name))
        return tmp_path / "bin" / "python"

    def no_client(package: str, name: str) -> Path:
        raise CannotInstall(f"{package}: no network")

    monkeypatch.setattr(conformance_grpc, "client_python", client_python)
    assert build("python", tmp_path).words == [str(tmp_path / "bin" / "python"), str(SOURCE / "python" / "judge.py")]
    words = conformance_pairs.build("python", tmp_path)
    assert words == [str(tmp_path / "bin" / "python"), str(SOURCE / "python" / "exchange.py")]
    assert all(Path(each).exists() for each in (SOURCE / "python" / "judge.py", words[1]))
    assert asked == [("rocketmq-python-client==5.1.2", "rocketmq-grpc")] * 2
    monkeypatch.setattr(conformance_grpc, "client_python", no_client)
    with pytest.raises(Unfit, match="no network"):
        build("python", tmp_path)


def test_a_client_is_told_its_endpoint_and_whom_to_trust(
    programs: Path, made: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    program = Program("node", ["node", "judge.js"])
    place = Place("127.0.0.1:1", "127.0.0.1:2", tmp_path / "authority.pem")
    outcomes = judge(program, place, ["send", "sql"], tmp_path / "log", 10)
    assert outcomes == Outcomes({"send": "passed", "sql": "failed"}, {"sql": "more came"})
    words = (programs / "client.told").read_text().split()
    assert (words[:2], words[3:]) == (["judge.js", "127.0.0.1:2"], ["send", "sql"])
    assert (programs / "client.roots").read_text() == f"{tmp_path / 'authority.pem'}\n"
    judge(program, place, [], tmp_path / "log", 10)
    assert made == [("127.0.0.1:1", ["send", "sql"]), ("127.0.0.1:1", list(CASES["node"]))]


def test_a_node_has_a_certificate(tmp_path: Path) -> None:
    authority, properties = prepare(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "chain.pem", tmp_path / "key.pem")
    assert ssl.create_default_context(cafile=authority).get_ca_certs()
    assert f"tlsCertPath={tmp_path / 'chain.pem'}\n" in properties


def test_runner_judges_a_cluster_that_runs(
    programs: Path,
    made: list[tuple[str, list[str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = ["--rocketmq", "--grpc", "node", "--nameserver", "127.0.0.1:1", "--endpoint", "127.0.0.1:2"]
    assert runner.main([*words, "-k", "send,sql"]) == 1
    told = capsys.readouterr().out
    assert "FAILED sql\n       more came\n" in told
    assert "rocketmq-grpc-node-other-broker: 1 passed, 1 failed, 0 skipped" in told
    assert made == [("127.0.0.1:1", ["send", "sql"])]
    assert runner.main([*words[:2], "go", *words[3:], "-k", "send"]) == 0
    monkeypatch.setattr(conformance_grpc, "build", lambda language, home: Program(language, ["node"]))
    assert runner.main([*words[:2], *words[3:], "-k", "send"]) == 1
    told = capsys.readouterr().out
    for language in ("node", "java", "go", "python"):
        assert f"rocketmq-grpc-{language}-other-broker: 1 passed" in told
    with pytest.raises(SystemExit):
        runner.main(words[:5])
    assert "--nameserver and --endpoint go together" in capsys.readouterr().err
