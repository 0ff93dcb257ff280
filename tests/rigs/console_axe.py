"""The console's pages, judged by axe for accessibility: before their data and with it, in light and in dark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import axe_core_python

__all__ = ["ASKED", "axe_steps"]

AXE = Path(axe_core_python.__file__).with_name("axe.min.js")
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}}
# The page that axe examined last, and its violations.
JUDGE = (
    f"axe.run(document, {json.dumps(RULES)}).then(found => ({{ shown: document.querySelector('h1').textContent,"
    " objections: found.violations.map("
    "each => [each.id, each.nodes.map(node => node.target.join(' ') + ': ' + node.failureSummary)]) }))"
)
# Holds back every answer but the session's, until `letGo` is called.
HOLD = """
const ask = globalThis.fetch;
const isFree = new Promise(resolve => { globalThis.letGo = resolve; });
globalThis.heldBack = new Set();
globalThis.fetch = async (path, options) => {
  if (!String(path).startsWith("/api/session")) {
    heldBack.add(String(path).split("?")[0]);
    await isFree;
  }
  return ask(path, options);
};
"""
# Requests that the pages make themselves; the frame requests the overview once.
ASKED = {"/api/overview", "/api/ask/messages", "/api/ask/message", "/api/ask/domain"}


def pages_of(uri: str, guid: str) -> dict[str, str]:
    """Return the path of each page, and a condition for all its data."""
    queue, domain = quote(uri, safe=""), quote(uri.split("/")[2])
    charts = "document.querySelectorAll('path.line').length === 3"
    return {
        "cluster": f"document.querySelector('table.map tbody tr') && {charts}",
        "queues": f"document.querySelector('tbody').textContent.includes({json.dumps(uri.removeprefix('bmq://'))})",
        f"queue/{queue}": f"document.querySelector('.causes li') && document.querySelector('a.mono') && {charts}",
        f"message/{queue}/{guid}": "document.querySelector('#payload-text')",
        "domains": "document.querySelector('tbody tr')",
        f"domain/{domain}": "document.querySelector('pre.code').textContent && document.querySelector('tbody tr')",
        "login": "document.querySelector('#login-user')",
    }


def go(path: str) -> list[list[Any]]:
    """Return the steps to a page, whose view is a new one."""
    return [
        ["run", f"void (document.querySelector('.view').id = 'earlier', location.hash = '#/{path}')"],
        ["wait", "document.querySelector('.view') && !document.querySelector('#earlier')"],
    ]


def judged(pages: dict[str, str], queue: str) -> list[list[Any]]:
    """Return steps that judge each page with its data, and a dialogue over one."""
    steps: list[list[Any]] = []
    for path, is_there in pages.items():
        steps += [*go(path), ["wait", is_there], ["run", JUDGE]]
    return [
        *steps,
        *go(queue),
        ["wait", pages[queue]],
        ["run", "document.querySelector('.danger-line').click()"],
        ["wait", "document.querySelector('dialog').open"],
        ["run", JUDGE],
        ["key", "Escape"],
        ["wait", "!document.querySelector('dialog').open"],
    ]


def axe_steps(url: str, uri: str, guid: str) -> tuple[list[list[Any]], int]:
    """Return steps that judge each page of a console in light and dark, and the number of judgements.

    The results also have the requests held back, a list, and the two themes.
    """
    pages = pages_of(uri, guid)
    queue = f"queue/{quote(uri, safe='')}"
    waiting = [step for path in pages for step in [*go(path), ["run", JUDGE]]]
    theme = [
        ["run", "document.getElementById('theme').click()"],
        ["run", "document.documentElement.dataset.theme"],
    ]
    steps: list[list[Any]] = [
        ["before", HOLD],
        ["open", url],
        ["wait", "document.querySelector('.view')"],
        ["script", AXE.read_text()],
        *waiting,
        ["run", "[...heldBack]"],
        ["run", "void letGo()"],
        ["wait", "document.querySelector('#health').textContent.length > 0"],
        *(theme + judged(pages, queue)) * 2,
    ]
    return steps, len(pages) + 2 * (len(pages) + 1)
