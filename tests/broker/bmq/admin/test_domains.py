"""Lists, purges, reconfigurations and removals of domains, judged by clients and the store."""

from __future__ import annotations

import json
import re
from base64 import b64encode

import pytest

from broker.bmq.admin import domains
from broker.bmq.core.config import DomainConfig, Mode
from formats.bmq.codes import AckStatus
from formats.bmq.control.messages import Status
from tests.broker.bmq.admin.conftest import Administered, start_with
from tests.broker.bmq.rig import ACK, READ, WRITE, guid

PRIORITY = "bmq://priority/q"
FANOUT = "bmq://fanout/q"
LIST = "DOMAINS DOMAIN fanout QUEUE q LIST"


# -- lists and messages


@pytest.fixture
def listed(node: Administered) -> Administered:
    """Three messages, of which each app has confirmed another one."""
    node.producer(FANOUT, [10, 20, 30])
    for number, app in enumerate(("foo", "bar", "baz")):
        consumer = node.rig.connect()
        consumer.read(1, FANOUT, app, 1)
        consumer.confirm(1, guid(number), sub_id=1)
    return node


@pytest.mark.parametrize(
    ("words", "header", "numbers"),
    [
        ("0 3", "Printing 3 message(s) [0-2 / 3] (total: 60  B)", [0, 1, 2]),
        ("0 UNLIMITED", "Printing 3 message(s) [0-2 / 3] (total: 60  B)", [0, 1, 2]),
        ("1 1", "Printing 1 message(s) [1-1 / 3] (total: 20  B)", [1]),
        ("-1 1", "Printing 1 message(s) [2-2 / 3] (total: 30  B)", [2]),
        ("1 -1", "Printing 1 message(s) [0-0 / 3] (total: 10  B)", [0]),
        ("-1 -1", "Printing 1 message(s) [1-1 / 3] (total: 20  B)", [1]),
        ("-9 2", "Printing 2 message(s) [0-1 / 3] (total: 30  B)", [0, 1]),
        ("7 2", "Printing 0 message(s) [7-2 / 3] (total: 0  B)", []),
        ("foo 0 UNLIMITED", "Printing 2 message(s) [0-1 / 2] (total: 50  B)", [1, 2]),
        ("bar 0 1", "Printing 1 message(s) [0-0 / 2] (total: 10  B)", [0]),
        ("baz -1 1", "Printing 1 message(s) [1-1 / 2] (total: 20  B)", [1]),
        ("__default 0 1", "Printing 1 message(s) [0-0 / 3] (total: 10  B)", [0]),
    ],
)
def test_lists(listed: Administered, words: str, header: str, numbers: list[int]) -> None:
    first, titles, *rows = listed.ask(f"{LIST} {words}").splitlines()
    assert first == header
    assert titles == "       GUID                              Size        Timestamp (UTC)"
    assert [row.split()[1] for row in rows] == [guid(number).hex().upper() for number in numbers]
    for row in rows:
        assert re.fullmatch(r" +\d+: [0-9A-F]{32}       \d\d  B  21NOV2026_05:11:04\.000000\+0000", row)


def test_a_list_as_json(listed: Administered) -> None:
    found = listed.json(f"{LIST} 1 1")["queueContents"]
    assert found == {
        "messages": [
            {"guid": guid(1).hex().upper(), "sizeBytes": 20, "arrivalTimestamp": "2026-11-21T05:11:04.000+00:00"}
        ],
        "offset": 1,
        "totalQueueMessages": 3,
    }


def test_a_message_with_its_contents(listed: Administered) -> None:
    command = f"DOMAINS DOMAIN fanout QUEUE q MESSAGE {guid(1).hex()}"
    assert listed.json(command) == {
        "messageContents": {
            "guid": guid(1).hex().upper(),
            "sizeBytes": 20,
            "arrivalTimestamp": "2026-11-21T05:11:04.000+00:00",
            "compression": 0,
            "hasProperties": False,
            "schemaId": 0,
            "apps": ["foo", "baz"],
            "data": b64encode(b"x" * 20).decode(),
        }
    }
    assert listed.ask(command).splitlines() == [
        f"Message {guid(1).hex().upper()}",
        "    Size.............: 20  B",
        "    Timestamp (UTC)..: 21Nov2026_05:11:04.000000+0000",
        "    Compression......: 0",
        "    Has properties...: false",
        "    Not confirmed by.: foo, baz",
        "    Data (base64)....: eHh4eHh4eHh4eHh4eHh4eHh4eHg=",
    ]
    # A queue that nobody has opened since the start has its messages, too.
    restarted = listed.restart()
    assert restarted.json(command)["messageContents"]["sizeBytes"] == 20
    assert restarted.json(f"{LIST} foo 0 UNLIMITED") == listed.json(f"{LIST} foo 0 UNLIMITED")
    assert restarted.json(f"{LIST} 0 UNLIMITED")["queueContents"]["messages"]


