"""Opens a page in Chromium (Qt WebEngine, from PyPI) in a process of its own, and tells what is to be seen there.

    python browser.py PAGE SCREENSHOT SCRIPT...

Prints a JSON list: what each script gave, one after the other, and last what the page said on its console and all that
it asked for. Network requests fail, as they do when the page is opened from a mail.
"""

from __future__ import annotations

import json
import os
import sys

os.environ["QT_QPA_PLATFORM"] = "offscreen"
os.environ["QTWEBENGINE_CHROMIUM_FLAGS"] = "--no-sandbox --disable-gpu --host-resolver-rules='MAP * ~NOTFOUND'"
os.environ["QTWEBENGINE_DISABLE_SANDBOX"] = "1"

from PySide6.QtCore import QTimer, QUrl
from PySide6.QtWebEngineCore import QWebEnginePage, QWebEngineUrlRequestInfo, QWebEngineUrlRequestInterceptor
from PySide6.QtWebEngineWidgets import QWebEngineView
from PySide6.QtWidgets import QApplication

SETTLE_MS = 300
TIMEOUT_MS = 60_000


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


def main(path: str, screenshot: str, scripts: list[str]) -> int:
    application = QApplication(sys.argv[:1])
    view = QWebEngineView()
    page = Page(view)
    requests = Requests(page)
    page.setUrlRequestInterceptor(requests)
    view.setPage(page)
    view.resize(1100, 900)
    view.show()
    results: list[object] = []

    def step(place: int) -> None:
        if place == len(scripts):
            view.grab().save(screenshot)
            print(json.dumps([*results, Page.said, Requests.urls]))
            application.exit(0)
            return

        def take(result: object) -> None:
            results.append(json.loads(result) if isinstance(result, str) and result else result)
            QTimer.singleShot(SETTLE_MS, lambda: step(place + 1))

        page.runJavaScript(f"JSON.stringify({scripts[place].strip().rstrip(chr(59))})", 0, take)

    page.loadFinished.connect(lambda: step(0))
    QTimer.singleShot(TIMEOUT_MS, lambda: application.exit(1))
    page.load(QUrl.fromLocalFile(path))
    return application.exec()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
