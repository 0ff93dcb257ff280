"""The policy that decides about a request."""

from __future__ import annotations

import pytest

from broker.rocketmq.access.model import Acl, Invalid, Resource, User, decide, parse_acl, parse_resource
from formats.rocketmq.remoting.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo

PUB, SUB = frozenset({"Pub"}), frozenset({"Sub"})


def policies(*entries: tuple[str, str, str], kind: str | None = None, sources: tuple[str, ...] = ()) -> Acl:
    infos = [
        PolicyEntryInfo(resource, actions.split(","), list(sources), decision)
        for resource, actions, decision in entries
    ]
    return parse_acl(AclInfo("User:u", [PolicyInfo(kind, infos)]))


@pytest.mark.parametrize(
    ("text", "other", "matches"),
    [
        ("*", "Topic:t", True),
        ("Topic:*", "Topic:t", True),
        ("Topic:*", "Group:t", False),
        ("Topic:or*", "Topic:orders", True),
        ("Topic:or*", "Topic:o", False),
        ("topic:orders", "Topic:orders", True),
        ("Topic:orders", "Topic:orders2", False),
        ("Cluster:c", "Cluster:c", True),
    ],
)
def test_resources_match(text: str, other: str, matches: bool) -> None:
    assert parse_resource(text).matches(parse_resource(other)) is matches


@pytest.mark.parametrize("text", ["*", "Topic:*", "Topic:or*", "Group:g", "Cluster:c"])
def test_resource_is_written_as_it_was(text: str) -> None:
    assert str(parse_resource(text)) == text


@pytest.mark.parametrize("text", ["", None, " ", "Color:red", "red"])
def test_resource_that_cannot_be_is_refused(text: str | None) -> None:
    with pytest.raises(Invalid):
        parse_resource(text)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ((), "no matched policies."),
        ((("Topic:t", "Pub", "Allow"),), None),
        ((("Topic:t", "All", "Allow"),), None),
        ((("Topic:t", "Sub", "Allow"),), "no matched policies."),
        ((("Topic:u", "Pub", "Allow"),), "no matched policies."),
        # The narrowest one decides.
        ((("Topic:*", "Pub", "Allow"), ("Topic:t", "Pub", "Deny")), "the decision is deny."),
        ((("Topic:*", "Pub", "Deny"), ("Topic:t", "Pub", "Allow")), None),
        ((("Topic:t*", "Pub", "Deny"), ("Topic:*", "Pub", "Allow")), "the decision is deny."),
        ((("Topic:t*", "Pub", "Deny"), ("Topic:tt*", "Pub", "Allow")), "the decision is deny."),
        ((("*", "Pub", "Allow"), ("Topic:*", "Pub", "Deny")), "the decision is deny."),
        ((("*", "Pub", "Deny"), ("Topic:*", "Pub", "Allow")), None),
        ((("Topic:t", "Pub", "Deny"), ("Topic:t*", "Pub", "Allow")), "the decision is deny."),
    ],
)
def test_decision(entries: tuple[tuple[str, str, str], ...], reason: str | None) -> None:
    acl = policies(*entries) if entries else None
    assert decide(acl, Resource("Topic", "t"), PUB, "10.0.0.1") == reason


def test_longer_prefix_decides() -> None:
    acl = policies(("Topic:o*", "Pub", "Deny"), ("Topic:or*", "Pub", "Allow"))
    assert decide(acl, Resource("Topic", "orders"), PUB, "10.0.0.1") is None
    assert decide(acl, Resource("Topic", "other"), PUB, "10.0.0.1") == "the decision is deny."


def test_default_policies_count_where_no_custom_one_does() -> None:
    default = policies(("Topic:*", "All", "Deny"), ("Group:*", "Sub", "Allow"), kind="default")
    acl = default.updated(policies(("Topic:t", "Pub", "Allow")))
    assert decide(acl, Resource("Topic", "t"), PUB, "10.0.0.1") is None
    assert decide(acl, Resource("Topic", "t"), SUB, "10.0.0.1") == "the decision is deny."
    assert decide(acl, Resource("Group", "g"), SUB, "10.0.0.1") is None


@pytest.mark.parametrize(
    ("sources", "address", "allowed"),
    [
        (("10.0.0.0/8",), "10.1.2.3", True),
        (("10.0.0.0/8",), "11.1.2.3", False),
        (("1.2.3.4", "10.1.2.3"), "10.1.2.3", True),
        (("10.1.2.3",), "10.1.2.4", False),
        (("::1",), "127.0.0.1", False),
        (("fe80::/10",), "fe80::1", True),
    ],
)
def test_source_of_a_request_counts(sources: tuple[str, ...], address: str, allowed: bool) -> None:
    acl = policies(("Topic:t", "Pub", "Allow"), sources=sources)
    assert (decide(acl, Resource("Topic", "t"), PUB, address) is None) is allowed


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (PolicyEntryInfo("", ["Pub"], [], "Allow"), "The resource is null."),
        (PolicyEntryInfo("Topic:t", [], [], "Allow"), "The actions is empty."),
        (PolicyEntryInfo("Topic:t", ["jump"], [], "Allow"), "The actions is empty."),
        (PolicyEntryInfo("Topic:t", ["Any"], [], "Allow"), "The actions can not be Any."),
        (PolicyEntryInfo("Topic:t", ["Pub"], ["nowhere"], "Allow"), "The source ip is invalid."),
        (PolicyEntryInfo("Topic:t", ["Pub"], [" "], "Allow"), "The source ip is empty."),
        (PolicyEntryInfo("Topic:t", ["Pub"], [], "perhaps"), "The decision is null or illegal."),
    ],
)
def test_policy_that_cannot_be_is_refused(entry: PolicyEntryInfo, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        parse_acl(AclInfo("User:u", [PolicyInfo(None, [entry])]))


def test_user_is_written_without_its_password() -> None:
    assert "secret" not in repr(User("u", "secret"))
