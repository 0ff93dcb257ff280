"""The consumer groups of a broker, and the file that keeps them (source: SubscriptionGroupManager)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from broker.rocketmq.core import names
from formats.rocketmq import fastjson
from formats.rocketmq.client_bodies import GROUPS, GroupConfig
from formats.rocketmq.client_bodies import Groups as GroupsFile
from formats.rocketmq.route_bodies import DataVersion

__all__ = ["TOOLS_GROUP", "Groups"]

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"

_SYSTEM_GROUPS: Final = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)


class Groups:
    """The groups. `keep` writes their file; it may raise `OSError`, and the change is not made then."""

    def __init__(self, stored: bytes, keep: Callable[[bytes], None], *, auto_create: bool = True) -> None:
        file = GROUPS.read(stored) if stored else GroupsFile()
        self._keep = keep
        self.auto_create = auto_create
        self._forbidden = file.forbidden_table
        self.table = {**file.subscription_group_table}
        for name in _SYSTEM_GROUPS:
            self.table.setdefault(name, GroupConfig(name))
        self.version = file.data_version

    def find(self, group: str, now_ms: int) -> GroupConfig | None:
        """A group, made if need be; None if there is none and it may not be made."""
        config = self.table.get(group)
        if config is None and self.auto_create and names.fault_of_group(group) is None:
            config = GroupConfig(group)
            self.put(config, now_ms)
        return config

    def put(self, config: GroupConfig, now_ms: int) -> None:
        """Make a group, or change it."""
        self.put_all([config], now_ms)

    def put_all(self, configs: Iterable[GroupConfig], now_ms: int) -> None:
        """Make or change groups, all in one."""
        changed = {config.group_name: config for config in configs}
        if changed:
            self._change({**self.table, **changed}, now_ms)

    def delete(self, group: str, now_ms: int) -> None:
        """Delete a group, if it is there."""
        if group in self.table:
            self._change({name: config for name, config in self.table.items() if name != group}, now_ms)

    def follow(self, table: dict[str, GroupConfig], version: DataVersion) -> None:
        """Take the groups of a master, with their version."""
        if version != self.version:
            self._write(dict(table), version)

    def _change(self, table: dict[str, GroupConfig], now_ms: int) -> None:
        self._write(table, DataVersion(self.version.counter + 1, self.version.state_version, now_ms))

    def _write(self, table: dict[str, GroupConfig], version: DataVersion) -> None:
        file = GroupsFile(table, self._forbidden, version)
        self._keep(fastjson.dumps_pretty(GROUPS.write_value(file)).encode())
        self.table, self.version = table, version
