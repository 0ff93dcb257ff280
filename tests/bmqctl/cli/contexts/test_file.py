"""The file of contexts on the disk: its place, its mode, its faults; and credentials that are elsewhere."""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from typing import NoReturn

import pytest

from bmqctl.cli.contexts.file import contexts_path, read_contexts, secret_of, write_contexts
from bmqctl.cli.contexts.model import BadContext, Context, Contexts, SecretSource

OPEN = Contexts().with_context("prod", Context("tcp://a:1"))
SECRET = OPEN.with_context("orders", Context("rocketmq://a:1", secret_source=SecretSource.HERE, secret="user:password"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "bmqctl" / "contexts.json"


def test_the_place_is_that_of_the_xdg_specification() -> None:
    assert contexts_path({"XDG_CONFIG_HOME": "/etc/x"}) == Path("/etc/x/bmqctl/contexts.json")
    for relative in ({}, {"XDG_CONFIG_HOME": ""}, {"XDG_CONFIG_HOME": "x"}):
        assert contexts_path({"HOME": "/home/a", **relative}) == Path("/home/a/.config/bmqctl/contexts.json")


def test_without_home_in_the_environment_the_home_is_that_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    assert contexts_path({}) == Path.home() / ".config" / "bmqctl" / "contexts.json"


def test_the_file_is_the_owner_s_and_nothing_is_left_beside_it(path: Path) -> None:
    assert read_contexts(path) == Contexts()
    write_contexts(path, OPEN)
    write_contexts(path, SECRET)
    assert read_contexts(path) == SECRET
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_a_file_with_secrets_that_others_may_read_is_refused(path: Path) -> None:
    write_contexts(path, SECRET)
    path.chmod(0o640)
    with pytest.raises(BadContext, match="others may read it: chmod 600"):
        read_contexts(path)
    write_contexts(path, OPEN)
    path.chmod(0o644)
    assert read_contexts(path) == OPEN


def test_a_link_to_the_file_stays_one(path: Path, tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles.json"
    kept.write_text(OPEN.to_text())
    path.parent.mkdir(parents=True)
    path.symlink_to(kept)
    write_contexts(path, SECRET)
    assert path.is_symlink()
    assert read_contexts(kept) == SECRET


@pytest.mark.parametrize(("data", "reason"), [(b"\x7b\xff", "no UTF-8 at offset 1"), (b"{", "is not JSON")])
def test_damage_names_the_file(path: Path, data: bytes, reason: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    with pytest.raises(BadContext) as caught:
        read_contexts(path)
    assert str(caught.value).startswith(f"{path}: {reason}")
    assert str(caught.value).endswith("; move it away, or mend it")


def test_path_that_is_no_file_is_refused_by_name(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(BadContext, match="Is a directory"):
        read_contexts(path)
    with pytest.raises(BadContext, match="Is a directory"):
        write_contexts(path, OPEN)
    assert list(path.parent.iterdir()) == [path]


def test_credentials_come_from_where_the_context_says(tmp_path: Path) -> None:
    def context(source: SecretSource, text: str) -> Context:
        return Context("rocketmq://a:1", secret_source=source, secret=text)

    file = tmp_path / "secret"
    file.write_text("user:from a file\n")
    assert secret_of(Context("tcp://a:1")) is None
    assert secret_of(context(SecretSource.FILE, str(file))) == "user:from a file"
    assert secret_of(context(SecretSource.ENVIRONMENT, "X"), {"X": "user:x"}) == "user:x"
    assert secret_of(context(SecretSource.HERE, "user:y")) == "user:y"
    with pytest.raises(BadContext, match="variable X, which is not set"):
        secret_of(context(SecretSource.ENVIRONMENT, "X"), {})
    with pytest.raises(BadContext, match="No such file"):
        secret_of(context(SecretSource.FILE, str(tmp_path / "none")))
    for data in (b"", b"\n", b"a\nb\n", b"\xff", b"x" * (1 << 17)):
        file.write_bytes(data)
        with pytest.raises(BadContext, match="its credentials are in"):
            secret_of(context(SecretSource.FILE, str(file)))


def test_without_a_home_there_are_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(number: int) -> NoReturn:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr("pwd.getpwuid", missing)
    for environment in ({}, {"HOME": ""}, {"HOME": "relative"}):
        assert contexts_path(environment) is None
    assert contexts_path({"HOME": "/home/ops"}) == Path("/home/ops/.config/bmqctl/contexts.json")
    assert read_contexts(None) == Contexts()
    with pytest.raises(BadContext, match="set HOME, or XDG_CONFIG_HOME"):
        write_contexts(None, Contexts())


def test_a_home_that_cannot_be_read_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path, mode: str) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(BadContext, match="Permission denied; set XDG_CONFIG_HOME"):
        read_contexts(Path("/root/.config/bmqctl/contexts.json"))
    # The home of a daemon is often no folder.
    monkeypatch.undo()
    assert read_contexts(Path("/dev/null/.config/bmqctl/contexts.json")) == Contexts()
