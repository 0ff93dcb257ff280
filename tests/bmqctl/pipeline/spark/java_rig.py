"""A shell script in the place of a Java."""

from __future__ import annotations

from pathlib import Path


def script(directory: Path, body: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{body}")
    java.chmod(0o755)
    return java
