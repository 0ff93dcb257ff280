"""A store of either make, damaged, repaired by `bmqctl journal repair`, and served by both makes.

A broker takes messages and is stopped. Records, a consume queue and the index are damaged, and the checkpoint is
deleted. Each make serves a copy of the repaired store: every message with an undamaged record is found by its queue
offset and by its key; every other is the placeholder of a lost message; and more messages can be sent.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from bmqctl.stores.rocketmq.repair.fill import LOST
from formats.rocketmq.files.names import offset_name
from formats.rocketmq.files.record import Record
from formats.rocketmq.remoting.codes import RequestCode
from scripts.mixtures.rocketmq_turns import Broker, Differs, Sent, records_of, send, served
from tests.rigs.remoting import Remote

__all__ = ["REPAIRED", "run_repaired"]

# The make that writes the store, by case.
REPAIRED: Final = {"repaired-ours": "ours", "repaired-theirs": "theirs"}
TOPIC: Final = "repaired"
QUEUES: Final = 4
DAMAGED_BODIES: Final = 10
DAMAGED_RECORDS: Final = 10
DAMAGED_BYTES: Final = 40
MORE: Final = 50
SAMPLE: Final = 40
BMQCTL: Final = [sys.executable, "-c", "from bmqctl.app import main; main()"]


class Member(Protocol):
    """A broker and its store."""

    @property
    def broker(self) -> Broker: ...
    @property
    def store(self) -> Path: ...


Makers = Mapping[str, Callable[[Path], Member]]
Queues = list[list[Sent]]


def run_repaired(name: str, makers: Makers, folder: Path, messages: int, seed: int) -> None:
    """Run a case. Raises `Differs`."""
    draw = random.Random(seed)
    written = makers[REPAIRED[name]](folder / "written")
    queues: Queues = [[] for _ in range(QUEUES)]
    written.broker.start()
    try:
        with Remote(written.broker.port) as remote:
            _send(remote, queues, messages, draw)
    except BaseException:
        written.broker.kill()
        raise
    written.broker.close()
    lost = _damage(written.store, queues, draw)
    repaired = folder / "repaired"
    left_out = _repair(written.store, repaired)
    for make, maker in makers.items():
        member = maker(folder / make)
        shutil.copytree(repaired, member.store)
        member.broker.start()
        try:
            with Remote(member.broker.port) as remote:
                mine = [list(queue) for queue in queues]
                _check(remote, mine, lost, draw)
                _send(remote, mine, MORE, draw)
                _check(remote, mine, lost, draw)
        except BaseException:
            member.broker.kill()
            raise
        member.broker.close()
        print(
            f"{name}, served by {make}: {messages - len(lost)} of {messages} messages with their offsets, "
            f"{len(lost)} that stand for lost ones ({left_out} problems repaired), {MORE} more",
            flush=True,
        )


def _send(remote: Remote, queues: Queues, count: int, draw: random.Random) -> None:
    first = sum(map(len, queues))
    for number in range(first, first + count):
        queue_id = draw.randrange(QUEUES)
        body = b"%d " % number + draw.randbytes(draw.choice((10, 100, 1000, 5000)))
        queue = queues[queue_id]
        queue.append(send(remote, TOPIC, f"k{number}", body, queue_id, len(queue)))


def _damage(store: Path, queues: Queues, draw: random.Random) -> set[str]:
    """Damage a store; return the keys of the damaged messages."""
    files = sorted((store / "commitlog").iterdir())
    size = files[0].stat().st_size
    victims = draw.sample([sent for queue in queues for sent in queue], DAMAGED_BODIES + DAMAGED_RECORDS)
    for number, sent in enumerate(victims):
        begin = sent.physical_offset // size * size
        path = store / "commitlog" / offset_name(begin)
        data = bytearray(path.read_bytes())
        if number < DAMAGED_BODIES:
            at = data.index(sent.body, sent.physical_offset - begin)
            data[at + draw.randrange(len(sent.body))] ^= 0x40
        else:
            at = sent.physical_offset - begin
            data[at : at + DAMAGED_BYTES] = draw.randbytes(DAMAGED_BYTES)
        path.write_bytes(data)
    for folder in (store / "consumequeue" / TOPIC / "1", store / "index"):
        path = min(folder.iterdir())
        data = bytearray(path.read_bytes())
        data[200:600] = draw.randbytes(400)
        path.write_bytes(data)
    (store / "checkpoint").unlink()
    return {sent.key for sent in victims}


def _repair(store: Path, out: Path) -> int:
    """Repair a store with the command; return the number of problems found."""
    words = ["journal", "repair", str(store), "--out", str(out), "--json"]
    done = subprocess.run([*BMQCTL, *words], capture_output=True, text=True, check=False)
    if done.returncode != 1:
        raise Differs(f"the repair ended with {done.returncode}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    return len(json.loads(done.stdout)["left_out"])


def _check(remote: Remote, queues: Queues, lost: set[str], draw: random.Random) -> None:
    """Check each queue completely, and some keys."""
    for queue_id, queue in enumerate(queues):
        found = list(served(remote, TOPIC, queue_id, len(queue)))
        if len(found) != len(queue):
            raise Differs(f"queue {queue_id} has {len(found)} of {len(queue)} messages")
        for offset, (sent, record) in enumerate(zip(queue, found, strict=True)):
            _check_record(sent, record, offset, sent.key in lost)
    whole = [sent for queue in queues for sent in queue if sent.key not in lost]
    for sent in draw.sample(whole, min(SAMPLE, len(whole))):
        answer = remote.call(
            RequestCode.QUERY_MESSAGE, topic=TOPIC, key=sent.key, maxNum=4, beginTimestamp=0, endTimestamp=1 << 61
        )
        if [bytes(record.body) for record in records_of(answer.body)] != [sent.body]:
            raise Differs(f"the key {sent.key} leads to another message: code {answer.code}")


def _check_record(sent: Sent, record: Record, offset: int, is_lost: bool) -> None:
    stands = LOST.encode() in record.properties
    if stands is not is_lost or record.queue_offset != offset:
        raise Differs(f"{sent.key}: at {record.queue_offset} instead of {offset}, lost: {stands}")
    if not is_lost and (record.physical_offset, bytes(record.body)) != (sent.physical_offset, sent.body):
        raise Differs(f"{sent.key}: another message at {offset}")
