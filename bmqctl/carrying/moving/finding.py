"""The run of `bmqctl find` over a topic: by its brokers' index, or by reading its queues."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from bmqctl.carrying.bridge.ends import RocketEnd
from bmqctl.carrying.messages.browsing import Browsed, FindOptions, Shown
from bmqctl.carrying.messages.ends import CannotBegin, Reach
from bmqctl.carrying.messages.received import Received, UnreadableMessage, of_topic
from bmqctl.carrying.moving.security import security_of
from bmqctl.carrying.moving.stored import select
from bmqctl.client.remoting.client import Client, Queue
from bmqctl.client.remoting.consuming import QueuePuller, read_records
from bmqctl.client.remoting.faults import FAULTS, check_answer, words_of
from bmqctl.client.rocketmq import Content
from formats.rocketmq.remoting.bodies.routes import Permission
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.consuming import QueryMessageRequest

__all__ = ["find_in_topic"]

# Brokers require the name of a group in each pull.
_GROUP: Final = "bmqctl-find"
_PULLED_MAX: Final = 256
# Brokers return no more messages of a key.
_KEY_MESSAGES_MAX: Final = 64
_EMPTY_MAX: Final = 3


async def find_in_topic(end: RocketEnd, reach: Reach, options: FindOptions, shown: Shown) -> Browsed:
    """Show the wanted messages of a topic. Raises `CannotBegin`, also if a broker refuses."""
    count = unreadable = 0
    is_done = False
    try:
        async with Client.connect(end.host, end.port, reach.timeout_s, security_of(reach)) as client:
            queues = await client.queues(end.topic, Permission.READ)
            if not queues:
                raise CannotBegin(f"{end}: the nameserver knows no such topic")
            found = _indexed(client, end.topic, queues, options)
            if options.message_id is None and options.key is None:
                found = _read(client, end.topic, queues, options)
            async with aclosing(found) as pieces:
                async for piece in pieces:
                    readable: list[Received] = []
                    for message in piece[: options.count - count]:
                        try:
                            readable.append(of_topic(message))
                        except UnreadableMessage as fault:
                            unreadable += 1
                            shown.tell(str(fault))
                    await shown.show(readable)
                    count += len(readable)
                    if count >= options.count:
                        break
        is_done = True
    except BrokenPipeError:
        raise
    except FAULTS as fault:
        raise CannotBegin(f"{end}: {words_of(fault)}") from None
    finally:
        await shown.end(is_cut=not is_done)
    return Browsed(count, unreadable, 0)


async def _indexed(
    client: Client, topic: str, queues: Sequence[Queue], options: FindOptions
) -> AsyncGenerator[Sequence[Content]]:
    """Yield the messages that the brokers' indexes have under an id or a key, broker by broker."""
    for name, address in sorted({(each.broker_name, each.address) for each in queues}):
        wanted = options.message_id or options.key or ""
        request = QueryMessageRequest(topic, wanted, _KEY_MESSAGES_MAX, options.since_ms, options.until_ms)
        fields = write_header(request)
        if options.message_id is not None:
            fields["_UNIQUE_KEY_QUERY"] = "true"
        link = await client.link_to(address)
        answer = await link.call(RequestCode.QUERY_MESSAGE, fields, client.timeout_s)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            continue
        check_answer(f"{wanted} in the index of {name}", answer)
        messages = [Content(record, topic, name) for record in read_records(answer.body)]
        # An index has only hashes.
        yield [
            each
            for each in messages
            if options.message_id in (None, each.message_id) and (options.key is None or options.key in each.keys)
        ]


async def _read(
    client: Client, topic: str, queues: Sequence[Queue], options: FindOptions
) -> AsyncGenerator[Sequence[Content]]:
    """Yield the messages of each queue that the brokers select, from the first time on."""
    selection = select(options.tags, options.expression)
    for queue in sorted(queues, key=lambda each: (each.broker_name, each.queue_id)):
        link = await client.link_to(queue.address)
        puller = QueuePuller(
            link, _GROUP, topic, queue.queue_id, client.timeout_s, selection.expression, selection.expression_type
        )
        await (puller.seek_end() if options.until is None else puller.seek_time(options.until_ms))
        stop = puller.offset
        await (puller.seek_begin() if options.since is None else puller.seek_time(options.since_ms))
        empty = 0
        while puller.offset < stop and empty < _EMPTY_MAX:
            at = puller.offset
            records = [each for each in await puller.pull_records(_PULLED_MAX) if each.queue_offset < stop]
            empty = 0 if puller.offset > at else empty + 1
            yield [Content(each, topic, queue.broker_name) for each in records if selection.has(each)]
