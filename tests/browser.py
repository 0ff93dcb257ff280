"""Plays steps on pages in Chromium (Qt WebEngine, from PyPI), in a process of its own.

    python browser.py < STEPS

Standard input is a JSON list of steps, each a list of a name and words:

    ["before", TEXT]      run a script in each page that is loaded from now on, before the page's own
    ["open", URL]         load a page
    ["wait", EXPRESSION]  wait until an expression of JavaScript is true
    ["run", EXPRESSION]   evaluate one, also a promise; its value, which JSON can have, is a result
    ["script", TEXT]      run a script
    ["key", NAME]         press a key, such as Tab, Return, Escape or a character
    ["size", W, H]        resize the window
    ["shot", PATH]        write a screenshot

Prints a JSON object: `results` of the runs, what was `said` on the pages' consoles, the `urls` that were asked for, and
`failed`, the step that failed or was not over in time, or null. No host but this machine is found.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ["QT_QPA_PLATFORM"] = "offscreen"
os.environ["QTWEBENGINE_CHROMIUM_FLAGS"] = "--no-sandbox --disable-gpu"
os.environ["QTWEBENGINE_DISABLE_SANDBOX"] = "1"

from PySide6.QtCore import QEvent, QObject, QPoint, Qt, QTimer, QUrl
from PySide6.QtGui import QKeyEvent
from PySide6.QtWebEngineCore import (
    QWebEnginePage,
    QWebEngineProfile,
    QWebEngineScript,
    QWebEngineUrlRequestInfo,
    QWebEngineUrlRequestInterceptor,
)
from PySide6.QtWebEngineWidgets import QWebEngineView
from PySide6.QtWidgets import QApplication

RULES = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
STEP_S = 45.0
POLL_MS = 20
PAINT_MS = 700

KEYS = {
    "Tab": Qt.Key.Key_Tab,
    "Return": Qt.Key.Key_Return,
    "Escape": Qt.Key.Key_Escape,
    "Left": Qt.Key.Key_Left,
    "Right": Qt.Key.Key_Right,
    "Space": Qt.Key.Key_Space,
}


class Page(QWebEnginePage):
    """Keeps what is said on the console."""

    said: list[str] = []

    def javaScriptConsoleMessage(self, level: object, message: str, line: int, source: str) -> None:
        self.said.append(message)


class Requests(QWebEngineUrlRequestInterceptor):
    """Keeps what was asked for."""

    urls: list[str] = []

    def interceptRequest(self, info: QWebEngineUrlRequestInfo) -> None:
        self.urls.append(info.requestUrl().toString())


class Player(QObject):
    """Takes one step after the other."""

    def __init__(self, application: QApplication, steps: list[list[Any]]) -> None:
        super().__init__()
        self._application = application
        self._steps = steps
        self._place = 0
        self._until_s = 0.0
        self._results: list[object] = []
        self._requests = Requests(self)
        self._profile = QWebEngineProfile(self)
        self._profile.setUrlRequestInterceptor(self._requests)
        self.view = QWebEngineView()
        self._page = Page(self._profile, self.view)
        self.view.setPage(self._page)
        self.view.resize(1280, 860)
        self.view.show()
        self._page.loadFinished.connect(self._loaded)

    def start(self) -> None:
        """Take the next step."""
        if self._place == len(self._steps):
            self._end(None)
            return
        name, *words = self._steps[self._place]
        self._until_s = time.monotonic() + STEP_S
        actions: dict[str, Callable[..., None]] = {
            "before": self._before,
            "open": self._open,
            "wait": self._wait,
            "run": self._run,
            "script": self._script,
            "key": self._key,
            "size": self._size,
            "shot": self._shot,
        }
        actions[name](*words)

    def _next(self) -> None:
        self._place += 1
        QTimer.singleShot(0, self.start)

    def _end(self, failed: object) -> None:
        print(
            json.dumps({"results": self._results, "said": Page.said, "urls": Requests.urls, "failed": failed}),
            flush=True,
        )
        self._application.exit(0)

    def _fail(self, why: str) -> None:
        self._end([*self._steps[self._place], why])

    def _before(self, text: str) -> None:
        script = QWebEngineScript()
        script.setInjectionPoint(QWebEngineScript.InjectionPoint.DocumentCreation)
        script.setWorldId(QWebEngineScript.ScriptWorldId.MainWorld)
        script.setSourceCode(text)
        self._page.scripts().insert(script)
        self._next()

    def _open(self, url: str) -> None:
        self._page.load(QUrl(url))

    def _loaded(self, is_well: bool) -> None:
        if self._steps[self._place][0] == "open":
            if is_well:
                self._next()
            else:
                self._fail("the page does not load")

    def _wait(self, expression: str) -> None:
        def take(found: object) -> None:
            if found is True:
                self._next()
            elif time.monotonic() > self._until_s:
                self._fail("is not so in time")
            else:
                QTimer.singleShot(POLL_MS, lambda: self._wait(expression))

        # Parts that the page does not have yet are no fault.
        self._page.runJavaScript(
            f"(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()", 0, take
        )

    def _run(self, expression: str) -> None:
        started = (
            "globalThis.__ran = undefined; Promise.resolve().then(() => (" + expression + "))"
            ".then(value => { globalThis.__ran = JSON.stringify(value ?? null); },"
            " fault => { globalThis.__ran = JSON.stringify({fault: String(fault)}); }); 0"
        )

        def take(found: object) -> None:
            if isinstance(found, str) and found:
                self._results.append(json.loads(found))
                self._next()
            elif time.monotonic() > self._until_s:
                self._fail("has no result in time")
            else:
                QTimer.singleShot(POLL_MS, look)

        def look() -> None:
            self._page.runJavaScript("globalThis.__ran", 0, take)

        self._page.runJavaScript(started, 0, lambda _: look())

    def _script(self, text: str) -> None:
        self._page.runJavaScript(text, 0, lambda _: self._next())

    def _key(self, name: str) -> None:
        target = self.view.focusProxy() or self.view
        key = KEYS.get(name, Qt.Key(ord(name.upper())) if len(name) == 1 else None)
        if key is None:
            self._fail("is no key")
            return
        text = name if len(name) == 1 else {"Return": "\r", "Space": " ", "Tab": "\t"}.get(name, "")
        for kind in (QEvent.Type.KeyPress, QEvent.Type.KeyRelease):
            QApplication.postEvent(target, QKeyEvent(kind, key, Qt.KeyboardModifier.NoModifier, text))
        QTimer.singleShot(POLL_MS, self._next)

    def _size(self, width: int, height: int) -> None:
        self.view.resize(width, height)
        QTimer.singleShot(PAINT_MS, self._next)

    def _shot(self, path: str) -> None:
        def grab() -> None:
            if self.view.grab().save(path):
                self._next()
            else:
                self._fail("cannot be written")

        QTimer.singleShot(PAINT_MS, grab)


def main() -> int:
    steps = json.load(sys.stdin)
    application = QApplication([sys.argv[0], RULES])
    player = Player(application, steps)
    player.view.move(QPoint(0, 0))
    QTimer.singleShot(0, player.start)
    return application.exec()


if __name__ == "__main__":
    sys.exit(main())
