"""The figures of a small tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.checks import house, sizes

TREE = {
    "broker/one.py": '"""What it is."""\n\nclass Queue:\n    """A queue."""\n',
    "broker/two.py": "class Queue:\n    pass\n\n\nclass Position:\n    lease_id: int\n    sequence_number: int\n",
    "bmqctl/stores/blazingmq/three.py": "import os\n\n\ndef read(fd: int) -> bytes:\n    return os.pread(fd, 1, 0)\n",
    "bmqctl/carrying/replay/four.py": "import os\n\nDATA = os.pread(0, 1, 0)\n",
}


def test_class_names_in_more_than_one_module() -> None:
    assert house.homonyms(TREE) == {"Queue": {"broker/one.py", "broker/two.py"}}


def test_modules_that_read_store_files_themselves() -> None:
    assert house.readers(TREE) == ["bmqctl/stores/blazingmq/three.py"]


def test_types_of_numbers() -> None:
    with_more = "class Standing:\n    lease_id: int\n    sequence_number: int\n    active: bool\n"
    schema = {"formats/bmq/control/messages.py": TREE["broker/two.py"]}
    assert house.number_types({**TREE, **schema, "broker/five.py": with_more}) == ["broker/two.py::Position"]


def test_figures() -> None:
    found = dict(house.figures(TREE, {"tests/six.py": '"""A test."""\n'}))
    assert found["modules"] == "4"
    assert found["lines of a module, median"] == "4.5"
    assert found["lines of a module, maximum"] == "7"
    assert found["docstrings that begin with a clause"] == "1 of 3"
    assert found["classes above 20 attributes"] == "0"


CHOOSING = """
if is_rocketmq(path):
    end = one if subject_of(path) else two
    match end:
        case RocketEnd():
            pass
        case None:
            pass
if system == "blazingmq" and other:
    pass
if path:
    rocket = 1
"""


def test_places_that_choose_a_system() -> None:
    tree = {
        "bmqctl/cli/one.py": CHOOSING,
        "bmqctl/cli/two.py": "if path:\n    rocket()\n",
        "bmqctl/systems/rocketmq/three.py": CHOOSING,
        "broker/four.py": CHOOSING,
    }
    assert house.choices(tree) == {"bmqctl/cli/one.py": 4}


def test_rooms_and_the_widest_folder() -> None:
    tree = dict.fromkeys(("bmqctl/app.py", "bmqctl/cli/one.py", "bmqctl/cli/two.py", "bmqctl/bench/one.py"), "")
    assert house.rooms(tree) == ({"cli", "bench"}, {"app.py"})
    assert house.widest(tree) == ("bmqctl/cli", 2)


@pytest.fixture(scope="module")
def product() -> dict[str, str]:
    return house.read(Path(__file__).parents[3], sizes.PACKAGES, None)


def test_figures_of_the_house_do_not_grow(product: dict[str, str]) -> None:
    """A ratchet: lower a bound when its figure falls; do not raise it."""
    packages, loose = house.rooms(product)
    chosen = house.choices(product)
    assert len(packages) <= 10
    assert len(loose) <= 3
    assert len(chosen) <= 31, sorted(chosen)
    assert sum(chosen.values()) <= 70, chosen
    assert house.widest(product)[1] <= 32
