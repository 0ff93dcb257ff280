"""Decoding of Avro payloads, in a separate process with limited memory and time.

Payloads come from strangers: a few bytes may stand for very many items, or for endlessly nested ones.
"""

from __future__ import annotations

import base64
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from bmqctl.common.children import COMMAND
from bmqctl.common.pretty import pretty_front
from bmqctl.console.cluster import ClusterFault

__all__ = ["decode_avro", "decode_input"]

_MEMORY_BYTES: Final = 1 << 30
_CPU_S: Final = 3
# Processor time has its own limit; this one is for a machine too busy to grant it.
_WAIT_S: Final = 60.0
_NO_MEMORY: Final = 3
_RECORDS_MAX: Final = 1000
_OUTPUT_CHARACTERS_MAX: Final = 4 << 20


def decode_avro(payload: bytes, schema: str, command: Sequence[str] = COMMAND) -> str:
    """Return a payload as JSON with indentation. Blocks. Raises `ClusterFault` if it cannot be decoded.

    `schema` is the writer's, as JSON, of a single datum without a header. Without one the payload is an object
    container file.
    """
    given = json.dumps({"payload": base64.b64encode(payload).decode("ascii"), "schema": schema})
    try:
        words = [*command, "console", "--decode-avro"]
        done = subprocess.run(words, input=given.encode(), capture_output=True, timeout=_WAIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ClusterFault("the payload cannot be decoded in time") from None
    if done.returncode:
        raise ClusterFault("the payload takes more memory or time to decode than there is for it")
    found = json.loads(done.stdout)
    if "fault" in found:
        raise ClusterFault(str(found["fault"]))
    return str(found["text"])


def decode_input() -> None:
    """Decode standard input to standard output, in the other process."""
    for limit, most in ((resource.RLIMIT_AS, _MEMORY_BYTES), (resource.RLIMIT_CPU, _CPU_S)):
        # Not every system limits the address space.
        with suppress(ValueError, OSError):
            resource.setrlimit(limit, (most, most))
    given = json.load(sys.stdin)
    try:
        text = _decoded(base64.b64decode(given["payload"]), given["schema"])
    except MemoryError:
        # The exit code distinguishes this from a malformed payload.
        sys.exit(_NO_MEMORY)
    except Exception as fault:
        # The library has no common base for its errors about payloads and schemas.
        print(json.dumps({"fault": f"{type(fault).__name__}: {fault}"[:500]}))
        return
    print(json.dumps({"text": text}))


def _decoded(payload: bytes, schema: str) -> str:
    from bmqctl.common.decoding.avro import parse_avro_schema, read_container, read_record

    if not schema.strip():
        return _shown(read_container(payload)[:_RECORDS_MAX])
    found = json.loads(schema)
    # The library would take a schema of one word for the path of a file.
    text = json.dumps({"type": found} if isinstance(found, str) else found)
    if not isinstance(found, str | dict | list):
        raise ValueError("a schema is an object, a list or a text")
    return _shown(read_record(parse_avro_schema(text), payload))


def _shown(value: object) -> str:
    return pretty_front(value, 2, _OUTPUT_CHARACTERS_MAX, default=_encodable)[0]


def _encodable(value: Any) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes) else str(value)
