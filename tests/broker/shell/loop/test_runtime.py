"""Imports beside a node that is ready."""

from __future__ import annotations

import errno

import pytest

from broker.shell.loop import runtime


def test_modules_that_cannot_be_imported_or_read_are_left_to_their_use(monkeypatch: pytest.MonkeyPatch) -> None:
    faults: dict[str, Exception] = {
        "absent": ImportError("absent"),
        "unread": OSError(errno.EMFILE, "Too many open files"),
    }
    imported = []

    def import_module(name: str) -> None:
        if name in faults:
            raise faults[name]
        imported.append(name)

    monkeypatch.setattr(runtime, "import_module", import_module)
    # An exception of the thread would be a warning, which is an error.
    runtime.import_beside(["one", *faults, "two"]).join()
    assert imported == ["one", "two"]
