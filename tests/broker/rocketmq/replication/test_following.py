"""The work of a slave's process: finding the master, asking it for what is not in the log, and what it may refuse."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from broker.rocketmq.remoting.outgoing import OtherEnd, Outgoing
from broker.rocketmq.remoting.session import Service, Session
from broker.rocketmq.replication.following import Following
from broker.rocketmq.replication.lifecycles import SlaveState
from broker.rocketmq.replication.metadata import FollowedTables, MasterMetadata
from broker.rocketmq.replication.options import ReplicationOptions, Role
from broker.rocketmq.store.writing import Writer
from broker.rocketmq.tables.groups import Groups
from broker.rocketmq.tables.offsets import Offsets
from broker.rocketmq.tables.options import BrokerOptions
from broker.rocketmq.tables.topics import Topics
from formats.rocketmq.files.checkpoints import TIMER_CHECKPOINT, TimerCheckpoint
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.bodies.clients import CONSUMER_OFFSETS, GROUPS, ConsumerOffsets, GroupConfig
from formats.rocketmq.remoting.bodies.clients import Groups as GroupsBody
from formats.rocketmq.remoting.bodies.delays import DELAY_OFFSETS, DelayOffsets
from formats.rocketmq.remoting.bodies.popping import REQUEST_MODES, RequestModes
from formats.rocketmq.remoting.bodies.routes import TOPIC_CONFIGS, DataVersion, TopicConfig, TopicConfigs
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, encode_frame, next_frame
from formats.rocketmq.remoting.replication import TRANSFER, Transfer
from tests.broker.rocketmq.replication.streams.ends import Clock, Replica
from tests.broker.rocketmq.store.message_store_rig import make_message

MASTER = "10.0.0.1:10911"
END = OtherEnd("the master", logging.getLogger("broker.rocketmq.replication"))
HA = "10.0.0.1:10912"
# The answers of masters that say where their log ends.
PROGRESS = (
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_TIMER_CHECK_POINT,
)
VERSION = DataVersion(7, 0, 1_700_000_000_000)


class Process:
    """A slave's process, with a master whose answers the test gives."""

    def __init__(self, options: ReplicationOptions | None = None) -> None:
        self.clock = Clock()
        self.options = options or ReplicationOptions(Role.SLAVE)
        self.replica = Replica(self.clock, self.options)
        self.files: dict[str, bytes] = {}
        self.failing: set[str] = set()
        broker = BrokerOptions()
        self.topics = Topics(broker, b"", self._keep("topics"))
        self.groups = Groups(b"", self._keep("groups"))
        self.offsets = Offsets(b"")
        kept = (self._keep("delays"), self._keep("timers"), self._keep("modes"))
        self.dialed: list[tuple[str, Callable[[str], Session], Callable[[str], None]]] = []
        self.link = Outgoing(
            lambda address, connected, failed: self.dialed.append((address, connected, failed)),
            self._open,
            lambda frame: frame,
            END,
        )
        kept_tables = (self.replica.store, self.topics, self.groups, self.offsets)
        self.acts = False
        self.metadata = MasterMetadata(FollowedTables(*kept_tables, *kept), self.link, lambda: self.acts)
        self.registrations = 0
        self.following = Following(
            self.replica.store,
            self.options,
            self.replica.slave,
            self.link,
            self.metadata,
            self._register,
            lambda: self.clock.ms,
            lambda: 1_700_000_000_000 + self.clock.ms,
        )
        self.session: Session | None = None
        self.master_end: int | None = None  # where the log of the master ends, if it says so
        self.answers = {
            RequestCode.GET_ALL_TOPIC_CONFIG: TOPIC_CONFIGS.write(
                TopicConfigs({"theirs": TopicConfig("theirs", 4, 4)}, VERSION)
            ),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: GROUPS.write(
                GroupsBody({"group": GroupConfig("group", retry_max_times=3)}, {}, VERSION)
            ),
            RequestCode.GET_ALL_CONSUMER_OFFSET: CONSUMER_OFFSETS.write(
                ConsumerOffsets({"theirs@group": {0: 5, 1: 6}})
            ),
            RequestCode.GET_ALL_DELAY_OFFSET: DELAY_OFFSETS.write(DelayOffsets({1: 9})),
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: REQUEST_MODES.write(RequestModes({})),
            RequestCode.GET_TIMER_CHECK_POINT: TIMER_CHECKPOINT.pack(TimerCheckpoint(11, 12, 13, 14, 0, 0, 15)),
        }

    def _keep(self, name: str) -> Callable[[bytes], None]:
        def keep(data: bytes) -> None:
            if name in self.failing:
                raise OSError(28, "No space left on device")
            self.files[name] = data

        return keep

    def _register(self) -> None:
        self.registrations += 1

    def _open(self, address: str, service: Service) -> Session:
        host, _, port = address.rpartition(":")
        self.session = Session(1, Host(host, int(port)), service, lambda _: None, lambda: self.clock.ms)
        return self.session

    def told(self, master: str | None = MASTER, ha: str | None = HA) -> None:
        """Have a nameserver answer a registration."""
        fields = {"masterAddr": master, "haServerAddr": ha}
        named = {name: value for name, value in fields.items() if value is not None}
        self.following.registered(Frame(ResponseCode.SUCCESS, 0, ext_fields=named))

    def connect(self) -> None:
        """Have the oldest attempt to reach the master's broker succeed."""
        address, connected, _ = self.dialed.pop(0)
        connected(address)

    def agree(self) -> None:
        """Have the connection to the master's log succeed, and a heartbeat come."""
        stream = self.replica.connect()
        stream.receive(memoryview(TRANSFER.pack(Transfer(0, 0))))

    def pass_time(self, ms: int) -> None:
        self.clock.ms += ms
        self.following.tick()

    def serve(self) -> list[int]:
        """Answer everything that the master is asked; the codes of the requests, in their order."""
        codes: list[int] = []
        assert self.session is not None
        while data := memoryview(bytes(self.session.take_output())):
            found = next_frame(data, 0, len(data))
            assert found is not None
            request, end = found
            assert end == len(data)
            codes.append(request.code)
            body = self.answers.get(RequestCode(request.code))
            code = ResponseCode.SUCCESS if body is not None else ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            has_end = self.master_end is not None and request.code in PROGRESS
            fields = {"logEnd": str(self.master_end)} if has_end else None
            answer = Frame(code, request.opaque, 1, ext_fields=fields, body=body or b"")
            self.session.receive(memoryview(encode_frame(answer)))
        return codes


