"""The tour behind scripts/run: real commands, the official BlazingMQ client, a real crash, and what is left of it."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import blazingmq

BMQCTL = str(Path(sys.executable).with_name("bmqctl"))
QUEUE = "bmq://bmq.test.persistent.priority/tour"
POSTS = 5
CONFIRMS = 3
WAIT_S = 30


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def run(*words: str) -> None:
    """Show a command and run it; its failure ends the tour."""
    print(f"$ bmqctl {shlex.join(words)}", flush=True)
    subprocess.run([BMQCTL, *words], check=True)


def start_node(port: int, store: Path) -> subprocess.Popen[str]:
    """Start a node and wait for its ready line."""
    words = ["start", "node", "--port", str(port), "--data-dir", str(store), "--log-level", "WARN"]
    print(f"$ bmqctl {shlex.join(words)} &", flush=True)
    node = subprocess.Popen([BMQCTL, *words], stdout=subprocess.PIPE, text=True)
    assert node.stdout is not None
    line = node.stdout.readline()
    if not line:
        raise SystemExit("tour: the node did not start")
    print(line, end="", flush=True)
    return node


def post(port: int) -> None:
    """Post with the official client and wait for every acknowledgment."""
    acked = threading.Semaphore(0)

    def on_ack(ack: blazingmq.Ack) -> None:
        assert ack.guid is not None
        print(f"  {ack.status.name} {ack.guid.hex().upper()}", flush=True)
        acked.release()

    with blazingmq.Session(lambda event: None, broker=f"tcp://127.0.0.1:{port}") as session:
        session.open_queue(QUEUE, write=True)
        for number in range(POSTS):
            properties: dict[str, int | bytes | str] = {"number": number, "from": "the tour"}
            session.post(QUEUE, f"message {number}".encode(), properties=properties, on_ack=on_ack)
        for _ in range(POSTS):
            if not acked.acquire(timeout=WAIT_S):
                raise SystemExit("tour: a message was not acknowledged")
        session.close_queue(QUEUE)


def consume(port: int, count: int) -> None:
    """Receive and confirm `count` messages with the official client."""
    done = threading.Event()
    left = count

    def on_message(message: blazingmq.Message, handle: blazingmq.MessageHandle) -> None:
        nonlocal left
        if left == 0:
            return  # one more than we want: not confirmed, so it stays in the queue
        print(f"  {message.data.decode()} {message.properties}", flush=True)
        handle.confirm()
        left -= 1
        if left == 0:
            done.set()

    with blazingmq.Session(lambda event: None, on_message=on_message, broker=f"tcp://127.0.0.1:{port}") as session:
        session.open_queue(QUEUE, read=True, options=blazingmq.QueueOptions(max_unconfirmed_messages=1))
        if not done.wait(WAIT_S):
            raise SystemExit("tour: a message did not come")
        session.close_queue(QUEUE)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-spark", action="store_true", help="leave the export out")
    options = parser.parse_args()
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="bmqctl-tour-") as folder:
        store = Path(folder) / "store"
        say("A node, with nothing configured:")
        node = start_node(port, store)
        try:
            say(f"The official client posts {POSTS} messages and gets {POSTS} acknowledgments:")
            post(port)
            say(f"and consumes {CONFIRMS} of them:")
            consume(port, CONFIRMS)
            say("The node dies without warning:")
            print(f"$ kill -9 {node.pid}")
            os.kill(node.pid, signal.SIGKILL)
            node.wait()
            node = start_node(port, store)
            say(f"Nothing is lost, nothing comes twice: the other {POSTS - CONFIRMS} are delivered.")
            consume(port, POSTS - CONFIRMS)
            say("A clean stop, and what the store holds:")
            node.terminate()
            if node.wait(WAIT_S):
                raise SystemExit("tour: the node did not stop cleanly")
        finally:
            node.kill()
            node.wait()
        (journal,) = store.glob("*.bmq_journal")
        run("journal", "dump", "--output", "table", str(journal))
        run("journal", "validate", str(store))
        if not options.no_spark:
            say("The same for Spark:")
            run("spark-export", str(store), "--out", str(Path(folder) / "parquet"))
    say("Done.")


if __name__ == "__main__":
    main()
