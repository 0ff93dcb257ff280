"""Payloads as columns, by a schema that the user gives: JSON, Avro or Protobuf.

A payload that does not fit gives a null `value` and the reason in `value_fault`; in failfast mode it ends the job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from bmqctl.pipeline.source.decoding.decode_json import json_codec
from bmqctl.pipeline.source.options import BadOption, ReadOptions
from bmqctl.pipeline.source.stores import StoreError

__all__ = ["Decoder", "decoder_of", "payload_fields"]

Codec = tuple[pa.StructType, Callable[[bytes], Any]]
"""The type of the values, and their decoder, which raises ValueError for an invalid payload."""


def payload_fields(options: ReadOptions) -> list[pa.Field]:
    """The columns that decoding adds. Raises BadOption for an unreadable schema."""
    return [pa.field("value", _codec(options)[0]), pa.field("value_fault", pa.string())]


def decoder_of(options: ReadOptions) -> Decoder | None:
    return Decoder(_codec(options), failfast=options.failfast) if options.payload_format else None


class Decoder:
    """Makes the columns `value` and `value_fault`."""

    def __init__(self, codec: Codec, *, failfast: bool) -> None:
        self._type, self._decode = codec
        self._failfast = failfast

    def columns(self, payloads: Sequence[bytes | None]) -> tuple[pa.Array, pa.Array]:
        """Decode `payloads` into both columns, which are null without a payload."""
        values: list[Any] = []
        faults: list[str | None] = []
        for payload in payloads:
            value, fault = self._one(payload)
            values.append(value)
            faults.append(fault)
        return pa.array(values, self._type), pa.array(faults, pa.string())

    def _one(self, payload: bytes | None) -> tuple[Any, str | None]:
        if payload is None:
            return None, None
        try:
            value = self._decode(payload)
            # Values that Arrow refuses must not cost the others.
            pa.scalar(value, self._type)
        except MemoryError:
            # pyarrow's own error of this kind is also an `ArrowException`.
            raise
        except (ValueError, TypeError, OverflowError, RecursionError, pa.ArrowException) as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
            if self._failfast:
                raise StoreError(f"a payload does not fit the schema: {reason}") from None
            return None, reason
        return value, None


def _codec(options: ReadOptions) -> Codec:
    try:
        if options.payload_format == "json":
            return json_codec(options.payload_schema)
        if options.payload_format == "avro":
            from bmqctl.pipeline.source.decoding.decode_avro import avro_codec

            return avro_codec(options.payload_schema)
        from bmqctl.pipeline.source.decoding.decode_protobuf import protobuf_codec

        return protobuf_codec(options.payload_schema, options.payload_message)
    except (ValueError, OSError) as error:
        raise BadOption(f"payloadSchema: {error}") from None
