"""The figures of a small tree."""

from __future__ import annotations

from scripts.checks import house

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
