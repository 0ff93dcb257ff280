"""Make the console's pictures in the manual: `.venv/bin/python -m scripts.manual.console_pictures [FOLDER]`.

A cluster of three nodes has a few queues with messages; a browser shows the pages. It takes about a minute, most of it
to have something to draw.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bmqctl.systems.node_process import ClusterProcess
from tests.rigs.console_pages import console, play
from tests.rigs.official import Client, confirm

FOLDER = Path(__file__).parents[2] / "docs" / "assets"
DOMAIN = "bmq.test.persistent.priority"
QUEUES = [f"bmq://{DOMAIN}/{name}" for name in ("orders", "invoices", "prices", "shipments")]
SIZE = ["size", 1200, 800]
POSTED_S = 45.0


def payload(number: int) -> bytes:
    order = {"order": 1000 + number, "customer": f"customer-{number % 37}", "items": [{"sku": "A-17", "count": 2}]}
    return json.dumps(order).encode()


def post(uri: str, ended: threading.Event) -> None:
    """Post to the queues until `ended`, and consume those but the first."""
    with Client(uri) as producer, Client(uri) as consumer:
        for queue in QUEUES:
            producer.open(queue, write=True)
        for queue in QUEUES[1:]:
            consumer.open(queue, read=True)
        number = confirmed = 0
        while not ended.is_set():
            for at, queue in enumerate(QUEUES):
                for _ in range(1 + (number // 40 + at) % 4):
                    producer.post(queue, payload(number), properties={"region": "emea", "attempt": 1})
            delivered = consumer.of()
            confirm(delivered[confirmed:])
            confirmed = len(delivered)
            number += 1
            ended.wait(0.2)


def steps(url: str, guid: str, folder: Path) -> list[list[Any]]:
    queue = quote(QUEUES[0], safe="")
    dark = ["run", "document.documentElement.dataset.theme = 'dark'"]
    return [
        ["open", url],
        SIZE,
        ["wait", "document.querySelectorAll('table.map tbody tr').length"],
        ["shot", str(folder / "console-cluster.png")],
        ["run", f"void (location.hash = '#/message/{queue}/{guid}')"],
        ["wait", "document.querySelector('#payload-text')"],
        ["shot", str(folder / "console-message.png")],
        ["run", f"void (location.hash = '#/queue/{queue}')"],
        ["wait", "document.querySelector('.causes li')"],
        ["run", "document.querySelector('.danger-line').click()"],
        ["wait", "document.querySelector('dialog').open"],
        ["shot", str(folder / "console-purge.png")],
        ["key", "Escape"],
        dark,
        ["shot", str(folder / "console-queue.png")],
    ]


def main() -> None:
    """Start the cluster and its console, wait for charts to fill, and write the pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    ended = threading.Event()
    with tempfile.TemporaryDirectory(prefix="bmqctl-pictures-") as data, ClusterProcess(Path(data)) as cluster:
        posting = threading.Thread(target=post, args=(cluster.uri, ended))
        posting.start()
        try:
            with console("--broker", cluster.uri) as pages:
                until = time.monotonic() + POSTED_S
                while time.monotonic() < until:
                    pages.look()
                listed = pages.get(f"/api/ask/messages?name={QUEUES[0]}&offset=0&count=5").value
                found = play(steps(pages.url, listed["messages"][0]["id"], folder))
                assert found["failed"] is None, found
        finally:
            ended.set()
            posting.join()


if __name__ == "__main__":
    main()
