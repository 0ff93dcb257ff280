# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The codes of statuses that a cluster's nodes give each other and their clients (source: mqbi::ClusterErrorCode)."""

from __future__ import annotations

from typing import Final

__all__ = ["ClusterError"]


class ClusterError:
    """mqbi::ClusterErrorCode."""

    UNKNOWN: Final = -10
    STOPPING: Final = -11
    NOT_LEADER: Final = -200
    NOT_PRIMARY: Final = -201
    NODE_DOWN: Final = -203
    UNKNOWN_QUEUE: Final = -204
    LIMIT: Final = -205
    NOT_FOLLOWER: Final = -206
    NOT_REPLICA: Final = -207
    CSL_FAILURE: Final = -208
    STORAGE_FAILURE: Final = -209
    REPLICA_WAITING: Final = -210
    SOURCE_NOT_LEADER: Final = -211
    SOURCE_NOT_PRIMARY: Final = -212
    IRRECONCILABLE_DATA: Final = -213
    FOLLOWER_WAITING: Final = -214
