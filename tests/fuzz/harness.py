"""The requirements of every fuzz target for arbitrary bytes, and the places of its seeds and cases.

A target is a module of `tests.fuzz.targets` with three functions:

- `decode(data)`: reads untrusted bytes. It may raise only `FormatError`, with an offset inside `data` and a printable
  line; it takes at most `BASE + FACTOR * len(data)` bytes of memory at any time; it ends.
- `verify(data, value)`: checks a decoded value. It may raise nothing.
- `seeds()`: inputs to start from, as the reference wrote them where it writes them.

It may also have `words()`, parts of inputs for the fuzzer to insert, and its own `BASE`.

`BASE` is for single costs of the interpreter (caches, an exception with its traceback), `FACTOR` for the size of Python
objects beside their bytes: a message of 24 bytes becomes a tuple of five objects.
"""

from __future__ import annotations

import gc
import importlib
import pkgutil
import tracemalloc
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from formats.errors import FormatError

__all__ = ["BASE", "FACTOR", "Target", "cases", "load", "names", "run"]

BASE = 64 << 10
FACTOR = 64
FAULT_LENGTH_MAX = 300
CASES = Path(__file__).parent / "cases"


class Target(NamedTuple):
    """One target; `invariant` is its module's docstring."""

    name: str
    invariant: str
    decode: Callable[[bytes], Any]
    verify: Callable[[bytes, Any], None]
    seeds: Callable[[], Iterable[bytes]]
    words: Callable[[], Iterable[bytes]] = tuple
    base: int = BASE


def names() -> list[str]:
    package = importlib.import_module("tests.fuzz.targets")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


@cache
def load(name: str) -> Target:
    """Load the target `name`, and decode its seeds once, for its imports and caches."""
    module = importlib.import_module(f"tests.fuzz.targets.{name}")
    more = (getattr(module, "words", tuple), getattr(module, "BASE", BASE))
    target = Target(name, module.__doc__ or "", module.decode, module.verify, cache(module.seeds), *more)
    for seed in target.seeds():
        _attempt(target, seed)
    return target


def cases(name: str) -> list[Path]:
    """Inputs that once broke the target."""
    return sorted((CASES / name).glob("*"))


def run(target: Target, data: bytes) -> None:
    """Raise AssertionError, or whatever the decoder raised, unless the target keeps its promises for `data`."""
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        value, fault = _attempt(target, data)
        _, peak = tracemalloc.get_traced_memory()
        if peak - before > target.base + FACTOR * len(data):
            # Garbage of earlier runs may have been collected late: measure again without it.
            del value, fault
            gc.collect()
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            value, fault = _attempt(target, data)
            _, peak = tracemalloc.get_traced_memory()
        assert peak - before <= target.base + FACTOR * len(data), (
            f"{peak - before} bytes of memory for {len(data)} of input"
        )
    finally:
        if not tracing:
            tracemalloc.stop()
    if fault is None:
        target.verify(data, value)
        return
    assert 0 <= fault.offset <= len(data), f"{fault}: an input of {len(data)} bytes has no such offset"
    assert fault.path
    assert fault.reason
    # A fault is one line for a person.
    assert str(fault).encode().count(b"\n") == 0
    assert len(str(fault)) <= FAULT_LENGTH_MAX


def _attempt(target: Target, data: bytes) -> tuple[Any, FormatError | None]:
    try:
        return target.decode(data), None
    except FormatError as error:
        return None, error.with_traceback(None)