def test_the_time_of_a_message_is_the_same_whenever_it_is_asked_for(node: Administered) -> None:
    now = node.rig.now
    now.part_ms = 300
    node.producer(PRIORITY, [10])

    def told() -> str:
        (message,) = node.json("DOMAINS DOMAIN priority QUEUE q LIST 0 1")["queueContents"]["messages"]
        return str(message["arrivalTimestamp"])

    first = told()
    assert first.endswith(".300+00:00")
    now.wall_s, now.ms, now.part_ms = now.wall_s + 1, now.ms + 900, 200
    assert told() == first


def test_messages_that_are_not_shown(listed: Administered) -> None:
    prefix = "DOMAINS DOMAIN fanout QUEUE q MESSAGE"
    assert listed.ask(f"{prefix} {guid(9).hex()}", -2) == f"Queue '{FANOUT}' has no message {guid(9).hex()}"
    for text in ("x" * 32, "00", "zz" * 1000):
        assert listed.ask(f"{prefix} {text}", -2) == f"Queue '{FANOUT}' has no message {text[:32]}"
    assert "'r' was not found" in listed.ask(f"DOMAINS DOMAIN fanout QUEUE r MESSAGE {guid(1).hex()}", -2)
    asked: list[str] = []

    def refuses(uri: str) -> bool:
        asked.append(uri)
        return False

    command = f"{prefix} {guid(1).hex()}"
    assert listed.admin.run(command, "test", refuses) == (-2, f"Not authorized to read from queue '{FANOUT}'")
    assert listed.admin.run("DOMAINS DOMAIN fanout QUEUE q LIST 0 1", "test", refuses)[0] == 0
    assert asked == [FANOUT]


def test_a_message_that_is_large_or_corrupted(node: Administered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "SHOWN_BYTES_MAX", 100)
    node.producer(PRIORITY, [100, 101])
    prefix = "DOMAINS DOMAIN priority QUEUE q MESSAGE"
    assert node.ask(f"{prefix} {guid(1).hex()}", -2) == (
        "The message has 101 bytes, and at most 100 are shown: consume it"
    )
    message = node.rig.node.queues[PRIORITY].messages[guid(0)]
    message.checksum ^= 1
    assert "corrupted" in node.ask(f"{prefix} {guid(0).hex()}", -2)


def test_lists_that_cannot_be(listed: Administered) -> None:
    assert listed.ask(f"{LIST} pikachu 0 UNLIMITED", -2) == "Invalid 'LIST' command: invalid APPID"
    assert "Printing 0 message(s)" in listed.ask("DOMAINS DOMAIN fanout QUEUE q LIST 3 UNLIMITED")
    assert listed.ask("DOMAINS DOMAIN fanout QUEUE r LIST 0 1", -2) == "Queue 'r' was not found on domain 'fanout'"


# -- purges


def purged(text: str) -> int:
    found = re.match(r"Purged ([\d,]+) message\(s\)", text)
    assert found, text
    return int(found[1].replace(",", ""))


def test_purging_a_queue_an_app_and_a_domain(node: Administered) -> None:
    producer = node.producer(FANOUT, [10] * 5)
    queue = "DOMAINS DOMAIN fanout QUEUE q PURGE"
    assert purged(node.ask(f"{queue} foo")) == 5
    assert purged(node.ask(f"{queue} foo")) == 0
    assert purged(node.ask(f"{queue} bar")) == 5
    assert len(node.rig.node.queues[FANOUT].messages) == 5
    assert purged(node.ask("DOMAINS DOMAIN fanout PURGE")) == 5
    assert purged(node.ask(f"{queue} *")) == 0
    assert not node.rig.node.queues[FANOUT].messages
    assert producer.post(1, guid(9), b"new") is AckStatus.SUCCESS
    again = node.restart()
    assert [message.guid for message in again.rig.node.queues[FANOUT].messages.values()] == [guid(9)]
    assert not again.rig.faults()


