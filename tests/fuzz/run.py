"""Runs fuzz targets under atheris, one process each: `python -m tests.fuzz.run [TARGET...] [--seconds N]`.

Every target starts from its seeds and cases. An input that breaks its promises is kept in `tests/fuzz/cases/<target>/`,
where the ordinary tests find it; its name begins with libFuzzer's word for it (crash, oom, timeout).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.harness import CASES, cases, load, names, run

INPUT_MAX = 4096
"""Bytes of an input: twice the longest seed."""

INPUT_SECONDS_MAX = 10
MEGABYTES_MAX = 1024


def fuzz(name: str, arguments: Sequence[str]) -> None:
    """Instrument, load and fuzz a target, in its own process since libFuzzer never returns."""
    import atheris

    with atheris.instrument_imports(include=["formats"]):
        target = load(name)
    tracemalloc.start()

    def one_input(data: bytes) -> None:
        run(target, data)

    atheris.Setup([name, *arguments], one_input)
    atheris.Fuzz()


def dictionary_line(word: bytes) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n'


def spend(name: str, seconds: int, corpus: Path) -> tuple[str, list[Path]]:
    """Fuzz one target for `seconds`; return a line about it, and the inputs that broke it."""
    target = load(name)
    kept = CASES / name
    for number, data in enumerate([*target.seeds(), *(path.read_bytes() for path in cases(name))]):
        (corpus / f"seed-{number}").write_bytes(data)
    before = set(cases(name))
    with tempfile.TemporaryDirectory() as found, tempfile.NamedTemporaryFile("w", suffix=".dict") as words:
        words.writelines(map(dictionary_line, target.words()))
        words.flush()
        command = [
            *(sys.executable, "-m", "tests.fuzz.run", "--child", name, "--", str(corpus)),
            # libFuzzer refuses a dictionary without words.
            *([f"-dict={words.name}"] if words.tell() else []),
            *(f"-max_total_time={seconds}", f"-max_len={INPUT_MAX}", f"-timeout={INPUT_SECONDS_MAX}"),
            *(f"-rss_limit_mb={MEGABYTES_MAX}", f"-artifact_prefix={found}/", "-print_final_stats=1"),
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        for path in Path(found).iterdir():
            kept.mkdir(parents=True, exist_ok=True)
            (kept / path.name).write_bytes(path.read_bytes())
    new = sorted(set(cases(name)) - before)
    if done.returncode and not new:
        raise RuntimeError(f"{name}: the fuzzer ended with {done.returncode}\n{done.stdout[-2000:]}")
    if new:
        print(done.stdout[-4000:], file=sys.stderr)
    covered = re.findall(r"cov: (\d+)", done.stdout) or ["?"]
    runs = re.search(r"number_of_executed_units: *(\d+)", done.stdout)
    tried = f"{int(runs[1]):>12,} inputs" if runs else f"{'?':>12} inputs"
    return f"{name:18}{tried}, {covered[-1]:>5} branches{''.join(f', {path.name}' for path in new)}", new


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description="Look for input that a decoder mishandles.")
    parser.add_argument("target", nargs="*", help=f"one of {', '.join(names())}; all of them by default")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: %(default)s)")
    parser.add_argument("--corpus", type=Path, help="keep inputs that reach new code in CORPUS/TARGET, and start there")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, *arguments = options.target
        fuzz(name, arguments)
    unknown = set(options.target) - set(names())
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    found: list[Path] = []
    for name in options.target or names():
        with tempfile.TemporaryDirectory() as directory:
            corpus = options.corpus / name if options.corpus else Path(directory)
            corpus.mkdir(parents=True, exist_ok=True)
            line, new = spend(name, options.seconds, corpus)
        print(line, flush=True)
        found += new
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
