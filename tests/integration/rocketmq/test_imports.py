"""A RocketMQ node imports in a thread what its requests need: an import would hold up all other requests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bmqctl.testing import RocketProcess
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.rigs.grpc_calls import ask_route, connect
from tests.rigs.remoting import Remote
from tests.waiting import eventually

# Writes the name of each module that Python looks for, and the thread; from readiness on.
WATCHED = """
import os, sys, threading
from broker.shell.loop import runtime

def import_beside(modules):
    lines = open(os.environ["IMPORTS"], "a", buffering=1)
    sys.addaudithook(lambda event, arguments: event == "import" and note(arguments[0]))
    def note(module):
        if not sys.is_finalizing():
            lines.write(f"{threading.current_thread().name} {module}\\n")
    thread = real(modules)
    threading.Thread(target=lambda: (thread.join(), note("END"))).start()
    return thread

real, runtime.import_beside = runtime.import_beside, import_beside
from bmqctl.app import main
main()
"""
MESSAGES = 200


@pytest.mark.timeout(120)
def test_requests_import_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imports = tmp_path / "imports"
    monkeypatch.setenv("IMPORTS", str(imports))
    node = RocketProcess(tmp_path / "store", command=(sys.executable, "-c", WATCHED))
    with node, Remote(node.port) as remote:
        eventually(lambda: imports.exists() and " END\n" in imports.read_text(), timeout_s=60)
        assert "imports numpy." in imports.read_text()
        fields = {"a": "group", "b": "many", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1_700_000_000_000, "h": 0}
        asked = [remote.ask(RequestCode.SEND_MESSAGE_V2, b"body", i="", **fields) for _ in range(MESSAGES)]
        assert {remote.answer(number).code for number in asked} == {ResponseCode.SUCCESS}
        assert remote.answer(remote.pull("many")).code == ResponseCode.SUCCESS
        with connect(node.grpc_port) as sock:
            ask_route(sock, "many")
        assert node.stop() == 0
    _, _, after = imports.read_text().partition(" END\n")
    assert [line for line in after.splitlines() if line.startswith("MainThread ")] == []
