from __future__ import annotations

from scripts.checks.sizes import Known, Measure, Size, complaints, folders, functions, sizes_of

MODULE = """
class Shelf:
    label: str

    def __init__(self, first, /, second, *rest, third=None, **others):
        self.first = first
        self.second, other.second = second, None

    async def take(self):
        def one_of(these):
            return these

        return one_of(self.first)
"""


def test_a_module_its_classes_and_functions_are_measured() -> None:
    assert [(size.measure, size.amount, size.name) for size in sizes_of("a.py", MODULE)] == [
        (Measure.MODULE_LINES, 13, "a.py"),
        (Measure.ATTRIBUTES, 3, "a.py::Shelf"),
        (Measure.LINES, 3, "a.py::Shelf.__init__"),
        (Measure.PARAMETERS, 5, "a.py::Shelf.__init__"),
        (Measure.LINES, 5, "a.py::Shelf.take"),
        (Measure.PARAMETERS, 0, "a.py::Shelf.take"),
        (Measure.LINES, 2, "a.py::Shelf.take.one_of"),
        (Measure.PARAMETERS, 1, "a.py::Shelf.take.one_of"),
    ]


def test_a_folder_has_its_own_modules_and_not_those_of_its_folders() -> None:
    paths = ["a/__init__.py", "a/one.py", "a/b/__init__.py", "a/b/two.py", "a/b/three.py"]
    assert list(folders(paths)) == [Size(Measure.MODULES, 2, "a"), Size(Measure.MODULES, 3, "a/b")]


def test_functions_are_found_by_the_line_that_names_them() -> None:
    assert dict(functions("a.py", MODULE)) == {
        ("a.py", 2): "a.py::Shelf",
        ("a.py", 5): "a.py::Shelf.__init__",
        ("a.py", 9): "a.py::Shelf.take",
        ("a.py", 10): "a.py::Shelf.take.one_of",
    }


def test_only_what_exceeds_a_limit_needs_a_line_and_no_other_has_one() -> None:
    sizes = [Size(Measure.LINES, 61, "a.py::long"), Size(Measure.LINES, 60, "a.py::short")]
    assert complaints(sizes, Known({"a.py::long": "a table"}, frozenset())) == []
    assert complaints(sizes, Known({}, frozenset({"a.py::long"}))) == []
    (line,) = complaints(sizes, Known({}, frozenset()))
    assert line.startswith("a.py::long: 61 lines of a function, 60 are allowed")
    (line,) = complaints(sizes, Known({"a.py::long": "a table"}, frozenset({"a.py::short"})))
    assert line.startswith("a.py::short: exceeds no limit")
    (line,) = complaints(sizes, Known({"a.py::long": "a table"}, frozenset({"a.py::long"})))
    assert line.startswith("a.py::long: is under [reasons] and [debts]")
