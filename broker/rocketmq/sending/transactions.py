"""Transactions: messages that are consumed only once their producers commit them.

Source: EndTransactionProcessor, TransactionalMessageServiceImpl, TransactionalMessageBridge.

A prepared message waits in a topic of the broker's own. A commit stores it in its destination; ends, by commit or
rollback, are noted in another topic, many at a time. While a message has not ended, its producer is asked repeatedly,
and the message is stored again each time, so that the front of the queue can be dropped.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, cast

from broker.rocketmq.access.guard import Guard
from broker.rocketmq.delays.levels import Storing, again, due_place, integer
from broker.rocketmq.delays.timers import place_late
from broker.rocketmq.remoting.requests import Handlers, Peer, Refused, Request, success
from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.errors import DiskFull, NoPlace, Unstorable
from broker.rocketmq.store.message_store import Stored
from broker.rocketmq.store.skips import Skips
from broker.rocketmq.tables import names
from broker.rocketmq.tables.clients import Member
from broker.rocketmq.tables.properties import encode, encode_few
from broker.rocketmq.tables.services import Services
from formats.errors import FormatError
from formats.rocketmq.files.record import TOPIC_BYTES_MAX_V1, Magic, Record, encode_record
from formats.rocketmq.flags import TRANSACTION_MASK, SystemFlag, Transaction
from formats.rocketmq.hosts import Host
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.numbers import read_int, read_long
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.administration import ResumeCheckHalfMessageRequest
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.headers.sending import CheckTransactionStateRequest, EndTransactionRequest
from formats.rocketmq.topic_names import TRANSACTION_GROUP

__all__ = ["TransactionTimes", "Transactions", "place_prepared"]

log = logging.getLogger("broker.rocketmq.transactions")

_QUEUE: Final = 0
_ENDED_TAG: Final = "d"
# The interval of notes about ends, and the size that triggers them earlier.
NOTE_MS: Final = 3_000
NOTE_BYTES_MAX: Final = 4096
# The maximum that one check examines.
CHECK_MAX: Final = 1_000
# Maximum of ended messages that are remembered once checks have passed them.
PASSED_MAX: Final = 50_000
# Units of examining a message, which may be stored again, and a producer; see `Scheduler.spend`.
CHECK_UNITS: Final = 50_000
_MEMBER_UNITS: Final = 100

# Maximum lead of a producer's clock over the broker's.
CLOCKS_MS: Final = 600_000

_END = codec_of(EndTransactionRequest)
_CHECK = codec_of(CheckTransactionStateRequest)
_RESUME = codec_of(ResumeCheckHalfMessageRequest)


class TransactionTimes(NamedTuple):
    """The schedule of questions to producers; the original's defaults."""

    check_interval_ms: int = 30_000
    timeout_ms: int = 6_000
    checks_max: int = 15
    reserved_ms: int = 72 * 3_600_000


def place_prepared(topic: str, queue_id: int, properties: dict[str, str]) -> tuple[str, int]:
    """Return the topic and queue where a prepared message waits, and name its destination in its properties."""
    if properties.get("UNIQ_KEY"):
        properties["__transactionId__"] = properties["UNIQ_KEY"]
    properties["REAL_TOPIC"] = topic
    properties["REAL_QID"] = str(queue_id)
    return names.HALF_TOPIC, _QUEUE


