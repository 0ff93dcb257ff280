"""Work for Spark, item by item, with its progress."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Protocol, TypeVar

from pyspark import InheritableThread, SparkContext

__all__ = ["OnProgress", "freeze_modules", "quiet", "run_all"]

_LOOK_EACH_S = 0.3
Item = TypeVar("Item")
Result = TypeVar("Result")


class OnProgress(Protocol):
    """A callback for the running step and the number of its finished tasks; `total` is 0 if it has none to count."""

    def __call__(self, step: str, done: int, total: int, /) -> None: ...


def quiet(step: str, done: int, total: int, /) -> None:
    """Report nothing."""


@cache
def freeze_modules() -> None:
    """Exempt the loaded modules from garbage collection, in a process of Spark that runs tasks.

    Spark collects garbage after each task, which takes longer than a small task if it visits the modules.
    """
    gc.freeze()


def run_all(
    context: SparkContext, run: Callable[[Item], Result], items: Sequence[Item], step: str, on_progress: OnProgress
) -> list[Result]:
    """Return `run` of every item, each in a task of its own, in order; errors in tasks are raised as Spark's.

    The job runs in a thread, so that an interrupt is served at once; stopping the context ends the job.
    """
    if not items:
        return []
    group = f"bmqctl-{id(items)}-{threading.get_ident()}"
    done: list[list[Result]] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            context.setJobGroup(group, step)
            done.append(context.parallelize(items, len(items)).map(partial(_run_task, run)).collect())
        except BaseException as fault:  # to be raised in the waiting thread
            failed.append(fault)

    thread = InheritableThread(target=work, daemon=True)
    thread.start()
    on_progress(step, 0, len(items))
    tracker = context.statusTracker()
    while thread.is_alive():
        thread.join(_LOOK_EACH_S)
        stages = [
            info
            for job in tracker.getJobIdsForGroup(group)
            for stage in getattr(tracker.getJobInfo(job), "stageIds", ())
            if (info := tracker.getStageInfo(stage)) is not None
        ]
        if thread.is_alive() and stages:
            on_progress(step, sum(info.numCompletedTasks for info in stages), len(items))
    if failed:
        raise failed[0]
    on_progress(step, len(items), len(items))
    return done[0]


def _run_task(run: Callable[[Item], Result], item: Item) -> Result:
    freeze_modules()
    return run(item)
