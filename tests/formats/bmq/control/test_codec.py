"""The encoding that an event names, in both directions."""

from __future__ import annotations

import pytest

from formats.bmq.codes import EncodingType
from formats.bmq.control import ber, codec, jsonc
from formats.bmq.control.messages import PartitionSequenceNumber

MESSAGE = PartitionSequenceNumber(primary_lease_id=3, sequence_number=4711)


@pytest.mark.parametrize(("encoding", "one"), [(EncodingType.BER, ber), (EncodingType.JSON, jsonc)])
def test_the_named_encoding_is_used(encoding: EncodingType, one: object) -> None:
    body = codec.encode(MESSAGE, encoding)
    assert body == one.encode(MESSAGE)  # type: ignore[attr-defined]
    assert codec.decode(PartitionSequenceNumber, body, encoding) == MESSAGE
