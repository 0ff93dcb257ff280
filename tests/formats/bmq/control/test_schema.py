"""The description vocabulary: names, tags, and declarations that it refuses."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Annotated, Any

import pytest

from formats.bmq.control import messages
from formats.bmq.control.messages import (
    ClusterMessage,
    ControlMessage,
    LeaderPassive,
    PartitionMessage,
    QueueHandleParameters,
    StateNotification,
)
from formats.bmq.control.schema import Choice, Int, alternatives, describe, sequence


def tags(cls: type[Any]) -> dict[str, int]:
    choice = describe(cls).choice
    assert choice is not None
    assert isinstance(choice.kind, Choice)
    return {alternative.name: alternative.tag for alternative in choice.kind.alternatives}


def test_elements_are_numbered_and_named_in_order() -> None:
    found = [(element.tag, element.name) for element in describe(QueueHandleParameters).elements]
    assert found == list(enumerate(["uri", "qId", "subIdInfo", "flags", "readCount", "writeCount", "adminCount"]))


def test_alternatives_keep_the_tags_of_the_reference() -> None:
    control = tags(ControlMessage)
    assert (control["disconnectResponse"], control["adminCommand"], control["configureStreamResponse"]) == (2, 7, 17)
    cluster = tags(ClusterMessage)
    assert len(cluster) == 30
    assert (cluster["queueUnAssignmentAdvisory"], cluster["clusterStateFSMMessage"], cluster["partitionMessage"]) == (
        20,
        28,
        29,
    )
    assert tags(PartitionMessage)["replicaDataResponse"] == 5


def test_a_choice_may_have_one_alternative() -> None:
    assert tags(StateNotification) == {"leaderPassive": 0}
    assert StateNotification(choice=LeaderPassive()) == StateNotification(choice=LeaderPassive())


def test_every_message_is_described() -> None:
    for name in messages.__all__:
        cls = getattr(messages, name)
        if hasattr(cls, "__dataclass_fields__"):
            assert describe(cls).name == name


def test_declarations_outside_the_vocabulary_are_refused() -> None:
    with pytest.raises(TypeError, match="is not a message"):
        describe(float)
    with pytest.raises(TypeError, match="only messages repeat"):
        describe(make_dataclass("Numbers", [("numbers", tuple[Int, ...])]))
    with pytest.raises(TypeError, match="2 alternatives, 1 tags"):
        describe(make_dataclass("Few", [("choice", Annotated[LeaderPassive | StateNotification, alternatives(7)])]))
    with pytest.raises(TypeError, match="a tag beyond 30"):
        describe(make_dataclass("Far", [("choice", Annotated[LeaderPassive, alternatives(31)])]))


def test_messages_do_not_change() -> None:
    @sequence
    class Point:
        x: Int

    point = Point(x=1)
    with pytest.raises(AttributeError):
        point.x = 2  # type: ignore[misc]
    assert hash(point) == hash(Point(x=1))
