"""Sequences of requests that a single one does not make: whole stories, floods, and unfinished or unread ones.

A story yields actions, and is sent the answers to each.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Generator, Mapping

from formats.errors import FormatError
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import FRAME_BYTES_MAX, Frame
from formats.rocketmq.remoting.popped import read_popped
from formats.rocketmq.remoting.receipts import RETRY, real_topic
from tests.fuzz.rocketmq.requests import Requests, frame_of
from tests.fuzz.rocketmq.values import BROKER, GROUPS, HOSTILE, TOPICS
from tests.fuzz.rocketmq.wire import Action, Answers

__all__ = [
    "CLIENT_STORIES",
    "FLOOD",
    "MIB",
    "Story",
    "incomplete",
    "long_bodies",
    "many_registrations",
    "many_values",
]

Story = Generator[Action, Answers, None]
MIB = 1 << 20
# The numbers of floods' connections begin here.
FLOOD = 10_000


def _pop(requests: Requests, topic: str) -> Action:
    fields = [
        ("consumerGroup", GROUPS[0]),
        ("topic", topic),
        ("queueId", "-1"),
        ("maxMsgNums", "8"),
        ("order", "false"),
    ]
    fields += [
        ("invisibleTime", "2000"),
        ("pollTime", "0"),
        ("bornTime", str(requests.values.now_ms)),
        ("initMode", "0"),
    ]
    return requests.request(RequestCode.POP_MESSAGE, fields, b"")


def _send(requests: Requests, topic: str, properties: Mapping[str, str] | None = None) -> Action:
    return requests.message(topic, properties or {}, RequestCode.SEND_MESSAGE_V2)


def _receipts(frame: Frame) -> list[str]:
    try:
        return [str(each.receipt) for each in read_popped(BROKER, frame.ext_fields, frame.body)]
    except FormatError:
        return []


def _handle(requests: Requests, code: int, topic: str, receipt: str) -> Action:
    words = receipt.split(" ")
    if words[4] == RETRY and requests.random.random() < 0.8:
        topic = real_topic(topic, GROUPS[0], RETRY)
    fields = [("consumerGroup", GROUPS[0]), ("topic", topic), ("queueId", words[6]), ("extraInfo", receipt)]
    fields += [("offset", words[7]), ("invisibleTime", requests.random.choice(("0", "1000", *HOSTILE)))]
    return requests.request(code, fields, b"")


# -- what clients do, in an order that they do not


def popping(requests: Requests) -> Story:
    """Pop, delete the topic or the group, and handle the popped messages."""
    random = requests.random
    topic = random.choice(TOPICS[:3])
    for _ in range(4):
        yield _send(requests, topic, requests.values.properties())
    receipts: list[str] = []
    for _ in range(2):
        for frame in (yield _pop(requests, topic)).frames:
            receipts += _receipts(frame)
    requests.values.receipts = (requests.values.receipts + receipts)[-50:]
    match random.randrange(3):
        case 0:
            yield requests.request(RequestCode.DELETE_TOPIC_IN_BROKER, [("topic", topic)], b"")
        case 1:
            yield requests.request(RequestCode.DELETE_SUBSCRIPTIONGROUP, [("groupName", GROUPS[0])], b"")
    codes = (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
    for receipt in receipts or [requests.values.receipt()]:
        yield _handle(requests, random.choice(codes), topic, receipt)
    yield _pop(requests, topic)
    yield _send(requests, topic)


def transactions(requests: Requests) -> Story:
    """Send prepared messages, ended or not, some with properties that only the broker sets."""
    random = requests.random
    for _ in range(4):
        properties = {
            "TRAN_MSG": "true",
            "PGROUP": random.choice(GROUPS),
            "UNIQ_KEY": requests.values.property("UNIQ_KEY"),
        }
        if random.random() < 0.5:
            properties |= requests.values.properties("RMQ_SYS_TRANS_HALF_TOPIC")
        action = _send(requests, random.choice(TOPICS[:2]), properties)
        answers = yield action
        for frame in answers.frames:
            given = frame.ext_fields or {}
            offset = given.get("msgId", "")[-16:]
            try:
                place = str(int(offset, 16))
            except ValueError:
                place = "0"
            fields = [("producerGroup", properties["PGROUP"]), ("tranStateTableOffset", given.get("queueOffset", "0"))]
            fields += [("commitLogOffset", place), ("commitOrRollback", random.choice(("0", "8", "12", *HOSTILE)))]
            fields += [("msgId", given.get("msgId", "")), ("transactionId", given.get("transactionId", ""))]
            if random.random() < 0.6:
                yield requests.request(RequestCode.END_TRANSACTION, fields, b"")


def own_topics(requests: Requests) -> Story:
    """Delete and change the broker's own topics while they have messages."""
    random = requests.random
    yield _send(requests, TOPICS[0], {"TIMER_DELAY_MS": "3000"})
    topic = random.choice([each for each in HOSTILE if each.startswith(("rmq_", "RMQ_", "SCHEDULE"))])
    match random.randrange(3):
        case 0:
            yield requests.request(RequestCode.DELETE_TOPIC_IN_BROKER, [("topic", topic)], b"")
        case 1:
            fields = [("topic", topic), ("defaultTopic", "TBW102"), ("perm", random.choice("0246")), ("order", "false")]
            fields += [("readQueueNums", random.choice("01")), ("writeQueueNums", random.choice("01"))]
            fields += [("topicFilterType", "SINGLE_TAG"), ("topicSysFlag", "0")]
            yield requests.request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields, b"")
        case _:
            yield requests.message(topic, requests.values.properties(topic))
    yield _send(requests, TOPICS[0], {"TIMER_DELAY_MS": "500"})
    yield _send(requests, TOPICS[0], {"DELAY": "1"})


