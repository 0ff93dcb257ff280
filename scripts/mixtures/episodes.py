"""Episodes with their own queues in a mixed cluster, one after the other, while the streams go on.

Each episode begins and ends in a healed cluster, and raises `Differs` for a wrong result. Its clients are at brokers
drawn by seed: nodes and proxies of both programs.
"""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import blazingmq

from scripts.judges.cluster_load import UNLIMITED, wait_until
from scripts.judges.reference_process import Running
from scripts.mixtures.config import ATTEMPTS, BROADCAST, CLUSTER, EVENTUAL, MINDFUL, SHORT_LIVED, TTL_S, write_domain
from scripts.mixtures.faults import Differs, Setting, change_leader
from tests.rigs.official import Client, confirm

__all__ = ["EPISODES", "FULL_JOURNAL_MAX"]

# The primary looks for expired messages with each sync point.
TTL_SLACK_S = 8.0
WAIT_S = 60.0
VICTIM_S = 30.0
FULL_JOURNAL_MAX = 1 << 20
FULL_BATCH = 200
FULL_WAIT_S = 10.0
LAST = b"last"


def _payloads(first: int, count: int) -> list[bytes]:
    return [f"{number:06} {'x' * (number % 97)}".encode() for number in range(first, first + count)]


def _fresh(domain: str) -> str:
    return f"bmq://{domain}/episode-{secrets.token_hex(4)}"


def _place(setting: Setting) -> Running:
    return setting.other.choice(setting.cluster.brokers)


@contextmanager
def _client(broker: Running) -> Iterator[Client]:
    with Client(broker.uri) as client:
        yield client


def _open(client: Client, uri: str, *, read: bool = False, write: bool = False) -> None:
    client.session.open_queue(uri, read=read, write=write, options=UNLIMITED if read else blazingmq.QueueOptions())


def _post(client: Client, uri: str, payloads: Sequence[bytes]) -> None:
    """Post messages, all of which must be acknowledged."""
    refused = [ack for ack in client.post_all(uri, payloads) if ack.status is not blazingmq.AckStatus.SUCCESS]
    if refused:
        raise Differs(f"{len(refused)} of {len(payloads)} posts to {uri} refused: {refused[0].status}")


def _get(client: Client, uri: str, wanted: Sequence[bytes]) -> None:
    """Wait for these messages, in this order and no others, and confirm them."""
    try:
        client.wait(lambda: len(client.of(uri)) >= len(wanted), WAIT_S)
    except TimeoutError as fault:
        raise Differs(f"of {len(wanted)} messages {len(client.of(uri))} came to {uri}") from fault
    came = [message.data for message, _ in client.of(uri)]
    if came != list(wanted):
        raise Differs(f"{len(wanted)} messages were to come to {uri}, beginning {wanted[:3]}: {came[:3]}, {len(came)}")
    confirm(client.of(uri))


def purge(setting: Setting) -> None:
    """Purge a queue with some messages confirmed: only later posts arrive."""
    uri = _fresh(EVENTUAL)
    name = uri.rpartition("/")[2]
    with _client(_place(setting)) as writer:
        _open(writer, uri, write=True)
        _post(writer, uri, _payloads(0, 60))
        with _client(_place(setting)) as reader:
            reader.open(uri, read=True, max_unconfirmed_messages=20)
            reader.wait_for_messages(20)
            for _, handle in reader.of(uri)[:10]:
                handle.confirm()
        leader = setting.cluster.wait_leader()
        answer = setting.cluster.command(leader, f"DOMAINS DOMAIN {EVENTUAL} QUEUE {name} PURGE *")
        purged = re.search(r"(\d+) message", answer)
        # Confirms may be on their way.
        if purged is None or int(purged[1]) not in range(50, 61):
            raise Differs(f"50 messages were to be purged: {answer}")
        _post(writer, uri, _payloads(100, 5))
        with _client(_place(setting)) as reader:
            _open(reader, uri, read=True)
            _get(reader, uri, _payloads(100, 5))