def test_output_of_a_purge(node: Administered) -> None:
    node.producer(PRIORITY, [1000, 1000])
    node.producer("bmq://priority/r", [10])
    assert node.ask("DOMAINS DOMAIN priority PURGE").splitlines() == [
        "Purged 3 message(s) for a total of 1.96 KB from 2 queue(s):",
        "    NumBytes     NumMsgs      AppKey             AppId  QueueName",
        "     1.95 KB           2  0000000000                    bmq://priority/q",
        "       10  B           1  0000000000                    bmq://priority/r",
    ]
    assert node.json("DOMAINS DOMAIN priority QUEUE q PURGE *")["purgedQueues"]["queues"] == [
        {
            "queue": {
                "queueUri": PRIORITY,
                "appId": "",
                "appKey": "0000000000",
                "numMessagesPurged": 0,
                "numBytesPurged": 0,
            }
        }
    ]
    assert node.ask("DOMAINS DOMAIN broadcast PURGE") == "No queue purged."


def test_purges_that_find_nothing(node: Administered) -> None:
    node.producer(PRIORITY, [1])
    assert node.ask("DOMAINS DOMAIN priority QUEUE r PURGE *", -2) == (
        "Queue was not found in a storage 'bmq://priority/r'"
    )
    assert node.ask("DOMAINS DOMAIN nowhere PURGE", -2) == "Domain 'nowhere' doesn't exist"
    assert node.ask("DOMAINS DOMAIN priority QUEUE q PURGE nobody").splitlines()[-2:] == [
        "Errors encountered: ",
        "Specified appId 'nobody' not found in the storage of queue 'bmq://priority/q'.",
    ]
    assert len(node.rig.node.queues[PRIORITY].messages) == 1


def test_queues_that_are_not_in_use_are_purged(node: Administered) -> None:
    node.producer(PRIORITY, [10] * 3)
    node.producer("bmq://priority/r", [10] * 2)
    again = node.restart()
    assert "ActiveQueues ..: 0" in again.ask("DOMAINS DOMAIN priority INFOS")
    assert purged(again.ask("DOMAINS DOMAIN priority QUEUE q PURGE *")) == 3
    assert purged(again.ask("DOMAINS DOMAIN priority PURGE")) == 2


def test_a_consumer_has_room_after_a_purge(node: Administered) -> None:
    producer = node.producer(PRIORITY, [10, 10])
    consumer = node.rig.connect()
    consumer.read(1, PRIORITY, messages_max=1)
    assert len(consumer.pushes()) == 1
    assert purged(node.ask("DOMAINS DOMAIN priority QUEUE q PURGE *")) == 2
    producer.post(1, guid(7), b"next")
    assert consumer.payloads() == [b"next"]


# -- reconfigurations


def test_limits_change(node: Administered) -> None:
    producer = node.producer(PRIORITY, [10])
    node.configure("priority", queue_messages_max=1, shown={"name": "priority", "mode": {"priority": {}}, "new": 1})
    assert json.loads(node.json("DOMAINS DOMAIN priority INFOS")["domainInfo"]["configJson"]).get("new") is None
    assert node.ask("DOMAINS RECONFIGURE priority") == "SUCCESS"
    assert json.loads(node.json("DOMAINS DOMAIN priority INFOS")["domainInfo"]["configJson"])["new"] == 1
    # A limit may be exceeded by one.
    assert producer.post(1, guid(1), b"x") is AckStatus.SUCCESS
    assert producer.post(1, guid(2), b"x") is AckStatus.LIMIT_MESSAGES
    assert "Messages: [current: 2, limit: 1]" in node.ask("DOMAINS DOMAIN priority QUEUE q INTERNALS")


def test_apps_come_and_go(node: Administered) -> None:
    producer = node.producer(FANOUT, [10])
    node.configure("fanout", app_ids=("foo", "quux"))
    assert node.ask("DOMAINS RECONFIGURE fanout") == "SUCCESS"
    internals = node.ask("DOMAINS DOMAIN fanout QUEUE q INTERNALS")
    assert re.search(r"quux *: status=registered", internals)
    assert "bar" not in internals
    producer.post(1, guid(5), b"new")
    consumer = node.rig.connect()
    consumer.read(1, FANOUT, "quux", 3)
    assert consumer.payloads() == [b"new"]
    assert not node.restart().rig.faults()


def test_impossible_reconfiguration_is_refused(node: Administered) -> None:
    node.producer(PRIORITY)
    node.configure("priority", mode=Mode.FANOUT, app_ids=("foo",), shown={"name": "other"})
    assert "Reconfiguration of domain routing mode is not allowed" in node.ask("DOMAINS RECONFIGURE priority", -2)
    shown = json.loads(node.json("DOMAINS DOMAIN priority INFOS")["domainInfo"]["configJson"])
    assert shown["name"] == "priority"


