"""Features of a world besides its two queues, and its number of nodes, chosen by the seed.

Without any of it a world is what it was before there were features: seeds that failed then still tell their story.
"""

from __future__ import annotations

from enum import Enum
from random import Random
from typing import NamedTuple

__all__ = ["Feature", "Shape", "features_of", "own_random", "shape_of"]


class Feature(Enum):
    EVENTUAL = "a queue whose messages are acknowledged at once"
    BROADCAST = "a queue that keeps nothing"
    PARTS = "a queue whose consumers take only some of its messages"
    APPS = "an app that comes and goes while nodes run"
    PURGE = "an operator who empties queues"
    FSYNC = "nodes that wait for their disks before they say anything, and lose power at any time"
    FOLDERS = "files that come and go, and have not when power fails before the folder was synced"
    FLUSHES = "power failures between two flushes, and flushes that fail"
    TERMS = "terms that cannot be kept for a while"
    DESCRIPTORS = "machines that can open no more connections for a while"
    HALF_OPEN = "links of which one end is gone, and the other hears nothing of it"
    TWINS = "nodes that connect once more, though they are connected"
    STRANGERS = "clients that say what no client should, and brokers that are none of the cluster's"
    ODD = "links between nodes on which old events come once more"
    DIFFER = "domain files that change at one node after another"
    LIMITS = "domains that are reconfigured: how much a queue may hold"
    LEAPS = "wall clocks that are set hours ahead or back"
    AIMED = "faults that wait for the moment at which they hurt"
    FILES = "processes that can open no more files for a while"
    ROTTING = "payloads that rot while their node runs"
    MALFORMED = "nodes that send malformed events, and numbers out of any range"
    TTL = "a queue whose messages have a time to live, and wall clocks that are set hours ahead or back"
    RECONFIGURED = "domains whose consistency, times and limits change while nodes run"
    ECHOES = "links between nodes on which old words of elections and of the ledger come once more"
    MOMENTS = "faults in the midst of rollovers, and while confirms are on their way"
    SLICES = "long tasks that take their time, so that much happens between two slices"
    CONTESTS = "elections in which all nodes stand at once, and none waits at random"
    FULL_LEDGERS = "leaders whose disks are full while queues are assigned"
    LATE_ACKS = "producers whose acks are lost for long, and queues that recognise repetitions for some seconds only"
    WHOLE_CLIENTS = "clients that read two apps under one id, confirm much at once, and change what they want"
    ATTEMPTS = "queues whose messages are delivered a few times at most, and consumers that die of some"
    NOT_READY = "primaries that are not ready for posts which are on their way"
    WHOLE_QUEUES = (
        "apps that get a part, messages that expire, purges of one app, and consumers that reach their limits"
    )
    HOLDERS = "consumers that hold messages for long, also some of which others have died, and twins that want the same"
    REPEATS = "producers that repeat just before their queue forgets, or at a primary that is cut off"
    ADMISSION = "a single node's domains that admit one producer of a queue, and one consumer of an app"
    VACANT = "queues that nobody has open for a while, and that an operator removes while clients open them"
    LAGGING = "partitions that roll over while a replica is being healed"
    SHAPES = "producers that number the few shapes of their messages' properties, and use each number for several"
    SUBSCRIPTIONS = "a consumer of parts of a queue that has a subscription for each of them"
    SIBLINGS = "a second queue of the domain whose apps come and go"
    BOUNDS = "bounds that no world would reach, and much less than the usual"
    COMMANDS = "an administrator who has nodes list and show their messages, and roll over at any time"
    USERS = "nodes that want proofs from clients, often, and intruders who want more than their users may have"
    SPOILED = "producers some of whose posts have another checksum than their payload"


# Of each of these a generator of its own says whether a world has it: the other features are as they were before it.
_LATER = (
    Feature.FILES,
    Feature.ROTTING,
    Feature.MALFORMED,
    Feature.TTL,
    Feature.RECONFIGURED,
    Feature.ECHOES,
    Feature.MOMENTS,
    Feature.SLICES,
    Feature.CONTESTS,
    Feature.LATE_ACKS,
    Feature.FULL_LEDGERS,
    Feature.WHOLE_CLIENTS,
    Feature.ATTEMPTS,
    Feature.NOT_READY,
    Feature.WHOLE_QUEUES,
    Feature.HOLDERS,
    Feature.REPEATS,
    Feature.ADMISSION,
    Feature.VACANT,
    Feature.LAGGING,
    Feature.SPOILED,
    Feature.SHAPES,
    Feature.SUBSCRIPTIONS,
    Feature.SIBLINGS,
    Feature.USERS,
    Feature.COMMANDS,
    Feature.BOUNDS,
)
_LATER_PART = 0.25
# The features of worlds of which only the number of nodes is given; each has two in five of them.
_FIRST = tuple(Feature)[:6]
# By number of nodes: how many worlds of ten have it.
_NODES = (1, 1, 3, 3, 3, 3, 3, 5, 5, 7)
_PROXIES_PART = 0.25


class Shape(NamedTuple):
    """The shape of a world; `has_proxies` means proxies below the nodes."""

    nodes: int
    has_proxies: bool
    features: frozenset[Feature]

    def __str__(self) -> str:
        proxies = " and proxies" if self.has_proxies else ""
        names = ", ".join(feature.name.lower() for feature in Feature if feature in self.features)
        return f"{self.nodes} node(s){proxies}: {names or 'plain'}"


def features_of(seed: int) -> frozenset[Feature]:
    """Choose about two in five features."""
    random = Random(f"features {seed}")
    return frozenset(feature for feature in _FIRST if random.random() < 0.4)


def shape_of(seed: int, without: frozenset[Feature] = frozenset()) -> Shape:
    """Return the shape of a seed's world in the mix of all kinds; `without` are features that it did not have once."""
    random = Random(f"shape {seed}")
    nodes = random.choice(_NODES)
    has_proxies = random.random() < _PROXIES_PART and nodes > 1
    features = {feature for feature in Feature if feature not in _LATER and random.random() < 0.4}
    later = [feature for feature in _LATER if feature not in without]
    features |= {feature for feature in later if own_random(feature, seed).random() < _LATER_PART}
    if Feature.HOLDERS in features:
        features |= {Feature.ATTEMPTS, Feature.PARTS}
    if Feature.SIBLINGS in features:
        features.add(Feature.APPS)
    if Feature.REPEATS in features:
        features.add(Feature.LATE_ACKS)
    return Shape(nodes, has_proxies, frozenset(features))


def own_random(feature: Feature, seed: int) -> Random:
    """A generator that is used for one feature of one world, and nothing else."""
    return Random(f"{feature.name.lower()} {seed}")
