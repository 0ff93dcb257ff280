from __future__ import annotations

from pathlib import Path

from scripts.checks.compiled import LINE, wrong

LIST = """
considered = ["formats/"]
compiled = ["formats/fast.py", "formats/quick.py"]
[[interpreted]]
reason = "It is slow."
modules = ["formats/slow.py", "formats/other.py"]
"""


def test_modules_whose_first_line_does_not_say_whether_they_are_compiled_are_found(tmp_path: Path) -> None:
    (tmp_path / "packaging").mkdir()
    (tmp_path / "packaging" / "compiled.toml").write_text(LIST)
    (tmp_path / "formats").mkdir()
    texts = {"fast": LINE + "one = 1\n", "quick": "two = 2\n", "slow": LINE + "three = 3\n", "other": "four = 4\n"}
    paths = {name: tmp_path / "formats" / f"{name}.py" for name in texts}
    for name, path in paths.items():
        path.write_text(texts[name])
    expected = {paths["quick"]: LINE + "two = 2\n", paths["slow"]: "three = 3\n"}
    assert wrong(tmp_path, paths.values()) == expected