def test_domains_not_in_use_and_not_there(node: Administered) -> None:
    assert node.ask("DOMAINS RECONFIGURE fanout") == "SUCCESS"
    assert node.ask("DOMAINS RECONFIGURE nowhere", -2) == "Domain 'nowhere' doesn't exist"
    node.producer(PRIORITY)
    del node.rig.domains["priority"]
    assert node.ask("DOMAINS RECONFIGURE priority", -2) == "Domain 'priority' doesn't exist"


# -- removals


def test_a_domain_in_two_steps(node: Administered) -> None:
    producer = node.producer(PRIORITY, [10] * 5)
    told = "Trying to remove the domain 'priority' while there are queues opened or opening"
    assert node.ask("DOMAINS REMOVE priority", -2) == told
    producer.close(1, PRIORITY, WRITE | ACK)
    assert node.ask("DOMAINS REMOVE priority FINALIZE", -2) == (
        "First round of DOMAINS REMOVE 'priority' is not completed."
    )
    assert purged(node.ask("DOMAINS REMOVE priority")) == 5
    assert PRIORITY not in node.rig.node.queues
    assert PRIORITY not in node.rig.node.ledger.state.queues
    refused = producer.try_open(2, PRIORITY, WRITE)
    assert isinstance(refused, Status)
    assert refused.message == "Domain is removing or removed"
    assert node.ask("DOMAINS REMOVE priority FINALIZE") == "SUCCESS"
    assert node.ask("DOMAINS REMOVE priority FINALIZE", -2) == "Domain 'priority' doesn't exist"
    producer.open(3, PRIORITY, WRITE | ACK)
    assert producer.post(3, guid(50), b"afresh") is AckStatus.SUCCESS
    again = node.restart()
    assert len(again.rig.node.queues[PRIORITY].messages) == 1
    assert not again.rig.faults()


def test_a_domain_without_queues(node: Administered) -> None:
    assert node.ask("DOMAINS REMOVE priority") == "No queue purged."
    del node.rig.domains["priority"]
    assert node.ask("DOMAINS REMOVE priority FINALIZE") == "SUCCESS"
    assert node.ask("DOMAINS REMOVE priority", -2) == "Domain 'priority' doesn't exist"


def test_a_removal_survives_a_restart(node: Administered) -> None:
    node.producer(PRIORITY, [10] * 5).close(1, PRIORITY, WRITE | ACK)
    assert purged(node.ask("DOMAINS REMOVE priority")) == 5
    again = node.restart()
    assert PRIORITY not in again.rig.node.queues
    assert not again.rig.faults()
    assert again.ask("DOMAINS REMOVE priority") == "No queue purged."


def test_the_first_step_can_be_taken_again(node: Administered) -> None:
    producer = node.producer(PRIORITY, [10])
    node.ask("DOMAINS REMOVE priority", -2)
    assert isinstance(node.rig.connect().try_open(1, PRIORITY, READ), Status)
    producer.close(1, PRIORITY, WRITE | ACK)
    assert purged(node.ask("DOMAINS REMOVE priority")) == 1
    assert node.ask("DOMAINS REMOVE priority") == "No queue purged."


# -- queues that nobody uses


def test_idle_queues_are_collected(node: Administered) -> None:
    node.producer(PRIORITY).close(1, PRIORITY, WRITE | ACK)
    node.producer("bmq://priority/open")
    node.producer("bmq://priority/full", [1]).close(1, "bmq://priority/full", WRITE | ACK)
    assert node.ask("CLUSTERS CLUSTER local FORCE_GC_QUEUES") == "SUCCESS"
    assert sorted(node.rig.node.queues) == ["bmq://priority/full", "bmq://priority/open"]
    assert "Num Queues: 2" in node.ask("CLUSTERS CLUSTER local STATUS")


def test_a_domain_is_removed_under_all_its_names() -> None:
    config = DomainConfig("priority", Mode.PRIORITY)
    node = start_with(config)
    node.rig.domains["alias"] = node.rig.domains["priority"]
    node.producer("bmq://alias/q", [1]).close(1, "bmq://alias/q", WRITE | ACK)
    assert purged(node.ask("DOMAINS REMOVE alias")) == 1
    assert node.ask("DOMAINS REMOVE alias FINALIZE") == "SUCCESS"
    assert not node.rig.node.domains
