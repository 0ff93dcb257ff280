"""The part of the composition root that makes a RocketMQ broker a master or a slave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.rocketmq.assembly.config import PropertyError, RocketConfig
from broker.rocketmq.core.broker import Broker
from broker.rocketmq.core.options import BrokerOptions
from broker.rocketmq.core.registration import Nameservers
from broker.rocketmq.flush_gate import FlushGate
from broker.rocketmq.node import Connection, Node
from broker.rocketmq.replication.connection import ReplicationSession
from broker.rocketmq.replication.following import Following
from broker.rocketmq.replication.master import Master
from broker.rocketmq.replication.master_link import MasterLink
from broker.rocketmq.replication.metadata import Kept, Metadata
from broker.rocketmq.replication.options import Role
from broker.rocketmq.replication.role import BrokerRole
from broker.rocketmq.replication.slave import Slave, SlaveStream
from broker.rocketmq.store.message_store import MessageStore
from broker.shell.dialing import Connected, Place
from formats.rocketmq.frame import Frame
from formats.rocketmq.ha_bodies import HaRuntime
from formats.rocketmq.hosts import Host, split_address

__all__ = ["Group", "place_of", "replication_ports"]

# The original's brokers ask each other on this port beside the broker's own ("VIP channel").
SECOND_PORT_BELOW = 2

Connect = Callable[[str, Callable[[], frozenset[str]]], Connection]
Dial = Callable[[Place, Connected, Callable[[str], None]], None]


def place_of(address: str, what: str) -> Place:
    """Read HOST:PORT. Raises `PropertyError`."""
    found = split_address(address)
    if found is None:
        raise PropertyError(f"'{address}' is no {what}; write HOST:PORT")
    return Place(*found)


def replication_ports(config: RocketConfig) -> list[int]:
    """Return the ports of a master beside its own: that for slaves, and that on which the original's slaves ask."""
    port = config.ha_listen_port
    return [] if port is None else [port, config.port - SECOND_PORT_BELOW]


@dataclass(slots=True)
class Group:
    """The replication of a broker. It is made before the broker, which asks it, and `join`ed with it afterwards."""

    config: RocketConfig
    store: MessageStore
    node: Node
    dial: Dial
    seal: Callable[[Frame], Frame]
    wall_ms: Callable[[], int]
    gate: FlushGate | None
    master: Master | None = None
    following: Following | None = None

    def connects(self, broker: Broker) -> list[Connect]:
        """Return what makes the sessions of those who connect to `replication_ports`."""
        if self.master is None or not replication_ports(self.config):
            return []
        return [self.master.connect, self.node.connect_to(broker, self.gate)]

    def make_role(self, options: BrokerOptions) -> BrokerRole:
        """Make the role of the broker. Raises `PropertyError` for a slave that cannot find a master."""
        replication = self.config.replication
        if replication.role is not Role.SLAVE:
            self.master = Master(
                self.store,
                replication,
                self.node.open_other,
                self.node.dirty.add,
                lambda: self.node.now.ms,
                self._reach,
            )
            return BrokerRole(replication, options, self._log_end, self.master.waiting, self.master.status)
        if replication.master_address is not None:
            place_of(replication.master_address, "address of a master (haMasterAddress)")
        elif not self.config.nameservers:
            raise PropertyError(
                "a slave finds its master through a nameserver: set one that the master registers with, with "
                "namesrvAddr or --nameserver"
            )
        return BrokerRole(replication, options, self._log_end, None, self._slave_status)

    def _reach(self) -> int:
        """Return up to where others may have the log, or be told of it: on the disk, where senders wait for that."""
        return self.store.log.end if self.gate is None else self.gate.reach()

    def _log_end(self) -> int:
        return self.store.log.end

    def _slave_status(self) -> HaRuntime:
        assert self.following is not None
        return self.following.status()

    def join(self, broker: Broker, nameservers: Nameservers, kept: Kept) -> None:
        """Begin to work with the broker."""
        if self.master is not None:
            self.node.add(self.master)
            return
        link = MasterLink(
            lambda address, connected, failed: self.dial(place_of(address, "address"), connected, failed),
            self.node.open,
            self.seal,
        )
        slave = Slave(
            self.store,
            self.config.replication,
            lambda address, connected, failed: self.dial(place_of(address, "address"), connected, failed),
            self._open_stream,
            broker.copied,
            lambda: self.node.now.ms,
            self._reach,
        )
        self.following = Following(
            self.store,
            self.config.replication,
            slave,
            link,
            Metadata(kept, link),
            lambda: nameservers.register(self.wall_ms()),
            lambda: self.node.now.ms,
            self.wall_ms,
        )
        self.node.add(self.following)

    def registered(self, answer: Frame) -> None:
        """Take what a nameserver says of the master."""
        if self.following is not None:
            self.following.registered(answer)

    def _open_stream(self, address: str, make: Callable[[ReplicationSession], SlaveStream]) -> ReplicationSession:
        def session(number: int, host: Host) -> ReplicationSession:
            return ReplicationSession(
                number,
                host,
                self.config.replication,
                self.node.dirty.add,
                lambda: self.node.now.ms,
                make,
            )

        return self.node.open_other(address, session)
