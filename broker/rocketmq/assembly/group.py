"""The part of the composition root that makes a RocketMQ broker a master or a slave, or has a controller do so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from broker.common.addresses import Addresses
from broker.common.faults import Change
from broker.rocketmq.administration.registration import Nameservers
from broker.rocketmq.assembly.identity import OpenFile, open_epochs, open_identity
from broker.rocketmq.broker.broker import Broker, Given
from broker.rocketmq.config.node import PropertyError, RocketConfig
from broker.rocketmq.flush_gate import FlushGate
from broker.rocketmq.node import Connection, Node
from broker.rocketmq.remoting.outgoing import OtherEnd, Outgoing
from broker.rocketmq.remoting.peers import KnownPeers
from broker.rocketmq.replication.control.controlled import Controlled, RoleChange
from broker.rocketmq.replication.control.controllers import Controllers
from broker.rocketmq.replication.control.membership import ControlledMembership
from broker.rocketmq.replication.control.terms import Log, TermWorld
from broker.rocketmq.replication.following import Following
from broker.rocketmq.replication.master import ReplicationMaster
from broker.rocketmq.replication.members import Members
from broker.rocketmq.replication.metadata import FollowedTables, MasterMetadata, stored_topics
from broker.rocketmq.replication.options import Role
from broker.rocketmq.replication.returning import OffsetsReturning
from broker.rocketmq.replication.role import BrokerRole
from broker.rocketmq.replication.streams.connection import ReplicationEnd, ReplicationSession
from broker.rocketmq.replication.streams.entrance import (
    AnsweredEntrance,
    EntranceOfMembers,
    ProvenEntrance,
    StreamEntrance,
)
from broker.rocketmq.replication.streams.roster import Found, Roster, told_members, told_replicas
from broker.rocketmq.replication.streams.slave import Slave, SlaveStream
from broker.rocketmq.replication.waiting import WaitingSenders
from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.tables.options import BrokerOptions
from broker.rocketmq.tables.topics import Topics
from broker.shell.connections.dialing import Connected, Endpoint
from formats.rocketmq.hosts import Host, split_address
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.replication import HaRuntime
from formats.rocketmq.remoting.bodies.routes import MASTER_ID
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.routing import GetBrokerMemberGroupRequest

__all__ = ["Group", "check_group", "place_of", "replication_ports"]

log = logging.getLogger("broker.rocketmq.replication")

# The original's brokers ask each other on this port beside the broker's own ("VIP channel").
SECOND_PORT_BELOW = 2


Connect = Callable[[str, Callable[[], frozenset[str]]], Connection]
Dial = Callable[[Endpoint, Connected, Callable[[str], None]], None]


def place_of(address: str, what: str) -> Endpoint:
    """Read HOST:PORT. Raises `PropertyError`."""
    found = split_address(address)
    if found is None:
        raise PropertyError(f"'{address}' is no {what}", "write HOST:PORT")
    return Endpoint(*found)


def replication_ports(config: RocketConfig) -> list[int]:
    """Return the ports of a broker beside its own: the one for slaves, and the one on which the original's brokers ask.

    They ask a master, and a slave that may have acted as one.
    """
    port, second = config.ha_listen_port, config.port - SECOND_PORT_BELOW
    if port is None:
        return [second] if config.replication.has_acting_master else []
    return [port, second]


def check_group(config: RocketConfig) -> None:
    """Raise `PropertyError` for a broker that could not find its group's controllers or master."""
    replication = config.replication
    if replication.is_controlled:
        for address in replication.controllers:
            place_of(address, "address of a controller (controllerAddr)")
    elif replication.role is not Role.SLAVE:
        return
    elif replication.master_address is not None:
        place_of(replication.master_address, "address of a master (haMasterAddress)")
    elif not config.nameservers:
        raise PropertyError(
            "a slave finds its master through a nameserver, and knows none",
            "set one that the master registers with, with namesrvAddr or --nameserver",
        )


