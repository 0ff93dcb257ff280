"""A slice of the worlds that `scripts/simulate` can make, and what makes them worth trusting."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from tests.families import mostly_slow, sweep
from tests.simulator.judges.invariants import Violation
from tests.simulator.mutants.mutations import CLUSTER_MUTATIONS, MUTATIONS, mutated
from tests.simulator.run import main, simulate, simulate_mixed
from tests.simulator.worlds.features import Feature, shape_of
from tests.waiting import WAIT_S

ROOT = Path(__file__).resolve().parents[2]

# Among how many worlds one must notice a mutation, and what it says then.
SEEDS_TO_NOTICE = 60
SAYS = {
    "a message is not written": "was acked and is lost|data-gap",
    "a deletion is not written": "is there again|in its journal alone",
    "a confirm is not written": "is there again|is not confirmed by '.*' in n.'s journal",
    "a retransmission is taken twice": "is there again|had confirmed it|is not in|whose confirm it has|taken twice",
    "a lost consumer's messages are not given back": "is not in 1 place|was never delivered",
    "the order is not kept": "to '.*' after number",
    "a full partition takes messages": (
        "FormatError|with another payload|is lost|not sound|struct.error|ValueError|bytes that have disk|reserves room"
    ),
    "a payload is spoiled": "with another payload|is lost|payload-checksum",
    "the disk is not waited for": "was acked and is lost|is there again|had confirmed it|has not all of",
    "subscriptions are not looked at": "and gets a message of which x is",
    "a purge is not written": "is there again|had confirmed it",
    "a node votes twice": "votes for n. and n. in term",
    "a term is not kept": "goes back from term|votes for n. and n. in term",
    "the ledger is committed alone": "which only .* have in their ledgers",
    "leases are used again": "lease ids only grow|both primary|another record|no rest: partition",
    "copies are not waited for": "without enough copies",
    "a replica writes something else": "has another record|keep different messages|not sound",
    "a hop sends nothing again": "waits for acks|was never delivered|after number|whose confirm it has",
    "apps stay as they are": "has the apps|know different queues",
    "a hop passes nothing on": "have not got what was passed on to all",
}


class Counts(NamedTuple):
    """The counts of a world that ended in peace."""

    steps: int
    posts: int
    acked: int


@cache
def peace_of(seed: int, nodes: int) -> Counts:
    """Simulate a world, once for all tests that have it."""
    world = simulate(seed, nodes=nodes)
    return Counts(world.clock.steps, len(world.records.posts), world.records.acked)


@pytest.mark.parametrize("seed", sweep(range(12), 4))
def test_one_node(seed: int) -> None:
    counts = peace_of(seed, 1)
    assert counts.steps >= 2000
    assert counts.acked or not counts.posts


@pytest.mark.parametrize("seed", sweep(range(8), 1))
def test_three_nodes(seed: int) -> None:
    counts = peace_of(seed, 3)
    assert counts.steps >= 2000
    assert counts.acked


@pytest.mark.parametrize("seed", mostly_slow([2, 4, 5, 9], 1))
def test_proxies_below_three_nodes(seed: int) -> None:
    """Worlds 2 and 5 have posts to queues that are gone; 4 has a consumer that comes as another of its app leaves."""
    world = simulate(seed, nodes=3, proxies=True)
    assert world.clock.steps >= 2000
    assert world.records.acked


@pytest.mark.parametrize("seed", sweep(range(12), 1))
def test_worlds_of_all_kinds(seed: int) -> None:
    world = simulate_mixed(seed)
    assert world.clock.steps >= 2000
    assert world.records.acked


@pytest.mark.slow
@pytest.mark.process
def test_worlds_in_processes(capsys: pytest.CaptureFixture[str]) -> None:
    """Worlds in one process and in two, with the same digest."""
    outputs = []
    for jobs in ("1", "2"):
        assert main(["--seeds", "0..3", "--steps", "300", "--jobs", jobs]) == 0
        outputs.append(capsys.readouterr().out.rpartition("digest ")[2])
    assert outputs[0] == outputs[1]


@pytest.mark.slow
def test_five_nodes() -> None:
    assert simulate(1, nodes=5).records.acked


# Worlds that failed once, by nodes, seed, and whether they were plain: what happened there.
FAILED_ONCE = {
    (3, 377, True): "an open request was under way to an upstream that was left, and was the next one again",
    (3, 481, True): "a replica got records of a queue before it heard of its assignment",
    (3, 2084, True): "two clients waited for the assignment of one queue",
    (5, 154, True): "likewise, and the node made the queue twice",
    (5, 1125, True): "a leader compared the ledgers of nobody",
    (1, 46, False): "a partition that had been full kept the apps of a queue as they were",
    (1, 87, False): "a message that was purged was taken for a new one after a restart",
    (3, 13, False): "an app left while a message for it was on its way to a hop",
    (3, 17, False): "an app that no longer was had a consumer at a hop, which left",
    (3, 35, False): "an app came back under another key while a node was down, which then refused to start",
    (3, 71, False): "a primary had no room to note that an app had left, and did not try again",
    (3, 1064, False): "a hop that became the root kept what a consumer held for an app that was no more",
    (3, 463, False): "the simulated operator took a queue for settled before its primary was back",
    (3, 133, False): "a hop kept messages for a consumer that was with another node by then",
}


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "seed", "is_plain"), FAILED_ONCE, ids=lambda each: str(each))
def test_world_that_failed_once_passes(nodes: int, seed: int, is_plain: bool) -> None:
    simulate(seed, nodes=nodes, features=frozenset() if is_plain else None)


# Likewise in the mix of all kinds.
MIXED_FAILED_ONCE = {
    1314: "a node forgot what was removed before a rollover, as its wall clock had been set ahead, and started again",
    1071: "a primary refused posts that exceeded a limit, and ended before the answer had arrived",
    8019: "a primary whose lease had ended had rolled over, and did not know what it had been told before that",
    8388: "payloads rotted at one node while another had lost power, which no majority outlives",
    7465: "a primary that was none any longer posted again what another member had posted to the next one",
    2753: "a hop forgot confirms that its next upstream could not be told, as their consumer had gone",
    1406: "power failed when a replica had cut back its payloads on the disk, and not yet its journal",
    773: "a primary told a replica of removed messages while it was still reading of them itself",
    626: "a replica lost its copy of a message to rot between its receipt and those of others",
    1447: "a primary was told to remove what waited for copies, and the answers were lost with a link",
    5039: "a primary without copies was told to remove what a consumer had, who confirmed it there, and got it again",
    5223: "power failed in a rollover when a journal was on the disk, and the names of its other files were not",
    5393: "a payload rotted that was written a moment ago, and had its copies before it would have been compared",
    210135764: "a node that got no time ended a session before it read a confirm that had come, and nobody took it",
    30095919: "others passed a message whose payload had rotted, and it was asked for again in the same step",
    5515: "a follower took a leader's snapshot that came once more for one that has what it had left out since",
    1879: "a payload was to rot when a message that waited for copies was removed, and its partition rolled over",
    2452: "a hop had no room for messages that came late, and put the first of them behind the others",
    1557: "a primary that was none any longer was sent confirms of what had been posted again to the next one",
    9926: "a primary without room had meant to try again, and left its office when it had found room meanwhile",
    9436: "a few messages that came after a clock was set back expired where the next primary's was right",
    2625: "a damaged node was healed by a primary that wrote a confirm then, which no other node ever had",
    3136: "a primary's clock was far behind, and the next one had started since and had a right one",
    10086: "a primary without files to be healed into was healed nevertheless, and began again when it served already",
    2375: "a replica that had been received anew threw all away when an old question of its primary came again",
    7094: "a payload had rotted that nobody could give whole, and came behind others after a fail-over",
    8238: "power failed while a ledger went on in a new file, of which only the first record was on the disk",
    6436: "a hop handed out what its upstream had flagged as out of order before what waited",
    1825: "power failed while a replaced set of files was removed, and one file of it stayed for good",
    4328: "a node was cut off while it took a partition over, and its queues did not hear of it",
    13: "a malformed word of a member gave its app another number, which is the member's to choose",
    9383: "a new primary without descriptors could not read what was removed before, and served without it",
    600041: "a consumer of a low priority got a message that others had died of while one of a higher had to wait",
    30365: "a proxy gave up posts of a producer that had gone, which posted them again after later ones",
    134577029: "an app got a message that came again as another, from before it was there, after later ones",
    700121: "two nodes lost power, and the judge took their link of before for one between those that started again",
    6094: "a process had died before it took a connection, and whoever had dialed waited for its answer",
    134576991: "a member closed a negative number of readers, and the primary closed its writers with them",
    30298: "a producer was linked to a node that had lost power, and another process ran there by then",
    500010: "a primary forgot a removed message within its time, as the message had waited since an earlier one",
    500146: "likewise, in a cluster with apps that come and go",
    500084: "a repetition that was another message went first to an app that had come since, behind later messages",
    500097: "a consumer confirmed for an app that was no more, and the judge counted the repetition's time from there",
    500160: "one app was done with a repetition that was another message before another app got it",
    500461: "a repetition that was another message came before a majority had the first one's confirm",
    500692: "likewise, as a network was slow",
    500905: "one of two consumers came back at another broker, where earlier messages waited for the other",
    501007: "likewise, of a queue whose messages consumers die of",
    501252: "a new primary knew that one app was done with a repetition, and noted that before the message's record",
    500864: "a primary cut all records of its newest lease as a replica lacked the last ones, and healed from another",
    118: "a hop heard late that posts of a producer that had gone were refused, and sent later ones before others",
    195: "a removed message was forgotten as soon as the greatest GUIDs of the window before were",
    501602: "a leader had no room to record its state for a node that registered, and did not try again",
    501521: "a purge that a replica learned of late dropped a push of a message that had been posted again since",
    501637: "a proxy gave up a message that consumers had died of, which its next upstreams waited for",
    2010118: "a replica followed the next primary, which was not active yet, and the judge counted it for the last one",
}


# Worlds that failed when no world had a feature yet.
BEFORE = {
    **dict.fromkeys((1071, 1447), Feature.MOMENTS),
    **dict.fromkeys((210135764, 3136, 10086, 8238), Feature.WHOLE_QUEUES),
}

# The features that no world had yet when the last of the whole mix failed, below, and those when the last of these did.
ADDED_LAST = frozenset(
    {
        Feature.SHAPES,
        Feature.SUBSCRIPTIONS,
        Feature.SIBLINGS,
        Feature.USERS,
        Feature.COMMANDS,
        Feature.BOUNDS,
    }
)
ADDED_SINCE = ADDED_LAST | {
    Feature.HOLDERS,
    Feature.REPEATS,
    Feature.ADMISSION,
    Feature.VACANT,
    Feature.LAGGING,
    Feature.SPOILED,
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", MIXED_FAILED_ONCE)
def test_world_of_the_mix_that_failed_once_passes(seed: int) -> None:
    shape = shape_of(seed, ADDED_SINCE)
    features = shape.features - {BEFORE[seed]} if seed in BEFORE else shape.features
    simulate(seed, nodes=shape.nodes, proxies=shape.has_proxies, features=features)


@pytest.mark.slow
def test_a_damaged_node_is_not_relied_on_while_it_is_healed() -> None:
    """A primary healed itself from another, and a damaged replica from itself; the other left, and it went on alone."""
    simulate(39, nodes=3, features=frozenset({Feature.EVENTUAL, Feature.PARTS}))


# Likewise, with the features that worlds have had since.
WHOLE_MIX_FAILED_ONCE = {
    66761617: "a leader lost its followers after it had recorded a removal, and committed it when it led again",
    900000749: "a node that was down while a queue was removed kept a relay of it, from its ledger's file",
    900000686: "a primary lost its link to the leader for a moment, and did not learn whether a removal was recorded",
    920000027: "a primary restored a queue that was assigned to another partition since, which it served already",
    920000984: "likewise",
    920000407: "two clients read an app that the domain did not name yet, and that was to have one reader",
    920002067: "a consumer held a message that it wanted no longer, which its primary had given to others, and died",
    920002982: "a primary left its office, and the payload of a post that waited for copies had rotted there",
    930000219: "a node died when it had purged an app, and the next one forgot that messages had ended by that",
    4000357: "a file was cut before a bit of a payload that had rotted in it",
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", WHOLE_MIX_FAILED_ONCE)
def test_world_of_the_whole_mix_that_failed_once_passes(seed: int) -> None:
    shape = shape_of(seed, ADDED_LAST)
    simulate(seed, nodes=shape.nodes, proxies=shape.has_proxies, features=shape.features)


# Likewise with proxies and 6,000 steps, by seed.
LONG_FAILED_ONCE = {
    93: "a primary whose journal was full to the brim took a larger one, which its replicas had no room for",
    207: "a queue's apps were changed by half, and a message counted one that it was never for",
    307: "a new primary healed from a node that had been told to roll over and could not, and began to",
    823: "a proxy kept what a proxy below it gave back, and nobody there wanted",
    1053: "power failed in the step of a rollover, and of the new files there was nothing",
    1412: "a proxy kept what came when nobody read there any longer",
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", LONG_FAILED_ONCE)
def test_long_world_that_failed_once_passes(seed: int) -> None:
    simulate(seed, 6000, nodes=3, proxies=True)


@pytest.mark.process
@pytest.mark.parametrize("nodes", ["1", "3"])
def test_a_world_is_made_of_its_seed_alone(nodes: str) -> None:
    """The result depends neither on the previous run nor on the hashes of this process."""
    command = [sys.executable, "-m", "tests.simulator.run", "--seeds", "3..5", "--steps", "600", "--nodes", nodes]
    outputs = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WAIT_S)
        assert done.returncode == 0, done.stdout + done.stderr
        outputs.append(done.stdout.rpartition("digest ")[2])
    assert outputs[0] == outputs[1]
    assert len({simulate(seed, 600, nodes=int(nodes)).digest for seed in (3, 4, 3)}) == 2


# The first world that notices a mutation, by its number of nodes, where several do not notice it before.
KNOWN_TO_NOTICE = {
    ("a retransmission is taken twice", 1): 13,
    ("a full partition takes messages", 1): 4,
    ("a purge is not written", 1): 7,
    ("a node votes twice", 3): 4,
    ("a retransmission is taken twice", 3): 5,
    ("a hop sends nothing again", 3): 11,
    ("apps stay as they are", 3): 3,
    ("a hop passes nothing on", 3): 5,
}


def first_to_notice(name: str, nodes: int) -> tuple[int, str] | None:
    """Return the seed of a world that notices the mutation, and its text; the known one is tried before the others."""
    for seed in dict.fromkeys((KNOWN_TO_NOTICE.get((name, nodes), 0), *range(SEEDS_TO_NOTICE))):
        try:
            with mutated(name):
                simulate(seed, nodes=nodes)
        except Violation as violation:
            return seed, str(violation)
    return None


# The mutations noticed by one node that three must notice, too.
EVERYWHERE = [
    "a deletion is not written",
    "a confirm is not written",
    "a retransmission is taken twice",
    "the order is not kept",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "nodes"),
    [*((name, 1) for name in MUTATIONS), *((name, 3) for name in (*CLUSTER_MUTATIONS, *EVERYWHERE))],
)
def test_a_broken_core_is_noticed(name: str, nodes: int) -> None:
    noticed = first_to_notice(name, nodes)
    assert noticed is not None
    seed, text = noticed
    assert text.startswith(f"seed {seed}, step ")
    assert re.search(SAYS[name], text)
    # The world is at peace with the core as it is.
    peace_of(seed, nodes)


@pytest.mark.interpreted
def test_a_failure_names_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    with mutated("a message is not written"):
        assert main(["--seed", "1", "--nodes", "1", "--trace", "--shrink", "0"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "simulate: seeds 1..1, 2000 steps each, of 1 node(s)"
    assert any(line.startswith("FAILED seed 1, step ") and "was acked and is lost" in line for line in lines)
    assert lines[-2] == "its story: scripts/simulate --nodes 1 --seed 1 --trace"


@pytest.mark.interpreted
def test_a_failure_in_the_mix_is_told_by_the_command_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The command makes the same world, and it fails alike."""
    with mutated("a deletion is not written"):
        assert main(["--seeds", "3..4", "--steps", "1500", "--shrink", "0"]) == 1
    lines = capsys.readouterr().out.splitlines()
    failed, story = lines[1], next(line for line in lines if line.startswith("its story"))
    assert story == "its story: scripts/simulate --steps 1500 --seed 3 --trace"
    with mutated("a deletion is not written"):
        assert main([*story.split()[3:], "--shrink", "0"]) == 1
    assert failed in capsys.readouterr().out.splitlines()


def test_no_world_begins_when_the_time_is_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that goes on by a second whenever it is looked at: at the beginning, and before each world."""
    now_s = itertools.count()
    clocks = SimpleNamespace(monotonic=lambda: next(now_s), process_time=lambda: 0.0)
    monkeypatch.setattr("tests.simulator.run.time", clocks)
    assert main(["--seeds", "0..9", "--steps", "10", "--seconds", "3"]) == 0
    said = capsys.readouterr().out
    assert "simulate: 3 of 3 passed" in said
    assert "simulate: 7 worlds are left out, as the 3 s are over" in said