# -- much of one kind


def _pipelined(requests: Requests, what: str, frames: list[bytes], wait_s: float = 1.0) -> Action:
    """Make requests that are sent at once, on their own connection."""
    link = FLOOD + requests.random.randrange(100)
    return Action(requests.port, what, ((b"".join(frames), 1),), link, answers=len(frames), wait_s=wait_s)


def many_groups(requests: Requests) -> Story:
    count, mark = requests.random.choice((100, 300)), requests.random.getrandbits(32)
    groups = [
        {
            "groupName": f"g{mark:x}-{number}",
            "subscriptionDataSet": [{"topic": "fuzz-0", "subString": "*", "subVersion": number}],
        }
        for number in range(count)
    ]
    body = json.dumps({"clientID": f"127.0.0.1@{mark}", "consumerDataSet": groups})
    action = requests.request(RequestCode.HEART_BEAT, [], body)
    yield action._replace(what=f"HEART_BEAT with {count} groups", wait_s=3.0)


def many_topics(requests: Requests) -> Story:
    """Send to missing topics."""
    count, mark = requests.random.choice((20, 100)), requests.random.getrandbits(32)
    for number in range(count):
        yield _send(requests, f"fuzz-new-{mark:x}-{number}")


def many_values(requests: Requests) -> Story:
    """Put long values into the nameserver's table."""
    size = requests.random.choice((10_000, 900_000))
    for number in range(12):
        fields = [("namespace", "fuzz"), ("key", f"k{number}"), ("value", "v" * size)]
        yield requests.request(RequestCode.PUT_KV_CONFIG, fields, b"")


