"""A nameserver behind its connections: brokers that speak for themselves, and strangers that speak for them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import pytest

from broker.common.addresses import LOOK_UP_MS, Addresses
from broker.common.clock import Now
from broker.common.networks import read_networks
from broker.rocketmq.access.guard import AccessOptions, Guard
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.config.node import NAMESERVER_DEFAULTS, NAMESERVER_LOCKED, NAMESERVER_READERS
from broker.rocketmq.nameserver.admission import NameserverAdmission
from broker.rocketmq.nameserver.key_values import KeyValues
from broker.rocketmq.nameserver.requests import Nameserver
from broker.rocketmq.nameserver.routes import EXPIRED_MS, Routes
from broker.rocketmq.nameserver.service import NameserverService
from broker.rocketmq.remoting.administrators import Administrators
from broker.rocketmq.remoting.peers import KnownPeers
from broker.rocketmq.remoting.session import Session
from broker.rocketmq.settings import Settings
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.access import UserInfo
from formats.rocketmq.remoting.bodies.routes import REGISTRATION_BYTES_MAX
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, encode_frame, next_frame
from formats.rocketmq.remoting.signature import signed

OK, REFUSED = ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION
STRANGER, MASTER, SLAVE = "203.0.113.7", "10.0.0.1", "10.0.0.2"


class Server:
    """A nameserver; each connection comes from a host."""

    def __init__(self) -> None:
        self.wall_ms = 1_000_000
        settings = Settings({}, NAMESERVER_READERS, lambda _: None, NAMESERVER_LOCKED, {**NAMESERVER_DEFAULTS})
        self.routes = Routes()
        self.nameserver = Nameserver(self.routes, KeyValues(b"", lambda _: None), settings)
        self.tables = AccessTables(b"", b"", lambda _: None, lambda _: None)
        self.guard = Guard(AccessOptions(), self.tables, "c")
        self.service = self.make_service()
        self._sessions = 0

    def make_service(self) -> NameserverService:
        return NameserverService(self.nameserver, self.guard, lambda: self.wall_ms)

    def connect(self, host: str) -> Peer:
        self._sessions += 1
        return Peer(self, Session(self._sessions, Host(host, 40_000), self.service, lambda _: None, lambda: 0))

    def pass_time(self, ms: int) -> None:
        self.wall_ms += ms
        self.service.tick()

    @property
    def addresses(self) -> dict[int, str]:
        return self.routes.member_group("c", "a").broker_addrs


class Peer:
    """A connection. `seal` signs what is sent."""

    def __init__(self, server: Server, session: Session) -> None:
        self.session = session
        self._server = server
        self.seal: Callable[[Frame], Frame] = lambda frame: frame
        self._opaque = 0

    def ask(self, code: int, body: bytes = b"", **fields: Any) -> int | None:
        """Send a request; the code of its answer, if it is answered at once."""
        self._opaque += 1
        named = {name: str(value) for name, value in fields.items()}
        frame = self.seal(Frame(code, self._opaque, ext_fields=named, body=body))
        self.session.receive(memoryview(encode_frame(frame)))
        # Requests that change a table are answered at the end of the step, when the table is written.
        self._server.service.end_step()
        return self.answer()

    def answer(self) -> int | None:
        data = memoryview(bytes(self.session.take_output()))
        found = next_frame(data, 0, len(data))
        return None if found is None else found[0].code

    def register(
        self, address: str, broker_id: int = 0, name: str = "a", state: int = 0, counter: int = 1
    ) -> int | None:
        table = {topic: {"topicName": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for topic in "tu"}
        version = {"counter": counter, "stateVersion": state, "timestamp": 5}
        wrapper = {"topicConfigSerializeWrapper": {"topicConfigTable": table, "dataVersion": version}}
        body = fastjson.dumps(wrapper).encode()
        return self.ask(
            RequestCode.REGISTER_BROKER,
            body,
            brokerName=name,
            brokerAddr=address,
            clusterName="c",
            haServerAddr=address,
            brokerId=str(broker_id),
            bodyCrc32=str(zlib.crc32(body) & 0x7FFFFFFF),
        )

    def unregister(self, address: str, broker_id: int = 0, name: str = "a", cluster: str = "c") -> int | None:
        named: dict[str, Any] = {
            "brokerName": name,
            "brokerAddr": address,
            "clusterName": cluster,
            "brokerId": broker_id,
        }
        return self.ask(RequestCode.UNREGISTER_BROKER, **named)

    def close(self) -> None:
        self.session.end()


@pytest.fixture
def server() -> Server:
    return Server()


def test_broker_registers_from_its_own_host_only(server: Server) -> None:
    assert server.connect(STRANGER).register(f"{MASTER}:10911") == REFUSED
    assert server.connect(STRANGER).register("127.0.0.1:10911") == REFUSED
    assert server.connect(STRANGER).register("nowhere") == REFUSED
    assert server.addresses == {}
    assert server.connect(MASTER).register(f"{MASTER}:10911") == OK
    assert server.connect("127.0.0.1").register("127.0.0.1:20911", name="b") == OK
    assert server.connect("::ffff:10.0.0.3").register("10.0.0.3:10911", name="c") == OK
    assert server.addresses == {0: f"{MASTER}:10911"}


@pytest.mark.parametrize("host", [STRANGER, MASTER])
def test_broker_that_is_there_is_unregistered_by_its_own_connection_only(server: Server, host: str) -> None:
    broker = server.connect(MASTER)
    assert broker.register(f"{MASTER}:10911") == OK
    other = server.connect(host)
    for cluster in ("c", "another"):
        assert other.unregister(f"{MASTER}:10911", cluster=cluster) == REFUSED
    other.close()
    assert server.addresses == {0: f"{MASTER}:10911"}
    assert broker.unregister(f"{MASTER}:10911") == OK
    assert server.addresses == {}


@pytest.mark.parametrize("host", [STRANGER, MASTER])
def test_broker_that_is_there_is_not_replaced(server: Server, host: str) -> None:
    assert server.connect(MASTER).register(f"{MASTER}:10911", counter=5) == OK
    other = server.connect(host)
    for state in (0, 1, (1 << 62)):
        assert other.register(f"{host}:6666", counter=99, state=state) == REFUSED
    # It is another broker of the name, and does not become the master by that.
    assert other.register(f"{host}:6666", broker_id=7) == OK
    assert other.register(f"{host}:6666", counter=99, state=9) == REFUSED
    other.close()
    assert server.addresses == {0: f"{MASTER}:10911"}


def test_broker_under_another_name_does_not_end_with_the_connection_of_a_stranger(server: Server) -> None:
    assert server.connect("127.0.0.1").register("127.0.0.1:10911") == OK
    other = server.connect("127.0.0.1")
    assert other.register("127.0.0.1:10911", name="b") == REFUSED
    assert other.register("127.0.0.1:10911", counter=9) == REFUSED
    other.close()
    assert server.addresses == {0: "127.0.0.1:10911"}


def test_broker_of_the_same_process_is_not_replaced(server: Server) -> None:
    frames: list[Frame] = []
    peer = server.connect("127.0.0.1")
    peer.seal = lambda frame: frames.append(frame) or frame  # type: ignore[func-returns-value]
    peer.register("127.0.0.1:10911")
    peer.close()
    server.service.tell(frames[0], server.wall_ms)
    other = server.connect("127.0.0.1")
    assert other.register("127.0.0.1:10911", counter=9) == REFUSED
    assert other.register("127.0.0.1:6666", counter=9, state=9) == REFUSED
    assert other.unregister("127.0.0.1:10911") == REFUSED
    assert server.addresses == {0: "127.0.0.1:10911"}


def test_broker_that_has_started_again_registers_at_once(server: Server) -> None:
    broker = server.connect(MASTER)
    assert broker.register(f"{MASTER}:10911") == OK
    # Its machine has lost its power: nobody has closed the old connection.
    again = server.connect(MASTER)
    assert again.register(f"{MASTER}:10911", counter=2) == OK
    broker.close()
    assert server.addresses == {0: f"{MASTER}:10911"}
    # Its process has ended: the kernel has.
    again.close()
    assert server.addresses == {}
    assert server.connect(MASTER).register(f"{MASTER}:10912", counter=3) == OK


def test_master_that_controllers_have_elected_takes_the_place_of_one_that_hangs(server: Server) -> None:
    old, new = server.connect(MASTER), server.connect(SLAVE)
    assert old.register(f"{MASTER}:10911", state=1) == OK
    assert new.register(f"{SLAVE}:10911", broker_id=2, state=1) == OK
    assert new.register(f"{SLAVE}:10911", state=1, counter=9) == REFUSED
    assert new.register(f"{SLAVE}:10911", state=2) == OK
    assert server.addresses == {0: f"{SLAVE}:10911"}
    # The old one comes to itself, and is a slave.
    assert old.register(f"{MASTER}:10911", state=1) == REFUSED
    assert old.register(f"{MASTER}:10911", broker_id=1, state=2) == OK
    assert server.addresses == {0: f"{SLAVE}:10911", 1: f"{MASTER}:10911"}


def test_strangers_do_not_keep_a_broker_that_is_silent(server: Server) -> None:
    broker = server.connect(MASTER)
    assert broker.register(f"{MASTER}:10911") == OK
    stranger = server.connect(STRANGER)
    named: dict[str, Any] = {"brokerName": "a", "brokerAddr": f"{MASTER}:10911", "clusterName": "c", "brokerId": 0}
    server.pass_time(EXPIRED_MS)
    stranger.ask(RequestCode.BROKER_HEARTBEAT, **named)
    stranger.ask(RequestCode.QUERY_DATA_VERSION, b"{}", **named)
    server.pass_time(5_001)
    assert server.addresses == {}


# -- names, signatures, secrets and administrators


class Names(Server):
    """A nameserver that looks up hosts; `asked` wait for `found`."""

    def make_service(self) -> NameserverService:
        self.now = Now()
        self.asked: list[tuple[str, Callable[[frozenset[str] | str], None]]] = []
        addresses = Addresses("10.0.0.9", self.now, lambda *asked: self.asked.append(asked))
        return NameserverService(self.nameserver, self.guard, lambda: self.wall_ms, peers=KnownPeers(addresses))


def test_host_of_a_broker_is_looked_up_while_its_registration_waits() -> None:
    server = Names()
    broker = server.connect(MASTER)
    assert broker.register("broker-0:10911") is None
    ((host, found),) = server.asked
    assert host == "broker-0"
    found(frozenset({MASTER}))
    assert broker.answer() == OK
    assert server.addresses == {0: "broker-0:10911"}
    broker.close()
    # Strangers do not have it looked up as often as they like.
    assert server.connect(STRANGER).register("broker-0:10911") == REFUSED
    server.now.ms += LOOK_UP_MS
    moved = server.connect("10.0.0.77")
    assert moved.register("broker-0:10911") is None
    server.asked[1][1](frozenset({"10.0.0.77"}))
    assert moved.answer() == OK


def test_lookups_that_strangers_cause_have_a_bound() -> None:
    server = Names()
    peers = [server.connect(STRANGER) for _ in range(100)]
    refused = [peer.register(f"host-{number}:10911") == REFUSED for number, peer in enumerate(peers)]
    assert refused.count(False) == len(server.asked) == 4
    peers[0].close()
    for _, found in server.asked:
        found("Name or service not known")
    assert [peer.answer() for peer in peers[1:4]] == [REFUSED] * 3
    assert server.addresses == {}


def test_registrations_that_wait_have_a_bound_in_bytes() -> None:
    server = Names()
    body = bytes(REGISTRATION_BYTES_MAX)
    fields = {"brokerName": "a", "clusterName": "c", "haServerAddr": "", "brokerId": "0", "brokerAddr": "host:10911"}
    peers = [server.connect(STRANGER) for _ in range(10)]
    codes = [peer.ask(RequestCode.REGISTER_BROKER, body, **fields) for peer in peers]
    assert codes == [None] * 7 + [REFUSED] * 3
    server.asked[0][1](frozenset({MASTER}))
    assert [peer.answer() for peer in peers[:7]] == [REFUSED] * 7
    server.now.ms += LOOK_UP_MS
    assert server.connect(STRANGER).ask(RequestCode.REGISTER_BROKER, body, **fields) is None


class Signing(Server):
    def make_service(self) -> NameserverService:
        peers = KnownPeers()
        self.tables.create_user(UserInfo("inner", "hush-inner", "Super", "enable"))
        self.tables.create_user(UserInfo("shop", "hush-shop", "Normal", "enable"))
        admission = NameserverAdmission(self.routes, peers, Administrators(), self.tables.is_signed_by_super)
        return NameserverService(self.nameserver, self.guard, lambda: self.wall_ms, peers=peers, admission=admission)


@pytest.mark.parametrize("key", [None, ("inner", "wrong"), ("shop", "hush-shop"), ("nobody", "hush-inner")])
def test_registrations_are_signed_where_nodes_sign(key: tuple[str, str] | None) -> None:
    server = Signing()
    broker = server.connect(MASTER)
    if key is not None:
        name, secret = key
        broker.seal = lambda frame: signed(frame, name, secret)
    assert broker.register(f"{MASTER}:10911") == REFUSED
    assert broker.unregister(f"{MASTER}:10911") == REFUSED
    broker.seal = lambda frame: signed(frame, "inner", "hush-inner")
    assert broker.register(f"{MASTER}:10911") == OK


def test_brokers_that_do_not_prove_that_they_know_the_secret_are_refused_from_every_host() -> None:
    server = Server()
    peers = KnownPeers(secret=b"a secret of the group", port=9876)
    server.service = NameserverService(server.nameserver, server.guard, lambda: server.wall_ms, peers=peers)
    for host in (MASTER, "127.0.0.1"):
        assert server.connect(host).register(f"{host}:10911") == REFUSED
        assert server.connect(host).unregister(f"{host}:10911") == REFUSED
    assert server.addresses == {}


ADMINISTRATIVE: dict[RequestCode, dict[str, Any]] = {
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: {"brokerName": "a"},
    RequestCode.ADD_WRITE_PERM_OF_BROKER: {"brokerName": "a"},
    RequestCode.DELETE_TOPIC_IN_NAMESRV: {"topic": "t"},
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: {"topic": "t"},
    RequestCode.PUT_KV_CONFIG: {"namespace": "n", "key": "k", "value": "v"},
    RequestCode.DELETE_KV_CONFIG: {"namespace": "n", "key": "k"},
    RequestCode.UPDATE_NAMESRV_CONFIG: {},
}


@pytest.mark.parametrize("code", ADMINISTRATIVE)
def test_administrators_connect_from_where_they_may(code: RequestCode) -> None:
    server = Server()
    fields = ADMINISTRATIVE[code]
    # As with the original, they may from everywhere, if nothing else is said.
    assert server.connect(STRANGER).ask(code, **fields) == OK
    peers = KnownPeers()
    administrators = Administrators(read_networks("10.0.0.0/8; 192.168.1.1"))
    admission = NameserverAdmission(server.routes, peers, administrators)
    server.service = NameserverService(
        server.nameserver, server.guard, lambda: server.wall_ms, peers=peers, admission=admission
    )
    assert server.connect(STRANGER).ask(code, **fields) == REFUSED
    assert server.connect("10.1.2.3").ask(code, **fields) == OK
    assert server.connect("192.168.1.1").ask(code, **fields) == OK


@pytest.mark.parametrize("text", ["10.0.0.1/8", "x", "10.0.0.0/99", "1:2"])
def test_networks_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_networks(text)


def test_all_networks_are_a_star() -> None:
    administrators = Administrators(read_networks("*"))
    assert administrators.refusal(STRANGER, KnownPeers(), ()) is None
    assert administrators.refusal("2001:db8::1", KnownPeers(), ()) is None


def test_other_loopback_addresses_are_no_hosts_of_nodes_on_this_machine() -> None:
    server = Server()
    for stranger in ("127.0.0.66", "::ffff:127.0.0.66"):
        assert server.connect(stranger).register("127.0.0.1:10911") == REFUSED
        assert server.connect(stranger).register("localhost:10911") == REFUSED
    # The kernel connects from 127.0.0.1 to whatever loopback address a node has.
    for name, address in (("a", "127.0.0.2:10911"), ("b", "127.0.0.1:10911"), ("c", "0.0.0.0:1")):
        assert server.connect("127.0.0.1").register(address, name=name) == OK
    assert server.connect("127.0.0.66").register("127.0.0.66:10911", name="d") == OK


def test_refusal_of_an_address_names_the_properties_that_mend_it() -> None:
    refusal = KnownPeers().refusal_of_address("192.0.2.1", "172.17.0.2")
    assert refusal == ("it connects from 172.17.0.2, not from 192.0.2.1 (see peerSecretKey and peerAddressCheckEnable)")
