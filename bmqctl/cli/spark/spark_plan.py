"""The account of what `bmqctl spark-export` would do, and the question before tables are replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bmqctl.cli.administer.asking import ask
from bmqctl.common.render import OutputFormat, print_report, until_reader_leaves

if TYPE_CHECKING:
    from bmqctl.pipeline.export.export import ExportPlan

__all__ = ["ask_to_replace", "show_plan"]

_KEYS = ("table", "path", "written", "replaced_files", "replaced_bytes")


def ask_to_replace(command: str, plan: ExportPlan) -> None:
    """Ask before tables of an earlier export are deleted, if any."""
    if replaced := _replaced_text(plan):
        ask(command, f"Replace {replaced}?", "nothing is written")


def show_plan(plan: ExportPlan, wanted: OutputFormat) -> None:
    """Print what would be read, written and replaced."""
    from bmqctl.common.tables import ResultConsole

    rows = _rows(plan)
    with until_reader_leaves():
        if wanted is not OutputFormat.TABLE:
            report = {
                "dry_run": True,
                "storage": list(plan.request.stores),
                "format": plan.request.format.value,
                "since_last": plan.request.since_last,
                "records_in_store": plan.record_count,
                "tables": rows,
            }
            print_report(report, rows, _KEYS, wanted)
            return
        console = ResultConsole()
        names = ", ".join(plan.request.tables)
        what = "bytes of logs" if plan.subject.brokers else "records"
        console.print(
            f"{names} of {plan.record_count:,} {what} would be "
            f"{'added to' if plan.earlier is not None else 'written to'} {plan.output.uri}",
            soft_wrap=True,
        )
        if replaced := _replaced_text(plan):
            console.print(f"{replaced}, would be replaced", soft_wrap=True)


def _rows(plan: ExportPlan) -> list[dict[str, Any]]:
    replaced = plan.replaced()
    return [
        {
            "table": name,
            "path": plan.output.url(name),
            "written": name in plan.request.tables,
            "replaced_files": len(replaced.get(name, ())),
            "replaced_bytes": sum(replaced.get(name, {}).values()),
        }
        for name in dict.fromkeys((*plan.request.tables, *replaced))
    ]


def _replaced_text(plan: ExportPlan) -> str:
    """The tables that would be deleted, and their size; empty if there are none."""
    replaced = plan.replaced()
    sizes = [size for files in replaced.values() for size in files.values()]
    files = "1 file" if len(sizes) == 1 else f"{len(sizes):,} files"
    return f"{' and '.join(replaced)} in {plan.output.uri}, {files}, {sum(sizes):,} bytes" if replaced else ""
