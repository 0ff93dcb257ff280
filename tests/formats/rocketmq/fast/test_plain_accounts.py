"""`plain_acl.yml`, the accounts of RocketMQ's ACL 1.0."""

from __future__ import annotations

import pytest

from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.access import PolicyEntryInfo, PolicyInfo
from formats.rocketmq.remoting.bodies.plain_accounts import read_accounts

# As the original came with it.
EXAMPLE = """
# comment
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB

  - accessKey: rocketmq2   # the administrator
    secretKey: "12#34: 5678"
    whiteRemoteAddress: 192.168.1.*
    admin: true
"""


def test_accounts_become_users_and_policies() -> None:
    first, second = read_accounts(EXAMPLE)
    assert tuple(first.user) == ("RocketMQ", "12345678", "Normal", "enable")
    assert tuple(second.user) == ("rocketmq2", "12#34: 5678", "Super", "enable")
    assert (second.acl, first.white_addresses, second.white_addresses) == (None, True, True)
    assert first.acl is not None
    assert first.acl.subject == "User:RocketMQ"
    assert first.acl.policies == [
        PolicyInfo(
            "Custom",
            [
                PolicyEntryInfo("Topic:topicA", ["All"], [], "Deny"),
                PolicyEntryInfo("Topic:topicB", ["Pub", "Sub"], [], "Allow"),
                PolicyEntryInfo("Topic:topicC", ["Sub"], [], "Allow"),
                PolicyEntryInfo("Group:groupA", ["All"], [], "Deny"),
                PolicyEntryInfo("Group:groupB", ["Pub", "Sub"], [], "Allow"),
            ],
        ),
        PolicyInfo(
            "Default",
            [
                PolicyEntryInfo("Topic:*", ["All"], [], "Deny"),
                PolicyEntryInfo("Group:*", ["Sub"], [], "Allow"),
            ],
        ),
    ]


def test_lists_need_not_be_indented() -> None:
    text = "accounts:\n- accessKey: a\n  secretKey: 'b'\n  topicPerms:\n  - t=PUB\n- accessKey: c\n  secretKey: d\n"
    first, second = read_accounts(text)
    assert (first.user.username, first.user.password, second.user.username) == ("a", "b", "c")
    assert first.acl is not None
    assert first.acl.policies == [PolicyInfo("Custom", [PolicyEntryInfo("Topic:t", ["Pub"], [], "Allow")])]


@pytest.mark.parametrize("text", ["", "accounts:\n", "other: 1\n"])
def test_file_without_accounts_has_none(text: str) -> None:
    assert read_accounts(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "accounts:\n  - accessKey: a\n",
        "accounts:\n  - a\n",
        "accounts: SECRET\n",
        "- SECRET\n",
        "accounts:\n  - accessKey: a\n    secretKey: {SECRET: 1}\n",
        'accounts:\n  - accessKey: a\n    secretKey: "SECRET\n',
        "accounts:\n  - accessKey: a\n    secretKey: SECRET\n    topicPerms:\n      - t\n",
        "accounts:\n  - accessKey: a\n    secretKey: SECRET\n    topicPerms:\n      - t=ALL\n",
        "accounts:\n  - accessKey: a\n    secretKey: SECRET\n   more: 1\n",
        "accounts:\n\t- accessKey: a\n",
        "SECRET",
    ],
)
def test_unreadable_accounts_are_refused_without_quoting_them(text: str) -> None:
    with pytest.raises(FormatError) as fault:
        read_accounts(text)
    assert "SECRET" not in str(fault.value)
