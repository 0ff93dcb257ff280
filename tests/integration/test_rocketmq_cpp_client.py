"""RocketMQ's C++ client, as PyPI's `rocketmq` 0.4.4 has it, as the judge of our node.

Its package has a name that another client has, too, so it is in an environment of its own, made once.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import venv
from pathlib import Path

import pytest

from bmqctl.testing import RocketProcess, rocketmq_node

__all__ = ["rocketmq_node"]

PACKAGE = "rocketmq==0.4.4"
PROGRAM = Path(__file__).with_name("cpp_client.py")


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of an environment with the client."""
    if platform.machine() != "x86_64":
        pytest.skip(f"{PACKAGE} has a wheel for x86_64 only")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bmqctl" / "rocketmq-cpp"
    found = home / "bin" / "python"
    mark = home / "package"
    if not mark.exists() or mark.read_text() != PACKAGE:
        venv.create(home, clear=True, with_pip=True)
        pip = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", PACKAGE]
        done = subprocess.run(pip, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"{PACKAGE} cannot be installed: {done.stderr[-500:]}")
        mark.write_text(PACKAGE)
    return found


@pytest.mark.timeout(300)
def test_cpp_client_sends_and_consumes(rocketmq_node: RocketProcess, python: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(python), str(PROGRAM), rocketmq_node.nameserver],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["sent"] == [0] * 20
    assert seen["tag"] == sorted(f"k{number}" for number in range(1, 30, 2))
    assert seen["ordered"] == [f"k{number}" for number in range(20)]
    assert seen["late"] == ["k30"]
    assert seen["pulled"] == sorted(f"body {number}" for number in range(20))
    assert "Traceback" not in rocketmq_node.output
    assert "fault of this broker" not in rocketmq_node.output
