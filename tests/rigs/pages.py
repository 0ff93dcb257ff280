"""The pages of a node for monitoring, read by prometheus_client."""

from __future__ import annotations

from http.client import HTTPConnection

from prometheus_client.parser import text_string_to_metric_families

from bmqctl.systems.node_process import HOST
from tests.waiting import WAIT_S

__all__ = ["get", "metrics"]


def get(port: int, path: str) -> tuple[int, str, str]:
    """Return the status of a page, its content type and its text."""
    connection = HTTPConnection(HOST, port, timeout=WAIT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
    finally:
        connection.close()


def metrics(port: int) -> dict[str, list[tuple[dict[str, str], float]]]:
    status, kind, text = get(port, "/metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(text)
    return {each.name: [(sample.labels, sample.value) for sample in each.samples] for each in families}
