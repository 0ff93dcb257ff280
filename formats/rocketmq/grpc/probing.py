"""The standard services of gRPC by which programs probe a server: health, and reflection of its services."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from formats.rocketmq.grpc.describing import Declared, Field, Method

__all__ = ["HEALTH", "REFLECTIONS", "ServingStatus"]


class ServingStatus(IntEnum):
    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


HEALTH: Final = Declared(
    "grpc/health/v1/health.proto",
    "grpc.health.v1",
    "Health",
    {
        "Check": Method("HealthCheckRequest", "HealthCheckResponse"),
        "Watch": Method("HealthCheckRequest", "HealthCheckResponse", streams_responses=True),
    },
    {
        "HealthCheckRequest": (Field(1, "service", "string"),),
        "HealthCheckResponse": (Field(1, "status", "ServingStatus"),),
    },
    {"ServingStatus": ServingStatus},
)


def _reflection(version: str) -> Declared:
    return Declared(
        f"grpc/reflection/{version}/reflection.proto",
        f"grpc.reflection.{version}",
        "ServerReflection",
        {
            "ServerReflectionInfo": Method(
                "ServerReflectionRequest", "ServerReflectionResponse", streams_requests=True, streams_responses=True
            )
        },
        {
            "ServerReflectionRequest": (
                Field(1, "host", "string"),
                Field(3, "file_by_filename", "string", "message_request"),
                Field(4, "file_containing_symbol", "string", "message_request"),
                Field(5, "file_containing_extension", "ExtensionRequest", "message_request"),
                Field(6, "all_extension_numbers_of_type", "string", "message_request"),
                Field(7, "list_services", "string", "message_request"),
            ),
            "ExtensionRequest": (
                Field(1, "containing_type", "string"),
                Field(2, "extension_number", "int32"),
            ),
            "ServerReflectionResponse": (
                Field(1, "valid_host", "string"),
                Field(2, "original_request", "ServerReflectionRequest"),
                Field(4, "file_descriptor_response", "FileDescriptorResponse", "message_response"),
                Field(5, "all_extension_numbers_response", "ExtensionNumberResponse", "message_response"),
                Field(6, "list_services_response", "ListServiceResponse", "message_response"),
                Field(7, "error_response", "ErrorResponse", "message_response"),
            ),
            "FileDescriptorResponse": (Field(1, "file_descriptor_proto", "*bytes"),),
            "ExtensionNumberResponse": (
                Field(1, "base_type_name", "string"),
                Field(2, "extension_number", "*int32"),
            ),
            "ListServiceResponse": (Field(1, "service", "*ServiceResponse"),),
            "ServiceResponse": (Field(1, "name", "string"),),
            "ErrorResponse": (
                Field(1, "error_code", "int32"),
                Field(2, "error_message", "string"),
            ),
        },
        {},
    )


# Older tools know the first version only.
REFLECTIONS: Final = (_reflection("v1"), _reflection("v1alpha"))