def expiry(setting: Setting) -> None:
    """Let messages expire: only younger ones arrive."""
    uri = _fresh(SHORT_LIVED)
    with _client(_place(setting)) as writer, _client(_place(setting)) as reader:
        _open(writer, uri, write=True)
        _post(writer, uri, _payloads(0, 40))
        time.sleep(TTL_S + TTL_SLACK_S)
        _open(reader, uri, read=True)
        _post(writer, uri, _payloads(100, 1))
        _get(reader, uri, _payloads(100, 1))


def broadcast(setting: Setting) -> None:
    """Broadcast to readers at several brokers; a late reader gets later posts."""
    uri = _fresh(BROADCAST)
    with _client(_place(setting)) as writer, _client(_place(setting)) as one, _client(_place(setting)) as two:
        _open(writer, uri, write=True)
        _open(one, uri, read=True)
        _post(writer, uri, _payloads(0, 1))
        _get(one, uri, _payloads(0, 1))
        _open(two, uri, read=True)
        _post(writer, uri, _payloads(1, 300))
        _get(one, uri, _payloads(0, 301))
        _get(two, uri, _payloads(1, 300))


def apps(setting: Setting) -> None:
    """Add an app to a domain and remove one: each gets the messages posted while it exists."""
    domain = f"mixed.apps{secrets.token_hex(4)}"
    uri = f"bmq://{domain}/q"
    _define(setting, domain, ["a", "b"])
    with _client(_place(setting)) as writer:
        _open(writer, uri, write=True)
        _post(writer, uri, _payloads(0, 20))
        _redefine(setting, domain, ["a", "b", "c"])
        _post(writer, uri, _payloads(20, 20))
        _read_app(setting, uri, "a", _payloads(0, 40))
        _redefine(setting, domain, ["b", "c"])
        _post(writer, uri, _payloads(40, 20))
        _read_app(setting, uri, "b", _payloads(0, 60))
        _read_app(setting, uri, "c", _payloads(20, 40))


def _read_app(setting: Setting, uri: str, app: str, wanted: Sequence[bytes]) -> None:
    with _client(_place(setting)) as reader:
        reader_uri = f"{uri}?id={app}"
        _open(reader, reader_uri, read=True)
        _get(reader, reader_uri, wanted)
        reader.close(reader_uri)


def _define(setting: Setting, domain: str, names: Sequence[str]) -> None:
    for folder in [*setting.cluster.folders.values(), *setting.cluster.proxy_folders]:
        write_domain(folder, domain, dict.fromkeys(names, ""))


def _redefine(setting: Setting, domain: str, names: Sequence[str]) -> None:
    _define(setting, domain, names)
    for number in sorted(setting.cluster.running):
        answer = setting.cluster.command(number, f"DOMAINS RECONFIGURE {domain}")
        if "SUCCESS" not in answer.upper():
            raise Differs(f"node {number} does not reconfigure {domain}: {answer}")
    # The change is an advisory of the leader, which its followers commit.
    time.sleep(1.0)


def rollover(setting: Setting) -> None:
    """Have the primary roll over all partitions: all nodes get new journals."""
    cluster = setting.cluster
    leader = cluster.wait_leader()
    before = {number: _journals(setting, number) for number in cluster.nodes}
    answer = cluster.command(leader, f"CLUSTERS CLUSTER {CLUSTER} STORAGE PARTITION ALL ROLLOVER")

    def left() -> list[int]:
        return [number for number, names in before.items() if names & _journals(setting, number)]

    wait_until(lambda: not left(), WAIT_S, lambda: f"no rollover at {left()}; {answer}")
    setting.notes.append(f"rollover with a primary of {setting.program(leader)}")


def _journals(setting: Setting, number: int) -> set[str]:
    return {path.name for path in (setting.cluster.folders[number] / "storage").glob("*.bmq_journal")}


