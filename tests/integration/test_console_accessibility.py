"""The console's pages as axe, the judge of accessibility, has them: each page, in light and in dark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import axe_core_python

from bmqctl.testing import NodeProcess
from tests.integration.console_pages import console, play
from tests.integration.official import Client, queue_name

AXE = Path(axe_core_python.__file__).with_name("axe.min.js")
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}}
JUDGE = (
    f"axe.run(document, {json.dumps(RULES)}).then(found => found.violations.map("
    "each => [each.id, each.nodes.map(node => node.target.join(' ') + ': ' + node.failureSummary)]))"
)


def steps_of(url: str, uri: str, guid: str) -> list[list[Any]]:
    """Steps that have each page judged, and the dialogue."""
    pages = {
        "cluster": "document.querySelectorAll('table.map tbody tr').length",
        "queues": f"document.body.textContent.includes({json.dumps(uri.removeprefix('bmq://'))})",
        f"queue/{quote(uri, safe='')}": "document.querySelector('.causes li') && document.querySelector('a.mono')",
        f"message/{quote(uri, safe='')}/{guid}": "document.querySelector('#payload-text')",
        "domains": "document.querySelectorAll('tbody tr').length",
        f"domain/{quote(uri.split('/')[2])}": "document.querySelector('pre.code').textContent.length",
        "login": "document.querySelector('#login-user')",
    }
    steps: list[list[Any]] = []
    for path, is_there in pages.items():
        steps += [["run", f"void (location.hash = '#/{path}')"], ["wait", is_there], ["run", JUDGE]]
    steps += [
        ["run", f"void (location.hash = '#/queue/{quote(uri, safe='')}')"],
        ["wait", "document.querySelector('.danger-line')"],
        ["run", "document.querySelector('.danger-line').click()"],
        ["wait", "document.querySelector('dialog').open"],
        ["run", JUDGE],
        ["key", "Escape"],
        ["wait", "!document.querySelector('dialog').open"],
    ]
    return steps


def test_each_page_in_both_themes(node: NodeProcess) -> None:
    uri = queue_name("bmq.test.persistent.fanout")
    with Client(node.uri) as client, console("--broker", node.uri) as pages:
        client.open(uri, write=True)
        client.post_all(uri, [b'{"n": 1}'] * 3)
        guid = pages.get(f"/api/ask/messages?name={uri}&count=1").value["messages"][0]["id"]
        judged = steps_of(pages.url, uri, guid)
        found = play(
            [
                ["open", pages.url],
                ["wait", "document.querySelector('#health').textContent.length > 0"],
                ["script", AXE.read_text()],
                ["run", "document.getElementById('theme').click()"],
                ["run", "document.documentElement.dataset.theme"],
                *judged,
                ["run", "document.getElementById('theme').click()"],
                ["run", "document.documentElement.dataset.theme"],
                *judged,
            ]
        )
    themes = [each for each in found["results"] if each in ("light", "dark")]
    assert themes == ["light", "dark"]
    verdicts = [each for each in found["results"] if isinstance(each, list)]
    assert len(verdicts) == 2 * 8
    assert [each for each in verdicts if each] == []