@dataclass
class Group:
    """The replication of a broker. It is made before the broker, which asks it; `join` connects the two.

    `open_file` opens small files of the store; `addresses` has the addresses of other nodes' hosts.
    """

    config: RocketConfig
    store: MessageStore
    node: Node
    dial: Dial
    seal: Callable[[Frame], Frame]
    wall_ms: Callable[[], int]
    gate: FlushGate | None
    open_file: OpenFile
    addresses: Addresses
    master: ReplicationMaster | None = None
    following: Following | None = None
    controlled: Controlled | None = None
    members: Members | None = None
    role: BrokerRole | None = None
    ask_members: Callable[[Found], None] = lambda found: found(None)
    roster: Roster = field(init=False)

    def __post_init__(self) -> None:
        config = self.config
        self._peers = KnownPeers(
            self.addresses, config.peer_secret, config.ha_listen_port or 0, checks_address=config.checks_peer_address
        )
        self.roster = Roster(self._peers, lambda found: self.ask_members(found), self._own_id, self._now_ms)

    def connects(self, broker: Broker) -> list[Connect]:
        if not replication_ports(self.config):
            return []
        if self.controlled is not None:
            return [self._connect_slave, self.node.connect_to(broker, self.gate)]
        asked = self.node.connect_to(broker, self.gate)
        return [asked] if self.master is None else [self.master.connect, asked]

    def make_role(self, options: BrokerOptions) -> BrokerRole:
        """Make the role of the broker. Raises `PropertyError` like `check_group`."""
        check_group(self.config)
        replication = self.config.replication
        if replication.is_controlled:
            return self._make_controlled(options)
        if replication.has_acting_master:
            self.members = Members(
                replication, options, lambda: self.store.flushed, self._now_ms, self._peers, self.roster.announce
            )
        if replication.role is not Role.SLAVE:
            return self._make_master(options, self.members)
        handlers = None if self.members is None else self.members.handlers
        return BrokerRole(replication, options, self._log_end, None, self._slave_status, handlers=handlers)

    def _make_master(self, options: BrokerOptions, members: Members | None) -> BrokerRole:
        replication = self.config.replication
        self.master = master = ReplicationMaster(
            self.store,
            replication,
            self.node.open_other,
            self.node.dirty.add,
            self._now_ms,
            self._reach,
            None if members is None else lambda: members.alive,
            self._let_in,
        )
        shown = (replication, options, self._log_end, master.waiting, master.status)
        if members is None:
            return BrokerRole(*shown)
        self.role = BrokerRole(*shown, master.in_sync, handlers=members.handlers)
        return self.role

    def _make_controlled(self, options: BrokerOptions) -> BrokerRole:
        replication = self.config.replication
        shared = Log(self.store, open_epochs(self.open_file), self._reach)
        self.controlled = controlled = Controlled(shared, replication, options)
        controlled.waiting = waiting = WaitingSenders(replication, controlled, self._now_ms)
        return BrokerRole(
            replication,
            options,
            self._log_end,
            waiting,
            controlled.status,
            controlled.in_sync,
            controlled.advance,
            controlled.handlers,
        )

    def _now_ms(self) -> int:
        return self.node.now.ms

    def _connect_slave(self, peer: str, certified: Callable[[], frozenset[str]]) -> ReplicationSession:
        assert self.controlled is not None
        return self._session(peer, self.controlled.make_end, self._let_in)

    def _let_in(self, session: ReplicationSession) -> StreamEntrance | None:
        """Make the entrance for a slave that has connected; None if every slave is admitted."""
        config = self.config
        if config.peer_secret is not None:
            return ProvenEntrance(config.peer_secret, config.ha_listen_port or 0)
        if not config.checks_peer_address:
            return None
        return EntranceOfMembers(self.roster, session.host.address, session.go_on)

    def _enter(self, session: ReplicationSession) -> StreamEntrance | None:
        secret = self.config.peer_secret
        return None if secret is None else AnsweredEntrance(secret, session.host.port)

    def _own_id(self) -> int:
        membership = None if self.controlled is None else self.controlled.membership
        return self.config.options.broker_id if membership is None else membership.broker_id

    def _reach(self) -> int:
        """Return the offset up to which others may have the log: what is on the disk, if senders wait for that."""
        return self.store.log.end if self.gate is None else self.gate.reach()

    def _log_end(self) -> int:
        return self.store.log.end

    def _slave_status(self) -> HaRuntime:
        assert self.following is not None
        return self.following.status()

    def join(
        self,
        broker: Broker,
        nameservers: Nameservers,
        kept: FollowedTables,
        options: BrokerOptions,
        read: Callable[[], Given],
    ) -> None:
        """Begin to work with the broker. `read` reads the state that a new master continues from."""
        if self.controlled is not None:
            self._join_controlled(self.controlled, broker, nameservers, kept, options, read)
            return
        if self.master is not None:
            self.ask_members = lambda found: self._ask_nameservers(nameservers, found)
            self.node.add(self.master)
            if self.members is not None:
                self._join_members(self.members, nameservers, kept)
            return
        link = self._make_link()
        slave = Slave(
            self._log_end,
            self.dial_address,
            self._session,
            lambda session, ended: SlaveStream(
                self.store, self.config.replication, session, broker.copied, ended, self._reach
            ),
            self._now_ms,
        )
        self.following = Following(
            self.store,
            self.config.replication,
            slave,
            link,
            MasterMetadata(kept, link, self._acts),
            lambda: nameservers.register(self.wall_ms()),
            self._now_ms,
            self.wall_ms,
        )
        self.node.add(self.following)
        if self.members is not None:
            self.members.join(nameservers, self.wall_ms, self.following.found)
            self.node.add(self.members)

    def _acts(self) -> bool:
        """Return whether nameservers know no master, so that clients may commit offsets at a slave."""
        return self.members is not None and self.members.least != MASTER_ID

    def _ask_nameservers(self, nameservers: Nameservers, found: Found) -> None:
        options = self.config.options
        header = write_header(GetBrokerMemberGroupRequest(options.cluster, options.name))
        request = Frame(RequestCode.GET_BROKER_MEMBER_GROUP, 0, ext_fields=header)
        nameservers.ask(request, self.wall_ms(), lambda answers: found(told_members(answers)))

    def _ask_controllers(self, controllers: Controllers, found: Found) -> None:
        name = self.config.options.name
        request = Frame(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, 0, body=fastjson.dumps([name]).encode())
        controllers.ask(request, self._now_ms(), lambda answer: found(told_replicas(answer, name)))

    def _join_members(self, members: Members, nameservers: Nameservers, kept: FollowedTables) -> None:
        """Have a master count the others, after it has taken the results of a slave that acted for it."""

        role = self.role
        assert role is not None

        def back() -> None:
            nameservers.is_silent = role.is_returning = False
            nameservers.register(self.wall_ms())

        members.join(nameservers, self.wall_ms)
        self.node.add(members)
        if self.config.replication.total_replicas > 1:
            nameservers.is_silent = role.is_returning = True
            options = self.config.replication
            self.node.add(
                OffsetsReturning(options, members, kept.offsets, lambda: self._make_link("slave"), self._now_ms, back)
            )

    def dial_address(self, address: str, connected: Connected, failed: Callable[[str], None]) -> None:
        """Connect to HOST:PORT. Raises `PropertyError` for an invalid address."""
        self.dial(place_of(address, "address"), connected, failed)

    def _make_link(self, what: str = "the broker of master", secret: bytes | None = None) -> Outgoing:
        return Outgoing(self.dial_address, self.node.open, self.seal, OtherEnd(what, log), secret)

    def _join_controlled(
        self,
        controlled: Controlled,
        broker: Broker,
        nameservers: Nameservers,
        kept: FollowedTables,
        options: BrokerOptions,
        read: Callable[[], Given],
    ) -> None:
        def changed() -> None:
            with Change("a change of roles"):
                broker.keeper.finish()
                broker.change_role(read())
            nameservers.is_silent = False
            nameservers.register(self.wall_ms())
            self.roster.renew(lambda: None)

        # This broker registers only once its role is known.
        nameservers.is_silent = True
        secret = self.config.peer_secret
        controllers = Controllers(self.config.replication, lambda: self._make_link("controller", secret))
        self.ask_members = lambda found: self._ask_controllers(controllers, found)
        membership = ControlledMembership(
            options,
            self.config.replication,
            controllers,
            open_identity(self.open_file, options),
            controlled,
            self._now_ms,
            self.wall_ms,
        )
        change = RoleChange(
            (lambda: None) if self.gate is None else self.gate.end_waits,
            lambda epoch: self._begin_epoch(epoch, kept.topics),
            changed,
        )
        world = TermWorld(
            self.dial_address,
            self._session,
            self._make_link,
            lambda link: MasterMetadata(kept, link),
            broker.copied,
            self._now_ms,
            self.wall_ms,
        )
        controlled.join(membership, change, world)
        self.node.add(controlled)

    def _begin_epoch(self, epoch: int, topics: Topics) -> None:
        for topic in topics.begin_epoch(epoch, self.wall_ms(), stored_topics(self.store)):
            log.warning("topic %s has messages, which no master has sent: it is created here", topic)

    def registered(self, answer: Frame) -> None:
        if self.following is not None:
            self.following.registered(answer)

    def _session(
        self,
        address: str,
        make: Callable[[ReplicationSession], ReplicationEnd],
        make_entrance: Callable[[ReplicationSession], StreamEntrance | None] | None = None,
    ) -> ReplicationSession:
        """Return a function that makes the session of a connection to a slave or master; `make` makes its end here."""
        entrance = make_entrance or self._enter

        def session(number: int, host: Host) -> ReplicationSession:
            options, changed = self.config.replication, self.node.dirty.add
            return ReplicationSession(number, host, options, changed, self._now_ms, make, entrance)

        return self.node.open_other(address, session)
