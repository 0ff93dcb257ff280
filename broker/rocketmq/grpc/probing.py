"""The standard gRPC services for probes: health (Kubernetes, balancers) and reflection (grpcurl).

Their calls need no client id and no rights. They reveal no more than connecting does, and keep only open calls, which
end with their connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker.rocketmq.grpc.http2.call import Call, Service
from broker.rocketmq.grpc.http2.session import GrpcSession
from broker.rocketmq.grpc.http2.wire import GrpcError, GrpcStatus
from formats.errors import FormatError
from formats.rocketmq.grpc.describing import KNOWN_FILES, Declared, Types
from formats.rocketmq.grpc.messages import DECLARED
from formats.rocketmq.grpc.probing import HEALTH, REFLECTIONS, ServingStatus

__all__ = ["Health", "Reflection", "Services"]

# Per request.
_BYTES_MAX: Final = 4 << 10
# Maximum of watches over all connections, and of one. Checks are bounded only as calls are: no client can make those of
# others fail.
_WATCHES_MAX: Final = 1_000
_SESSION_WATCHES_MAX: Final = 16
# The maximum over all connections.
_REFLECTIONS_MAX: Final = 1_000
# The maximum of a call for reflection. Each answer may have the size of all files.
_REQUESTS_MAX: Final = 100


class Services:
    """All services of a port: a call's path names its service, or `messaging` takes it."""

    def __init__(self, messaging: Service, lacks: Callable[[], str | None]) -> None:
        self._messaging = messaging
        self.health = Health(lacks)
        self._probed: dict[str, Service] = {_prefix(HEALTH): self.health}
        for declared in REFLECTIONS:
            self._probed[_prefix(declared)] = Reflection(declared)

    def _of(self, call: Call) -> Service:
        path = call.method
        return self._probed.get(path[: path.rfind("/") + 1], self._messaging)

    # -- see `Service`

    def begin(self, call: Call) -> None:
        self._of(call).begin(call)

    def message(self, call: Call, data: bytes) -> None:
        self._of(call).message(call, data)

    def half_closed(self, call: Call) -> None:
        self._of(call).half_closed(call)

    def cancelled(self, call: Call) -> None:
        self._of(call).cancelled(call)

    def disconnected(self, session: GrpcSession) -> None:
        self._messaging.disconnected(session)


def _prefix(declared: Declared) -> str:
    return f"/{declared.service_name}/"


class _Probed:
    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self._types = Types(declared)

    def begin(self, call: Call) -> None:
        if call.method.rpartition("/")[2] not in self._declared.methods:
            raise GrpcError(GrpcStatus.UNIMPLEMENTED, f"Method not found: {call.method[1:200]}")
        call.bound_messages(_BYTES_MAX)

    def _read(self, name: str, data: bytes) -> Any:
        try:
            return self._types.decode(name, data)
        except FormatError as error:
            raise GrpcError(GrpcStatus.INTERNAL, f"Invalid protobuf byte sequence: {error}") from None

    def disconnected(self, session: GrpcSession) -> None:
        """Do nothing: `cancelled` was called for each open call."""


class Health(_Probed):
    """The health of this process: it serves unless it `lacks` anything. Call `tick` regularly for the watches."""

    def __init__(self, lacks: Callable[[], str | None]) -> None:
        super().__init__(HEALTH)
        self._lacks = lacks
        # Whether this port has the requested service; and for a watch, the status sent last.
        self._asked: dict[Call, bool] = {}
        self.watches: dict[Call, ServingStatus] = {}

    def message(self, call: Call, data: bytes) -> None:
        if call in self._asked:
            raise GrpcError(GrpcStatus.INTERNAL, "Too many requests")
        service = self._read("HealthCheckRequest", data).service
        self._asked[call] = service in ("", DECLARED.service_name)

    def half_closed(self, call: Call) -> None:
        if call not in self._asked:
            raise GrpcError(GrpcStatus.INTERNAL, "Half-closed without a request")
        if call.method.endswith("/Watch"):
            self._watch(call)
            return
        is_known = self._asked.pop(call)
        if is_known:
            call.answer(self._answer(self._status()))
        else:
            call.finish(GrpcStatus.NOT_FOUND, "unknown service")

    def _watch(self, call: Call) -> None:
        of_session = sum(other.session is call.session for other in self.watches)
        if len(self.watches) >= _WATCHES_MAX or of_session >= _SESSION_WATCHES_MAX:
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, "too many watches; use Check")
        status = self._status() if self._asked[call] else ServingStatus.SERVICE_UNKNOWN
        self.watches[call] = status
        call.send(self._answer(status))

    def cancelled(self, call: Call) -> None:
        self._asked.pop(call, None)
        self.watches.pop(call, None)

    def tick(self) -> None:
        if not self.watches:
            return
        status = self._status()
        for call, last in list(self.watches.items()):
            if self._asked[call] and status is not last:
                self.watches[call] = status
                call.send(self._answer(status))

    def _status(self) -> ServingStatus:
        return ServingStatus.SERVING if self._lacks() is None else ServingStatus.NOT_SERVING

    def _answer(self, status: ServingStatus) -> bytes:
        data: bytes = self._types.make("HealthCheckResponse", status=status).SerializeToString()
        return data


class Reflection(_Probed):
    """The services of a port, and the files that declare them."""

    def __init__(self, declared: Declared) -> None:
        super().__init__(declared)
        described = [Types(each).file for each in (DECLARED, HEALTH, *REFLECTIONS)]
        self._services = sorted(f"{file.package}.{service.name}" for file in described for service in file.service)
        self._files = {**KNOWN_FILES, **{file.name: file.SerializeToString() for file in described}}
        self._imports = {file.name: list(file.dependency) for file in described}
        self._file_of = {symbol: file.name for file in described for symbol in _symbols(file)}
        self._counts: dict[Call, int] = {}

    def message(self, call: Call, data: bytes) -> None:
        if call not in self._counts and len(self._counts) >= _REFLECTIONS_MAX:
            raise GrpcError(
                GrpcStatus.RESOURCE_EXHAUSTED, f"at most {_REFLECTIONS_MAX} calls for reflection may be open"
            )
        count = self._counts[call] = self._counts.get(call, 0) + 1
        if count > _REQUESTS_MAX:
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, f"a call may have {_REQUESTS_MAX} requests")
        request = self._read("ServerReflectionRequest", data)
        response = self._types.make("ServerReflectionResponse", valid_host=request.host, original_request=request)
        self._fill(response, request)
        call.send(response.SerializeToString())

    def _fill(self, response: Any, request: Any) -> None:
        name = ""
        match request.WhichOneof("message_request"):
            case "list_services":
                for service in self._services:
                    response.list_services_response.service.add(name=service)
                return
            case "file_by_filename":
                name = request.file_by_filename
            case "file_containing_symbol":
                name = self._file_of.get(request.file_containing_symbol, "")
        if name not in self._files:
            # No file has extensions.
            response.error_response.error_code = GrpcStatus.NOT_FOUND
            response.error_response.error_message = "not found"
            return
        names = [name, *self._imports.get(name, [])]
        response.file_descriptor_response.file_descriptor_proto.extend(self._files[each] for each in names)

    def half_closed(self, call: Call) -> None:
        self._counts.pop(call, None)
        call.finish()

    def cancelled(self, call: Call) -> None:
        self._counts.pop(call, None)


def _symbols(file: Any) -> list[str]:
    names = [each.name for kind in (file.message_type, file.enum_type) for each in kind]
    for service in file.service:
        names += [service.name, *(f"{service.name}.{method.name}" for method in service.method)]
    return [f"{file.package}.{name}" for name in names]