def many_registrations(requests: Requests) -> Story:
    """Register missing brokers with many topics, in bodies compressed or not, and unregister one."""
    random = requests.random
    for number in range(8):
        name = random.choice((f"fuzz-{number}", BROKER))
        topics = {
            f"t{at}": {
                "topicName": f"t{at}",
                "readQueueNums": 4,
                "writeQueueNums": 4,
                "perm": 6,
                "topicFilterType": "X",
            }
            for at in range(random.choice((1, 50, 2_000)))
        }
        wrapper = {"topicConfigTable": topics, "dataVersion": {"counter": random.choice((1, 1 << 62))}}
        body: bytes = json.dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []}).encode()
        packed = random.random() < 0.4
        if packed:
            version = json.dumps({"counter": 1}).encode()
            zeros = random.choice((100, 30 * MIB))
            pieces = (struct.pack(">I", len(version)), version, struct.pack(">i", random.choice((1, -1, 1 << 30))))
            body = zlib.compress(b"".join(pieces) + bytes(zeros))
        fields = [("brokerName", name), ("brokerAddr", f"127.0.0.66:{number + 1}"), ("clusterName", "DefaultCluster")]
        fields += [("haServerAddr", ""), ("brokerId", random.choice("01")), ("compressed", str(packed).lower())]
        yield requests.request(RequestCode.REGISTER_BROKER, fields, body)
    fields = [("brokerName", BROKER), ("clusterName", "DefaultCluster"), ("brokerId", "0")]
    for address in ("127.0.0.1:10911", *requests.values.addresses):
        yield requests.request(RequestCode.UNREGISTER_BROKER, [*fields, ("brokerAddr", address)], b"")


def many_waiting(requests: Requests) -> Story:
    """Send pulls that wait for one queue, and then a message that answers all."""
    count = requests.random.choice((200, 4_000))
    fields = [("consumerGroup", GROUPS[1]), ("topic", "fuzz-0"), ("queueId", "0"), ("queueOffset", "1000000")]
    fields += [("maxMsgNums", "32"), ("sysFlag", "2"), ("commitOffset", "0"), ("suspendTimeoutMillis", "30000")]
    fields += [("subscription", "*"), ("subVersion", "1")]
    beat = {"clientID": "w", "consumerDataSet": [{"groupName": GROUPS[1], "subscriptionDataSet": []}]}
    yield requests.request(RequestCode.HEART_BEAT, [], json.dumps(beat))
    stats = requests.request(RequestCode.GET_MAX_OFFSET, [("topic", "fuzz-0"), ("queueId", "0")], b"")
    for frame in (yield stats._replace(link=5)).frames:
        fields[3] = ("queueOffset", (frame.ext_fields or {}).get("offset", "0"))
    pulls = [frame_of(RequestCode.PULL_MESSAGE, fields, opaque=number) for number in range(count)]
    for _ in range(3):
        yield _pipelined(requests, f"{count} pulls that wait", pulls, 0.0)._replace(answers=0)
    for number in range(4):
        sent = [("a", "g"), ("b", "fuzz-0"), ("c", "TBW102"), ("d", "4"), ("e", str(number)), ("f", "0"), ("g", "0")]
        yield requests.request(RequestCode.SEND_MESSAGE_V2, [*sent, ("h", "0")], b"x")


def many_offsets(requests: Requests) -> Story:
    frames = []
    for number in range(500):
        queue = requests.random.choice((number, -number, (1 << 31) - 1 - number))
        fields = [("consumerGroup", GROUPS[0]), ("topic", "fuzz-0"), ("queueId", str(queue))]
        fields += [("commitOffset", requests.random.choice(("0", str((1 << 63) - 1), str(-(1 << 63)))))]
        frames.append(frame_of(RequestCode.UPDATE_CONSUMER_OFFSET, fields, opaque=number))
    yield _pipelined(requests, "500 UPDATE_CONSUMER_OFFSET", frames)


def filters(requests: Requests) -> Story:
    """Apply a long condition to long properties of many messages."""
    random = requests.random
    topic = "fuzz-2"
    long_ = {"a": "x" * random.choice((100, 30_000)), "b": "1"}
    for _ in range(40):
        yield _send(requests, topic, long_)
    piece = random.choice(("a CONTAINS 'xxxxxxxxy'", "a > 'x'", "b = 1", "NOT (b IS NULL)", "a STARTSWITH 'y'"))
    text = random.choice((" OR ", " AND ")).join([piece] * random.choice((1, 100, 1_000)))
    fields = [("consumerGroup", GROUPS[2]), ("topic", topic), ("queueId", "0"), ("queueOffset", "0"), ("sysFlag", "4")]
    fields += [("maxMsgNums", "32"), ("commitOffset", "0"), ("suspendTimeoutMillis", "0"), ("subscription", text)]
    fields += [("subVersion", "1"), ("expressionType", "SQL92")]
    for queue in "0123":
        fields[2] = ("queueId", queue)
        action = requests.request(RequestCode.PULL_MESSAGE, fields, b"")
        yield action._replace(what=f"PULL_MESSAGE with {len(text)} characters of SQL92", wait_s=2.0)


