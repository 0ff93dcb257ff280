"""Shrinks a failed world to the fewest features, faults and clients that still break the same promise: its story.

A story is a text: lines `name: value` that make its world, a line of dashes, and what happened when it was written.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, TypeVar

from tests.simulator.chances import Chance, Chances, Kept, Recording
from tests.simulator.play import quiet
from tests.simulator.worlds.features import Feature
from tests.simulator.worlds.recipes import KINDS, Recipe, record

__all__ = ["Story", "fewest", "promise_of", "read_story", "replay", "shrink", "within"]

DASHES = "----"
EVENTS_KEPT = 30
# Of the events, those of the core's log begin with a blank time.
LOGGED = " " * 17
# Nodes and proxies of smaller worlds of BlazingMQ, the smallest first.
SMALLER = ((1, False), (3, False), (3, True), (5, False))
# Parts of the time for shrinking that the shape of a world may take.
SHAPE_PART = 0.4

T = TypeVar("T")
Fails = Callable[[Collection[T]], bool]


def fewest(items: Sequence[T], fails: Fails[T]) -> list[T]:
    """Leave out of `items`, with which `fails` is true, as many as possible, so that it still is (delta debugging).

    None of the remaining ones can be left out alone. The order is kept.
    """
    if fails(()):
        return []
    left, parts = list(items), 2
    while len(left) > 1:
        size = -(-len(left) // parts)
        # Of two halves each is what is left without the other.
        smaller = next(filter(fails, _without(left, size)), None)
        if smaller is not None:
            left, parts = smaller, max(parts - 1, 2)
        elif size > 1:
            parts = min(len(left), 2 * parts)
        else:
            break
    return left


def _without(items: list[T], size: int) -> Iterator[list[T]]:
    """Yield what is left without each piece of this size, the last one first: of two halves, the first."""
    for at in reversed(range(0, len(items), size)):
        yield items[:at] + items[at + size :]


def promise_of(failure: str) -> str:
    """The broken promise that a failure states, without what differs from world to world: names and numbers."""
    text = re.sub(r"^(FAILED )?seed \d+, step \d+: ", "", failure.partition("\n")[0])
    return re.sub(r"[\w.-]*\d[\w.-]*", "#", text)


def within(cpu_s: float, fails: Fails[T]) -> Fails[T]:
    """Ask `fails` until the processor time is over; whatever is asked after that is said not to fail."""
    until_s = time.process_time() + cpu_s
    return lambda items: time.process_time() < until_s and fails(items)


class Story(NamedTuple):
    """A world of which only some faults and clients are left. `says` is the broken promise when it was written."""

    recipe: Recipe
    kept: frozenset[Chance]
    silent: frozenset[str]
    says: str
    events: tuple[str, ...] = ()

    def __str__(self) -> str:
        recipe = self.recipe
        terms = {"kind": recipe.kind, "seed": str(recipe.seed), "steps": str(recipe.steps)}
        if recipe.features is not None:
            terms["nodes"] = str(recipe.nodes)
            terms["proxies"] = "yes" if recipe.has_proxies else "no"
            terms["features"] = " ".join(feature.name for feature in Feature if feature in recipe.features)
        terms["faults"] = ", ".join(map(str, sorted(self.kept)))
        terms["silent"] = " ".join(sorted(self.silent))
        terms["says"] = self.says
        lines = [f"{name}: {value}".rstrip() for name, value in terms.items()]
        return "\n".join([*lines, DASHES, *self.events]) + "\n"


def read_story(text: str) -> Story:
    """Read a story; lines that begin with `#` are comments."""
    head, _, events = text.partition(f"\n{DASHES}\n")
    lines = [line for line in head.splitlines() if not line.startswith("#")]
    terms = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    recipe = Recipe(terms["kind"], int(terms["seed"]), int(terms["steps"]))
    if "nodes" in terms:
        features = frozenset(Feature[name] for name in terms["features"].split())
        recipe = recipe._replace(nodes=int(terms["nodes"]), has_proxies=terms["proxies"] == "yes", features=features)
    kept = frozenset(map(Chance.parse, filter(None, terms["faults"].split(", "))))
    return Story(recipe, kept, frozenset(terms["silent"].split()), terms["says"], tuple(events.splitlines()))


def replay(story: Story, lines: list[str] | None = None) -> str:
    """Play the world of a story; the failure, or nothing. The whole world is played before, for its chances."""
    base = Recording()
    record(story.recipe._replace(steps=_steps(story.recipe)), base)
    return record(story.recipe, Kept(base, story.kept), lines, silent=story.silent)


def _steps(recipe: Recipe) -> int:
    """The steps of the whole world of which a story has a part."""
    return max(recipe.steps, KINDS[recipe.kind].steps)


def shrink(recipe: Recipe, failure: str, cpu_s: float) -> Story:
    """Shrink a failed world as far as the processor time allows."""
    until_s = time.process_time() + cpu_s
    promise = promise_of(failure)
    recipe = _shape(recipe.settled(), promise, cpu_s * SHAPE_PART)
    base = Recording()
    record(recipe._replace(steps=_steps(recipe)), base)
    with quiet():
        names = recipe.make().client_names
    everything: list[Chance | str] = [*base.taken, *names]

    def story_of(items: Collection[Chance | str]) -> Story:
        kept = frozenset(item for item in items if isinstance(item, Chance))
        return Story(recipe, kept, frozenset(names) - frozenset(map(str, items)), promise)

    def fails(items: Collection[Chance | str]) -> bool:
        story = story_of(items)
        return promise_of(record(recipe, Kept(base, story.kept), silent=story.silent)) == promise

    for steps in (recipe.steps // 8, recipe.steps // 4, recipe.steps // 2):
        recipe, whole = recipe._replace(steps=steps), recipe
        if fails(everything):
            break
        recipe = whole
    left = fewest(everything, within(until_s - time.process_time(), fails))
    story, lines = story_of(left), list[str]()
    record(recipe, Kept(base, story.kept), lines, silent=story.silent)
    faults = [text for chance, texts in base.taken.items() if chance in story.kept for text in texts]
    summary = f"{len(base.taken)} faults and {len(names)} clients at first, {len(story.kept)} and"
    clients = [name for name in names if name not in story.silent]
    events = [line for line in lines if not line.startswith(LOGGED)][-EVENTS_KEPT:]
    head = (f"{summary} {len(clients)} are left: {' '.join(clients)}", "the faults, in milliseconds:", *faults)
    return story._replace(events=(*head, "the last events:", *events))


def _shape(recipe: Recipe, promise: str, cpu_s: float) -> Recipe:
    """Shrink a world of BlazingMQ to fewer nodes and features."""
    if recipe.features is None:
        return recipe
    until_s = time.process_time() + cpu_s

    def is_like(other: Recipe) -> bool:
        return promise_of(record(other, Chances())) == promise

    for nodes, has_proxies in SMALLER:
        smaller = recipe._replace(nodes=nodes, has_proxies=has_proxies)
        if (nodes, has_proxies) < (recipe.nodes, recipe.has_proxies) and is_like(smaller):
            recipe = smaller
            break
    features = [feature for feature in Feature if feature in (recipe.features or ())]
    left = fewest(
        features,
        within(until_s - time.process_time(), lambda some: is_like(recipe._replace(features=frozenset(some)))),
    )
    return recipe._replace(features=frozenset(left))
