"""The ends of a bridge as users write them, and configuration files."""

from __future__ import annotations

import pytest

from bmqctl.carrying.bridge.ends import BadBridge, BlazingEnd, RocketEnd
from bmqctl.carrying.bridge.making import make_bridge, read_bridges
from bmqctl.systems.blazingmq.end import QueueEnd
from bmqctl.systems.opening import open_end

BROKER = "tcp://broker:30114"
QUEUE = "bmq://my.domain/orders"
TOPIC = "rocketmq://mq:9876/orders"


def parsed(text: str) -> tuple[object, ...]:
    end = open_end(text, BROKER)
    assert isinstance(end, tuple)
    return end


def test_ends() -> None:
    assert parsed(f"{QUEUE}?id=app") == BlazingEnd("broker", 30114, f"{QUEUE}?id=app")
    assert parsed(TOPIC) == RocketEnd("mq", 9876, "orders", "bmqctl-bridge", None, "")
    assert parsed(f"{TOPIC}?group=g&queue=3") == RocketEnd("mq", 9876, "orders", "g", 3, "")
    assert parsed(f"{TOPIC}?key=customer") == RocketEnd("mq", 9876, "orders", key="customer")
    assert parsed("rocketmq://[::1]:1/%25RETRY%25g") == RocketEnd("::1", 1, "%RETRY%g")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("orders", "expected bmq://DOMAIN/QUEUE or rocketmq://HOST:PORT/TOPIC"),
        ("bmq://my.domain", "Missing queue"),
        ("rocketmq://mq/orders", "expected rocketmq://HOST:PORT/TOPIC"),
        ("rocketmq://mq:x/orders", "expected rocketmq://HOST:PORT/TOPIC"),
        ("rocketmq://mq:0/orders", "expected rocketmq://HOST:PORT/TOPIC"),
        ("rocketmq://:1/orders", "expected rocketmq://HOST:PORT/TOPIC"),
        ("rocketmq://me@mq:1/orders", "expected rocketmq://HOST:PORT/TOPIC"),
        ("rocketmq://mq:1/", "a topic of a-z"),
        ("rocketmq://mq:1/a/b", "a topic of a-z"),
        ("rocketmq://mq:1/orders?tag=x", "after [?] there may be"),
        ("rocketmq://mq:1/orders?queue=1&queue=2", "after [?] there may be"),
        ("rocketmq://mq:1/orders?queue=1&key=x", "to one queue or by a key"),
        ("rocketmq://mq:1/orders?queue=-1", "a queue a number"),
        ("rocketmq://mq:1/orders?queue=65536", "a queue a number"),
        ("rocketmq://mq:1/orders?group=a.b", "a group is a name"),
        ("rocketmq://mq:1/orders?key=", "the key is the name"),
    ],
)
def test_invalid_end_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadBridge, match=reason):
        open_end(text, BROKER)


def test_a_bridge_leads_from_one_system_to_the_other() -> None:
    made = make_bridge(open_end(QUEUE, BROKER), open_end(TOPIC, BROKER))
    assert (made.name, str(made.destination)) == (QUEUE, TOPIC)
    for ends in ((QUEUE, QUEUE), (TOPIC, TOPIC)):
        with pytest.raises(BadBridge, match="from one system to the other"):
            make_bridge(open_end(ends[0], BROKER), open_end(ends[1], BROKER))
    with pytest.raises(BadBridge, match="not to an app"):
        make_bridge(open_end(TOPIC, BROKER), open_end(f"{QUEUE}?id=app", BROKER))
    with pytest.raises(BadBridge, match="'broker:x' is not the address"):
        open_end(QUEUE, "broker:x")


def test_bridges_of_a_file() -> None:
    first, second = read_bridges(
        f"""
        [[bridge]]
        name = "there"
        from = "{QUEUE}"
        to = "{TOPIC}"
        broker = "tcp://other:1"
        window = 10
        batch = 5
        skip_refused = true

        [[bridge]]
        from = "{TOPIC}"
        to = "{QUEUE}"
        """,
        open_end,
        BROKER,
        idle_s=1.5,
    )
    assert (first.name, first.source) == ("there", QueueEnd("other", 1, QUEUE))
    assert (first.flow.window, first.flow.batch_messages, first.flow.skip_refused) == (10, 5, True)
    assert (second.name, second.destination) == ("bridge 2", QueueEnd("broker", 30114, QUEUE))
    assert (second.flow.window, second.flow.skip_refused, second.idle_s) == (4096, False, 1.5)


ENDS = f'from = "{QUEUE}"\nto = "{TOPIC}"\n'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[[bridge", "at the end of an array declaration"),
        ("", r"expected tables \[\[bridge\]\]"),
        ("bridge = 1", r"expected tables \[\[bridge\]\]"),
        ("bridge = [1]", "bridge 1: expected from and to"),
        (f"[[bridge]]\n{ENDS}\n[other]", r"expected tables \[\[bridge\]\]"),
        (f"[[bridge]]\n{ENDS}colour = 1", "bridge 1: expected from and to"),
        (f'[[bridge]]\nfrom = "{QUEUE}"', "bridge 1: expected from and to"),
        (f"[[bridge]]\n{ENDS}window = true", "bridge 1: window = True is no int"),
        (f"[[bridge]]\n{ENDS}batch = 0", "bridge 1: batch = 0 is not between 1 and"),
        (f"[[bridge]]\n{ENDS}window = {1 << 40}", "is not between 1 and"),
        (f'[[bridge]]\n{ENDS}name = "a"\n[[bridge]]\n{ENDS}name = "a"', "two bridges are named a"),
        (f'[[bridge]]\n{ENDS}\n[[bridge]]\nfrom = "x"\nto = "y"', "bridge 2: x: expected bmq://"),
    ],
)
def test_files_that_say_something_else(text: str, reason: str) -> None:
    with pytest.raises(BadBridge, match=reason):
        read_bridges(text, open_end, BROKER)