@pytest.fixture
def process() -> Process:
    return Process()


@pytest.fixture
def joined(process: Process) -> Process:
    process.told()
    process.following.tick()
    process.connect()
    return process


@pytest.fixture
def agreed(joined: Process) -> Process:
    joined.agree()
    return joined


def test_slave_asks_nameservers_until_it_knows_its_master(process: Process) -> None:
    process.pass_time(2_999)
    assert process.registrations == 0
    process.pass_time(1)
    process.pass_time(2_999)
    assert process.registrations == 1
    process.told(None, None)
    process.told(MASTER, None)
    process.pass_time(3_000)
    assert process.registrations == 2
    process.told()
    process.pass_time(30_000)
    assert process.registrations == 2
    assert process.replica.slave.master == HA
    assert [address for address, _, _ in process.dialed] == [MASTER]


def test_answer_that_makes_no_sense_is_passed_over(process: Process) -> None:
    process.following.registered(Frame(ResponseCode.SUCCESS, 0))
    assert process.replica.slave.state is SlaveState.ALONE


@pytest.mark.parametrize("address", ["master-without-port", "10.0.0.1:", ":10911", "10.0.0.1:0", "h:" + "9" * 5000])
def test_address_of_a_nameserver_that_is_none_changes_nothing(
    process: Process, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        process.told(address, address)
    process.pass_time(3_000)
    assert (process.replica.slave.master, process.link.address, process.dialed) == (None, None, [])
    assert caplog.text.count("which is no HOST:PORT") == 1
    process.told()
    process.following.tick()
    assert [each[0] for each in (*process.replica.dialed, *process.dialed)] == [HA, MASTER]


def test_broker_that_cannot_be_dialed_is_tried_again_and_another_one_at_once() -> None:
    tried: list[str] = []

    def dial(address: str, connected: object, failed: object) -> None:
        tried.append(address)
        if address == "no place":
            raise ValueError(address)

    link = Outgoing(dial, lambda address, service: None, lambda frame: frame, END)  # type: ignore[arg-type,return-value]
    link.follow("no place")
    for ms in (0, 1_000, 3_000):
        if ms != 1_000:
            with pytest.raises(ValueError, match="no place"):
                link.tick(ms)
        else:
            link.tick(ms)
    link.follow(MASTER)
    for ms in (3_001, 9_000):
        link.tick(ms)
    assert tried == ["no place", "no place", MASTER]


def test_address_that_is_configured_is_not_learnt() -> None:
    process = Process(ReplicationOptions(Role.SLAVE, master_address="10.0.0.7:1"))
    process.told()
    assert process.replica.slave.master == "10.0.0.7:1"
    assert process.link.address == MASTER


def test_slave_that_acts_as_master_keeps_its_offsets(agreed: Process) -> None:
    agreed.offsets.commit("theirs", "group", 0, 8)
    agreed.acts = True
    agreed.pass_time(1)
    agreed.serve()
    assert agreed.offsets.queues("theirs", "group") == {0: 8}


def test_metadata_are_taken_over(agreed: Process) -> None:
    agreed.pass_time(1)
    assert agreed.serve() == list(agreed.answers)
    assert agreed.topics.table == {"theirs": TopicConfig("theirs", 4, 4)}
    assert agreed.topics.version == agreed.groups.version == VERSION
    assert agreed.groups.table["group"].retry_max_times == 3
    assert agreed.offsets.queues("theirs", "group") == {0: 5, 1: 6}
    assert DELAY_OFFSETS.read(agreed.files["delays"]).offset_table == {1: 9}
    assert REQUEST_MODES.read(agreed.files["modes"]) == RequestModes({})
    checkpoint = TIMER_CHECKPOINT.unpack(agreed.files["timers"])
    assert (checkpoint.last_read_ms, checkpoint.log_flushed, checkpoint.queue_offset) == (11, 0, 0)
    assert len(agreed.files["timers"]) == 4096


def test_progress_is_taken_once_what_was_done_is_in_this_log(agreed: Process) -> None:
    """Otherwise messages that the master has given out, and that it loses, would be given out by nobody."""
    store = agreed.replica.store
    agreed.pass_time(1)
    Writer(store).put(make_message(0), 0)
    agreed.master_end = store.log.end
    agreed.serve()
    assert (agreed.offsets.topics("group"), sorted(agreed.files)) == ([], ["groups", "modes", "topics"])
    # Later answers say more.
    agreed.master_end = store.log.end + 100
    agreed.answers[RequestCode.GET_ALL_DELAY_OFFSET] = DELAY_OFFSETS.write(DelayOffsets({1: 10}))
    agreed.pass_time(3_000)
    agreed.serve()
    store.flush()
    agreed.pass_time(1)
    assert agreed.offsets.queues("theirs", "group") == {0: 5, 1: 6}
    assert DELAY_OFFSETS.read(agreed.files["delays"]).offset_table == {1: 9}
    assert "timers" in agreed.files


def test_early_progress_of_a_master_is_forgotten_with_the_connection(agreed: Process) -> None:
    store = agreed.replica.store
    agreed.pass_time(1)
    Writer(store).put(make_message(0), 0)
    agreed.master_end = store.log.end
    agreed.serve()
    assert agreed.session is not None
    agreed.session.end()
    agreed.pass_time(1)
    store.flush()
    agreed.pass_time(1)
    assert "delays" not in agreed.files


def test_a_master_that_has_lost_the_end_of_its_log_is_followed_over_a_new_connection(agreed: Process) -> None:
    store = agreed.replica.store
    agreed.pass_time(1)
    Writer(store).put(make_message(0), 0)
    agreed.master_end = store.log.end + 1_000
    agreed.serve()
    assert "delays" not in agreed.files
    assert agreed.session is not None
    agreed.session.end()
    # The connection is back before the metadata's next turn.
    agreed.clock.ms += 3_000
    agreed.link.tick(agreed.clock.ms)
    agreed.connect()
    store.flush()
    agreed.master_end = store.log.end
    agreed.pass_time(1)
    agreed.serve()
    assert DELAY_OFFSETS.read(agreed.files["delays"]).offset_table == {1: 9}


def test_metadata_are_asked_for_every_three_seconds(agreed: Process) -> None:
    agreed.pass_time(1)
    agreed.serve()
    agreed.pass_time(2_999)
    assert agreed.serve() == []
    agreed.pass_time(1)
    assert len(agreed.serve()) == 6


def test_topic_that_is_new_in_the_log_is_asked_for_at_once_and_once(agreed: Process) -> None:
    agreed.pass_time(1)
    agreed.serve()
    agreed.metadata.saw("theirs")
    agreed.pass_time(1)
    assert agreed.serve() == []
    agreed.metadata.saw("new")
    agreed.pass_time(1)
    assert len(agreed.serve()) == 6
    # The master does not have it either: it was deleted there.
    agreed.metadata.saw("new")
    agreed.pass_time(1)
    assert agreed.serve() == []


def test_broker_at_the_masters_address_that_sends_no_log_is_not_followed(joined: Process) -> None:
    joined.topics.put(TopicConfig("topic", 1, 1), 0)
    Writer(joined.replica.store).put(make_message(0), 0)
    stream = joined.replica.connect()
    joined.pass_time(3_000)
    assert joined.serve() == []
    # As a master does whose log is shorter than this one.
    stream.end()
    joined.replica.slave.tick()
    joined.pass_time(3_000)
    assert joined.serve() == []
    assert joined.topics.get("topic") is not None
    joined.agree()
    joined.pass_time(3_000)
    assert len(joined.serve()) == 6


def test_tables_of_the_same_version_are_not_written_again(agreed: Process) -> None:
    agreed.pass_time(1)
    agreed.serve()
    agreed.files.clear()
    agreed.pass_time(3_000)
    agreed.serve()
    assert not {"topics", "groups"} & set(agreed.files)


def test_topic_that_the_master_no_longer_has_goes_with_its_queues(agreed: Process) -> None:
    agreed.topics.put(TopicConfig("topic", 1, 1), 0)
    Writer(agreed.replica.store).put(make_message(0), 0)
    agreed.pass_time(1)
    agreed.serve()
    assert agreed.topics.get("topic") is None
    assert not agreed.replica.store.queues


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (RequestCode.GET_ALL_TOPIC_CONFIG, b"{"),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, b"[]"),
        (RequestCode.GET_TIMER_CHECK_POINT, b"short"),
        (RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, None),
    ],
)
def test_answer_that_cannot_be_taken_does_not_stop_the_others(
    agreed: Process, code: RequestCode, answer: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    good = agreed.answers.pop(code)
    if answer is not None:
        agreed.answers[code] = answer
    for _ in range(2):
        agreed.pass_time(3_000)
        assert len(agreed.serve()) == 6
    assert agreed.offsets.queues("theirs", "group") == {0: 5, 1: 6}
    assert caplog.text.count("of the master cannot be taken") == 1
    agreed.answers[code] = good
    agreed.pass_time(3_000)
    agreed.serve()
    assert agreed.topics.version == VERSION


def test_file_that_cannot_be_written_is_tried_again(agreed: Process, caplog: pytest.LogCaptureFixture) -> None:
    agreed.failing = {"topics", "delays"}
    agreed.pass_time(1)
    agreed.serve()
    assert "No space left on device" in caplog.text
    assert agreed.topics.get("theirs") is None
    agreed.failing = set()
    agreed.pass_time(3_000)
    agreed.serve()
    assert agreed.topics.get("theirs") is not None


def test_lost_connection_is_made_anew(agreed: Process) -> None:
    agreed.pass_time(1)
    assert agreed.session is not None
    agreed.session.end()
    assert not agreed.link.is_connected
    agreed.pass_time(3_000)
    agreed.dialed[0][2]("Connection refused")
    agreed.dialed.clear()
    agreed.pass_time(2_999)
    assert agreed.dialed == []
    agreed.pass_time(1)
    agreed.connect()
    agreed.pass_time(3_000)
    assert len(agreed.serve()) == 6


def test_master_that_does_not_answer_is_asked_again(agreed: Process) -> None:
    agreed.pass_time(1)
    agreed.pass_time(9_000)
    assert agreed.session is not None
    assert bytes(agreed.session.take_output()).count(b'"code":21') == 1
    agreed.pass_time(1_001)
    agreed.pass_time(1)
    assert len(agreed.serve()) == 6


def test_another_master_is_asked_from_then_on(agreed: Process) -> None:
    first = agreed.session
    assert first is not None
    agreed.told("10.0.0.9:10911", "10.0.0.9:10912")
    assert first.finished
    first.end()
    agreed.pass_time(1)
    assert [address for address, _, _ in agreed.dialed] == ["10.0.0.9:10911"]
    agreed.connect()
    agreed.pass_time(1_000)
    assert agreed.serve() == []
    agreed.agree()
    agreed.pass_time(3_000)
    assert len(agreed.serve()) == 6


def test_master_that_changes_while_it_is_dialed_is_not_asked(process: Process) -> None:
    process.told()
    process.following.tick()
    process.told("10.0.0.9:10911", HA)
    process.connect()
    assert process.session is not None
    assert process.session.finished
    process.session.end()
    assert not process.link.is_connected


def test_master_that_asks_is_told_that_nothing_is_done_here(joined: Process) -> None:
    assert joined.session is not None
    joined.session.receive(memoryview(encode_frame(Frame(RequestCode.SEND_MESSAGE, 5))))
    data = memoryview(bytes(joined.session.take_output()))
    found = next_frame(data, 0, len(data))
    assert found is not None
    assert (found[0].opaque, found[0].code) == (5, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


def test_slave_tells_of_itself(joined: Process) -> None:
    assert not joined.following.status().ha_client_runtime_info.activated
    stream = joined.replica.connect()
    stream.take_output()
    joined.clock.ms += 500
    told = joined.following.status()
    assert not told.master
    assert told.ha_client_runtime_info.master_addr == HA
    assert told.ha_client_runtime_info.activated
    assert told.ha_client_runtime_info.last_read_ms == 1_700_000_000_000


def test_stopped_slave_takes_in_nothing(joined: Process) -> None:
    joined.following.leave()
    assert joined.replica.slave.state is SlaveState.STOPPED
    assert not joined.following.end_step()
