# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Confirms of messages that a root does not have.

Most are duplicates, from a relay that does not know whether its last upstream received them. But a primary that was
replaced without noticing it lacks its successor's messages, and sends it these confirms later. And a new primary may
get a message that only its predecessor acknowledged from one relay, after its confirm from another.

The apps of a queue share its limit equally. At the node's limit an app with at least the average loses its oldest. So
an app with very many, by mistake or on purpose, displaces none of an app that keeps to its share.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from operator import itemgetter
from typing import Final

from broker.common.clock import Now

__all__ = ["CONFIRMS_KEPT_MAX", "CONFIRMS_KEPT_MS", "NODE_CONFIRMS_MAX", "KeptConfirms", "UnknownConfirms"]

# Limits of the number and the age of a queue's confirms that are sent to another primary. The age exceeds the time
# after which a silent broker's connection is closed.
CONFIRMS_KEPT_MAX: Final = 1 << 16
CONFIRMS_KEPT_MS: Final = 40_000

# Limit for all queues of a node: about 30 MB.
NODE_CONFIRMS_MAX: Final = 1 << 17

# Old confirms dropped at once, apps examined for them, and the interval of that.
FORGOTTEN_AT_ONCE: Final = 1 << 12
APPS_AT_ONCE: Final = 1 << 10
FORGET_MS: Final = 200

_NEVER_MS: Final = -(1 << 62)


class AppConfirms:
    """The unknown confirms of one app, one of the `siblings` of its queue.

    `times` has the time of each GUID's last confirm, oldest first. A linked list keeps the order, since the first entry
    of a dictionary that has lost many from its beginning takes long to find.
    """

    __slots__ = ("app_id", "siblings", "times")

    def __init__(self, app_id: str, siblings: dict[str, AppConfirms]) -> None:
        self.app_id = app_id
        self.siblings = siblings
        self.times: OrderedDict[bytes, int] = OrderedDict()


class KeptConfirms:
    """The unknown confirms of all queues of a node, which has only one such object."""

    def __init__(self, now: Now) -> None:
        self.now = now
        self.count = 0
        self._apps: OrderedDict[AppConfirms, None] = OrderedDict()  # in the order of examination
        self._looked_ms = now.ms

    def add(self, siblings: dict[str, AppConfirms], guid: bytes, app_id: str) -> None:
        app = siblings.get(app_id)
        if app is None:
            app = siblings[app_id] = AppConfirms(app_id, siblings)
            self._apps[app] = None
        times = app.times
        if times.pop(guid, None) is None:
            self.count += 1
        times[guid] = self.now.ms
        # The share shrinks with each new app: dropping two at a time makes up for that.
        share = share_of(siblings)
        for _ in range(min(2, len(times) - share)):
            self._drop_oldest(app)
        if self.count > NODE_CONFIRMS_MAX:
            self._drop_oldest(self._one_above_average())

    def _one_above_average(self) -> AppConfirms:
        """Return an app that has at least the average, and the same app while that holds."""
        apps = self._apps
        average = self.count // len(apps)
        while len((app := next(iter(apps))).times) < average:
            apps.move_to_end(app)
        return app

    def _drop_oldest(self, app: AppConfirms) -> None:
        app.times.popitem(last=False)
        self.count -= 1
        if not app.times:
            self._remove(app)

    def _remove(self, app: AppConfirms) -> None:
        del app.siblings[app.app_id]
        del self._apps[app]

    def take(self, siblings: dict[str, AppConfirms]) -> None:
        for app in list(siblings.values()):
            self.count -= len(app.times)
            self._remove(app)

    def tick(self) -> None:
        """Drop old confirms, a limited number at a time; to be called a few times a second."""
        if not self._apps or self.now.ms - self._looked_ms < FORGET_MS:
            return
        self._looked_ms = self.now.ms
        since_ms = self.now.ms - CONFIRMS_KEPT_MS
        left = FORGOTTEN_AT_ONCE
        for app in list(islice(self._apps, APPS_AT_ONCE)):
            while left > 0 and app.times and next(iter(app.times.values())) <= since_ms:
                self._drop_oldest(app)
                left -= 1
            if left <= 0:
                break
            if app.times:
                self._apps.move_to_end(app)


class UnknownConfirms:
    """The unknown confirms of one queue."""

    __slots__ = ("_apps", "_kept")

    def __init__(self, kept: KeptConfirms) -> None:
        self._kept = kept
        self._apps: dict[str, AppConfirms] = {}

    def add(self, guid: bytes, app_id: str) -> None:
        """Note an app's confirm of a message that is not here, or that the app has confirmed before."""
        self._kept.add(self._apps, guid, app_id)

    def apps_of(self, guid: bytes) -> Sequence[str]:
        if not self._apps:
            return ()
        since_ms = self._kept.now.ms - CONFIRMS_KEPT_MS
        return [app.app_id for app in self._apps.values() if app.times.get(guid, _NEVER_MS) > since_ms]

    def take(self) -> list[tuple[int, bytes, str]]:
        """Take the confirms that are not too old, oldest first: time, the message's GUID, and the app."""
        apps = self._apps
        if not apps:
            return []
        since_ms, share = self._kept.now.ms - CONFIRMS_KEPT_MS, share_of(apps)
        taken = [
            (ms, guid, app.app_id)
            for app in apps.values()
            for guid, ms in islice(app.times.items(), max(0, len(app.times) - share), None)
            if ms > since_ms
        ]
        self._kept.take(apps)
        taken.sort(key=itemgetter(0))
        return taken


def share_of(siblings: dict[str, AppConfirms]) -> int:
    """Return the number of confirms that each app of a queue may keep."""
    return max(1, CONFIRMS_KEPT_MAX // len(siblings))