def long_bodies(requests: Requests) -> Story:
    """Send a long body of JSON for a code that takes JSON."""
    random = requests.random
    codes = {
        "broker": (
            *(RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST),
            *(RequestCode.QUERY_ASSIGNMENT, RequestCode.BATCH_ACK_MESSAGE, RequestCode.AUTH_CREATE_ACL),
            RequestCode.LITE_SUBSCRIPTION_CTL,
        ),
        "nameserver": (RequestCode.REGISTER_BROKER, RequestCode.REGISTER_TOPIC_IN_NAMESRV),
        "controller": (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA),
    }
    code = random.choice(codes.get(requests.port, codes["broker"]))
    fields = requests.plausible(code)
    unit = random.choice((b"1,", b'"x",', b"{},", b"[],", b'{"a":1},'))
    front = random.choice((b"[", b'{"clientID":"c","x":[', b'{"consumerDataSet":['))
    times = random.choice((MIB, 15 * MIB)) // len(unit)
    back = b"0]" if front == b"[" else b"0]}"
    head = frame_of(code, fields, b"")[4:]
    size = len(head) + len(front) + times * len(unit) + len(back)
    pieces = ((struct.pack(">I", size) + head, 1), (front, 1), (unit, times), (back, 1))
    what = f"{RequestCode(code).name} with a body of {size} bytes, {front.decode()}{unit.decode()}..."
    yield Action(requests.port, what, pieces, FLOOD + random.randrange(100), wait_s=3.0)


# -- what is never finished, or never read


def incomplete(requests: Requests) -> Story:
    """Send frames without their ends, on many connections."""
    random = requests.random
    copies, size = random.choice(((4, 15 * MIB), (60, 15 * MIB), (200, MIB)))
    head = struct.pack(">II", min(size + 1_000, FRAME_BYTES_MAX), 20)
    link = FLOOD + 1_000 * random.randrange(1, 9)
    what = f"frames that are not whole, {size >> 20} MiB each"
    yield Action(requests.port, what, ((head, 1), (b"x", size)), link, copies, answers=0)


def unread(requests: Requests) -> Story:
    """Send requests with long answers, and read none."""
    for number in range(8):
        sent = [
            ("a", "g"),
            ("b", "fuzz-1"),
            ("c", "TBW102"),
            ("d", "1"),
            ("e", "0"),
            ("f", "0"),
            ("g", "0"),
            ("h", "0"),
        ]
        frame = frame_of(RequestCode.SEND_MESSAGE_V2, sent, b"u" * 250_000, number)
        yield Action(requests.port, "SEND_MESSAGE_V2 of 250 KB", ((frame, 1),))
    fields = [
        ("consumerGroup", GROUPS[1]),
        ("topic", "fuzz-1"),
        ("queueId", "0"),
        ("queueOffset", "0"),
        ("sysFlag", "4"),
    ]
    fields += [("maxMsgNums", "32"), ("commitOffset", "0"), ("suspendTimeoutMillis", "0"), ("subscription", "*")]
    fields += [("subVersion", "1")]
    frame = frame_of(RequestCode.PULL_MESSAGE, fields)
    link = FLOOD + 1_000 * requests.random.randrange(11, 19)
    yield Action(requests.port, "230 pulls whose answers nobody reads", ((frame, 230),), link, 25, answers=0)


CLIENT_STORIES = (
    *(popping, transactions, own_topics, filters, many_groups, many_topics, many_offsets, many_waiting),
    *(long_bodies, incomplete, unread),
)
