"""Commands from words and from JSON: both forms of every row give the same command."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.bmq.admin.commands import (
    BrokerConfigDump,
    ClearConfigCache,
    ClearResolverCache,
    ClusterHealth,
    ClusterQueueHelper,
    Clusters,
    ClusterStatus,
    Command,
    DomainInfos,
    DomainPurge,
    DomainReconfigure,
    DomainRemove,
    ElectorGet,
    ElectorList,
    ElectorSet,
    Encoding,
    ForceGcQueues,
    Help,
    PartitionAvailability,
    PartitionRollover,
    PartitionSummary,
    QueueInternals,
    QueueList,
    QueueMessage,
    QueuePurge,
    ReplicationGet,
    ReplicationList,
    ReplicationSet,
    StatGet,
    StatList,
    StatSet,
    StatShow,
    StorageQueueStatus,
    StorageSummary,
)
from broker.bmq.admin.parse import AdminCommandError, parse, parse_value
from broker.bmq.admin.table import TABLE


def domain(command: Any) -> Any:
    return {"domains": {"domain": {"name": "foo", "command": command}}}


def queue(command: Any) -> Any:
    return domain({"queue": {"name": "bar", "command": command}})


def cluster(command: Any) -> Any:
    return {"clusters": {"cluster": {"name": "c", "command": command}}}


def storage(command: Any) -> Any:
    return cluster({"storage": command})


def partition(partition_id: int, command: Any) -> Any:
    return storage({"partition": {"partitionId": partition_id, "command": command}})


# Words, JSON, the command. The pairs of words and JSON are those of the reference's own test (mqbcmd_parseutil.t.cpp).
CASES: list[tuple[str, Any, Command]] = [
    ("HELP", {"help": {"plumbing": False}}, Help()),
    ("HELP PLUMBING", {"help": {"plumbing": True}}, Help(plumbing=True)),
    ("BROKERCONFIG DUMP", {"brokerConfig": {"dump": {}}}, BrokerConfigDump()),
    ("DOMAINS DOMAIN foo PURGE", domain({"purge": {}}), DomainPurge("foo")),
    ("DOMAINS DOMAIN foo INFOS", domain({"info": {}}), DomainInfos("foo")),
    ("DOMAINS DOMAIN foo QUEUE bar PURGE app", queue({"purgeAppId": "app"}), QueuePurge("foo", "bar", "app")),
    ("DOMAINS DOMAIN foo QUEUE bar PURGE *", queue({"purgeAppId": "*"}), QueuePurge("foo", "bar", "*")),
    ("DOMAINS DOMAIN foo QUEUE bar INTERNALS", queue({"internals": {}}), QueueInternals("foo", "bar")),
    (
        "DOMAINS DOMAIN foo QUEUE bar LIST baz -30 10",
        queue({"messages": {"appId": "baz", "offset": -30, "count": 10}}),
        QueueList("foo", "bar", -30, 10, "baz"),
    ),
    (
        "DOMAINS DOMAIN foo QUEUE bar LIST 30 UNLIMITED",
        queue({"messages": {"offset": 30, "count": 0}}),
        QueueList("foo", "bar", 30, 0),
    ),
    (
        "DOMAINS DOMAIN foo QUEUE bar MESSAGE 00AB",
        queue({"message": {"guid": "00AB"}}),
        QueueMessage("foo", "bar", "00AB"),
    ),
    ("DOMAINS RECONFIGURE foo", {"domains": {"reconfigure": {"domain": "foo"}}}, DomainReconfigure("foo")),
    (
        "DOMAINS RESOLVER CACHE_CLEAR foo",
        {"domains": {"resolver": {"clearCache": {"domain": "foo"}}}},
        ClearResolverCache("foo"),
    ),
    (
        "DOMAINS RESOLVER CACHE_CLEAR ALL",
        {"domains": {"resolver": {"clearCache": {"all": {}}}}},
        ClearResolverCache(),
    ),
    ("DOMAINS REMOVE foo", {"domains": {"remove": {"domain": "foo"}}}, DomainRemove("foo")),
    (
        "DOMAINS REMOVE foo FINALIZE",
        {"domains": {"remove": {"domain": "foo", "finalize": True}}},
        DomainRemove("foo", finalize=True),
    ),
    ("CONFIGPROVIDER CACHE_CLEAR foo", {"configProvider": {"clearCache": {"domain": "foo"}}}, ClearConfigCache("foo")),
    ("CONFIGPROVIDER CACHE_CLEAR ALL", {"configProvider": {"clearCache": {"all": {}}}}, ClearConfigCache()),
    ("STAT SHOW", {"stat": {"show": {}}}, StatShow()),
    (
        "STAT SET x.PUBLISHINTERVAL 30",
        {"stat": {"setTunable": {"name": "x.PUBLISHINTERVAL", "value": {"theInteger": 30}}}},
        StatSet("x.PUBLISHINTERVAL", 30),
    ),
    ("STAT GET x", {"stat": {"getTunable": "x"}}, StatGet("x")),
    ("STAT LIST_TUNABLES", {"stat": {"listTunables": {}}}, StatList()),
    ("CLUSTERS LIST", {"clusters": {"list": {}}}, Clusters()),
    ("CLUSTERS CLUSTER c STATUS", cluster({"status": {}}), ClusterStatus("c")),
    ("CLUSTERS CLUSTER c HEALTH", cluster({"health": {}}), ClusterHealth("c")),
    ("CLUSTERS CLUSTER c QUEUEHELPER", cluster({"queueHelper": {}}), ClusterQueueHelper("c")),
    ("CLUSTERS CLUSTER c FORCE_GC_QUEUES", cluster({"forceGcQueues": {}}), ForceGcQueues("c")),
    ("CLUSTERS CLUSTER c STORAGE SUMMARY", storage({"summary": {}}), StorageSummary("c")),
    (
        "CLUSTERS CLUSTER c STORAGE PARTITION 123 ENABLE",
        partition(123, {"enable": {}}),
        PartitionAvailability("c", 123, available=True),
    ),
    (
        "CLUSTERS CLUSTER c STORAGE PARTITION 123 DISABLE",
        partition(123, {"disable": {}}),
        PartitionAvailability("c", 123, available=False),
    ),
    ("CLUSTERS CLUSTER c STORAGE PARTITION 1 SUMMARY", partition(1, {"summary": {}}), PartitionSummary("c", 1)),
    ("CLUSTERS CLUSTER c STORAGE PARTITION -1 ROLLOVER", partition(-1, {"rollover": {}}), PartitionRollover("c", -1)),
    ("CLUSTERS CLUSTER c STORAGE PARTITION ALL ROLLOVER", partition(-1, {"rollover": {}}), PartitionRollover("c", -1)),
    (
        "CLUSTERS CLUSTER c STORAGE DOMAIN d QUEUE_STATUS",
        storage({"domain": {"name": "d", "command": {"queueStatus": {}}}}),
        StorageQueueStatus("c", "d"),
    ),
    (
        "CLUSTERS CLUSTER c STORAGE REPLICATION SET quorum 2",
        storage({"replication": {"setTunable": {"name": "quorum", "value": {"theInteger": 2}, "self": {}}}}),
        ReplicationSet("c", "quorum", 2),
    ),
    (
        "CLUSTERS CLUSTER c STORAGE REPLICATION SET_ALL quorum 2",
        storage({"replication": {"setTunable": {"name": "quorum", "value": {"theInteger": 2}, "all": {}}}}),
        ReplicationSet("c", "quorum", 2, everywhere=True),
    ),
    (
        "CLUSTERS CLUSTER c STORAGE REPLICATION GET_ALL quorum",
        storage({"replication": {"getTunable": {"name": "quorum", "all": {}}}}),
        ReplicationGet("c", "quorum", everywhere=True),
    ),
    (
        "CLUSTERS CLUSTER c STORAGE REPLICATION LIST_TUNABLES",
        storage({"replication": {"listTunables": {}}}),
        ReplicationList("c"),
    ),
    (
        "CLUSTERS CLUSTER c STATE ELECTOR SET parameter 478",
        cluster(
            {"state": {"elector": {"setTunable": {"name": "parameter", "value": {"theInteger": 478}, "self": {}}}}}
        ),
        ElectorSet("c", "parameter", 478),
    ),
    (
        "CLUSTERS CLUSTER c STATE ELECTOR GET parameter",
        cluster({"state": {"elector": {"getTunable": {"name": "parameter", "self": {}}}}}),
        ElectorGet("c", "parameter"),
    ),
    (
        "CLUSTERS CLUSTER c STATE ELECTOR LIST_TUNABLES",
        cluster({"state": {"elector": {"listTunables": {}}}}),
        ElectorList("c"),
    ),
]

REFUSED = [
    "",
    "   ",
    "NONSENSE",
    "HELP ME",
    "DOMAINS",
    "DOMAINS DOMAIN",
    "DOMAINS DOMAIN foo",
    "DOMAINS DOMAIN foo NONSENSE",
    "DOMAINS DOMAIN foo QUEUE",
    "DOMAINS DOMAIN foo QUEUE bar",
    "DOMAINS DOMAIN foo QUEUE bar PURGE",
    "DOMAINS DOMAIN foo QUEUE bar LIST -30",
    "DOMAINS DOMAIN foo QUEUE bar LIST one 2",
    "DOMAINS DOMAIN foo QUEUE bar LIST 0 UNLIMITED garbage",
    "DOMAINS DOMAIN foo QUEUE bar LIST 0 2147483648",
    "DOMAINS RESOLVER CACHE_CLEAR",
    "DOMAINS REMOVE",
    "DOMAINS REMOVE foo NOW",
    "CONFIGPROVIDER",
    "CONFIGPROVIDER CACHE_CLEAR",
    "STAT SET x",
    "CLUSTERS CLUSTER",
    "CLUSTERS CLUSTER c STORAGE",
    "CLUSTERS CLUSTER c STORAGE PARTITION",
    "CLUSTERS CLUSTER c STORAGE PARTITION party SUMMARY",
    "CLUSTERS CLUSTER c STORAGE PARTITION 123",
    "CLUSTERS CLUSTER c STORAGE DOMAIN",
    "CLUSTERS CLUSTER c STORAGE DOMAIN d",
    "CLUSTERS CLUSTER c STATE",
    "CLUSTERS CLUSTER c STATE ELECTOR",
    "ENCODING",
    "ENCODING TEXT",
    "ENCODING HELP",
    "ENCODING INCORRECT HELP",
    "{",
    "{}",
    '{"help": 3}',
    '{"help": {"plumbing": 3}}',
    '{"help": {}, "encoding": "INCORRECT"}',
    '{"domains": {"domain": {"name": "", "command": {"info": {}}}}}',
    '{"domains": {"domain": {"command": {"info": {}}}}}',
    '{"stat": {"getTunable": {}}}',
    '{"stat": {"getTunable": "\\ud800"}}',
    '{"stat": {"setTunable": {"name": "x", "value": {"theString": "\\ud800"}}}}',
    '{"a":' * 100_000,
    "[" * 100_000,
]


@pytest.mark.parametrize(("words", "form", "command"), CASES, ids=[case[0] for case in CASES])
def test_words_and_json_of_every_command(words: str, form: Any, command: Command) -> None:
    assert parse(words) == (command, Encoding.TEXT)
    assert parse(json.dumps(form)) == (command, Encoding.TEXT)


@pytest.mark.parametrize("words", [case[0] for case in CASES])
def test_more_words_are_refused(words: str) -> None:
    with pytest.raises(AdminCommandError):
        parse(f"{words} extra extra extra")


def test_every_row_has_a_case() -> None:
    assert {type(case[2]) for case in CASES} == {row.make for row in TABLE}


@pytest.mark.parametrize("line", REFUSED)
def test_invalid_command_is_refused(line: str) -> None:
    with pytest.raises(AdminCommandError):
        parse(line)


def test_case_and_spaces_do_not_matter_but_names_keep_theirs() -> None:
    assert parse("  domains   Domain Foo   infos ")[0] == DomainInfos("Foo")


@pytest.mark.parametrize("encoding", Encoding)
def test_encodings(encoding: Encoding) -> None:
    assert parse(f"encoding {encoding.value.lower()} help") == (Help(), encoding)
    assert parse(json.dumps({"help": {}, "encoding": encoding.value})) == (Help(), encoding)


def test_unknown_members_of_json_are_skipped() -> None:
    assert parse('{"comment": 1, "help": {"colour": "red"}} and more')[0] == Help()


def test_a_refusal_says_what_could_stand_there() -> None:
    with pytest.raises(
        AdminCommandError, match="'CLUSTERS CLUSTER c' must be followed by one of FORCE_GC_QUEUES, HEALTH"
    ):
        parse("CLUSTERS CLUSTER c")
    with pytest.raises(
        AdminCommandError, match="'x' is unknown after 'STAT': use one of GET, LIST_TUNABLES, SET, SHOW"
    ):
        parse("STAT x")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("null", None),
        ("true", True),
        ("false", False),
        ("7", 7),
        ("-7", -7),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("ab", "ab"),
    ],
)
def test_values(word: str, value: object) -> None:
    found = parse_value(word)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.slow
@given(st.text())
def test_any_text_is_a_command_or_refused(text: str) -> None:
    with suppress(AdminCommandError):
        assert parse(text)


_LEAVES = st.none() | st.booleans() | st.integers() | st.text()
_KEYS = st.sampled_from(
    [
        *("domains", "domain", "name", "command", "queue", "messages", "offset", "count", "purgeAppId", "clusters"),
        *("cluster", "storage", "partition", "partitionId", "stat", "setTunable", "value", "theInteger", "help"),
        *("encoding", "plumbing", "remove", "finalize"),
    ]
)
_JSON = st.recursive(_LEAVES, lambda inner: st.dictionaries(_KEYS, inner) | st.lists(inner), max_leaves=20)


@pytest.mark.slow
@given(st.dictionaries(_KEYS, _JSON))
def test_any_json_is_a_command_or_refused(value: Any) -> None:
    with suppress(AdminCommandError):
        assert parse(json.dumps(value))
