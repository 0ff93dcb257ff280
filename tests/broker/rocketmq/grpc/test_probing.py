"""Probes of a port for gRPC: the health service, and reflection, as grpcurl and Kubernetes use them."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool

from broker.rocketmq.grpc.http2.wire import GrpcStatus
from broker.rocketmq.grpc.service import GrpcService
from formats.rocketmq.grpc.describing import Declared, Types
from formats.rocketmq.grpc.messages import SERVICE
from formats.rocketmq.grpc.probing import HEALTH, REFLECTIONS
from tests.broker.rocketmq.grpc.http2.peer import Client
from tests.broker.rocketmq.grpc.served import Served

HEALTH_TYPES = Types(HEALTH)
# HealthCheckResponse with each status, by the specification.
SERVING, NOT_SERVING, SERVICE_UNKNOWN = b"\x08\x01", b"\x08\x02", b"\x08\x03"


class Probed:
    """A broker's service that may lack something, and a client without an id."""

    def __init__(self) -> None:
        served = Served()
        self.lacking: str | None = None
        rig = served.rig
        self.service = GrpcService(
            served._access(),
            served._backend(None),
            rig.faults,
            lambda: rig.wall_ms,
            lambda: served.ms,
            lambda: self.lacking,
        )
        self.client = Client(self.service.services)

    def ask(self, declared: Declared, method: str, *requests: Any) -> tuple[list[bytes], str | None]:
        path = f"/{declared.service_name}/{method}"
        texts = [each if isinstance(each, bytes) else each.SerializeToString() for each in requests]
        stream = self.client.call(method, *texts, **{":path": path})
        return self.client.messages(stream), self.client.status(stream)

    def check(self, service: str) -> tuple[list[bytes], str | None]:
        return self.ask(HEALTH, "Check", HEALTH_TYPES.make("HealthCheckRequest", service=service))


@pytest.mark.parametrize("service", ["", SERVICE])
def test_health_is_whether_anything_is_lacking(service: str) -> None:
    probed = Probed()
    assert probed.check(service) == ([SERVING], "0")
    probed.lacking = "no master"
    assert probed.check(service) == ([NOT_SERVING], "0")


def test_health_of_an_unknown_service_is_not_found() -> None:
    assert Probed().check("other") == ([], str(GrpcStatus.NOT_FOUND.value))


def test_a_watch_gets_each_change_until_it_is_cancelled() -> None:
    probed = Probed()
    client = probed.client
    request = HEALTH_TYPES.make("HealthCheckRequest", service=SERVICE).SerializeToString()
    stream = client.call("Watch", request, **{":path": "/grpc.health.v1.Health/Watch"})
    unknown = client.call("Watch", b"\n\1x", **{":path": "/grpc.health.v1.Health/Watch"})
    assert client.messages(unknown) == [SERVICE_UNKNOWN]
    for lacking, seen in (
        (None, [SERVING]),
        ("a master", [SERVING, NOT_SERVING]),
        (None, [SERVING, NOT_SERVING, SERVING]),
    ):
        probed.lacking = lacking
        for _ in range(2):
            probed.service.tick()
            client.exchange()
            assert client.messages(stream) == seen
    assert client.status(stream) is None
    client.http.reset_stream(stream)
    client.http.reset_stream(unknown)
    client.exchange()
    assert not probed.service.services.health.watches


@pytest.mark.parametrize(
    ("method", "requests", "status"),
    [
        ("Check", [], GrpcStatus.INTERNAL),
        ("Check", [b"", b""], GrpcStatus.INTERNAL),
        ("Check", [b"\xff"], GrpcStatus.INTERNAL),
        ("Check", [b"\n\xff\x7f" + b"s" * 16_383], GrpcStatus.RESOURCE_EXHAUSTED),
        ("Other", [b""], GrpcStatus.UNIMPLEMENTED),
    ],
)
def test_wrong_calls_are_refused(method: str, requests: list[bytes], status: GrpcStatus) -> None:
    assert Probed().ask(HEALTH, method, *requests) == ([], str(status.value))


@pytest.mark.parametrize("declared", REFLECTIONS, ids=lambda each: each.package)
def test_reflection_has_all_that_is_needed_for_a_call(declared: Declared) -> None:
    probed, types = Probed(), Types(declared)

    def reflect(**fields: Any) -> Any:
        (data,), status = probed.ask(
            declared, "ServerReflectionInfo", types.make("ServerReflectionRequest", host="h", **fields)
        )
        assert status == "0"
        return types.decode("ServerReflectionResponse", data)

    listed = [each.name for each in reflect(list_services="*").list_services_response.service]
    assert listed == sorted((SERVICE, HEALTH.service_name, *(each.service_name for each in REFLECTIONS)))
    for service in listed:
        response = reflect(file_containing_symbol=service)
        assert (response.valid_host, response.original_request.file_containing_symbol) == ("h", service)
        pool = DescriptorPool()
        files = [
            descriptor_pb2.FileDescriptorProto.FromString(each)
            for each in response.file_descriptor_response.file_descriptor_proto
        ]
        for file in reversed(files):
            pool.Add(file)
        found = pool.FindServiceByName(service)
        assert found.methods
        assert reflect(file_by_filename=files[0].name).file_descriptor_response == response.file_descriptor_response
    for wrong in (
        {"file_containing_symbol": "x.Y"},
        {"file_by_filename": "../x"},
        {"all_extension_numbers_of_type": "x"},
    ):
        assert reflect(**wrong).error_response.error_code == GrpcStatus.NOT_FOUND


def test_open_watches_have_a_bound_over_all_connections() -> None:
    probed = Probed()
    path = {":path": "/grpc.health.v1.Health/Watch"}
    clients = [Client(probed.service.services) for _ in range(63)]
    answered = 0
    for client in clients:
        streams = [client.call("", b"", **path) for _ in range(17)]
        answered += sum(client.messages(stream) == [SERVING] for stream in streams)
        assert client.status(streams[16]) == str(GrpcStatus.RESOURCE_EXHAUSTED.value)
    assert answered == 1_000
    assert probed.client.status(probed.client.call("", b"", **path)) == str(GrpcStatus.RESOURCE_EXHAUSTED.value)
    # Checks are answered all the same, and a connection takes its watches with it.
    assert probed.check("") == ([SERVING], "0")
    clients[0].session.end()
    assert probed.client.messages(probed.client.call("", b"", **path)) == [SERVING]


def test_no_client_has_the_checks_of_others_refused() -> None:
    probed = Probed()
    greedy = Client(probed.service.services)
    for _ in range(1_000):
        stream = greedy.open("", **{":path": "/grpc.health.v1.Health/Check"})
        greedy.send(stream, b"")
    greedy.exchange()
    assert probed.check("") == ([SERVING], "0")


def test_a_call_for_reflection_has_a_bound() -> None:
    probed = Probed()
    answers, status = probed.ask(REFLECTIONS[0], "ServerReflectionInfo", *[b"\x3a\x01*"] * 101)
    assert len(answers) == 100
    assert status == str(GrpcStatus.RESOURCE_EXHAUSTED.value)
