"""Every fuzz target keeps its promises for its seeds, for its cases, and for a slice of what a fuzzer would try."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from formats.bmq.codes import EventType
from formats.errors import FormatError
from tests.fuzz import harness
from tests.fuzz.harness import CASES, Target, cases, load, names, run

MUTATIONS = 150
"""The mutations of each target in a test run; the fuzzer tries millions."""

every_target = pytest.mark.parametrize("name", names())
INTERESTING = (0, 1, 2, 3, 4, 7, 8, 0x1F, 0x20, 0x40, 0x7F, 0x80, 0xFE, 0xFF)


def mutated(rng: random.Random, seeds: list[bytes]) -> bytes:
    """A seed with some bytes changed, cut out, doubled or taken from another."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at = rng.randrange(len(data) + 1)
        size = rng.choice((1, 1, 2, 4, 8, 16))
        match rng.randrange(6):
            case 0:
                data[at : at + size] = rng.randbytes(len(data[at : at + size]))
            case 1 if at < len(data):
                data[at] = rng.choice(INTERESTING)
            case 2 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 3:
                del data[at : at + size]
            case 4:
                data[at:at] = data[at : at + 4 * size]
            case 5:
                other = rng.choice(seeds)
                data[at:] = other[at : at + rng.randrange(len(other) + 1)]
    return bytes(data)


def check(target: Target, data: bytes) -> None:
    try:
        run(target, data)
    except Exception as error:
        error.add_note(f"{target.name}: input {data.hex()}")
        raise


def test_there_is_a_target_for_every_event_family_and_every_file_type() -> None:
    families = {
        EventType.STORAGE: "storage",
        EventType.PARTITION_SYNC: "storage",
        EventType.REPLICATION_RECEIPT: "receipt",
        EventType.HEARTBEAT_REQ: "frames",
        EventType.HEARTBEAT_RSP: "frames",
    }
    events = {families.get(kind, kind.name.lower()) for kind in EventType if kind}
    assert events | {"journal", "data", "qlist", "ledger"} <= set(names())


@every_target
def test_target_opens_with_its_invariant(name: str) -> None:
    assert load(name).invariant.startswith("Any ")


def decodes(target: Target, data: bytes) -> bool:
    try:
        target.decode(data)
    except FormatError:
        return False
    return True


@every_target
def test_seeds(name: str) -> None:
    target = load(name)
    seeds = list(target.seeds())
    for seed in [*seeds, b""]:
        check(target, seed)
    # A fuzzer that starts from refused inputs learns little.
    assert sum(decodes(target, seed) for seed in seeds) >= len(seeds) / 2


@every_target
def test_mutations(name: str) -> None:
    target = load(name)
    seeds = sorted(target.seeds(), key=len)[:50]
    rng = random.Random(name)
    for _ in range(MUTATIONS):
        check(target, mutated(rng, seeds))


@every_target
def test_cases(name: str) -> None:
    for path in cases(name):
        check(load(name), path.read_bytes())


def test_every_case_is_of_a_target() -> None:
    assert {path.parent.name for path in CASES.glob("*/*")} <= set(names())


def greedy(data: bytes) -> bytes:
    return bytes(harness.BASE + harness.FACTOR * len(data) + 1)


def careless(data: bytes) -> int:
    return data[0]


def wild(data: bytes) -> None:
    raise FormatError("wild", len(data) + 1, "an offset outside the input")


@pytest.mark.parametrize(
    ("decode", "error"), [(greedy, AssertionError), (careless, IndexError), (wild, AssertionError)]
)
def test_a_promise_that_is_not_kept_is_noticed(decode: Callable[[bytes], Any], error: type[Exception]) -> None:
    target = Target("broken", "", decode, lambda data, value: None, list)
    with pytest.raises(error):
        run(target, b"")


def test_decoded_values_are_verified() -> None:
    def verify(data: bytes, value: int) -> None:
        assert value == 2

    target = Target("broken", "", careless, verify, list)
    run(target, b"\2")
    with pytest.raises(AssertionError):
        run(target, b"\1")
