"""The days until certificates end, of files and ports, as `check certificate` and the findings have them."""

from __future__ import annotations

import json
import os
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.systems.config_reading import findings_in
from tests.broker.shell.connections.handshakes import Files
from tests.rigs.config_files import spoil, write_config
from tests.waiting import WAIT_S


@pytest.fixture
def issued(tmp_path: Path) -> Callable[[float], Path]:
    """Write a certificate that ends in some days, and its key; return the certificate's file."""
    authority = trustme.CA()

    def write(days: float) -> Path:
        now = datetime.now(UTC)
        made = authority.issue_cert(
            "localhost", not_after=now + timedelta(days=days), not_before=now - timedelta(days=99)
        )
        file = tmp_path / f"{days}.pem"
        file.write_bytes(made.cert_chain_pems[0].bytes())
        made.private_key_pem.write_to_path(file.with_suffix(".key"))
        return file

    return write


def check(*words: object) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["check", "certificate", *map(str, words)])
    return found.exit_code, found.output


@pytest.mark.parametrize(
    ("days", "code", "words"), [(99, 0, "OK"), (20, 1, "WARNING"), (3, 2, "CRITICAL"), (-3, 2, "ended 3 days ago")]
)
def test_a_file_is_judged_by_its_days(issued: Callable[[float], Path], days: float, code: int, words: str) -> None:
    status, output = check(issued(days))
    assert status == code
    assert words in output
    assert check(issued(days), "-w", "days=-10:", "-c", "days=-10:")[0] == 0


def test_the_first_certificate_to_end_counts(issued: Callable[[float], Path], tmp_path: Path) -> None:
    chain = tmp_path / "chain.pem"
    chain.write_bytes(issued(99).read_bytes() + issued(20).read_bytes())
    assert check(chain)[0] == 1


def test_a_port_is_judged_by_what_it_shows(issued: Callable[[float], Path]) -> None:
    file = issued(20)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, file.with_suffix(".key"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT_S)

        def serve() -> None:
            sock, _ = listener.accept()
            with suppress(OSError), context.wrap_socket(sock, server_side=True) as secured:
                secured.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        status, output = check(f"127.0.0.1:{listener.getsockname()[1]}")
        thread.join(WAIT_S)
    assert status == 1
    assert "ends in 20 days" in output or "ends in 19.99" in output


def test_missing_certificate_is_unknown(tmp_path: Path) -> None:
    file = tmp_path / "no.pem"
    file.write_text("none")
    assert check(file)[0] == 3
    assert check("nowhere")[0] == 3
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert check(f"127.0.0.1:{closed.getsockname()[1]}")[0] == 2


def test_a_file_is_read_if_it_is_regular_and_small(issued: Callable[[float], Path], tmp_path: Path) -> None:
    pipe, device = tmp_path / "pipe", Path("/dev/zero")
    os.mkfifo(pipe)
    for place in (pipe, device, tmp_path):
        status, output = check(place)
        assert status == 3
        assert f"{place}: is not a regular file" in output
    large = tmp_path / "large.pem"
    with large.open("wb") as file:
        file.write(issued(99).read_bytes())
        file.truncate(1 << 20)
    assert check(large)[0] == 0
    os.truncate(large, 1 << 40)
    status, output = check(large)
    assert status == 3
    assert "is larger than 1 MiB" in output


@pytest.mark.parametrize("kind", ["pipe", "large"])
def test_configurations_wait_for_no_certificate(kind: str, tmp_path: Path) -> None:
    file = tmp_path / kind
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.touch()
        os.truncate(file, 1 << 40)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"tlsCertPath={file}\nstorePathRootDir={tmp_path / 's'}\n")
    assert [each for each in findings_in(conf) if "ends on" in each.problem] == []


def test_configurations_note_what_ends_soon(issued: Callable[[float], Path], tmp_path: Path) -> None:
    soon, late = issued(20), issued(99)
    conf = tmp_path / "broker.conf"
    for file, count in ((soon, 1), (late, 0)):
        conf.write_text(
            f"tlsCertPath={file}\ntlsKeyPath={file.with_suffix('.key')}\nstorePathRootDir={tmp_path / 's'}\n"
        )
        assert [each.place for each in findings_in(conf) if "ends on" in each.problem] == ["tlsCertPath"] * count
        folder = write_config(tmp_path / f"etc{count}")
        names = {"certificateAuthority": str(late), "certificate": str(file), "key": str(file.with_suffix(".key"))}
        spoil(folder, "bmqbrkrcfg.json", "appConfig", "tlsConfig", value=names)
        found = [each.place for each in findings_in(folder) if "ends on" in each.problem]
        assert found == ["$.appConfig.tlsConfig.certificate"] * count


def test_a_list_of_revoked_certificates_ends_when_the_next_is_due(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.revoke()
    status, output = check(files.revoked, "--output", "json")
    assert status == 2
    assert 0.9 < json.loads(output)["values"][0]["value"] <= 1.0
