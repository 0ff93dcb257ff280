"""Spark for a user id that has no entry in the password file, as containers with arbitrary ids have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bmqctl.pipeline.spark.java import find_java

UID = "54321"
STARTS = """
from bmqctl.pipeline.spark.session import local_context
with local_context(1, "512m", quick=True) as context:
    print("user", context.sparkUser())
"""


def test_spark_starts_for_a_user_without_an_entry() -> None:
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root, and setpriv of util-linux")
    user = ["setpriv", "--reuid", UID, "--clear-groups"]
    java = subprocess.run([*user, str(find_java().path), "-version"], capture_output=True, check=False)
    if java.returncode:
        pytest.skip("another user cannot run this Java")
    environment = {**os.environ, "TMPDIR": "/tmp", "PYTHONPATH": str(Path.cwd())}
    for name in ("HOME", "XDG_CONFIG_HOME"):
        environment.pop(name, None)
    done = subprocess.run(
        [*user, sys.executable, "-c", STARTS], capture_output=True, text=True, env=environment, cwd="/", check=False
    )
    assert (done.returncode, done.stdout) == (0, f"user {UID}\n"), done.stderr
