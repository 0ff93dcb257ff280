"""Clients that post and read messages whose payload is their number."""

from __future__ import annotations

from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import AckStatus
from tests.broker.bmq.rig import ACK, WRITE, Client, Rig, guid

QUEUE = "bmq://priority/q"
FANOUT = "bmq://fanout/q"
BROADCAST = "bmq://broadcast/q"
ROOMY = PartitionLimits(journal=1 << 20, data=16 << 20, qlist=64 << 10)


def producing(rig: Rig, uri: str = QUEUE) -> Client:
    client = rig.connect()
    client.open(1, uri, WRITE | ACK)
    return client


def reading(rig: Rig, uri: str = QUEUE, app: str = "", **limits: int) -> Client:
    client = rig.connect()
    client.read(1, uri, app, 1 if app else 0, **limits)
    return client


def post(client: Client, *numbers: int) -> None:
    """Post messages whose payload is their number."""
    for number in numbers:
        assert client.post(1, guid(number), payload(number)) is AckStatus.SUCCESS


def payload(number: int) -> bytes:
    return b"%d" % number


def numbers(client: Client) -> list[int]:
    """The numbers of the messages that came."""
    return [int(data) for data in client.payloads()]
