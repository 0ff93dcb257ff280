"""Messages of the gRPC protocol: producers, consumers and their settings."""

from __future__ import annotations

import hashlib
import hmac

from formats.rocketmq.grpc.codes import ClientType
from formats.rocketmq.grpc.messages import Message, make
from tests.broker.rocketmq.grpc.served import Served


def resource(name: str) -> Message:
    return make("Resource", name=name)


def endpoints() -> Message:
    made = make("Endpoints", scheme=1)
    made.addresses.add(host="10.0.0.9", port=8081)
    return made


def end(served: Served, resolution: int, transaction: str = "ID-1") -> Message:
    request = make("EndTransactionRequest", topic=resource("many"), message_id="ID-1", resolution=resolution)
    request.transaction_id = transaction
    return served.call("EndTransaction", request)


def producer(*topics: str) -> Message:
    settings = make("Settings", client_type=ClientType.PRODUCER)
    settings.publishing.topics.extend(map(resource, topics))
    return settings


def consumer(group: str = "g", kind: ClientType = ClientType.PUSH_CONSUMER) -> Message:
    settings = make("Settings", client_type=kind)
    settings.subscription.group.name = group
    settings.subscription.subscriptions.add(topic=resource("t"))
    return settings


def credential(name: str, secret: str, is_upper: bool = False) -> dict[str, str]:
    signature = hmac.new(secret.encode(), b"20260101T000000Z", hashlib.sha1).hexdigest()
    text = f"MQv2-HMAC-SHA1 Credential={name}/x, SignedHeaders=x-mq-date-time, Signature="
    return {
        "authorization": text + (signature.upper() if is_upper else signature),
        "x_mq_date_time": "20260101T000000Z",
    }
