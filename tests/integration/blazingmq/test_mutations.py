"""Captured clients' input with a few bytes changed: the node answers or ends the link, and survives."""

from __future__ import annotations

import errno
import random
import socket
from itertools import pairwise

from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.testing import NodeProcess
from formats.bmq.wire.event import iter_frames
from tests.golden.captures import streams
from tests.rigs.official import Connect, queue_name
from tests.waiting import WAIT_S

SEEDS = range(400)
BYTES_MAX = 400_000
# The node had enough: while something was sent, before, or between that and the end.
LINK_ENDED = (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)


def sessions() -> list[list[bytes]]:
    """The events of every connection of a client, from its negotiation on."""
    found = []
    for name, data in streams("wire-single"):
        if name.endswith(".c2s.bin"):
            ends = [0, *(frame.end for frame in iter_frames(data, 0, len(data), len(data)))]
            found.append([data[start:end] for start, end in pairwise(ends)])
    return found


def mutated(event: bytes, dice: random.Random) -> bytes:
    """The event, changed, cut short, doubled, left out, or most often as it is."""
    chance = dice.random()
    if chance < 0.25:
        data = bytearray(event)
        for _ in range(dice.choice((1, 1, 2, 4))):
            # Mostly where the headers are.
            at = dice.randrange(len(data) if len(data) < 200 or chance < 0.05 else 60)
            data[at] = dice.choice((0, 1, 127, 128, 255, data[at] ^ 1 << dice.randrange(8), dice.randrange(256)))
        return bytes(data)
    if chance < 0.3:
        length = dice.randrange(8, len(event) + 1)
        return length.to_bytes(4, "big") + event[4:length]
    if chance < 0.35:
        return b""
    return event * 2 if chance < 0.4 else event


def test_mutated_sessions(node: NodeProcess, connect: Connect) -> None:
    client, uri = connect(node), queue_name()
    client.open(uri, read=True, write=True)
    recorded = sessions()
    for seed in SEEDS:
        dice = random.Random(seed)
        first, *others = dice.choice(recorded)[: dice.randint(1, 60)]
        others = [mutated(event, dice) for event in others]
        if dice.random() < 0.2:
            dice.shuffle(others)
        with socket.create_connection(("127.0.0.1", node.port), WAIT_S) as sock:
            try:
                sock.sendall(b"".join([first, *others])[:BYTES_MAX])
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 16):
                    pass
            except OSError as error:
                if error.errno not in LINK_ENDED:
                    raise
        client.post(uri, str(seed).encode())
    client.wait_for_messages(len(SEEDS))
    assert [int(data) for data in client.payloads()] == list(SEEDS)
    client.stop()
    assert node.stop() == 0
    assert "Traceback" not in node.output
    result = CliRunner().invoke(app, ["journal", "validate", str(node.data_dir)])
    assert result.exit_code == 0, result.output
    node.start()
