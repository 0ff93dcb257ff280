"""Hooks of MkDocs that add the generated pages to the written ones."""

from __future__ import annotations

import sys
from pathlib import Path

# MkDocs loads this file by its path, with its own program's import path.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from scripts.manual.pages import generated_pages

__all__ = ["on_files"]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, content in generated_pages().items():
        files.append(File.generated(config, path, content=content))
    return files
