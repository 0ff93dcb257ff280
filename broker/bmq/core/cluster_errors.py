"""The codes of statuses that a cluster's nodes give each other and their clients (source: mqbi::ClusterErrorCode)."""

from __future__ import annotations

__all__ = ["ClusterError"]


class ClusterError:
    """mqbi::ClusterErrorCode."""

    UNKNOWN = -10
    STOPPING = -11
    NOT_LEADER = -200
    NOT_PRIMARY = -201
    NODE_DOWN = -203
    UNKNOWN_QUEUE = -204
    LIMIT = -205
    NOT_FOLLOWER = -206
    NOT_REPLICA = -207
    CSL_FAILURE = -208
    STORAGE_FAILURE = -209
    REPLICA_WAITING = -210
    SOURCE_NOT_LEADER = -211
    SOURCE_NOT_PRIMARY = -212
    IRRECONCILABLE_DATA = -213
    FOLLOWER_WAITING = -214
