"""The configuration files of a process: how they are read, and the users and policies that they have."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from broker.rocketmq.access.model import Invalid
from broker.rocketmq.access.tables import AccessTables, lockout
from broker.rocketmq.config.node import PropertyError, RocketConfig
from broker.shell.files.config_files import ConfigFile
from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.access import UserInfo
from formats.rocketmq.remoting.bodies.plain_accounts import Account, read_accounts
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.signature import signed

__all__ = ["check_access", "make_seal", "open_access", "read_file"]

log = logging.getLogger("broker.rocketmq")

T = TypeVar("T")


def open_access(config: RocketConfig) -> AccessTables:
    """Read a store's users and policies, with the configuration's users. Raises `PropertyError`."""
    users = ConfigFile(config.store / "config" / "users.json")
    acls = ConfigFile(config.store / "config" / "acls.json")
    tables = read_file(users, lambda data: AccessTables(data, acls.read(), users.write, acls.write), beside=acls)
    _make_first_users(config, tables)
    return tables


def check_access(config: RocketConfig) -> None:
    """Raise `PropertyError` if `open_access` would; nothing is written."""
    folder = config.store / "config"
    if folder.is_dir():
        users, acls = ConfigFile(folder / "users.json"), ConfigFile(folder / "acls.json")
        tables = read_file(users, lambda data: AccessTables(data, acls.read(), _forget, _forget), beside=acls)
    else:
        tables = AccessTables(b"", b"", _forget, _forget)
    _make_first_users(config, tables)


def _forget(data: bytes) -> None:
    """Keep nothing."""


def _make_first_users(config: RocketConfig, tables: AccessTables) -> None:
    """Make the configuration's users, unless they exist. Raises `PropertyError`."""
    for account in _plain_accounts(config.plain_accounts):
        if account.white_addresses:
            log.warning("the whitelisted addresses of account %s are ignored", account.user.username)
        if account.user.username not in tables.users:
            try:
                tables.create_user(account.user)
                if account.acl is not None:
                    tables.put_acl(account.acl)
            except Invalid as error:
                raise PropertyError(f"{config.plain_accounts}: account {account.user.username}: {error}") from None
    for user in (config.first_user, config.inner_credentials):
        if user is not None and user.username not in tables.users:
            tables.create_user(user)
    fault = lockout(tables.users, tables.acls, config.options.cluster)
    if (config.access.authentication or config.access.authorization) and fault is not None:
        raise PropertyError(
            f"authentication is enabled, but {fault}",
            'define one in the configuration: initAuthenticationUser={"username":"...","password":"..."}',
        )


def _plain_accounts(path: Path | None) -> list[Account]:
    if path is None:
        return []
    try:
        return read_accounts(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise PropertyError(f"{path}: is not UTF-8") from None
    except (FormatError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise PropertyError(f"{path}: {reason}; aclEnable and migrateAuthFromV1Enabled need its accounts") from None


def read_file(file: ConfigFile, read: Callable[[bytes], T], beside: ConfigFile | None = None) -> T:
    """Read and decode a file, and perhaps another one beside it.

    Raises `PropertyError`, with its name and the remedy.
    """
    try:
        return read(file.read())
    except FormatError as error:
        names = str(file.path) if beside is None else f"{file.path} or {beside.path}"
        raise PropertyError(f"{names}: {error}", "repair it, or restore the file whose name ends with .bak") from None


def make_seal(credentials: UserInfo | None) -> Callable[[Frame], Frame]:
    """Return the signer of requests to nameservers, which signs nothing without credentials."""
    if credentials is None:
        return lambda frame: frame
    name, secret = credentials.username or "", credentials.password or ""
    return lambda frame: signed(frame, name, secret)
