"""The table of commands: how each is written as words, how as JSON, and what it does, in one row.

Words: `KEYWORD`, `<argument>`, `[A|B]` one of these, `(<argument>|ALL)`, `[WORD]` and `[<argument>]` may be left out.
Fields are named in the order in which the words give them: `domain`, `offset:int` (see `WORD_READERS`), and
`finalize=FINALIZE`, which is True if that keyword was given.

JSON: a path of keys, outermost first. `key=field` takes a field from the object that the path has reached, `key=field?`
one that may be absent; `=field` takes what the path has reached itself; `key?field` is True if the key is there;
`+field` and `-field` are true and false. Source: the reference's schema `mqbcmd.xsd`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.bmq.admin.commands import (
    BrokerConfigDump,
    ClearConfigCache,
    ClearResolverCache,
    ClusterHealth,
    ClusterQueueHelper,
    Clusters,
    ClusterStatus,
    Command,
    DomainInfos,
    DomainPurge,
    DomainReconfigure,
    DomainRemove,
    ElectorGet,
    ElectorList,
    ElectorSet,
    ForceGcQueues,
    Help,
    PartitionAvailability,
    PartitionRollover,
    PartitionSummary,
    QueueInternals,
    QueueList,
    QueueMessage,
    QueuePurge,
    ReplicationGet,
    ReplicationList,
    ReplicationSet,
    StatGet,
    StatList,
    StatSet,
    StatShow,
    StorageQueueStatus,
    StorageSummary,
)

__all__ = ["TABLE", "CommandRow"]


class CommandRow(NamedTuple):
    """One command; `json` has several paths if the JSON form has alternatives."""

    words: str
    make: Callable[..., Command]
    fields: str
    json: tuple[str, ...]
    help: str


_QUEUE = "domains domain name=domain command queue name=queue command "
_STORAGE = "clusters cluster name=cluster command storage "
_PARTITION = _STORAGE + "partition partitionId=partition_id command "
_REPLICATION = _STORAGE + "replication "
_ELECTOR = "clusters cluster name=cluster command state elector "
_SET = "setTunable name=name value=value all?everywhere"
_GET = "getTunable name=name all?everywhere"

TABLE: tuple[CommandRow, ...] = (
    CommandRow("HELP [PLUMBING]", Help, "plumbing=PLUMBING", ("help plumbing=plumbing?",), "List the commands."),
    CommandRow(
        "BROKERCONFIG DUMP", BrokerConfigDump, "", ("brokerConfig dump",), "Show the configuration of the broker."
    ),
    CommandRow(
        "DOMAINS DOMAIN <name> PURGE",
        DomainPurge,
        "domain",
        ("domains domain name=domain command purge",),
        "Remove all messages from all queues of a domain.",
    ),
    CommandRow(
        "DOMAINS DOMAIN <name> INFOS",
        DomainInfos,
        "domain",
        ("domains domain name=domain command info",),
        "Show the configuration, the usage and the queues of a domain.",
    ),
    CommandRow(
        "DOMAINS DOMAIN <name> QUEUE <queue_name> PURGE <appId>",
        QueuePurge,
        "domain queue app_id",
        (_QUEUE + "purgeAppId=app_id",),
        "Remove the messages that an app has yet to confirm; with '*' for the app id, all messages of the queue.",
    ),
    CommandRow(
        "DOMAINS DOMAIN <name> QUEUE <queue_name> INTERNALS",
        QueueInternals,
        "domain queue",
        (_QUEUE + "internals",),
        "Show the state of a queue: its storage, its clients, and how it routes.",
    ),
    CommandRow(
        "DOMAINS DOMAIN <name> QUEUE <queue_name> LIST [<appId>] <offset> <count>",
        QueueList,
        "domain queue app_id offset:int count:count",
        (_QUEUE + "messages appId=app_id? offset=offset count=count",),
        "List messages of a queue, or those that one app has yet to confirm. A negative offset counts from the "
        "end; a negative count lists the messages before the offset; UNLIMITED lists all after it.",
    ),
    CommandRow(
        "DOMAINS DOMAIN <name> QUEUE <queue_name> MESSAGE <guid>",
        QueueMessage,
        "domain queue guid",
        (_QUEUE + "message guid=guid",),
        "Show a message with its contents, as it was posted; who asks must be permitted to read the queue.",
    ),
    CommandRow(
        "DOMAINS RECONFIGURE <domain>",
        DomainReconfigure,
        "domain",
        ("domains reconfigure domain=domain",),
        "Reload the configuration of a domain from its file and apply it.",
    ),
    CommandRow(
        "DOMAINS RESOLVER CACHE_CLEAR (<domain>|ALL)",
        ClearResolverCache,
        "domain:or_all",
        ("domains resolver clearCache domain=domain", "domains resolver clearCache all"),
        "Clear the cached redirection of a domain.",
    ),
    CommandRow(
        "DOMAINS REMOVE <domain> [FINALIZE]",
        DomainRemove,
        "domain finalize=FINALIZE",
        ("domains remove domain=domain finalize=finalize?",),
        "Remove a domain in two steps. The first purges the domain, deletes its queues and refuses to open "
        "queues of it; it fails while a queue is open. The file of the domain may be removed then. The second, with "
        "FINALIZE, discards the domain, so that a new one may have its name.",
    ),
    CommandRow(
        "CONFIGPROVIDER CACHE_CLEAR (<domain>|ALL)",
        ClearConfigCache,
        "domain:or_all",
        ("configProvider clearCache domain=domain", "configProvider clearCache all"),
        "Clear the cached configuration of a domain.",
    ),
    CommandRow("STAT SHOW", StatShow, "", ("stat show",), "Show statistics."),
    CommandRow(
        "STAT SET <parameter> <value>",
        StatSet,
        "name value:value",
        ("stat setTunable name=name value=value",),
        "Set a parameter of the statistics.",
    ),
    CommandRow(
        "STAT GET <parameter>", StatGet, "name", ("stat getTunable=name",), "Show a parameter of the statistics."
    ),
    CommandRow("STAT LIST_TUNABLES", StatList, "", ("stat listTunables",), "List the parameters of the statistics."),
    CommandRow("CLUSTERS LIST", Clusters, "", ("clusters list",), "List the clusters."),
    CommandRow(
        "CLUSTERS CLUSTER <name> STATUS",
        ClusterStatus,
        "cluster",
        ("clusters cluster name=cluster command status",),
        "Show the nodes, partitions, queues and files of a cluster.",
    ),
    CommandRow(
        "CLUSTERS CLUSTER <name> HEALTH",
        ClusterHealth,
        "cluster",
        ("clusters cluster name=cluster command health",),
        "Show the cluster as this node sees it: leader, primaries, replicas and problems.",
    ),
    CommandRow(
        "CLUSTERS CLUSTER <name> QUEUEHELPER",
        ClusterQueueHelper,
        "cluster",
        ("clusters cluster name=cluster command queueHelper",),
        "Show how the queues of a cluster are assigned.",
    ),
    CommandRow(
        "CLUSTERS CLUSTER <name> FORCE_GC_QUEUES",
        ForceGcQueues,
        "cluster",
        ("clusters cluster name=cluster command forceGcQueues",),
        "Delete the queues that are empty and that no client has open.",
    ),
    CommandRow(
        "CLUSTERS CLUSTER <name> STORAGE SUMMARY",
        StorageSummary,
        "cluster",
        (_STORAGE + "summary",),
        "Show the file usage and the queues of all partitions.",
    ),
    CommandRow(
        "CLUSTERS CLUSTER <name> STORAGE PARTITION <partitionId> [ENABLE|DISABLE]",
        PartitionAvailability,
        "cluster partition_id:partition available=ENABLE",
        (_PARTITION + "enable +available", _PARTITION + "disable -available"),
        "Enable or disable a partition for new messages.",
    ),
    CommandRow(
        "CLUSTERS CLUSTER <name> STORAGE PARTITION <partitionId> SUMMARY",
        PartitionSummary,
        "cluster partition_id:partition",
        (_PARTITION + "summary",),
        "Show the file usage and the queues of a partition.",
    ),
    CommandRow(
        "CLUSTERS CLUSTER <name> STORAGE PARTITION (<partitionId>|ALL) ROLLOVER",
        PartitionRollover,
        "cluster partition_id:partition",
        (_PARTITION + "rollover",),
        "Roll over one partition, or all, to new files.",
    ),
    CommandRow(
        "CLUSTERS CLUSTER <name> STORAGE DOMAIN <domain_name> QUEUE_STATUS",
        StorageQueueStatus,
        "cluster domain",
        (_STORAGE + "domain name=domain command queueStatus",),
        "Show the queues of a domain that hold messages.",
    ),
    CommandRow(
        "CLUSTERS CLUSTER <name> STORAGE REPLICATION [SET|SET_ALL] <parameter> <value>",
        ReplicationSet,
        "cluster everywhere=SET_ALL name value:value",
        (_REPLICATION + _SET,),
        "Set a parameter of the replication, here or on all nodes.",
    ),
    CommandRow(
        "CLUSTERS CLUSTER <name> STORAGE REPLICATION [GET|GET_ALL] <parameter>",
        ReplicationGet,
        "cluster everywhere=GET_ALL name",
        (_REPLICATION + _GET,),
        "Show a parameter of the replication, here or on all nodes.",
    ),
    CommandRow(
        "CLUSTERS CLUSTER <name> STORAGE REPLICATION LIST_TUNABLES",
        ReplicationList,
        "cluster",
        (_REPLICATION + "listTunables",),
        "List the parameters of the replication.",
    ),
    CommandRow(
        "CLUSTERS CLUSTER <name> STATE ELECTOR [SET|SET_ALL] <parameter> <value>",
        ElectorSet,
        "cluster everywhere=SET_ALL name value:value",
        (_ELECTOR + _SET,),
        "Set a parameter of the elector, here or on all nodes.",
    ),
    CommandRow(
        "CLUSTERS CLUSTER <name> STATE ELECTOR [GET|GET_ALL] <parameter>",
        ElectorGet,
        "cluster everywhere=GET_ALL name",
        (_ELECTOR + _GET,),
        "Show a parameter of the elector, here or on all nodes.",
    ),
    CommandRow(
        "CLUSTERS CLUSTER <name> STATE ELECTOR LIST_TUNABLES",
        ElectorList,
        "cluster",
        (_ELECTOR + "listTunables",),
        "List the parameters of the elector.",
    ),
)