class Transactions:
    """Ends transactions, and asks producers about the outcome of open ones.

    `guard` checks the sender that ends a transaction, and the producer that is asked, by the message's topic.
    """

    def __init__(self, services: Services, times: TransactionTimes, storing: Storing, guard: Guard) -> None:
        self._guard = guard
        self._services = services
        self.times = times
        self._storing = storing
        self._unnoted: list[int] = []
        # The offsets of ended prepared messages, and the notes of that, in order.
        self._ended: set[int] = set()
        self._notes: deque[tuple[int, frozenset[int]]] = deque()
        # Ended messages that checks have passed, oldest first: an answer about one may still be on its way.
        self._passed: dict[int, None] = {}
        # Copies that a check has stored, with the first of each, and the copies of each first: the end of one ends all.
        self._first: dict[int, int] = {}
        self._copies: dict[int, list[int]] = {}
        # The offsets in the log of messages that were given up and prepared again on request.
        self._resumed: dict[int, None] = {}
        self._skips = Skips("prepared messages")
        self._skipped_notes = Skips("notes of ended transactions")
        self._is_over = False
        # Messages given up in a check, for the log.
        self._discarded, self._first_discarded = 0, ""
        self._asked = 0
        self._checked_ms = self._noted_ms = 0
        self.handlers: Handlers = {
            RequestCode.END_TRANSACTION: self._end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self._resume,
        }
        self._read_notes()
        self._read_copies()

    def _read_notes(self) -> None:
        first = self._half_begin()
        for number in range(*self._span(names.OP_TOPIC)):
            queue = self._services.store.queues[names.OP_TOPIC, _QUEUE]
            try:
                body = bytes(self._services.store.log.read(queue.get(number).physical_offset).record.body)
            except (IndexError, FormatError) as error:
                self._skipped_notes.note(f"queue offset {number}", error)
                body = b""
            offsets = map(read_long, body.decode("latin-1").split(","))
            ended = frozenset(offset for offset in offsets if offset is not None and offset >= first)
            self._ended |= ended
            self._notes.append((number, ended))

    def _read_copies(self) -> None:
        """Find the copies that checks before the start have stored.

        The check that stored a copy may not be noted: otherwise each start would ask about all of them again, and copy
        each once more.
        """
        firsts: dict[tuple[object, ...], int] = {}
        for offset in range(*self._span(names.HALF_TOPIC)):
            if offset in self._ended:
                continue
            try:
                record = self._half(offset)
                properties = decode_properties(record.properties)
            except (IndexError, FormatError):
                continue
            if properties.get("UNIQ_KEY"):
                key = (properties["UNIQ_KEY"], properties.get("PGROUP"), record.born_ms, bytes(record.born_host))
                first = firsts.setdefault(key, offset)
                if first != offset:
                    self._note_copy(first, offset)

    def _half(self, offset: int) -> Record:
        """Return a prepared message. Raises `IndexError` and `FormatError`."""
        entry = self._services.store.queues[names.HALF_TOPIC, _QUEUE].get(offset)
        return self._services.store.log.read(entry.physical_offset).record

    def _note_copy(self, offset: int, copy: int) -> None:
        first = self._first.get(offset, offset)
        self._first[copy] = first
        self._copies.setdefault(first, []).append(copy)

    def _span(self, topic: str) -> tuple[int, int]:
        """Return the offset from which to read one of the broker's own topics, and the topic's end."""
        begin, end = self._services.store.span(topic, _QUEUE)
        return min(max(begin, self._services.offsets.get(topic, TRANSACTION_GROUP, _QUEUE) or 0), end), end

    def _half_begin(self) -> int:
        return self._span(names.HALF_TOPIC)[0]

    # -- ends

    def _end(self, request: Request) -> Frame | None:
        header = _END.read(request.fields)
        if header.transaction not in (Transaction.COMMIT, Transaction.ROLLBACK):
            return None
        record, properties = self._prepared(header, request)
        if not header.from_transaction_check:
            immunity = properties.get("CHECK_IMMUNITY_TIME_IN_SECONDS")
            if immunity and request.now_ms - record.born_ms > self._immunity_ms(immunity):
                raise Refused(ResponseCode.ILLEGAL_OPERATION, "")
        if record.queue_offset in self._ended or record.queue_offset in self._passed:
            # It ended while a producer was asked.
            return success()
        if header.transaction == Transaction.COMMIT:
            try:
                topic, queue_id = due_place(self._services.topics, properties, request.now_ms)
            except NoPlace as error:
                raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"The message is illegal: {error}") from None
            del properties["REAL_TOPIC"], properties["REAL_QID"]
            topic, queue_id = place_late(self._services.options, topic, queue_id, properties, request.now_ms)
            flags = record.system_flags & ~TRANSACTION_MASK | Transaction.COMMIT
            message = again(record, topic, queue_id, encode(properties))._replace(
                body=bytes(record.body), system_flags=flags, prepared_transaction_offset=header.commit_log_offset
            )
            self._put(message, request.now_ms)
        begin = self._half_begin()
        for offset in self._forget_copies(record.queue_offset):
            self._ended.add(offset)
            if offset >= begin:
                self._unnoted.append(offset)
        if sum(len(str(each)) + 1 for each in self._unnoted) > NOTE_BYTES_MAX:
            self.note(request.now_ms)
        return success()

    def _forget_copies(self, offset: int) -> list[int]:
        """Forget the copies of a message; return them and the message itself."""
        first = self._first.get(offset, offset)
        copies = self._copies.pop(first, [])
        for copy in copies:
            del self._first[copy]
        return [first, *copies]

    def _prepared(self, header: EndTransactionRequest, request: Request) -> tuple[Record, dict[str, str]]:
        try:
            record = self._services.store.log.read(header.commit_log_offset).record
            properties = decode_properties(record.properties)
        except (IndexError, FormatError):
            raise Refused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed") from None
        if record.topic != names.HALF_TOPIC:
            raise Refused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        self._guard.check_record(request.frame, request.peer.host.address, record)
        if properties.get("PGROUP") != header.producer_group:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if record.queue_offset != header.state_table_offset:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        return record, properties

    def _put(self, message: Message, now_ms: int) -> Stored:
        try:
            return self._storing.put(message, now_ms)
        except Unstorable as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"The message is illegal: {error}") from None
        except DiskFull as error:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"Service not available now: {error}") from None

    def note(self, now_ms: int) -> None:
        """Note ended messages, or do so later if the disk is full."""
        self._noted_ms = now_ms
        if not self._unnoted:
            return
        host = self._services.options.address
        flags = int(SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6) if host.is_v6 else 0
        body = "".join(f"{each}," for each in self._unnoted).encode()
        properties = encode_few({"WAIT": "true", "TAGS": _ENDED_TAG})
        packed = host.pack()
        message = Message(names.OP_TOPIC, _QUEUE, 0, flags, now_ms, packed, packed, 0, 0, body, properties)
        try:
            stored = self._storing.put(message, now_ms)
        except (DiskFull, Unstorable) as error:
            log.error("the outcomes of %d transactions cannot be recorded now: %s", len(self._unnoted), error)
            return
        self._notes.append((stored.queue_offset, frozenset(self._unnoted)))
        self._unnoted.clear()

    # -- checks

    def _resume(self, request: Request) -> Frame:
        """Prepare a message again whose producers were asked too often (source: AdminBrokerProcessor)."""
        message_id = _RESUME.read(request.fields).message_id or ""
        try:
            record = self._services.store.log.read(OffsetId.parse(message_id).physical_offset).record
            properties = decode_properties(record.properties)
        except (IndexError, FormatError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"message {message_id[:80]} cannot be read: {error}") from None
        self._guard.check_record(request.frame, request.peer.host.address, record)
        if record.topic != names.CHECKED_TOO_OFTEN:
            text = f"message {message_id[:80]} is not in topic {names.CHECKED_TOO_OFTEN}, but in {record.topic[:80]}"
            raise Refused(ResponseCode.SYSTEM_ERROR, text)
        if record.physical_offset not in self._resumed:
            properties["TRANSACTION_CHECK_TIMES"] = "0"
            message = again(record, names.HALF_TOPIC, _QUEUE, encode(properties))
            self._put(message._replace(body=bytes(record.body)), request.now_ms)
            # Another attempt makes no second half; one that is given up again is another record.
            self._resumed[record.physical_offset] = None
            for each in list(self._resumed)[:-PASSED_MAX]:
                del self._resumed[each]
        return success()

    def tick(self, now_ms: int) -> None:
        if not 0 <= now_ms - self._noted_ms < NOTE_MS:
            self.note(now_ms)
        if not 0 <= now_ms - self._checked_ms < self.times.check_interval_ms:
            self._checked_ms = now_ms
            self._services.scheduler.again(self, lambda: self._check_all(now_ms))

    def end(self) -> None:
        self._is_over = True

    def _check_all(self, now_ms: int) -> Iterator[None]:
        begin, end = self._span(names.HALF_TOPIC)
        offset = begin
        self._discarded, self._first_discarded = 0, ""
        try:
            # Messages stored again come after the end.
            while not self._is_over and offset < min(end, begin + CHECK_MAX) and self._check(offset, now_ms):
                offset += 1
                self._services.scheduler.spend(CHECK_UNITS)
                yield
        except (DiskFull, OSError) as error:
            log.error("transactions are not checked now: %s", error)
        if self._discarded:
            text = "the outcomes of %d transactions are unknown; the first is that of %s"
            log.warning(text, self._discarded, self._first_discarded)
        if self._is_over:
            return
        if offset != begin:
            self._services.offsets.commit_own(names.HALF_TOPIC, TRANSACTION_GROUP, _QUEUE, offset)
            self._passed |= dict.fromkeys(sorted(each for each in self._ended if each < offset))
            for each in list(self._passed)[:-PASSED_MAX]:
                del self._passed[each]
            self._ended = {each for each in self._ended if each >= offset}
            self._forget_notes(offset)

    def _forget_notes(self, first: int) -> None:
        """Skip the notes that are only about messages before the first."""
        done = None
        while self._notes and all(each < first for each in self._notes[0][1]):
            done = self._notes.popleft()[0]
        if done is not None:
            self._services.offsets.commit_own(names.OP_TOPIC, TRANSACTION_GROUP, _QUEUE, done + 1)

    def _check(self, offset: int, now_ms: int) -> bool:
        """Process a prepared message; return False if it, and so each later one, is not due yet.

        Raises `DiskFull` and `OSError` if it must be processed again.
        """
        copies = self._copies.get(self._first.get(offset, offset))
        if offset in self._ended or (copies and offset < copies[-1]):
            # A later copy stands for it.
            return True
        try:
            record = self._half(offset)
            try:
                return self._look_at(record, offset, now_ms)
            except Unstorable as error:
                # Its properties have no room for the number of checks.
                self._skips.note(f"queue offset {offset}", error)
                self._discard(record, decode_properties(record.properties), now_ms)
        except (DiskFull, OSError):
            raise
        except Exception as error:
            self._skips.note(f"queue offset {offset}", error)
        return True

    def _look_at(self, record: Record, offset: int, now_ms: int) -> bool:
        """Process a prepared message that has not ended; return False if it is not due yet."""
        properties = decode_properties(record.properties)
        if read_long(properties.get("TRAN_PREPARED_QUEUE_OFFSET")) in self._ended:
            return True
        # A producer whose clock is ahead must not delay later messages.
        is_sound = record.born_ms <= record.stored_ms + CLOCKS_MS
        age_ms = now_ms - min(record.born_ms, record.stored_ms)
        checks = integer(properties.get("TRANSACTION_CHECK_TIMES"))
        if checks >= self.times.checks_max or age_ms > self.times.reserved_ms:
            self._discard(record, properties, now_ms)
            self._forget_copies(offset)
            return True
        if now_ms <= record.stored_ms <= now_ms + self.times.timeout_ms:
            return False
        immunity = properties.get("CHECK_IMMUNITY_TIME_IN_SECONDS")
        if immunity is not None and is_sound:
            if age_ms <= self._immunity_ms(immunity):
                # Later messages may be due earlier.
                properties.setdefault("TRAN_PREPARED_QUEUE_OFFSET", str(offset))
                self._store_again(record, properties, now_ms)
                return True
        elif 0 <= age_ms <= self.times.timeout_ms:
            return False
        properties["TRANSACTION_CHECK_TIMES"] = str(checks + 1)
        stored = self._store_again(record, properties, now_ms)
        self._note_copy(offset, stored.queue_offset)
        self._ask(record, properties, stored)
        return True

    def _immunity_ms(self, text: str) -> int:
        seconds = read_int(text)
        return self.times.timeout_ms if seconds is None or seconds == -1 else seconds * 1000

    def _store_again(self, record: Record, properties: dict[str, str], now_ms: int) -> Stored:
        message = again(record, names.HALF_TOPIC, _QUEUE, encode(properties))
        return self._storing.put(message._replace(body=bytes(record.body), flag=0), now_ms)

    def _discard(self, record: Record, properties: dict[str, str], now_ms: int) -> None:
        """Stop asking: move the message to a topic where people can find it."""
        self._discarded += 1
        if self._discarded == 1:
            unique, topic = properties.get("UNIQ_KEY", ""), properties.get("REAL_TOPIC", "")
            self._first_discarded = f"message {unique[:80]} to topic {topic[:80]}"
        self._services.topics.make_for_group(names.CHECKED_TOO_OFTEN, 1, 0, now_ms)
        message = again(record, names.CHECKED_TOO_OFTEN, 0, record.properties)
        self._storing.put(message._replace(body=bytes(record.body)), now_ms)

    def _producer(self, known: Mapping[object, Member], topic: str) -> Peer | None:
        """Choose the next producer in turn that may send to a topic."""
        self._asked += 1
        self._services.scheduler.spend(len(known) * _MEMBER_UNITS)
        everyone = list(known.items())
        at = self._asked % len(everyone) if everyone else 0
        for peer, member in everyone[at:] + everyone[:at]:
            producer = cast(Peer, peer)
            if self._guard.may_send(member.user, producer.host.address, topic):
                return producer
        return None

    def _ask(self, record: Record, properties: dict[str, str], stored: Stored) -> None:
        topic = properties.get("REAL_TOPIC", "")
        known = self._services.clients.producers.get(properties.get("PGROUP", ""), {})
        producer = self._producer(known, topic)
        if producer is None:
            return
        unique = properties.get("UNIQ_KEY")
        host = Host.unpack(record.store_host)
        header = CheckTransactionStateRequest(
            stored.queue_offset,
            stored.offset,
            names.HALF_TOPIC,
            unique,
            unique,
            str(OffsetId(host, stored.offset)),
        )
        topic = properties.get("REAL_TOPIC", "")
        told = record._replace(
            version=Magic.V1 if len(topic.encode()) <= TOPIC_BYTES_MAX_V1 else Magic.V2,
            topic=topic,
            queue_id=integer(properties.get("REAL_QID")),
            queue_offset=stored.queue_offset,
            physical_offset=stored.offset,
            properties=encode(properties),
        )
        fields = {**_CHECK.write(header), "bname": self._services.options.name}
        question = Frame(RequestCode.CHECK_TRANSACTION_STATE, 0, ext_fields=fields, body=encode_record(told))
        producer.ask(question, one_way=True)
