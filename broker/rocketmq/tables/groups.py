"""The consumer groups of a broker, and the file that keeps them (source: SubscriptionGroupManager)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from broker.common.kept import Keep, KeptTable
from broker.common.limited_log import LimitedLog
from broker.rocketmq.remoting.requests import Refused
from broker.rocketmq.tables import names
from broker.rocketmq.tables.options import BrokerOptions
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.clients import GROUP_CONFIG, GROUPS, GroupConfig
from formats.rocketmq.remoting.bodies.clients import Groups as GroupsFile
from formats.rocketmq.remoting.bodies.routes import DATA_VERSION, DataVersion
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.topic_names import TRANSACTION_GROUP

__all__ = ["TOOLS_GROUP", "Groups"]

log = logging.getLogger("broker.rocketmq.groups")

TOOLS_GROUP: Final = "TOOLS_CONSUMER"

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
    """The groups. `keep` writes their file; if it raises `OSError`, the change is undone.

    With a `Keeper`, changes are written at the end of the step. Only this class modifies `table`.
    """

    def __init__(self, stored: bytes, keep: Keep, *, auto_create: bool = True) -> None:
        file = GROUPS.read(stored) if stored else GroupsFile()
        self.auto_create = auto_create
        # Replaced by the options of the broker.
        self.options = BrokerOptions()
        table = {**file.subscription_group_table}
        for name in _SYSTEM_GROUPS:
            table.setdefault(name, GroupConfig(name))
        forbidden = GROUPS.write_value(GroupsFile({}, file.forbidden_table))["forbiddenTable"]

        def compose(texts: Iterable[str], version: DataVersion) -> bytes:
            return _text(texts, version, forbidden).encode()

        self.kept: KeptTable[str, GroupConfig, str, DataVersion] = KeptTable(
            keep, table, file.data_version, _encode, compose
        )
        self.table: Mapping[str, GroupConfig] = self.kept.table
        self._refusals = LimitedLog(log)

    @property
    def version(self) -> DataVersion:
        return self.kept.version

    def find(self, group: str, now_ms: int) -> GroupConfig | None:
        """Return a group, created if missing; None if it may not be created."""
        config = self.table.get(group)
        self.kept.rely_on(group)
        return self.find_all([group], now_ms).get(group) if config is None else config

    def find_all(self, groups: Iterable[str], now_ms: int) -> dict[str, GroupConfig]:
        """Return groups by name, creating missing ones in one change; leave out groups that may not be created."""
        found = {group: self.table.get(group) for group in groups}
        for group in found:
            self.kept.rely_on(group)
        made: dict[str, GroupConfig] = {}
        for group, config in found.items():
            if config is None and self.auto_create and names.fault_of_group(group) is None:
                if len(self.table) + len(made) >= self.options.auto_groups_max:
                    self._refusals.add(self.missing(group), now_ms)
                    break
                made[group] = GroupConfig(group)
        self.put_all(made.values(), now_ms)
        return {group: config for group, config in {**found, **made}.items() if config is not None}

    def missing(self, group: str) -> str:
        """Return the text that a group does not exist, and why a broker that creates groups did not create it."""
        text = f"subscription group [{group}] does not exist"
        if not self.auto_create or len(self.table) < self.options.auto_groups_max:
            return text
        bound = f"autoCreateSubscriptionGroupMaxNum allows {self.options.auto_groups_max}"
        return f"{text}, and is not made: the broker has {len(self.table)} groups, {bound}"

    def put(self, config: GroupConfig, now_ms: int) -> None:
        self.put_all([config], now_ms)

    def put_all(self, configs: Iterable[GroupConfig], now_ms: int) -> None:
        """Create or change groups, all in one change. Raises `Refused` beyond `subscriptionGroupMaxNum`."""
        changed = {config.group_name: config for config in configs}
        most = self.options.groups_max
        if len(self.table) + len(changed) > most and len(self.table.keys() | changed.keys()) > most:
            text = f"the broker has {len(self.table)} groups, subscriptionGroupMaxNum allows {most}"
            raise Refused(ResponseCode.SYSTEM_ERROR, text)
        self.kept.put(changed, self._next_version(now_ms))

    def delete(self, group: str, now_ms: int) -> None:
        self.kept.put({group: None}, self._next_version(now_ms))

    def follow(self, table: Mapping[str, GroupConfig], version: DataVersion) -> None:
        if version != self.kept.next_version:
            gone = [name for name in self.table if name not in table]
            changed = {name: config for name, config in table.items() if self.table.get(name) != config}
            self.kept.change({**changed, **dict.fromkeys(gone)}, version)

    def _next_version(self, now_ms: int) -> DataVersion:
        counter, state, _ = self.kept.next_version
        return DataVersion(counter + 1, state, now_ms)

    def body(self) -> bytes:
        """Return all groups as JSON, for other brokers and administrators."""
        return fastjson.without_lines(_text(self.kept.texts.values(), self.version, {})).encode()


def _encode(name: str, config: GroupConfig) -> str:
    return fastjson.dumps_pretty_item(name, GROUP_CONFIG.write_value(config), 1)


def _text(texts: Iterable[str], version: DataVersion, forbidden: Any) -> str:
    value = {
        "dataVersion": DATA_VERSION.write_value(version),
        "forbiddenTable": forbidden,
        "subscriptionGroupTable": fastjson.Items(texts),
    }
    return fastjson.dumps_pretty(value)
