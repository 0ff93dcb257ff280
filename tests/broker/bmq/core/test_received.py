"""Messages from peers: what is out of range ends the session, and the path in the error names it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import broker
from broker.bmq.core.received import CHECKS, check, received
from formats.bmq.codes import EncodingType
from formats.bmq.control import ber, jsonc
from formats.bmq.control.messages import (
    AppIdInfo,
    AuthenticationMessage,
    ClusterMessage,
    ConfigureQueueStream,
    ConfigureStream,
    ConsumerInfo,
    ControlMessage,
    ElectorMessage,
    Expression,
    LeaderMessageSequence,
    NegotiationMessage,
    OpenQueue,
    OpenQueueResponse,
    PartitionMessage,
    PartitionSequenceNumber,
    QueueAssignmentAdvisory,
    QueueHandleParameters,
    QueueInfo,
    QueueInfoUpdate,
    QueueStreamParameters,
    QueueUpdateAdvisory,
    ReplicaStateRequest,
    RoutingConfiguration,
    StreamParameters,
    Subscription,
)
from formats.bmq.control.schema import Choice, Description, Integer, Octets, Text, describe
from formats.bmq.wire.event import build_schema_event
from formats.errors import FormatError
from tests.broker.bmq.rig import Rig, start

NUMBER = LeaderMessageSequence(elector_term=1, sequence_number=1)
QUEUE = QueueInfo(uri="bmq://priority/q", key=b"12345", partition_id=0)
UPDATE = QueueInfoUpdate(uri="", key=b"", partition_id=0, domain="priority")
OPEN = OpenQueue(handle_parameters=QueueHandleParameters(uri="", q_id=0, flags=0))


def consumer(consumer: ConsumerInfo) -> ConfigureStream:
    subscription = Subscription(s_id=1, expression=Expression(text=""), consumers=(consumer,))
    return ConfigureStream(q_id=1, stream_parameters=StreamParameters(subscriptions=(subscription,)))


def advised(queue: QueueInfo) -> ClusterMessage:
    return ClusterMessage(choice=QueueAssignmentAdvisory(sequence_number=NUMBER, queues=(QUEUE, queue)))


def updated(update: QueueInfoUpdate) -> ClusterMessage:
    return ClusterMessage(choice=QueueUpdateAdvisory(sequence_number=NUMBER, queue_updates=(update,)))


def replica(number: int) -> ClusterMessage:
    position = PartitionSequenceNumber(primary_lease_id=1, sequence_number=number)
    nowhere = PartitionSequenceNumber(primary_lease_id=0, sequence_number=0)
    request = ReplicaStateRequest(
        partition_id=0,
        primary_lease_id=1,
        latest_sequence_number=position,
        first_sync_point_after_rollover_sequence_number=nowhere,
    )
    return ClusterMessage(choice=PartitionMessage(choice=request))


def app(app_id: str, key: bytes) -> ClusterMessage:
    return advised(replace(QUEUE, app_ids=(AppIdInfo(app_id=app_id, app_key=key),)))


def opened(deduplication_time_ms: int) -> OpenQueueResponse:
    return OpenQueueResponse(
        original_request=OPEN,
        routing_configuration=RoutingConfiguration(flags=0),
        deduplication_time_ms=deduplication_time_ms,
    )


def stream(messages: int, size: int) -> ConfigureQueueStream:
    parameters = QueueStreamParameters(max_unconfirmed_messages=messages, max_unconfirmed_bytes=size)
    return ConfigureQueueStream(q_id=1, stream_parameters=parameters)


GOOD = [
    consumer(ConsumerInfo(max_unconfirmed_messages=(1 << 63) - 1, max_unconfirmed_bytes=0)),
    consumer(ConsumerInfo(max_unconfirmed_messages=-(1 << 63), max_unconfirmed_bytes=-1)),
    stream(0, (1 << 63) - 1),
    stream(-1, -(1 << 63)),
    advised(QUEUE),
    advised(replace(QUEUE, uri="bmq://priority.~beta/q", partition_id=0xFFFF)),
    app("foo", b"54321"),
    updated(UPDATE),
    updated(replace(UPDATE, uri=QUEUE.uri, key=QUEUE.key)),
    replica((1 << 48) - 1),
    opened(0),
    OPEN,
]

_SECOND = "choice.clusterMessage.choice.queueAssignmentAdvisory.queues[1]"
BAD: list[tuple[object, str]] = [
    (advised(replace(QUEUE, uri="priority/q")), f"{_SECOND}.uri"),
    (advised(replace(QUEUE, uri="bmq://priority/q?id=foo")), f"{_SECOND}.uri"),
    (advised(replace(QUEUE, uri=f"bmq://{'d' * 2000}/q")), f"{_SECOND}.uri"),
    (advised(replace(QUEUE, key=b"1234")), f"{_SECOND}.key"),
    (advised(replace(QUEUE, partition_id=-1)), f"{_SECOND}.partitionId"),
    (advised(replace(QUEUE, partition_id=1 << 16)), f"{_SECOND}.partitionId"),
    (app("", b"12345"), f"{_SECOND}.appIds[0].appId"),
    (app("x" * 0x40000, b"12345"), f"{_SECOND}.appIds[0].appId"),
    (app("foo", b""), f"{_SECOND}.appIds[0].appKey"),
    (updated(replace(UPDATE, uri="q")), "choice.clusterMessage.choice.queueUpdateAdvisory.queueUpdates[0].uri"),
    (updated(replace(UPDATE, key=b"1")), "choice.clusterMessage.choice.queueUpdateAdvisory.queueUpdates[0].key"),
    (
        updated(replace(UPDATE, partition_id=-1)),
        "choice.clusterMessage.choice.queueUpdateAdvisory.queueUpdates[0].part",
    ),
    (
        replica(1 << 48),
        "choice.clusterMessage.choice.partitionMessage.choice.replicaStateRequest.latestSequenceNumber.sequenceNumber",
    ),
    (opened(-1), "choice.openQueueResponse.deduplicationTimeMs"),
]


@pytest.mark.parametrize("choice", GOOD, ids=str)
def test_numbers_in_range_are_taken(choice: object) -> None:
    message = ControlMessage(choice=choice)  # type: ignore[arg-type]
    assert received(ControlMessage, ber.encode(message), EncodingType.BER) == message
    assert received(ControlMessage, jsonc.encode(message), EncodingType.JSON) == message


@pytest.mark.parametrize(("choice", "path"), BAD, ids=[path for _, path in BAD])
def test_numbers_out_of_range_are_refused(choice: object, path: str) -> None:
    message = ControlMessage(choice=choice)  # type: ignore[arg-type]
    with pytest.raises(FormatError) as caught:
        received(ControlMessage, ber.encode(message), EncodingType.BER)
    assert str(caught.value).replace(" at offset 0", "").startswith(f"ControlMessage.{path}")


def test_every_check_is_of_an_element_and_has_a_case() -> None:
    """A name that is misspelt would check nothing."""
    paths = " ".join(path for _, path in BAD)
    for cls, checks in CHECKS.items():
        by_attribute = {element.attribute: element for element in describe(cls).elements}
        for attribute in checks:
            assert not isinstance(by_attribute[attribute].kind, Choice)
            assert by_attribute[attribute].name[:4] in paths


def test_nothing_is_looked_at_where_nothing_can_be_wrong() -> None:
    check(OPEN)
    with pytest.raises(FormatError):
        check(opened(-1))


@pytest.fixture
def rig() -> Rig:
    return start()


def test_a_session_ends_that_sends_a_number_out_of_range(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    odd, other = rig.connect(), rig.connect()
    odd.read(1, QUEUE.uri)
    request = ControlMessage(r_id=9, choice=opened(-1))
    odd.send(build_schema_event(ber.encode(request)))
    assert odd.session.finished
    assert "openQueueResponse.deduplicationTimeMs" in caplog.text
    assert not rig.node.queues[QUEUE.uri].is_open
    other.read(1, QUEUE.uri)


# Elements that have a number, a name or bytes in them, and no check in the table: what becomes of them instead.
_ANY = "told on, compared or shown; any value is as good"
_STATUS = "refused with the reference's status, see core.handles and core.subscriptions"
_KNOWN = "compared with what is known; another is ignored or refused"
_LIMITS = "below 0 one message is in flight, see queue.subscriptions"
_UNUSED = "of messages that brokers of today neither send nor heed"
ELSEWHERE: dict[str, tuple[str, ...]] = {
    _ANY: (
        "ControlMessage.r_id",
        "Status.code Status.message",
        "AdminCommandResponse.text",
        "StopRequest.cluster_name StopRequest.version StopResponse.cluster_name",
        "Subscription.s_id RoutingConfiguration.flags QueueHandleParameters.flags",
        "ClientIdentity.protocol_version ClientIdentity.sdk_version ClientIdentity.process_name ClientIdentity.pid",
        "ClientIdentity.session_id ClientIdentity.host_name ClientIdentity.features ClientIdentity.user_agent",
        "GuidInfo.client_id GuidInfo.nano_seconds_from_epoch",
        "BrokerResponse.protocol_version BrokerResponse.broker_version BrokerResponse.heartbeat_interval_ms",
        "BrokerResponse.max_missed_heartbeats",
        "AuthenticationRequest.data AuthenticationResponse.lifetime_ms",
    ),
    _STATUS: (
        "QueueHandleParameters.uri QueueHandleParameters.q_id QueueHandleParameters.read_count",
        "QueueHandleParameters.write_count QueueHandleParameters.admin_count",
        "SubQueueIdInfo.sub_id SubQueueIdInfo.app_id",
        "ConfigureStream.q_id ConfigureQueueStream.q_id StreamParameters.app_id Expression.text",
        "ConsumerInfo.consumer_priority ConsumerInfo.consumer_priority_count",
        "QueueStreamParameters.consumer_priority QueueStreamParameters.consumer_priority_count",
        "AdminCommand.command AuthenticationRequest.mechanism",
        "ClientIdentity.cluster_name ClientIdentity.cluster_node_id",
        "QueueAssignmentRequest.queue_uri",
    ),
    _KNOWN: (
        "ElectorMessage.term LeaderMessageSequence.elector_term LeaderMessageSequence.sequence_number",
        "PartitionPrimaryInfo.partition_id PartitionPrimaryInfo.primary_node_id PartitionPrimaryInfo.primary_lease_id",
        "PrimaryStatusAdvisory.partition_id PrimaryStatusAdvisory.primary_lease_id",
        "ReplicaStateRequest.partition_id ReplicaStateRequest.primary_lease_id",
        "ReplicaStateResponse.partition_id ReplicaStateResponse.primary_lease_id",
        "PrimaryStateRequest.partition_id PrimaryStateRequest.primary_lease_id",
        "PrimaryStateResponse.partition_id PrimaryStateResponse.primary_lease_id",
        "ReplicaDataRequest.partition_id ReplicaDataRequest.primary_lease_id",
        "ReplicaDataResponse.partition_id ReplicaDataResponse.primary_lease_id",
        "PartitionSequenceNumber.primary_lease_id",
        "QueueUnassignmentRequest.queue_uri QueueUnassignmentRequest.queue_key QueueInfoUpdate.domain",
    ),
    _LIMITS: (
        "ConsumerInfo.max_unconfirmed_messages ConsumerInfo.max_unconfirmed_bytes",
        "QueueStreamParameters.max_unconfirmed_messages QueueStreamParameters.max_unconfirmed_bytes",
    ),
    _UNUSED: (
        "StorageSyncRequest.partition_id StorageSyncResponse.partition_id SyncPointOffsetPair.offset",
        "SyncPoint.primary_lease_id SyncPoint.sequence_num SyncPoint.data_file_offset_dwords",
        "SyncPoint.qlist_file_offset_words PartitionSyncStateQuery.partition_id",
        "PartitionSyncStateQueryResponse.partition_id PartitionSyncStateQueryResponse.primary_lease_id",
        "PartitionSyncStateQueryResponse.sequence_num PartitionSyncDataQuery.partition_id",
        "PartitionSyncDataQuery.last_primary_lease_id PartitionSyncDataQuery.last_sequence_num",
        "PartitionSyncDataQuery.upto_primary_lease_id PartitionSyncDataQuery.upto_sequence_num",
        "PartitionSyncDataQueryResponse.partition_id PartitionSyncDataQueryResponse.end_primary_lease_id",
        "PartitionSyncDataQueryResponse.end_sequence_num PartitionSyncDataQueryStatus.partition_id",
        "QueueUnAssignmentAdvisory.partition_id QueueUnAssignmentAdvisory.primary_lease_id",
        "QueueUnAssignmentAdvisory.primary_node_id QueueUnassignmentRequest.partition_id",
    ),
}


def scalars(description: Description, seen: set[str]) -> Iterator[tuple[type[object], str]]:
    """All elements with a number, a name or bytes in them, of a message and of those in it."""
    if description.name in seen:
        return
    seen.add(description.name)
    for element in description.elements:
        match element.kind:
            case Description() as nested:
                yield from scalars(nested, seen)
            case Choice(alternatives=alternatives):
                for each in alternatives:
                    yield from scalars(each.description, seen)
            case Integer() | Text() | Octets():
                yield description.cls, element.attribute


def test_every_number_and_name_of_a_message_is_listed() -> None:
    """A field added to a message must be listed."""
    seen: set[str] = set()
    unchecked = set()
    for cls in (NegotiationMessage, AuthenticationMessage, ControlMessage, ElectorMessage):
        for owner, attribute in scalars(describe(cls), seen):
            if attribute not in CHECKS.get(owner, {}):
                unchecked.add(f"{owner.__name__}.{attribute}")
    said = [name for lines in ELSEWHERE.values() for line in lines for name in line.split()]
    assert len(said) == len(set(said))
    assert set(said) == unchecked


def test_every_session_decodes_with_its_checks() -> None:
    """The modules that call the codecs: that of the checks itself, and the readers of the node's own files."""
    root = Path(broker.__file__).parent
    codecs = re.compile(r"\b(ber|jsonc|codec)\.decode(_from)?\(")
    using = {str(path.relative_to(root)) for path in root.rglob("*.py") if codecs.search(path.read_text())}
    assert using == {"bmq/core/ledger.py", "bmq/core/received.py", "bmq/store/lost_qlist.py"}
