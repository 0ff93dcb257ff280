from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from bmqctl.common import installed
from scripts.releases.compiled_tree import MARKER
from tests import forked_starts, port_watch

# The same examples in every run, half as many as `scripts/explore` has, whose examples are others each time; and no
# deadline, as the first example may unpack a capture on a busy machine.
settings.register_profile(
    "steady", max_examples=50, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")
# Others, by --hypothesis-seed: for scripts/explore. Nothing is remembered, so that a seed gives the same ones anywhere.
settings.register_profile(
    "explore",
    max_examples=100,
    derandomize=False,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

# In the tree that scripts/compile makes.
IS_COMPILED = (Path(__file__).parents[1] / MARKER).exists()

SPARK_TESTS = "tests/bmqctl/pipeline/"
# The files whose tests take longest, for the order in which workers take them.
SECONDS = Path(__file__).with_name("seconds.toml")
SECONDS_OF_A_TEST = 0.05
KINDS = frozenset({"unit", "process", "spark"})
# Folders and modules, most particular first; a test's own marker goes before these.
KIND_OF = {
    "bmqctl/bench/test_node.py": "process",
    "bmqctl/bench/test_run.py": "process",
    "bmqctl/pipeline": "spark",
    "bmqctl/cli/tool/test_process.py": "process",
    "bmqctl/test_testing.py": "process",
    "docs/test_guides.py": "process",
    "fuzz": "process",
    "integration": "process",
    "scripts/bench/test_benchmark_node.py": "process",
    "scripts/suites/test_conformance_grpc.py": "process",
    "scripts/suites/test_conformance_java.py": "process",
    "scripts/suites/test_conformance_mqadmin.py": "process",
    "scripts/suites/test_conformance_rocketmq.py": "process",
    "scripts/test_storage_tool.py": "process",
    "scripts/test_tcp_relay.py": "process",
    "simulator/test_mutate.py": "process",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--calls",
        default="1/3",
        metavar="K/N",
        help="where tests fail every call of a step or sweep over seeds: the K-th and each N-th after it "
        "(1/1 for all; default: 1/3)",
    )
    parser.addoption("--fresh-starts", action="store_true", help="start a new interpreter for each bmqctl")
    parser.addoption(
        "--slow-command",
        action="append",
        default=[],
        metavar="NAME",
        help="run this slow command (start cluster, spark-report, ...) under all conditions of the matrix, too",
    )


def _calls(config: pytest.Config) -> slice:
    first, _, step = str(config.getoption("--calls")).partition("/")
    return slice(int(first) - 1, None, int(step))


@pytest.fixture(scope="session")
def calls(pytestconfig: pytest.Config) -> slice:
    """The calls of a step at which faults are injected."""
    return _calls(pytestconfig)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Nearly all that is made while tests are collected stays: to look through it again and again takes ten seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(port_watch)
    config.pluginmanager.register(forked_starts)
    # A shell without job control starts background processes with interrupts ignored, nohup with SIGHUP ignored. The
    # processes that tests start would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    # A command that a test calls in its process sets this: whether nodes print the advice must not depend on the order.
    os.environ[installed._ADVISED] = "1"
    if IS_COMPILED:
        # A test that is skipped midway leaves open what it has opened.
        config.addinivalue_line("filterwarnings", "ignore::pytest.PytestUnraisableExceptionWarning")


@cache
def _kind_of(file: Path) -> str:
    path = file.relative_to(Path(__file__).parent).as_posix()
    return next((kind for place, kind in KIND_OF.items() if path == place or path.startswith(f"{place}/")), "unit")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test that has no marker of its kind the one of its folder; leave out most seeds of a sweep."""
    calls = _calls(config)
    taken, left_out = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        marker = item.get_closest_marker("sweep")
        (taken if marker is None or marker.args[0] % calls.step == calls.start else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = taken
    for item in items:
        if not any(item.get_closest_marker(kind) for kind in KINDS):
            item.add_marker(_kind_of(item.path))
        if IS_COMPILED and item.get_closest_marker("interpreted"):
            item.add_marker(pytest.mark.skip(reason="modules are compiled here"))
    if "PYTEST_XDIST_WORKER" in os.environ:
        items[:] = _spread(items)


def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """Order the files so that process tests, which mostly wait, run beside computing tests until the end.

    Of either kind the longest come first, so that none of them is the last to end. Every worker must find the same
    order.
    """
    root = Path(__file__).parents[1]
    known: dict[str, float] = tomllib.loads(SECONDS.read_text())["seconds"]
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    kinds: dict[bool, list[tuple[float, list[pytest.Item]]]] = {True: [], False: []}
    for path, tests in files.items():
        has_processes = any(item.get_closest_marker(kind) for item in tests for kind in ("process", "spark"))
        seconds = known.get(path.relative_to(root).as_posix(), len(tests) * SECONDS_OF_A_TEST)
        kinds[has_processes].append((seconds, tests))
    spread = []
    for group in kinds.values():
        group.sort(key=lambda each: -each[0])
        total, before = sum(seconds for seconds, _ in group), 0.0
        for seconds, tests in group:
            spread.append((before / total, tests))
            before += seconds
    return [item for _, tests in sorted(spread, key=lambda place: place[0]) for item in tests]


class _OneSpark(LoadFileScheduling):  # type: ignore[misc]
    """Files go to workers one by one, and those with Spark together to one: each session of Spark is a JVM to warm."""

    def _split_scope(self, nodeid: str) -> str:
        return SPARK_TESTS if nodeid.startswith(SPARK_TESTS) else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return _OneSpark(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session", autouse=True)
def no_contexts_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let commands find none of the contexts of the person who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        for name in ("BMQCTL_CONTEXT", "BMQCTL_OUTPUT"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def inner_suites_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give suites that tests run a folder and options of their own.

    In the common folder pytest deletes the files of earlier runs before it says how a run ended, which can take more
    than a minute on a busy machine.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DEBUG_TEMPROOT", str(tmp_path_factory.mktemp("inner")))
        patch.delenv("PYTEST_ADDOPTS", raising=False)
        yield


_set_attribute = pytest.MonkeyPatch.setattr


def _set_unless_compiled(self: pytest.MonkeyPatch, target: object, *given: Any, **options: Any) -> None:
    """Skip a test that replaces something of a compiled module, where it would have no effect on compiled code."""
    path = target if isinstance(target, str) else getattr(target, "__module__", getattr(target, "__name__", ""))
    while path and path not in sys.modules:
        path = path.rpartition(".")[0]
    if path and str(getattr(sys.modules[path], "__file__", "")).endswith(".so"):
        pytest.skip(f"{path} is compiled: what this test replaces cannot be replaced")
    _set_attribute(self, target, *given, **options)


if IS_COMPILED:
    pytest.MonkeyPatch.setattr = _set_unless_compiled  # type: ignore[method-assign]


class _Watch:
    """Refuses processes to tests that are marked as starting none; an audit hook cannot be taken away again."""

    is_unit = False

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.is_unit and event in ("subprocess.Popen", "os.posix_spawn"):
            raise AssertionError(f"a unit test starts a process ({arguments[0]!r}): mark it with pytest.mark.process")


_watch = _Watch()
sys.addaudithook(_watch)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    _watch.is_unit = item.get_closest_marker("unit") is not None
    try:
        yield
    finally:
        _watch.is_unit = False


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """A node that was set up in this process has taken over the broker's logs: give them back."""
    root, raises = logging.getLogger("broker"), logging.raiseExceptions
    before = (root.level, root.propagate, [*root.handlers])
    yield
    for handler in set(root.handlers) - set(before[2]):
        root.removeHandler(handler)
        handler.close()
    root.setLevel(before[0])
    root.propagate, logging.raiseExceptions = before[1], raises
