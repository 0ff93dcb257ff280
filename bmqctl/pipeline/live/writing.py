"""Writers of Spark's rows as messages, and the reports of their tasks."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

__all__ = ["BatchWriter", "PostFailed", "Posted", "StreamWriter", "row_digest"]

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


class PostFailed(RuntimeError):
    """Failure to post all rows; one line."""


@dataclass
class Posted(WriterCommitMessage):
    """A task's output: messages, and the bytes of their payloads."""

    messages: int = 0
    payload_bytes: int = 0


Post = Callable[[str, Iterator[pa.RecordBatch]], Posted]
"""Posts the rows of a task, whose name is the same when Spark retries it. Raises `PostFailed`."""


def row_digest(scope: str, number: int, target: str, payload: bytes, properties: object) -> bytes:
    """16 bytes for a row of the task `scope`: equal when posted again, and different from all others."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (scope, number, target, len(payload), payload, properties):
        digest.update(part if isinstance(part, bytes) else f"{part!r};".encode())
    return digest.digest()


class BatchWriter(DataSourceArrowWriter):
    """Posts the rows of a batch query."""

    def __init__(self, post: Post) -> None:
        self.post = post
        self.job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Posted:
        return self.post(f"{self.job}/{_task().partitionId()}", iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """Posts the rows of a stream's micro-batches."""

    def __init__(self, post: Post) -> None:
        self.post = post

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Posted:
        task = _task()
        batch = [task.getLocalProperty(name) or uuid.uuid4().hex for name in (QUERY_ID, BATCH_ID)]
        return self.post("/".join([*batch, str(task.partitionId())]), iterator)


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context
