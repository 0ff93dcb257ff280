from __future__ import annotations

import pytest

from scripts.checks.words import Opening, complaints, is_clause, openings

MODULE = '''"""A shelf.

What follows the first line is free.
"""


class Shelf:
    """Whatever holds books."""

    def count(self):
        """Count the books."""
        return 0

    async def take(self):
        return None
'''


def test_the_first_lines_of_a_module_its_classes_and_functions_are_found() -> None:
    assert list(openings("a.py", MODULE)) == [
        Opening("a.py", 1, "A shelf."),
        Opening("a.py", 8, "Whatever holds books."),
        Opening("a.py", 11, "Count the books."),
    ]


@pytest.mark.parametrize(
    "text",
    ["What a client was told.", "Whether it is empty.", "As `put`, but twice.", "To be sent.", "Who may connect."],
)
def test_a_subordinate_clause_is_recognised(text: str) -> None:
    assert is_clause(text)


@pytest.mark.parametrize(
    "text",
    [
        "Of one partition.",
        "By queue key, the GUIDs.",
        "Until all have answered.",
        "Before every app id.",
        "After each step.",
        "Once a second.",
        "Without a majority.",
        "With a sound broker.",
        "From the start.",
        "In bytes.",
        "Not a dump.",
        "So many bytes.",
        "Then the rest.",
        "Also twice.",
    ],
)
def test_a_preposition_or_a_conjunction_is_taken_for_a_clause(text: str) -> None:
    assert is_clause(text)


@pytest.mark.parametrize(
    "text",
    [
        "It goes on.",
        "They come again.",
        "This node's part.",
        "These with others.",
        "Those that came later.",
        "There is no room.",
        "Its disk.",
        "Somebody connects.",
        "Something happened.",
        "Everybody takes his own.",
        "Nothing to record.",
        "Nobody listens.",
    ],
)
def test_a_pronoun_is_taken_for_a_clause(text: str) -> None:
    assert is_clause(text)


@pytest.mark.parametrize(
    "text",
    [
        "Return True if it is empty.",
        "Assemble a report.",
        "Iffy input.",
        "The whole.",
        "Item by item.",
        "Italic text.",
        "In-memory files.",
        "On-disk formats.",
        "Bytes of a record.",
        "Notes on a message.",
        "Format a record.",
        "Only the newest record.",
        "Over-long names.",
    ],
)
def test_an_imperative_or_a_noun_phrase_is_not_a_clause(text: str) -> None:
    assert not is_clause(text)


def test_a_clause_is_an_error_outside_the_unfinished_packages() -> None:
    found = [Opening("shop/a.py", 3, "What it costs."), Opening("shop/b.py", 1, "The price.")]
    (line,) = complaints(found, ())
    assert line.startswith("shop/a.py:3: begin with what the thing does or is")
    assert complaints(found, ("shop",)) == []
    assert complaints(found, ("shop/a.py",)) == []


def test_a_finished_package_must_leave_the_list() -> None:
    found = [Opening("shop/a.py", 3, "What it costs."), Opening("shopping.py", 1, "The list.")]
    (line,) = complaints(found, ("shop", "shopping.py"))
    assert line.startswith("shopping.py: has no docstring that begins with a clause")
    assert len(complaints(found, ("sho",))) == 2


def test_the_docstrings_of_attributes_are_found() -> None:
    module = 'class Shelf:\n    """A shelf."""\n\n    width: int = 3\n    """Whether it is wide."""\n    depth = 4\n'
    assert list(openings("a.py", module)) == [Opening("a.py", 2, "A shelf."), Opening("a.py", 5, "Whether it is wide.")]
