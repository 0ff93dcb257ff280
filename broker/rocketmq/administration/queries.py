"""Requests about queues and single messages (source: AdminBrokerProcessor, QueryMessageProcessor)."""

from __future__ import annotations

from typing import Final

from broker.rocketmq.remoting.requests import CheckRecord, Handlers, Request, failure, success
from broker.rocketmq.store.commit_log import Found
from broker.rocketmq.store.message_store import MessageStore
from formats.errors import FormatError
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers import consuming
from formats.rocketmq.remoting.headers.codec import read_header, write_header

__all__ = ["Queries"]

# Maximum of messages in an answer, whatever the request says (defaultQueryMaxNum is for unique keys).
QUERY_MAX: Final = 64
UNIQUE_QUERY_MAX: Final = 32
QUERY_BYTES_MAX: Final = 8 << 20


class Queries:
    def __init__(self, store: MessageStore, check_record: CheckRecord) -> None:
        self._store = store
        self._check_record = check_record
        self.handlers: Handlers = {
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.QUERY_MESSAGE: self._query,
        }

    def _max_offset(self, request: Request) -> Frame:
        header = read_header(consuming.GetMaxOffsetRequest, request.fields)
        queue = self._store.queues.get((header.topic, header.queue_id))
        return success(consuming.GetMaxOffsetResponse(0 if queue is None else queue.end))

    def _min_offset(self, request: Request) -> Frame:
        header = read_header(consuming.GetMinOffsetRequest, request.fields)
        queue = self._store.queues.get((header.topic, header.queue_id))
        return success(consuming.GetMinOffsetResponse(0 if queue is None else queue.begin))

    def _search(self, request: Request) -> Frame:
        header = read_header(consuming.SearchOffsetRequest, request.fields)
        find = self._store.find_time
        if (header.boundary_type or "").lower() == "upper":
            # The last message stored by then; the first one if all came later.
            offset = max(0, find(header.topic, header.queue_id, header.time_ms + 1) - 1)
        else:
            offset = find(header.topic, header.queue_id, header.time_ms)
        return success(consuming.SearchOffsetResponse(offset))

    def _earliest(self, request: Request) -> Frame:
        header = read_header(consuming.GetEarliestStoreTimeRequest, request.fields)
        queue = self._store.queues.get((header.topic, header.queue_id))
        ms = -1
        if queue is not None and queue.begin < queue.end:
            ms = self._store.log.read(queue.get(queue.begin).physical_offset).record.stored_ms
        return success(consuming.GetEarliestStoreTimeResponse(ms))

    def _view(self, request: Request) -> Frame:
        offset = read_header(consuming.ViewMessageRequest, request.fields).offset
        try:
            found = self._read(offset)
        except (IndexError, FormatError):
            return failure(ResponseCode.SYSTEM_ERROR, f"can not find message by offset: {offset}")
        self._check_record(request.frame, request.peer.host.address, found.record)
        return success(body=bytes(self._store.log.data(offset, found.size)))

    def _read(self, offset: int) -> Found:
        """Read a record before `readable_end`. Raises `IndexError` and `FormatError`."""
        if offset >= self._store.readable_end:
            raise IndexError(offset)
        return self._store.log.read(offset)

    def _query(self, request: Request) -> Frame:
        header = read_header(consuming.QueryMessageRequest, request.fields)
        is_unique = request.fields.get("_UNIQUE_KEY_QUERY", "").lower() == "true"
        most = UNIQUE_QUERY_MAX if is_unique else min(header.messages_max, QUERY_MAX)
        store = self._store
        sizes: dict[int, int] = {}

        def is_wanted(offset: int) -> bool:
            """Return whether a message is of the topic: the index has only hashes.

            Clients discard other keys of the topic with the same hash, as with the original.
            """
            try:
                found = self._read(offset)
            except (IndexError, FormatError):
                return False
            sizes[offset] = found.size
            return found.record.topic == header.topic

        bodies: list[memoryview] = []
        size = 0
        times = (header.begin_ms, header.end_ms)
        for offset in sorted(store.index.find(header.topic, header.key, *times, most, is_wanted)):
            size += sizes[offset]
            if size > QUERY_BYTES_MAX:
                break
            bodies.append(store.log.data(offset, sizes[offset]))
        answer = consuming.QueryMessageResponse(*(store.index.last if bodies else (0, 0)))
        if not bodies:
            text = "can not find message, maybe time range not correct"
            return Frame(ResponseCode.QUERY_NOT_FOUND, 0, remark=text, ext_fields=write_header(answer))
        return success(answer, b"".join(bodies))
