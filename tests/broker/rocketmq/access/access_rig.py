"""Users and signed requests, for tests of authentication and authorization."""

from __future__ import annotations

import json
from typing import Any

from broker.rocketmq.access.guard import AccessOptions
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.signature import signed
from tests.broker.rocketmq.rig import Peer

ROOT, USER = ("root", "root-secret"), ("walter", "walter-secret")
BOTH = AccessOptions(authentication=True, authorization=True)


def json_body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def policy(resource: str, actions: str, decision: str = "Allow", sources: tuple[str, ...] = ()) -> bytes:
    entry = {"resource": resource, "actions": actions.split(","), "decision": decision, "sourceIps": list(sources)}
    return json_body(policies=[{"entries": [entry]}])


def create_user(peer: Peer, name: str, password: str = "x", **fields: Any) -> Frame:
    return peer.call(RequestCode.AUTH_CREATE_USER, json_body(password=password, **fields), username=name)


class Signer:
    """A peer whose requests are signed by a user."""

    def __init__(self, peer: Peer, user: tuple[str, str]) -> None:
        self.peer = peer
        self.user = user

    def call(self, code: RequestCode, body: bytes = b"", **fields: Any) -> Frame:
        told = Frame(code, 0, ext_fields={name: str(value) for name, value in fields.items()}, body=body, version=493)
        return self.peer.call(code, body, **(signed(told, *self.user).ext_fields or {}))

    def send(self, topic: str = "t", body: bytes = b"x") -> Frame:
        fields = {"a": "p", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "UNIQ_KEY\x011\x02"}
        return self.call(RequestCode.SEND_MESSAGE_V2, body, **fields)