def attempts(setting: Setting) -> None:
    """Kill consumers with a message: the broker gives up that message alone, after the domain's number of attempts."""
    uri = _fresh(MINDFUL)
    poison, rest = _payloads(0, 1), _payloads(1, 5)
    with _client(_place(setting)) as writer:
        _open(writer, uri, write=True)
        _post(writer, uri, poison + rest)
        place = _place(setting)
        got = [_die(place, uri) for _ in range(ATTEMPTS)]
        if got != poison * ATTEMPTS:
            raise Differs(f"{ATTEMPTS} consumers were to die of {poison}: {got}")
        with _client(_place(setting)) as reader:
            _open(reader, uri, read=True)
            _get(reader, uri, rest)


def _die(broker: Running, uri: str) -> bytes:
    words = [sys.executable, "-m", "scripts.mixtures.victim", broker.uri, uri]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        timer = threading.Timer(VICTIM_S, process.kill)
        timer.start()
        try:
            lines = [process.stdout.readline().strip() for _ in range(2)]
        finally:
            timer.cancel()
            process.kill()
    # The opening and the first message race each other.
    first = next((line for line in lines if line and line != "open"), "")
    return bytes.fromhex(first)


def full_journal(setting: Setting) -> None:
    """Post until the journal is full: acknowledged messages arrive in order, and then there is room again."""
    uri = _fresh(EVENTUAL)
    taken: list[bytes] = []
    with _client(_place(setting)) as writer:
        _open(writer, uri, write=True)
        refused = 0
        while not refused:
            batch = _payloads(len(taken), FULL_BATCH)
            answers = writer.post_all(uri, batch)
            fine = [ack.status is blazingmq.AckStatus.SUCCESS for ack in answers]
            taken += [payload for payload, was_taken in zip(batch, fine, strict=True) if was_taken]
            refused = fine.count(False)
            if len(taken) > setting.cluster.sizes["maxJournalFileSize"] // 60:
                raise Differs(f"{len(taken)} messages in a journal that has no room for so many records")
        setting.notes.append(f"full after {len(taken)} messages")
        with _client(_place(setting)) as reader:
            _open(reader, uri, read=True)
            _get(reader, uri, taken)

        def has_room() -> bool:
            (answer,) = writer.post_all(uri, [LAST])
            return answer.status is blazingmq.AckStatus.SUCCESS

        try:
            wait_until(has_room, FULL_WAIT_S, lambda: "a partition that was emptied has no room")
        except TimeoutError:
            _relieve(setting, uri, {payload: number for number, payload in enumerate([*taken, LAST])}, has_room)


def _relieve(setting: Setting, uri: str, known: Mapping[bytes, int], has_room: Callable[[], bool]) -> None:
    """Let one of our nodes lead: a primary of the reference has no room for confirms, and cannot make any."""
    cluster = setting.cluster
    leader = cluster.wait_leader()
    if leader not in cluster.foreign or len(cluster.foreign) == len(cluster.nodes):
        raise Differs(f"a partition that was emptied has no room; its primary is {setting.program(leader)}")
    while cluster.wait_leader() in cluster.foreign:
        change_leader(setting)
    setting.notes.append("a journal that was full at a primary of theirs goes on at one of ours")
    with _client(cluster.nodes[cluster.wait_leader()]) as reader:
        _open(reader, uri, read=True)
        done = 0

        def room_after_confirms() -> bool:
            nonlocal done
            came = reader.of(uri)[done:]
            confirm(came)
            done += len(came)
            return has_room()

        wait_until(room_after_confirms, WAIT_S, lambda: "a partition that was emptied has no room at a node of ours")
        numbers = [known[message.data] for message, _ in reader.of(uri) if message.data != LAST]
    if numbers != sorted(numbers):
        raise Differs("what a full primary had not recorded as confirmed comes again in another order")


EPISODES: dict[str, Callable[[Setting], None]] = {
    "purge": purge,
    "expiry": expiry,
    "broadcast": broadcast,
    "apps come and go": apps,
    "rollover": rollover,
    "delivery attempts": attempts,
    "full journal": full_journal,
}
