"""Certificates of a test authority, and a user, for the nodes of a cluster that `bmqctl config init` writes."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from broker.shell.connections.certificates import Certificate, issue_certificate, make_authority

__all__ = ["AUTHORITY_FILE", "ClusterSecurity", "credentials_file"]

AUTHORITY_FILE = "ca.pem"
_PASSWORD_BYTES = 24


def credentials_file(directory: Path, user: str) -> Path:
    """The file with the user's name and password, for `--authn-data-file` of `bmqctl context add`."""
    return directory / f"{user}.credentials"


class ClusterSecurity:
    """Security of a cluster in `directory`, whose nodes are the folders `nodes` and listen on `host`.

    With `uses_tls`, nodes speak TLS and prove their names to each other by certificates. With `user`, every peer must
    authenticate: the user, who has all rights, and the nodes. Only the owner can read keys, passwords and
    configurations with passwords.
    """

    def __init__(self, directory: Path, nodes: Sequence[str], host: str, *, uses_tls: bool, user: str | None) -> None:
        self.uses_tls = uses_tls
        self._directory = directory.absolute()
        self._host = host
        self._user = user
        self._now_s = int(time.time())
        self._passwords = {name: secrets.token_urlsafe(_PASSWORD_BYTES) for name in (*nodes, user) if name is not None}
        self._nodes = list(nodes)
        self._authority: Certificate | None = None

    def app_config(self, node: Path) -> dict[str, Any]:
        """Write the certificate of a node, and before the first one the authority and the user's credentials."""
        node.mkdir(parents=True, exist_ok=True)
        members: dict[str, Any] = {}
        if self.uses_tls:
            members["tlsConfig"] = self._tls(node)
        if self._user is not None:
            file = credentials_file(self._directory, self._user)
            _write_secret(file, f"{self._user}:{self._passwords[self._user]}\n".encode())
            # The node's password is in its configuration.
            node.chmod(0o700)
            members["authentication"] = self._authentication(node.name)
            members["authorization"] = {
                "rules": [
                    {"principals": [f"BASIC_USER-{self._user}"], "actions": ["read", "write", "administer"]},
                    {"principals": [f"BASIC_USER-{name}" for name in self._nodes], "actions": ["broker"]},
                ]
            }
        return members

    def _tls(self, node: Path) -> dict[str, Any]:
        if self._authority is None:
            self._authority = make_authority("bmqctl test authority", self._now_s)
            (self._directory / AUTHORITY_FILE).write_bytes(self._authority.certificate)
            _write_secret(self._directory / "ca.key", self._authority.key)
        issued = issue_certificate(self._authority, [node.name, "localhost", self._host], self._now_s)
        certificate, key = node / "node.pem", node / "node.key"
        certificate.write_bytes(issued.certificate)
        _write_secret(key, issued.key)
        return {
            "certificateAuthority": str(self._directory / AUTHORITY_FILE),
            "certificate": str(certificate.absolute()),
            "key": str(key.absolute()),
            "clientCertificate": "OPTIONAL",
        }

    def _authentication(self, node: str) -> dict[str, Any]:
        return {
            "authenticators": [{"name": "BasicAuthenticator", "settings": _settings(self._passwords)}],
            "anonymousCredential": {"disallow": {}},
            "credentialProvider": {
                "name": "BasicCredentialProvider",
                "settings": _settings({"username": node, "password": self._passwords[node]}),
            },
        }


def _settings(texts: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringVal": text}} for key, text in texts.items()]


def _write_secret(file: Path, content: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        os.fchmod(descriptor, 0o600)
        stream.write(content)
