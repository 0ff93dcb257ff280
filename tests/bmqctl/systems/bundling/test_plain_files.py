"""A bundle reads plain files of the folders that were named, and nothing that a link leads to elsewhere."""

from __future__ import annotations

import json
import os
import socket
import tarfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bmqctl.app import app

# A bundle names the versions, for which git and uname run.
pytestmark = pytest.mark.process

OTHER = "0ther-accounts-file"


@pytest.fixture
def shadow(tmp_path: Path) -> Path:
    """A file of another account, outside of all folders that are named."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in ("shadow", "shadow.log", "bmqbrkrcfg.json"):
        (folder / name).write_text(f"root:{OTHER}\n")
    return folder / "shadow"


def bundled(tmp_path: Path, *words: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the contents of a bundle, and the reasons of what is missing."""
    archive = tmp_path / "bundle.tar.gz"
    result = CliRunner().invoke(app, ["bundle", "--offline", "--file", str(archive), *words])
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.exit_code in (0, 1), result.output
    found: dict[str, str] = {}
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar.getmembers():
            file = tar.extractfile(member)
            assert file is not None
            found[member.name.partition("/")[2]] = file.read().decode()
    manifest: dict[str, Any] = json.loads(found["manifest.json"])
    return found, {each["name"]: each["reason"] for each in manifest["missing"]}


def test_links_out_of_a_configuration_are_not_followed(tmp_path: Path, shadow: Path) -> None:
    etc = tmp_path / "etc"
    (etc / "domains").mkdir(parents=True)
    (etc / "own.conf").write_text("port=1\n")
    (etc / "alias.conf").symlink_to("own.conf")
    (etc / "passwords.conf").symlink_to(shadow)
    (etc / "bmqbrkrcfg.json").symlink_to("../elsewhere/bmqbrkrcfg.json")
    (etc / "domains" / "up.json").symlink_to("../../elsewhere/bmqbrkrcfg.json")
    (etc / "more.conf").symlink_to(shadow.parent)
    (etc / "circle.conf").symlink_to("circle.conf")
    os.mkfifo(etc / "clusters.json")
    (etc / "null.conf").symlink_to("/dev/zero")
    found, missing = bundled(tmp_path, "--config", str(etc))
    assert not [name for name, text in found.items() if OTHER in text]
    assert found["configuration/own.conf"] == found["configuration/alias.conf"] == "port=1\n"
    out = "it is a link out of its folder, which is not followed"
    assert missing == {
        "configuration/passwords.conf": out,
        "configuration/bmqbrkrcfg.json": out,
        "configuration/domains/up.json": out,
        "configuration/more.conf": out,
        "configuration/null.conf": out,
        "configuration/circle.conf": "Too many levels of symbolic links",
        "configuration/clusters.json": "it is no plain file",
        "configuration-findings/etc.json": "not all of its files are plain ones that can be read",
    }


@pytest.mark.parametrize("place", ["bmqbrkr.log", "logs", "log/a.log", "config", "config/topics.json"])
def test_links_out_of_a_store_are_not_followed(tmp_path: Path, shadow: Path, place: str) -> None:
    store = tmp_path / "store"
    link = store / place
    link.parent.mkdir(parents=True)
    (shadow.parent / "topics.json").write_text(OTHER)
    is_folder = place in ("logs", "config")
    link.symlink_to(shadow.parent if is_folder else shadow, target_is_directory=is_folder)
    os.mkfifo(store / "bmqbrkr.log.1")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(store)
        try:
            listener.bind("bmqctl.log")
        finally:
            os.chdir(here)
        found, missing = bundled(tmp_path, str(store))
    assert not [name for name, text in found.items() if OTHER in text]
    assert {"logs/bmqbrkr.log.1", "logs/bmqctl.log"} <= missing.keys()
    (listed,) = [each for each in json.loads(found["store/files.json"])["files"] if each["file"] == place]
    assert listed["bytes"] < 1_000


def test_hard_links_of_another_owner_are_not_taken_along(tmp_path: Path, shadow: Path) -> None:
    if os.getuid():
        pytest.skip("only root can give a file away")
    etc = tmp_path / "etc"
    etc.mkdir()
    os.chown(etc, 12345, 12345)
    os.link(shadow, etc / "x.conf")
    found, missing = bundled(tmp_path, "--config", str(etc))
    assert not [name for name, text in found.items() if OTHER in text]
    assert missing["configuration/x.conf"] == "it has other names, and another owner than its folder"


def test_a_folder_of_a_mounted_map_is_taken_along(tmp_path: Path) -> None:
    # As Kubernetes mounts a ConfigMap: links to links within the folder.
    etc = tmp_path / "etc"
    (etc / "..2026_11_27").mkdir(parents=True)
    (etc / "..2026_11_27" / "broker.conf").write_text("port=1\n")
    (etc / "..data").symlink_to("..2026_11_27")
    (etc / "broker.conf").symlink_to("..data/broker.conf")
    found, _ = bundled(tmp_path, "--config", str(etc))
    assert found["configuration/broker.conf"] == "port=1\n"
