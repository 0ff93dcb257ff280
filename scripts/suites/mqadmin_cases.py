"""The commands of RocketMQ's `mqadmin` with their expected output, each after the commands it depends on.

Words in braces are substituted: the nameserver, the broker's address, the cluster, the broker's name, a folder, and
values that earlier cases set with `set NAME=VALUE`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["ACL_CASES", "CASES", "CONTROLLER_CASES", "CONTROLLER_LAST_CASES", "FAULTS", "NEEDED", "Case"]

# A command that fails prints its exception.
FAULTS: Final = r"Exception|not done in|sub command .* not exist|usage: mqadmin"


class Case(NamedTuple):
    """A command. Its output has to match every expression of `wanted`, and none of `unwanted`.

    `seconds` bounds a command that does not end. `is_absent`: Apache's broker has the feature and ours does not.
    """

    name: str
    words: str
    wanted: tuple[str, ...]
    unwanted: str = FAULTS
    seconds: int = 40
    is_absent: bool = False


def _case(words: str, *wanted: str, unwanted: str = FAULTS, seconds: int = 40, name: str = "") -> Case:
    return Case(name or words.split(" ", 1)[0].removeprefix("@"), words, wanted, unwanted, seconds)


def _absent(words: str) -> Case:
    """A command for a feature that our broker lacks and answers with REQUEST_CODE_NOT_SUPPORTED."""
    return Case(words.split(" ", 1)[0], words, ("(?i)CODE: 3 |not supported",), "(?!)", is_absent=True)


_TOPIC: Final = "MqadminTopic"
_GROUP: Final = "mqadminGroup"

CASES: Final[tuple[Case, ...]] = (
    _case(f"updateTopic -b {{broker}} -t {_TOPIC} -r 4 -w 4", "create topic to .* success", f"topicName={_TOPIC}"),
    _case(f"updateTopic -c {{cluster}} -t {_TOPIC}Two -a +message.type=FIFO", "success", "FIFO", name="updateTopic -c"),
    _case(
        "updateTopicList -b {broker} -f {folder}/topics.json",
        "submit batch of topic config to .* success",
        unwanted="Exception",
    ),
    _case(f"updateTopicPerm -b {{broker}} -t {_TOPIC}Two -p 4", "update topic perm from 6 to 4 in .* success"),
    _case(f"updateSubGroup -b {{broker}} -g {_GROUP} -r 5", "create subscription group to .* success", _GROUP),
    _case(
        "updateSubGroupList -b {broker} -f {folder}/groups.json",
        "submit batch of group config to .* success",
        unwanted="Exception",
    ),
    _case(f"getConsumerConfig -g {_GROUP}", _GROUP, "retryMaxTimes *= *5"),
    _case(f"setConsumeMode -b {{broker}} -t {_TOPIC}Two -g {_GROUP}Two -m POP -q 8", "set consume mode to .* success"),
    _case(f"@clients {{nameserver}} {_TOPIC} {_GROUP}", "consumed 10"),
    # -- topics
    _case("topicList", f"(?m)^{_TOPIC}$", "(?m)^ListedTopic$"),
    _case("topicList -c", f"{{cluster}} +{_TOPIC} +{_GROUP}", name="topicList -c"),
    _case(f"topicRoute -t {_TOPIC}", '"brokerName":"{name}"', '"writeQueueNums":4'),
    _case(f"topicRoute -t {_TOPIC} -l", r"{name} +\S+ +4 +4 +6", name="topicRoute -l"),
    _case(f"topicStatus -t {_TOPIC}", "{name} +0 +0 +[1-9]", r"Topic Put TPS: [0-9.]+"),
    _case(f"topicClusterList -t {_TOPIC}", "{cluster}"),
    _case(f"allocateMQ -t {_TOPIC} -i 1.1.1.1,2.2.2.2", '"queueId":0', "1.1.1.1"),
    _case(f"updateOrderConf -m put -t {_TOPIC} -v {{name}}:4", "success"),
    _case(f"updateOrderConf -m get -t {_TOPIC}", "{name}:4", name="updateOrderConf get"),
    _case(f"updateOrderConf -m delete -t {_TOPIC}", "success", name="updateOrderConf delete"),
    # -- messages
    _case(f"queryMsgById -t {_TOPIC} -i {{message}}", f"Topic: +{_TOPIC}", "key-0", "(?i)CONSUMED"),
    _case(
        f"queryMsgById -t {_TOPIC} -i {{message}} -g {_GROUP} -d {{client}}",
        "consumeResult=CR_SUCCESS",
        name="queryMsgById -d",
    ),
    _case(f"queryMsgByKey -t {_TOPIC} -k key-0", "{unique} +{queue} +{offset}"),
    _case(f"queryMsgByUniqueKey -t {_TOPIC} -i {{unique}}", f"Topic: +{_TOPIC}", "Queue Offset: +{offset}"),
    _case(f"queryMsgByOffset -t {_TOPIC} -b {{name}} -i {{queue}} -o {{offset}}", "{unique}"),
    _case("queryMsgTraceById -i {unique}", "Pub +mqadminProducers .* success", f"Sub +{_GROUP} .* success"),
    _case(f"printMsg -t {_TOPIC}", "body 9"),
    _case(f"printMsgByQueue -t {_TOPIC} -a {{name}} -i {{queue}} -p true -d true", "body 0"),
    _case(f"consumeMessage -t {_TOPIC} -c 4", "Consume ok"),
    _case(
        f"consumeMessage -t {_TOPIC} -b {{name}} -i {{queue}} -o {{offset}} -c 1 -g {_GROUP}Tool",
        "Consume ok",
        "body 0|key-0",
        name="consumeMessage -i",
    ),
    _case(f"sendMessage -t {_TOPIC} -p hello -k key-sent", "{name} +[0-3] +SEND_OK"),
    _case(f"sendMessage -t {_TOPIC} -p hello -b {{name}} -i 2", "{name} +2 +SEND_OK", name="sendMessage -i"),
    _case(f"checkMsgSendRT -t {_TOPIC} -a 5 -s 64", "{name} +[0-3] +true", r"Avg RT: [0-9]+\.[0-9]+"),
    _case("sendMsgStatus -b {name} -s 64 -c 3", "rt=[0-9]+ms, SendResult=SendResult .sendStatus=SEND_OK"),
    _case(f"queryCq -t {_TOPIC} -q {{queue}} -i 0 -c 2 -b {{broker}}", "max: [1-9]", "physicOffset=0, "),
    _case(
        f"queryCq -t {_TOPIC} -q {{queue}} -i 0 -c 2 -b {{broker}} -g {_GROUP}", '"subString":"\\*"', name="queryCq -g"
    ),
    # -- clients
    _case(f"producerConnection -g mqadminProducers -t {_TOPIC}", "producer0|@[0-9]+", "JAVA", "V5_4_0"),
    _case("producer -b {broker}", "producer group .*mqadminProducers"),
    _case(f"consumerConnection -g {_GROUP}", "{client}", rf"{_TOPIC} +\*", "ConsumeType: CONSUME_PASSIVELY"),
    _case(f"consumerStatus -g {_GROUP}", "{client}"),
    _case(
        f"consumerStatus -g {_GROUP} -i {{client}}",
        _TOPIC,
        "Consumer Properties",
        name="consumerStatus -i",
        unwanted="CODE: ",
    ),
    _case("consumerProgress", f"{_GROUP} +1 +V5_4_0"),
    _case(f"consumerProgress -g {_GROUP}", f"{_TOPIC} +{{name}} +0 +[1-9]", "Consume TPS", name="consumerProgress -g"),
    _case(
        f"consumerProgress -g {_GROUP} -s true",
        "#Client IP",
        rf"{_TOPIC} +{{name}} +0 +\d+ +\d+ +\d+\.\d+\.\d+\.\d+",
        name="consumerProgress -s",
    ),
    # A commit makes no group, in either.
    _case(f"updateSubGroup -b {{broker}} -g {_GROUP}Cloned", "success", name="updateSubGroup, to be cloned to"),
    _case(f"cloneGroupOffset -s {_GROUP} -d {_GROUP}Cloned -t {_TOPIC} -o true", "clone group offset success"),
    # Before the resets, which a consumer carries out 10 s later; its offsets of 0 are left out here.
    _case("brokerConsumeStats -b {broker}", f"{_TOPIC} +{_GROUP} +{{name}} +0", "Diff Total"),
    _case(f"resetOffsetByTime -g {_GROUP} -t {_TOPIC} -s 0", "{name} +0 +0"),
    _case(
        f"resetOffsetByTime -g {_GROUP} -t {_TOPIC} -s 0 -b {{broker}} -q 0 -o 1",
        "reset consumer offset to 1",
        name="resetOffsetByTime -q",
    ),
    _case(f"skipAccumulatedMessage -g {_GROUP} -t {_TOPIC}", "{name} +0 +[1-9]"),
    # -- the cluster
    _case("clusterList", r"{cluster} +{name} +0 +{broker} +V5_4_0 +[0-9.]+\(0,0ms\)"),
    _case("clusterList -m", "{cluster} +{name} +[0-9]+ +[0-9]+ +[0-9]+", name="clusterList -m"),
    _case("brokerStatus -b {broker}", "brokerVersionDesc +: V5_4_0", "commitLogDiskRatio", "msgPutTotalTodayNow"),
    _case("brokerStatus -c {cluster}", "{broker} +brokerVersionDesc", name="brokerStatus -c"),
    _case("statsAll", f"{_TOPIC} +{_GROUP} "),
    _case(f"statsAll -t {_TOPIC}", f"{_TOPIC} +{_GROUP} +[0-9]+ +[0-9.]+ +[0-9.]+ +[1-9]", name="statsAll -t"),
    _case("haStatus -b {broker}", "#MasterAddr", "#SlaveNum\t0"),
    _case("getBrokerConfig -b {broker}", "brokerName +=  {name}", "autoCreateTopicEnable +=  true"),
    _case("getBrokerConfig -c {cluster}", "brokerName +=  {name}", name="getBrokerConfig -c"),
    _case("updateBrokerConfig -b {broker} -k fileReservedTime -v 48", "update broker config success"),
    _case("getBrokerConfig -b {broker}", "fileReservedTime +=  48", name="getBrokerConfig updated"),
    _case("getNamesrvConfig", "kvConfigPath"),
    _case("updateNamesrvConfig -k returnOrderTopicConfigToBroker -v false", "update name server config success"),
    _case("getNamesrvConfig", "returnOrderTopicConfigToBroker += +false", name="getNamesrvConfig updated"),
    _case("updateKvConfig -s space -k one -v 1", "create or update kv config to namespace success"),
    _case("deleteKvConfig -s space -k one", "delete kv config from namespace success"),
    _case("wipeWritePerm -b {name}", "wipe write perm of broker.{name}. in name server.* OK, [1-9]"),
    _case(f"topicRoute -t {_TOPIC}", '"perm":4', name="topicRoute wiped"),
    _case("addWritePerm -b {name}", "add write perm of broker.{name}. in name server.* OK, [1-9]"),
    _case(f"topicRoute -t {_TOPIC}", '"perm":6', name="topicRoute added"),
    _case("cleanExpiredCQ -b {broker}", "success"),
    _case("cleanUnusedTopic -b {broker}", "success"),
    _case("deleteExpiredCommitLog -b {broker}", "success"),
    _case("exportConfigs -c {cluster} -f {folder}", "export .*configs.json success"),
    _case("exportMetadata -b {broker} -f {folder} -t", "export .*topic.json success", name="exportMetadata -t"),
    _case("exportMetadata -b {broker} -f {folder} -g", "export .*Group.json success", name="exportMetadata -g"),
    _case("exportMetrics -c {cluster} -f {folder}", "export .*metrics.json success"),
    _case("resetMasterFlushOffset -b {broker} -o 0", "reset master flush offset to 0 success"),
    # -- features that our broker lacks
    _absent("setCommitLogReadAheadMode -b {broker} -m 1"),
    _absent("getColdDataFlowCtrInfo -b {broker}"),
    _absent("updateColdDataFlowCtrGroupConfig -b {broker} -g group -v 1"),
    _absent("removeColdDataFlowCtrGroupConfig -b {broker} -g group"),
    _absent("addBroker -c {broker} -b {folder}/other.conf"),
    _absent("removeBroker -c {broker} -b {cluster}:{name}:0"),
    _absent("getBrokerEpoch -b {name}"),
    _absent(f"updateStaticTopic -t {_TOPIC}Static -qn 2 -b {{name}}"),
    _absent("getControllerConfig -a {nameserver}"),
    _absent("getControllerMetaData -a {nameserver}"),
    _absent("updateControllerConfig -a {nameserver} -k a -v b"),
    _absent("checkRocksdbCqWriteProgress -c {cluster}"),
    _absent("exportPopRecord -b {broker}"),
    # -- users and policies
    _case("createUser -b {broker} -u walter -p secret-1 -t Normal", "create user to {broker} success"),
    _case("createUser -c {cluster} -u gus -p secret-2 -t Normal", "success", name="createUser -c"),
    _case("updateUser -b {broker} -u walter -p secret-3", "update user to {broker} success"),
    _case("getUser -b {broker} -u walter", "walter", "Normal", "enable"),
    _case("listUser -b {broker}", "walter", "gus"),
    _case("listUser -b {broker} -f gu", "gus", unwanted="Exception|walter", name="listUser -f"),
    _case("copyUser -f {broker} -t {broker} -u walter", "copy user of walter from .* success"),
    _case(
        "createAcl -b {broker} -s User:walter -r Topic:*,Group:* -a Pub,Sub -i 192.168.1.0/24 -d Allow",
        "create acl to {broker} success",
    ),
    _case("getAcl -b {broker} -s User:walter", "User:walter", r"Topic:\*", "192.168.1.0/24", "(?i)allow"),
    _case("updateAcl -b {broker} -s User:walter -r Topic:one* -a Pub -d Deny", "update acl to {broker} success"),
    _case("listAcl -b {broker}", "Topic:one", "(?i)deny"),
    _case("listAcl -b {broker} -s nobody", unwanted="Exception|walter", name="listAcl -s"),
    _case("copyAcl -f {broker} -t {broker} -s User:walter", "copy acl of User:walter from .* success"),
    _case("deleteAcl -b {broker} -s User:walter -r Topic:one*", "delete acl to {broker} success"),
    _case("deleteAcl -b {broker} -s User:walter", "delete acl to {broker} success", name="deleteAcl -s"),
    _case("deleteUser -b {broker} -u walter", "delete user to {broker} success"),
    _case("listUser -b {broker}", "gus", unwanted="Exception|walter", name="listUser deleted"),
    # -- the end
    _case(f"deleteSubGroup -b {{broker}} -g {_GROUP}Cloned -r true", "delete subscription group .* success"),
    _case(f"deleteTopic -c {{cluster}} -t {_TOPIC}Two", "delete topic .* success"),
    _case("clusterRT -a 3 -s 64 -c {cluster} -i 60", r"{name} +[0-9.]+ +3 +0", seconds=6, unwanted="Exception"),
    _case("startMonitoring", seconds=8, unwanted="MQBrokerException|REQUEST_CODE"),
)


def _denied(words: str, name: str, reason: str = "") -> Case:
    return Case(name, words, (r"(?i)CODE: 16 |code 16: |No route info", *([reason] if reason else [])), "(?!)", 20)


# Against a broker that checks its requests. Its first user is `root`, with the password `root-secret`.
ACL_CASES: Final[tuple[Case, ...]] = (
    _denied("getBrokerConfig -b {broker}", "acl: unsigned", "username cannot be null"),
    _case("@login root guess", name="acl: wrong secret given"),
    _denied("getBrokerConfig -b {broker}", "acl: wrong secret", "check signature failed"),
    _case("@login nobody guess", name="acl: unknown user given"),
    _denied("getBrokerConfig -b {broker}", "acl: unknown user", "User:nobody is not found"),
    _case("@login root root-secret", name="acl: super user given"),
    _case("getBrokerConfig -b {broker}", "brokerName", name="acl: super user"),
    _case("updateTopic -b {broker} -t AclTopic", "success", name="acl: topic is made"),
    _case("updateTopic -b {broker} -t AclOther", "success", name="acl: other topic is made"),
    _case("updateSubGroup -b {broker} -g aclGroup", "success", name="acl: group is made"),
    _case("updateSubGroup -b {broker} -g aclOtherGroup", "success", name="acl: other group is made"),
    _case("createUser -b {broker} -u walter -p walter-secret -t Normal", "success", name="acl: user is made"),
    _case("@login walter walter-secret", name="acl: user given"),
    _denied("@send {nameserver} AclTopic", "acl: send without a policy"),
    _case("@login root root-secret", name="acl: super user again"),
    _case(
        "createAcl -b {broker} -s User:walter -r Topic:AclT*,Group:aclGroup -a Pub,Sub -d Allow",
        "success",
        name="acl: policy is made",
    ),
    _case("@login walter walter-secret", name="acl: user again"),
    _case("@send {nameserver} AclTopic", "SEND_OK", name="acl: send"),
    _case("@consume {nameserver} AclTopic aclGroup", "consumed true", name="acl: consume"),
    _denied("@send {nameserver} AclOther", "acl: send elsewhere"),
    _case(
        "@consume {nameserver} AclTopic aclOtherGroup", "consumed false", unwanted="(?!)", name="acl: consume elsewhere"
    ),
    _denied("createUser -b {broker} -u eve -p x -t Super", "acl: user administers"),
    _case("@login root root-secret", name="acl: super user once more"),
    _case(
        "updateAcl -b {broker} -s User:walter -r Topic:AclTopic -a Pub,Sub -i 10.0.0.0/8 -d Allow",
        "success",
        name="acl: narrower policy for other hosts",
    ),
    _case("@login walter walter-secret", name="acl: user once more"),
    _case("@send {nameserver} AclTopic", "SEND_OK", name="acl: wider policy holds"),
    _case("@login root root-secret", name="acl: super user at last"),
    _case("updateAcl -b {broker} -s User:walter -r Topic:AclTopic -a Pub,Sub -d Deny", "success", name="acl: denial"),
    _case("updateUser -b {broker} -u walter -s disable", "success", name="acl: user is changed"),
    _case("@login walter walter-secret", name="acl: user at last"),
    _denied("@send {nameserver} AclTopic", "acl: send denied"),
)

# About a controller: the brokers 1, 2 and 3 of the name follow it, and 1 is not their master. `{controller}` is the
# leader, `{leader}` its id, `{controllers}` are all.
CONTROLLER_CASES: Final[tuple[Case, ...]] = (
    _case("getControllerMetaData -a {controller}", "#ControllerLeaderId\t{leader}", "#Peer:\t{leader}:{controller}"),
    _case("getSyncStateSet -a {controller} -b {name}", "#MasterEpoch\t{epoch}", "#SyncStateSetNums\t3", "alive=true"),
    _case("getSyncStateSet -a {controller} -c {cluster}", "#SyncStateSetNums\t3", name="getSyncStateSet -c"),
    _case("getBrokerEpoch -b {name}", "#brokerId\t0", r"EpochEntry\{epoch={epoch}"),
    # It fails itself when it reads the answer, which is not the controller's fault.
    _case(
        "electMaster -a {controller} -b 1 -bn {name} -c {cluster}",
        unwanted="CODE: ",
    ),
    _case("getSyncStateSet -a {controller} -b {name}", "#MasterBrokerId\t1", name="getSyncStateSet, elected"),
    _case(
        "electMaster -a {controller} -b 1 -bn {name} -c {cluster}",
        "CODE: 2011",
        unwanted="(?!)",
        name="electMaster again",
    ),
    _case("getControllerConfig -a {controller}", "enableElectUncleanMaster += +false", "controllerDLegerPeers"),
    _case("updateControllerConfig -a {controllers} -k scanInactiveMasterInterval -v 3000", "success"),
    _case(
        "getControllerConfig -a {controller}", "scanInactiveMasterInterval += +3000", name="getControllerConfig updated"
    ),
    _case(
        "cleanBrokerMetadata -a {controller} -bn {name} -b 2 -c {cluster}",
        "still alive",
        unwanted="(?!)",
        name="cleanBrokerMetadata, alive",
    ),
)
# After a slave, `{victim}`, was killed.
CONTROLLER_LAST_CASES: Final[tuple[Case, ...]] = (
    _case("cleanBrokerMetadata -a {controller} -bn {name} -b {victim} -c {cluster}", "success"),
    _case(
        "getSyncStateSet -a {controller} -b {name}",
        "#SyncStateSetNums\t2",
        unwanted=f"{FAULTS}|NotInSyncReplica",
        name="getSyncStateSet, cleaned",
    ),
)

# About a group under a controller: `{broker}` is the master, and `{slave}` a slave with the id `{id}`.
MEMBER_CASES: Final[tuple[Case, ...]] = (
    _case("getSyncStateSet -a {controller} -b {name}", "#MasterEpoch\t{epoch}", "#SyncStateSetNums\t3"),
    _case("getBrokerEpoch -b {name}", "#brokerId\t0", "#brokerId\t{id}", r"EpochEntry\{epoch={epoch}"),
    _case("haStatus -b {broker}", "#MasterAddr", "#SlaveNum\t2", "#InSyncSlaveNum\t2", "OK", unwanted="Fall Behind"),
    _case("haStatus -b {slave}", "#MasterAddr", "#CommitLogMaxOffset", name="haStatus of a slave"),
    _case("electMaster -a {controller} -b {id} -bn {name} -c {cluster}", unwanted="CODE: "),
    _case("getSyncStateSet -a {controller} -b {name}", "#MasterBrokerId\t{id}", name="getSyncStateSet, elected"),
)

# Cases that others need, and that run with any of them.
NEEDED: Final = frozenset(
    {"updateTopic", "updateTopic -c", "updateSubGroup", "updateSubGroup, to be cloned to", "clients"}
)
