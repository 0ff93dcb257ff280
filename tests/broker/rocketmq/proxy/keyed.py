"""Proxies with keys, before brokers that check."""

from __future__ import annotations

import json

from broker.rocketmq.access.guard import AccessOptions
from broker.rocketmq.proxy.access import Checks
from formats.rocketmq.grpc.messages import Message
from formats.rocketmq.remoting.bodies.access import UserInfo, read_acl
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from tests.broker.rocketmq.grpc.grpc_service_rig import credential
from tests.broker.rocketmq.proxy.clustered import Clustered
from tests.broker.rocketmq.rig import OPTIONS, Rig

__all__ = [
    "BOB",
    "BOTH",
    "NO_ACL",
    "NO_USER",
    "PROXY",
    "WHO_ONLY",
    "allow",
    "authenticate",
    "guarded",
    "outcome",
    "proxy",
]

PROXY, BOB = ("proxy", "proxy-secret"), ("bob", "bob-secret")
BOTH = Checks(True, True, OPTIONS.cluster)
WHO_ONLY = Checks(True, False, OPTIONS.cluster)
NO_USER = "Authentication failed. Please verify the credentials and try again."
NO_ACL = "Authorization failed. Please verify your access rights and try again."


def guarded(checks: bool = True) -> Rig:
    """A broker with the user of the proxy, who is a super user, and another one."""
    rig = Rig()
    rig.access_options = AccessOptions(checks, checks)
    rig.stop()
    rig.topics.put(TopicConfig("t", 1, 1), rig.wall_ms)
    rig.access.create_user(UserInfo(*PROXY, "Super", "enable"))
    rig.access.create_user(UserInfo(*BOB, "Normal", "enable"))
    return rig


def allow(rig: Rig, *resources: str, actions: str = "Pub,Sub", decision: str = "Allow", source: str = "") -> None:
    """Let Bob use resources."""
    entries = [
        {
            "resource": each,
            "actions": actions.split(","),
            "decision": decision,
            "sourceIps": [source] if source else [],
        }
        for each in resources
    ]
    rig.access.put_acl(read_acl(json.dumps({"subject": "User:bob", "policies": [{"entries": entries}]}).encode()))


def proxy(rig: Rig | None = None, checks: Checks = BOTH, key: tuple[str, str] | None = PROXY) -> Clustered:
    served = Clustered(rig or guarded(), checks=checks, key=key)
    served.headers = credential(*BOB)
    return served


def outcome(answer: Message) -> tuple[int, str]:
    return answer.status.code, answer.status.message


def authenticate(served: Clustered) -> None:
    """Have the proxy know Bob's identity, but not Bob's rights."""
    headers = {each.replace("_", "-"): value for each, value in credential(*BOB).items()}
    served.cluster.access.authenticate(headers, lambda reason: None)
    served.step()
