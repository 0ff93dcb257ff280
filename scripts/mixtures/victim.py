"""A consumer that dies with an unconfirmed message: it prints the message and waits to be killed.

    python -m scripts.mixtures.victim BROKER QUEUE

It prints the payload of each message in hexadecimal, and may have one message at a time.
"""

from __future__ import annotations

import os
import sys
import threading

import blazingmq

__all__: list[str] = []


def say(line: str) -> None:
    """Print a line in one piece: threads of the session print at the same time."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def main() -> None:
    broker, queue = sys.argv[1:]
    session = blazingmq.Session(
        lambda event: None,
        on_message=lambda message, handle: say(message.data.hex()),
        broker=broker,
        host_health_monitor=None,
    )
    session.open_queue(queue, read=True, options=blazingmq.QueueOptions(max_unconfirmed_messages=1))
    say("open")
    threading.Event().wait()


if __name__ == "__main__":
    main()
