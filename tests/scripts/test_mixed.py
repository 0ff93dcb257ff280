"""The scenarios of scripts/mixed as a seed says them, and its readers' accounts; no process is started."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from bmqctl.bench.stamp import MAGIC, STAMP, filler
from bmqctl.bench.tally import ProducerTally
from bmqctl.systems.node_process import HOST
from broker.bmq.config.load import load_broker_config
from broker.bmq.config.local_cluster import write_local_cluster
from scripts.mixtures.config import APPS, CLUSTER, FANOUT, adapt, write_proxy
from scripts.mixtures.scenario import COUNT, EVERYTHING, draw
from scripts.mixtures.streams import SIZE, WANTED, Tally, number_of

RUN = 7


def test_a_seed_says_the_same_scenario_each_time() -> None:
    for seed in range(50):
        assert str(draw(seed)[0]) == str(draw(seed)[0])


def test_a_hundred_seeds_have_everything() -> None:
    plans = [draw(seed)[0] for seed in range(100)]
    happened = Counter(name for plan in plans for name in plan.happenings)
    assert set(happened) == set(EVERYTHING)
    assert {len(plan.foreign) for plan in plans if plan.count == COUNT} == {1, 2}
    assert {extra for plan in plans for extra in plan.extras} == {"fan-out", "expressions"}
    assert {tuple(sorted(plan.proxies)) for plan in plans} >= {(), (False,), (True,), (False, True)}
    assert any(plan.other_sizes for plan in plans)


def test_no_program_gets_a_store_whose_files_are_larger_than_it_is_told() -> None:
    for seed in range(300):
        plan, _ = draw(seed)
        # Our nodes refuse each other if theirs differ.
        assert set(plan.other_sizes) in (set(), set(range(1, plan.count + 1)) - set(plan.foreign))
        for sizes in plan.other_sizes.values():
            assert "exchange of programs" not in plan.happenings
            assert all(sizes[name] <= size for name, size in plan.sizes.items())


@pytest.fixture
def sent() -> ProducerTally:
    tally = ProducerTally(0)
    for sequence in range(40):
        tally.post(1, 0)
        tally.ack(sequence, 0, 1)
    return tally


def payload(sequence: int) -> bytes:
    return STAMP.words.pack(MAGIC, RUN, 0, sequence, 0) + filler(SIZE)


def test_a_reader_that_has_what_it_wants_has_no_faults(sent: ProducerTally) -> None:
    for app, wants in WANTED.items():
        tally = Tally(app, RUN, wants)
        for sequence in range(40):
            if wants(number_of(sequence)):
                tally.take(payload(sequence), number_of(sequence))
        assert tally.faults(sent) == []
        assert 0 < tally.came.delivered <= 40


def test_a_readers_faults_are_told(sent: ProducerTally) -> None:
    tally = Tally("bar", RUN, WANTED["bar"])
    wanted = [sequence for sequence in range(40) if number_of(sequence) < 40]
    other = next(sequence for sequence in range(40) if number_of(sequence) >= 40)
    swapped = [wanted[1], wanted[0], *wanted[2:-1]]
    for sequence in [*swapped, other]:
        tally.take(payload(sequence), number_of(sequence))
    tally.take(payload(wanted[2])[:-1] + b"?", number_of(wanted[2]))
    faults = tally.faults(sent)
    assert all(" after " in fault for fault in faults)
    assert [fault.partition(" (")[0] for fault in faults] == [
        "1 lost at bar",
        "1 not for it at bar",
        "2 reordered at bar" if other < wanted[-2] else "1 reordered at bar",
        "1 garbled at bar",
    ]


def test_a_message_that_was_not_acknowledged_is_not_missed() -> None:
    sent = ProducerTally(0)
    sent.post(1, 0)
    assert Tally("foo", RUN, WANTED["foo"]).faults(sent) == []


def test_our_broker_takes_the_files_of_a_node_and_of_a_proxy(tmp_path: Path) -> None:
    (node,) = write_local_cluster(tmp_path, 1, HOST, 4001)
    adapt(node, "node1", {"maxJournalFileSize": 1 << 20}, partitions=2)
    config = load_broker_config(node)
    assert config.cluster is not None
    assert config.cluster.partition_config.max_journal_file_size == 1 << 20
    found = config.domains.read(FANOUT)
    assert found is not None
    definition = json.loads((node / "domains" / f"{FANOUT}.json").read_text())["definition"]
    assert definition["parameters"]["mode"]["fanout"]["appIDs"] == list(APPS)
    write_proxy(tmp_path / "proxy", 4000, [1000, 1001])
    proxy = load_broker_config(tmp_path / "proxy")
    assert proxy.cluster is None
    (upstream,) = proxy.clusters.proxy_clusters
    assert upstream.name == CLUSTER
    assert [(node.host, node.port) for node in upstream.nodes] == [(HOST, 1000), (HOST, 1001)]
