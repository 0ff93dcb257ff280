"""The broker that judges the client library: our node, or BlazingMQ's own if the environment names one.

Both read the same configuration. `scripts/conformance-client` sets the variable.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, NodeProcess
from broker.bmq.config.local_cluster import write_local_cluster
from scripts.judges.reference_process import ReferenceProcess, Running
from scripts.mixtures.config import adapt, write_domain

__all__ = ["ORDERS", "ORDERS_MAX", "REFERENCE", "library_broker"]

REFERENCE = os.environ.get("BMQCTL_REFERENCE_BROKER")

# A domain whose queues take few messages.
ORDERS = "shop.orders"
ORDERS_MAX = 10
START_S = 120.0
_MIB = 1 << 20
_SIZES = {"maxDataFileSize": 64 * _MIB, "maxJournalFileSize": 16 * _MIB, "maxQlistFileSize": 4 * _MIB}


@contextmanager
def library_broker(folder: Path, *, password: str | None = None) -> Iterator[Running]:
    """Run a broker with the sample domains and `ORDERS`; with a password, sessions that authenticate are `shop`'s."""
    port = free_port()
    (made,) = write_local_cluster(folder, 1, HOST, port)
    adapt(made, made.name, _SIZES, partitions=2)
    limits = {"messages": 1000, "messagesWatermarkRatio": 0.8, "bytes": 4 * _MIB, "bytesWatermarkRatio": 0.8}
    queue_limits = limits | {"messages": ORDERS_MAX}
    storage = {"domainLimits": limits, "queueLimits": queue_limits, "config": {"fileBacked": {}}}
    write_domain(made, ORDERS, storage=storage)
    file = made / "bmqbrkrcfg.json"
    config = json.loads(file.read_text())
    # Ours runs in the working directory of the tests.
    config["appConfig"]["stats"]["printer"]["file"] = str(made / "logs" / "stat")
    if password is not None:
        users = {"name": "BasicAuthenticator", "settings": [{"key": "shop", "value": {"stringVal": password}}]}
        config["appConfig"]["authentication"] = {"authenticators": [users]}
    file.write_text(json.dumps(config, indent=2))
    node: Running
    if REFERENCE is None:
        node = NodeProcess(made / "storage", config_dir=made, port=port, timeout_s=START_S)
    else:
        node = ReferenceProcess(Path(REFERENCE), made, port, START_S)
    with closing(node):
        node.start()
        yield node
