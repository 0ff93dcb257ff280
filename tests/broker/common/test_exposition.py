"""The text of metrics, as prometheus_client reads it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from broker.common.exposition import LINES_MAX, MetricLabels, Series, label_text, metric_pieces


def parsed(text: bytes) -> dict[str, list[tuple[dict[str, str], float]]]:
    families = text_string_to_metric_families(text.decode())
    return {each.name: [(sample.labels, sample.value) for sample in each.samples] for each in families}


# The parser reads every number as a double, which has whole numbers up to here.
@given(st.text(), st.text(), st.integers(-(1 << 53), 1 << 53), st.integers(0, 1 << 53))
def test_any_labels_and_values_are_read_as_they_were(one: str, other: str, count: int, level: int) -> None:
    labels = [label_text({"Queue": one, "App": other}), label_text({})]
    text = b"".join(metric_pieces("queue_some", [Series(labels, [count, level])]))
    assert parsed(text) == {"queue_some": [({"Queue": one, "App": other}, float(count)), ({}, float(level))]}


def test_labels_are_shared_by_metrics() -> None:
    labels = MetricLabels(label_text({"Queue": text}) for text in ("50 % off", "%d", "a\0b"))
    labels.add(label_text({"Queue": "ä"}))
    assert len(labels) == 4
    for name in ("queue_one", "queue_other"):
        text = b"".join(metric_pieces(name, [Series(labels, range(4))]))
        found = [(each["Queue"], value) for each, value in parsed(text)[name]]
        assert found == [("50 % off", 0), ("%d", 1), ("a\0b", 2), ("ä", 3)]


def test_long_metrics_are_made_in_pieces() -> None:
    labels = [label_text({"Queue": str(number)}) for number in range(2 * LINES_MAX + 1)]
    parts = [Series(labels, range(len(labels))), Series([label_text({"Queue": "other"})], [7])]
    pieces = list(metric_pieces("queue_some", parts, "counter"))
    assert [piece.count(b"queue_some{") for piece in pieces] == [LINES_MAX, LINES_MAX, 1, 1]
    text = b"".join(pieces)
    assert text.count(b"# TYPE queue_some counter\n") == text.count(b"#") == 1
    samples = parsed(text)["queue_some"]
    assert samples[:-1] == [({"Queue": str(number)}, number) for number in range(len(labels))]
    assert samples[-1] == ({"Queue": "other"}, 7.0)


def test_a_metric_without_series_is_left_out() -> None:
    assert list(metric_pieces("queue_some", [Series([], [])])) == []
