"""The links of one member, and peers that introduce themselves to it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from broker.bmq.assembly.nodes import make_member, open_store
from broker.bmq.links.admission import Admission, KnownNode
from broker.bmq.links.origins import LookUp, Origins
from broker.bmq.member.config import MemberConfig
from broker.bmq.member.peers import Peers
from broker.bmq.node.node import Basis
from broker.bmq.node.services import ProcessServices
from broker.bmq.session.authentication import Authentications
from broker.bmq.session.credentials import Credentials
from broker.bmq.session.session import Session
from broker.bmq.store.names import next_timestamp
from broker.common.clock import Now
from formats.bmq.control import ber
from formats.bmq.control.messages import NegotiationMessage
from formats.bmq.wire.event import iter_frames, schema_message
from tests.broker.bmq.rig import LIMITS, NODE, START_S
from tests.broker.fakes import MemoryDirectory

LENGTH_MAX = 1 << 30


class One:
    """A node with its peers; `dialed` are the nodes that it wants to be connected to, `kept` its terms.

    All nodes are on one host, unless `hosts` says otherwise; `look_up` finds their addresses.
    """

    def __init__(
        self,
        node_id: int,
        nodes: int = 3,
        features: str = "",
        cluster: str = "planets",
        *,
        hosts: Mapping[int, str] | None = None,
        look_up: LookUp = lambda host, done: None,
        needs_proof: bool = False,
        credentials: Credentials | None = None,
        authentications: Authentications | None = None,
    ) -> None:
        directory, self.now = MemoryDirectory(), Now(START_S, 1_000_000)

        def make_timestamp(prefix: str) -> str:
            return next_timestamp(prefix, directory.names(), datetime.fromtimestamp(self.now.wall_s, UTC))

        store = open_store(directory, 1, node_id, LIMITS, 64 << 10, self.now, make_timestamp)
        identity = replace(NODE, cluster_name=cluster, node_id=node_id, cluster_features=features)
        services = ProcessServices(authentications or Authentications.open())
        basis = Basis(identity, self.now, lambda name: None, lambda: bytes(16), services)
        others = [other for other in range(1, nodes + 1) if other != node_id]
        self.kept: list[int] = []
        self.node, role = make_member(
            basis,
            store,
            others,
            MemberConfig(nodes // 2 + 1),
            random.Random(node_id).randrange,
            keep_term=self.kept.append,
        )
        self.member = role.member
        self.dialed: list[int] = []
        ids = range(1, nodes + 1)
        known = {number: KnownNode(f"node{number}", frozenset({f"BASIC_USER-node{number}"})) for number in ids}
        origins = Origins(hosts or dict.fromkeys(ids, "127.0.0.1"), node_id, self.now, look_up)
        admission = Admission(known, origins, needs_proof=needs_proof)
        self.peers = Peers(self.node, self.member, self.dialed.append, admission, credentials)
        role.attach(self.peers, {number: f"host{number}:30114" for number in ids})
        self.member.start()
        self.peers.start()

    def wait(self, ms: int) -> None:
        end = self.now.ms + ms
        while self.now.ms < end:
            self.now.ms += 10
            self.node.tick()


class Wire:
    """A connection that `dialer` has made to `acceptor`."""

    def __init__(self, dialer: One, acceptor: One, node_id: int) -> None:
        self.ends: list[tuple[One, Session]] = [
            (dialer, dialer.peers.connected(node_id, "127.0.0.1:1")),
            (acceptor, acceptor.node.connect("127.0.0.1:2")),
        ]
        self.said: list[bytes] = [b"", b""]

    def carry(self) -> None:
        """Carry what both say until neither says more, and end what is over."""
        busy = True
        while busy:
            busy = False
            for index, (_, session) in enumerate(self.ends):
                data = bytes(session.take_output())
                if data:
                    self.said[index] += data
                    busy = True
                    self.ends[1 - index][1].receive(memoryview(data))
        if any(session.finished for _, session in self.ends):
            self.cut()

    def cut(self) -> None:
        for one, session in self.ends:
            one.node.disconnect(session, "the peer closed the connection")

    def first_said(self, index: int) -> object:
        view = memoryview(self.said[index])
        frame = next(iter_frames(view, 0, len(view), LENGTH_MAX))
        return ber.decode(NegotiationMessage, schema_message(view, frame.body, frame.end)).choice


def meet(dialer: One, acceptor: One, node_id: int) -> Wire:
    wire = Wire(dialer, acceptor, node_id)
    wire.carry()
    return wire
