"""The declaration of REPLICATION_RECEIPT, read at run time; `formats.bmq.wire.receipt` has the codec."""

from __future__ import annotations

from typing import NamedTuple

from formats.schema import Annotated, Layout, u32, u64

__all__ = ["RECEIPT", "Receipt"]


class Receipt(NamedTuple):
    """The last record that the sender has of a partition.

    bmqp::ReplicationReceipt, 16 bytes:

         0 | partition_id 32     |
         4 | sequence_number 64  |
        12 | primary_lease_id 32 |
    """

    partition_id: Annotated[int, u32, "The partition's number."]
    sequence_number: Annotated[int, u64, "The last record that the replica has."]
    primary_lease_id: Annotated[int, u32, "The lease of that record."]


RECEIPT = Layout(Receipt, size=16, upstream="bmqp::ReplicationReceipt")
