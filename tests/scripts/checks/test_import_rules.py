from __future__ import annotations

from typing import Any

import grimp
import pytest

from scripts.checks.import_rules import AllowedImports, ChosenOnce, Pure


def check(
    imports: list[tuple[str, str]], rule: type[AllowedImports | ChosenOnce | Pure] = AllowedImports, **options: Any
) -> list[str]:
    """The lines that the contract reports about a program with these imports."""
    graph = grimp.ImportGraph()
    for module in ("ours", "ours.sub", "theirs", "theirs.deep"):
        graph.add_module(module)
    for importer, imported in imports:
        graph.add_import(importer=importer, imported=imported, line_number=7, line_contents=f"import {imported}")
    given: dict[str, Any] = {"allowed_modules": []} if rule is AllowedImports else {}
    contract = rule("rule", {}, {"source_modules": ["ours"], **given, **options})
    result = contract.check(graph, verbose=False)
    broken: list[str] = result.metadata["broken"]
    assert result.kept == (not broken)
    return broken


def test_the_standard_library_and_itself_are_allowed() -> None:
    assert check([("ours.sub", "ours"), ("ours", "ours.sub"), ("ours", "collections"), ("theirs", "numpy")]) == []


def test_forbidden_import_is_reported_with_its_line() -> None:
    assert check([("ours.sub", "numpy"), ("ours", "theirs.deep")]) == [
        "ours -> theirs.deep (l.7)",
        "ours.sub -> numpy (l.7)",
    ]


def test_an_allowed_name_allows_all_below_it_and_no_namesake() -> None:
    assert check([("ours", "theirs.deep")], allowed_modules=["theirs"]) == []
    assert check([("ours", "theirs")], allowed_modules=["theirs.deep", "their"]) == ["ours -> theirs (l.7)"]


def test_a_source_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no module gone"):
        check([], source_modules=["gone"])


def test_pure_modules_import_no_io_clock_or_randomness_whatever_package_they_are_in() -> None:
    imports = [("ours.sub", name) for name in ("os", "time", "threading", "trio", "uuid", "enum", "numpy", "oslo")]
    assert check([*imports, ("ours", "theirs"), ("theirs", "socket")], Pure) == [
        f"ours.sub -> {name} (l.7)" for name in ("os", "threading", "time", "trio", "uuid")
    ]


def test_a_pure_source_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no module gone"):
        check([], Pure, source_modules=["gone"])


def test_a_choice_that_is_made_elsewhere_is_imported_by_listed_modules_only() -> None:
    imports = [("ours", "theirs.red"), ("ours.sub", "theirs.blue.deep"), ("ours.sub", "theirs.plain")]
    pattern = "red|blue"
    assert check(imports, ChosenOnce, pattern=pattern) == [
        "ours -> theirs.red (l.7)",
        "ours.sub -> theirs.blue.deep (l.7)",
    ]
    assert check(imports, ChosenOnce, pattern=pattern, breaches=["ours", "ours.sub"]) == []
    assert check(imports[1:], ChosenOnce, pattern=pattern, breaches=["ours", "ours.sub"]) == [
        "ours is no breach any more: leave it out"
    ]
