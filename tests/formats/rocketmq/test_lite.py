"""Names of lite topics' queues, and the properties by which a record says that it is in one."""

from __future__ import annotations

import pytest

from formats.rocketmq.lite import Branch, branch_of, fault_of_lite_topic, queue_name, split_queue_name

NAME = "%LMQ%$orders$customer-7"
PROPERTIES = {
    "__LITE_TOPIC": "customer-7",
    "INNER_MULTI_DISPATCH": NAME,
    "INNER_MULTI_QUEUE_OFFSET": "12",
}


def test_queue_is_named_after_parent_and_lite_topic() -> None:
    assert queue_name("orders", "customer-7") == NAME
    assert split_queue_name(NAME) == ("orders", "customer-7")


@pytest.mark.parametrize("name", ["orders", "%LMQ%orders", "%LMQ%$orders", "%LMQ%$$a", "%LMQ%$a$b$c", "%LMQ%$a$.."])
def test_other_names_are_of_no_lite_topic(name: str) -> None:
    assert split_queue_name(name) is None


@pytest.mark.parametrize("name", ["", "  ", "a/b", "..", "é", "a$b", "x" * 65])
def test_some_names_cannot_be_those_of_lite_topics(name: str) -> None:
    assert fault_of_lite_topic(name) is not None


def test_names_of_lite_topics() -> None:
    assert fault_of_lite_topic("Aa0-_" + "x" * 59) is None


def test_record_says_where_it_is_in_its_lite_topic() -> None:
    assert branch_of("orders", PROPERTIES) == Branch(NAME, 12)


@pytest.mark.parametrize(
    "changed",
    [
        {"__LITE_TOPIC": "other"},
        {"__LITE_TOPIC": "../x", "INNER_MULTI_DISPATCH": "%LMQ%$orders$../x"},
        {"INNER_MULTI_DISPATCH": f"{NAME},{NAME}"},
        {"INNER_MULTI_QUEUE_OFFSET": "-1"},
        {"INNER_MULTI_QUEUE_OFFSET": "1" * 17},
        {"INNER_MULTI_QUEUE_OFFSET": "²"},
    ],
)
def test_records_that_say_it_otherwise_are_in_no_lite_topic(changed: dict[str, str]) -> None:
    assert branch_of("orders", {**PROPERTIES, **changed}) is None


def test_copies_in_other_topics_are_in_no_lite_topic() -> None:
    assert branch_of("%DLQ%group", PROPERTIES) is None
