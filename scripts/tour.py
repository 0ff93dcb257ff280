"""The tour of scripts/run: real commands, official clients of both systems, real crashes, and the stores left."""

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
from typing import Self

import blazingmq

from scripts.judges.cpp_client import CannotInstall, cpp_python

BMQCTL = str(Path(sys.executable).with_name("bmqctl"))
QUEUE = "bmq://bmq.test.persistent.priority/tour"
POSTS = 5
CONFIRMS = 3
WAIT_S = 30
TOUR_CLIENT = Path(__file__).with_name("tour_client.py")
ORDERS = 7
PAID = 4


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def run(*words: str) -> None:
    """Show a command and run it; its failure ends the tour."""
    print(f"$ bmqctl {shlex.join(words)}", flush=True)
    subprocess.run([BMQCTL, *words], check=True)


class Node:
    """A node that is started and stopped with `words`, inside the `with` block."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait for its ready line."""
        print(f"$ bmqctl {shlex.join(self._words)} &", flush=True)
        self._process = subprocess.Popen([BMQCTL, *self._words], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("tour: the node did not start")
        print(line, end="", flush=True)

    def crash(self) -> None:
        assert self._process is not None
        print(f"$ kill -9 {self._process.pid}")
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        if self._process.wait(WAIT_S):
            raise SystemExit("tour: the node did not stop cleanly")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


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
    done = threading.Event()
    left = count

    def on_message(message: blazingmq.Message, handle: blazingmq.MessageHandle) -> None:
        nonlocal left
        if left == 0:
            return  # one more than wanted: not confirmed, so it stays in the queue
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


def blazingmq_tour(folder: Path, with_spark: bool) -> None:
    port = free_port()
    store = folder / "store"
    say("A BlazingMQ node, with nothing configured:")
    with Node("start", "node", "--port", str(port), "--data-dir", str(store), "--log-level", "WARN") as node:
        say(f"The official client posts {POSTS} messages and gets {POSTS} acknowledgments:")
        post(port)
        say(f"and consumes {CONFIRMS} of them:")
        consume(port, CONFIRMS)
        say("The node dies without warning:")
        node.crash()
        node.start()
        say(f"Nothing is lost, nothing appears twice: the other {POSTS - CONFIRMS} are delivered.")
        consume(port, POSTS - CONFIRMS)
        say("A clean stop, and what the store holds:")
        node.stop()
    (journal,) = store.glob("*.bmq_journal")
    run("journal", "dump", "--output", "table", str(journal))
    run("journal", "validate", str(store))
    if with_spark:
        say("The same for Spark:")
        run("spark-export", str(store), "--out", str(folder / "parquet"))


def rocketmq_tour(folder: Path) -> None:
    port, nameserver_port = free_port(), free_port()
    ports = ("--port", str(port), "--nameserver-port", str(nameserver_port))
    nameserver = f"127.0.0.1:{nameserver_port}"
    say("A RocketMQ nameserver and broker in one process, with nothing configured:")
    with Node("start", "rocketmq", *ports, "--store", str(folder / "rocketmq")) as node:
        try:
            python = cpp_python()
        except CannotInstall as reason:
            print(f"(without the official client: {reason})")
        else:
            say(f"The official C++ client sends {ORDERS} messages, the last to come five seconds later:")
            subprocess.run([python, TOUR_CLIENT, "send", nameserver, str(ORDERS)], check=True)
            say("The node dies without warning:")
            node.crash()
            node.start()
            say(f"Nothing is lost: a consumer of the tag `paid` gets its {PAID}, the late one in its time.")
            subprocess.run([python, TOUR_CLIENT, "consume", nameserver, str(PAID)], check=True)
        say("The same node under load, through bmqctl's own client:")
        run("bench", "--rocketmq", "--nameserver", nameserver, "--count", "5000")
        node.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-spark", action="store_true", help="leave the export out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bmqctl-tour-") as folder:
        blazingmq_tour(Path(folder), not options.no_spark)
        rocketmq_tour(Path(folder))
    say("Done.")


if __name__ == "__main__":
    main()
