"""The shrinker, with a fake world that fails on demand, and the stories that are kept."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from random import Random

import pytest

from tests.simulator.chances import Chance, Chances
from tests.simulator.judges.invariants import Violation
from tests.simulator.play import NotedWorld
from tests.simulator.run import main
from tests.simulator.shrink import fewest, promise_of, read_story, replay, shrink
from tests.simulator.worlds import recipes
from tests.simulator.worlds.features import Feature
from tests.simulator.worlds.recipes import Recipe, record

STORIES = sorted(Path(__file__).with_name("stories").glob("*.txt"))


@pytest.mark.parametrize("needed", [set(), {0}, {19}, {3, 4}, {0, 7, 13, 19}, set(range(20))])
def test_as_few_are_left_as_are_needed(needed: set[int]) -> None:
    asked = []

    def fails(items: Collection[int]) -> bool:
        asked.append(items)
        return needed <= set(items)

    assert fewest(range(20), fails) == sorted(needed)
    assert len(asked) < 150


def test_none_that_is_left_can_be_left_out_alone() -> None:
    """Either of two pairs is enough: one pair is left."""
    left = fewest(range(16), lambda items: {2, 3} <= set(items) or {10, 12} <= set(items))
    assert set(left) in ({2, 3}, {10, 12})


def test_a_promise_has_no_names_and_numbers() -> None:
    one = promise_of("seed 3, step 12: number 4 of p0 to bmq://fanout/f (40FF01) was acked and is lost\nmore")
    assert one == promise_of("FAILED seed 9, step 1: number 77 of p1 to bmq://fanout/f (70EE) was acked and is lost")
    assert one != promise_of("seed 3, step 12: number 4 of p0 to bmq://fanout/f (40FF01) is there again")


class _Fake(NotedWorld):
    """A world that counts in steps: it fails once faults 3 and 8 have come, and a client has sent."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(seed)
        self.noted: list[str] = []

    @property
    def time_ms(self) -> int:
        return 100 * self.clock.steps

    @property
    def client_names(self) -> list[str]:
        return ["a", "b"]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.clock.steps += 1
            with self.chances.at("step", self.random) as is_taken:
                if is_taken:
                    self.note(f"fault {self.clock.steps} {self.random.random()}")
            self.random.random()
            said = [text for text in self.noted if text.startswith(("fault 3 ", "fault 8 "))]
            if len(said) == 2 and "b" not in self.silent:
                raise Violation(f"broken in step {self.clock.steps}")

    def note(self, text: str) -> None:
        super().note(text)
        self.noted.append(text)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.setattr(recipes.Recipe, "make", lambda recipe: _Fake(recipe.seed))
    return Recipe("rocketmq", 5, 80)


def test_a_world_is_shrunk_to_its_story(fake: Recipe) -> None:
    """The faults that are kept do as before, at their times. The story is the same when it is read again."""
    failure = record(fake, Chances())
    story = shrink(fake, failure, 10)
    assert failure == "seed 5, step 8: broken in step 8"
    assert story.kept == frozenset({Chance("step", 3), Chance("step", 8)})
    assert story.silent == frozenset({"a"})
    assert story.recipe.steps == 10
    assert read_story(f"# why\n{story}") == story
    assert replay(story) == failure
    lines: list[str] = []
    record(fake, Chances(), lines)
    faults = [line.split(" | ")[1] for line in lines if "fault 3 " in line or "fault 8 " in line]
    assert [event.split(None, 1)[1] for event in story.events[2:4]] == faults


def test_a_story_passes_if_the_fault_is_mended(fake: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    story = shrink(fake, record(fake, Chances()), 10)
    monkeypatch.setattr(_Fake, "note", NotedWorld.note)
    assert replay(story) == ""


@pytest.mark.usefixtures("fake")
def test_a_failure_has_its_faults_and_events(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kind", "rocketmq", "--seed", "5", "--steps", "80"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["FAILED seed 5, step 8: broken in step 8", "its faults, the last of 8:"]
    assert "its last events:" in lines
    assert "its story: scripts/simulate --kind rocketmq --steps 80 --seed 5 --trace" in lines
    assert "faults: step:3, step:8" in lines


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_no_story_fails_any_longer(path: Path) -> None:
    assert replay(read_story(path.read_text())) == ""


def test_recipe_leaves_out_a_feature() -> None:
    whole = Recipe("bmq", 9, 2_000)
    part = whole._replace(without=frozenset({Feature.BOUNDS}))
    features = whole.settled().features
    assert features is not None
    assert Feature.BOUNDS in features
    assert part.settled().features == features - {Feature.BOUNDS}
    assert part.command == "scripts/simulate --without bounds --seed 9 --trace"
