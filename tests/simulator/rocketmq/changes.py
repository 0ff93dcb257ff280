"""A topic, a group and a user that an administrator changes while clients go on: each answer fits a form they had then.

A form that the broker has answered holds from that answer on, over restarts, too, until the next change is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from formats.rocketmq.files.record import Record
from formats.rocketmq.flags import SystemFlag
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.messages import Message, make
from formats.rocketmq.properties import encode_properties
from formats.rocketmq.remoting.bodies.access import (
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    read_acl,
    write_acl,
    write_user,
)
from formats.rocketmq.remoting.bodies.clients import (
    GROUP_CONFIG,
    HEARTBEAT,
    SQL92,
    ConsumerData,
    GroupConfig,
    Heartbeat,
    Subscription,
    make_subscription,
)
from formats.rocketmq.remoting.bodies.routes import Permission
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, HeaderEncoding
from tests.broker.rocketmq.answers import records_of
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.calls import Calls
from tests.simulator.rocketmq.consumers import KEPT_AFTER_MS
from tests.simulator.rocketmq.process import Process
from tests.simulator.rocketmq.producers import REFUSALS, Surroundings
from tests.simulator.rocketmq.wire import Connection, name_of

__all__ = ["CHANGING", "ROOT", "Changing", "Form", "History"]

CHANGING, GROUP, USER = "c0", "gc", "walter"
# The user that signs the requests of all other clients, and its password.
ROOT = ("root", "root-secret")
QUEUES_MAX = 4
READ_WRITE = int(Permission.READ | Permission.WRITE)
PERMS = (READ_WRITE, READ_WRITE, int(Permission.READ), int(Permission.WRITE))
RIGHTS = ("Pub", "Sub")
TAGS = "AB"
# Subscriptions, and the tags that each takes.
SUBSCRIPTIONS = {"*": "AB", "A": "A", "B || C": "B", "TAGS = 'A'": "A"}
FOUND = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
SUSPEND, SUBSCRIPTION, COMMIT = 2, 4, 1
WAITING_MAX = 12


class Form(NamedTuple):
    """The form of all that is changed. `life` counts the topic's creations, `offsets` the times they were forgotten."""

    exists: bool = True
    queues: int = 2
    perm: int = READ_WRITE
    filter_type: str = "SINGLE_TAG"
    subscription: str = "*"
    consumes: bool = True
    life: int = 0
    offsets: int = 0
    user: bool = True
    enabled: bool = True
    is_super: bool = False
    password: str = "first"
    rights: tuple[str, ...] = RIGHTS
    # Whether a request has to be signed with the password of its user; calls over gRPC always have to be.
    is_signed: bool = True
    # Whether a request needs the rights of its user.
    needs_rights: bool = True

    def may(self, action: str, password: str) -> bool:
        """Return whether the user may have an action on the topic carried out that is signed with a password."""
        is_known = self.user and self.enabled and (self.password == password or not self.is_signed)
        return is_known and (self.is_super or action in self.rights or not self.needs_rights)

    def sent(self, queue_id: int, password: str) -> ResponseCode:
        """Return the code that answers a message to a queue."""
        if not self.may("Pub", password):
            return ResponseCode.NO_PERMISSION
        if not self.exists:
            return ResponseCode.TOPIC_NOT_EXIST
        if not self.perm & Permission.WRITE:
            return ResponseCode.NO_PERMISSION
        return ResponseCode.SUCCESS if queue_id < self.queues else ResponseCode.INVALID_PARAMETER

    def called(self, password: str) -> Code:
        """Return the code of gRPC that answers a message."""
        if not self._replace(is_signed=True).may("Pub", password):
            return Code.UNAUTHORIZED
        if not self.exists:
            return Code.TOPIC_NOT_FOUND
        return Code.OK if self.perm & Permission.WRITE else Code.FORBIDDEN

    def pulled(self, queue_id: int, password: str) -> tuple[ResponseCode, ...]:
        """Return the codes of which one answers a pull from a queue."""
        if not self.may("Sub", password) or not self.consumes:
            return (ResponseCode.NO_PERMISSION,)
        if not self.exists:
            return (ResponseCode.TOPIC_NOT_EXIST,)
        if not self.perm & Permission.READ:
            return (ResponseCode.NO_PERMISSION,)
        return FOUND if queue_id < self.queues else (ResponseCode.INVALID_PARAMETER,)


class History:
    """The forms that were asked for, one after another; the last one that was answered is `sure`."""

    def __init__(self, first: Form) -> None:
        self._forms = [first]
        self.sure = 0

    @property
    def last(self) -> Form:
        """The last form that was asked for."""
        return self._forms[-1]

    @property
    def is_open(self) -> bool:
        """Return whether the last change was not answered."""
        return self.sure < len(self._forms) - 1

    def ask(self, form: Form) -> None:
        """Note that a form was asked for."""
        self._forms.append(form)

    def answered(self) -> None:
        """Note that the broker has answered the last change."""
        self.sure = len(self._forms) - 1

    @property
    def number(self) -> int:
        """The number of forms that were asked for."""
        return len(self._forms)

    def since(self, sure: int, end: int | None = None) -> list[Form]:
        """Return the forms that a request may have met, which was sent when the form of this number was sure.

        `end` is the number of forms that had been asked for when it was answered.
        """
        return self._forms[sure:end]


class Changing:
    """The administrator, a producer and a consumer. With `is_guarded` rights change, otherwise the topic."""

    name = "changing"

    def __init__(self, world: Surroundings, random: Random, first: Form, *, is_guarded: bool, has_grpc: bool) -> None:
        self.world = world
        self.has_grpc = has_grpc
        self.calls: Calls | None = None
        self.random = random
        self.is_guarded = is_guarded
        self.history = History(first)
        self._change: tuple[RequestCode, dict[str, Any], bytes] | None = None
        self._is_repeated = False
        self._asked_ms = 0
        self._count = self._version = 0
        # By message: its tag, and the numbers of the first and the last form that it may have met.
        self._sent: dict[str, tuple[str, int, int | None]] = {}
        self._sent_ms: dict[str, int] = {}
        self._refused: set[str] = set()
        # By life: the acknowledged messages, and the messages at each offset of a queue.
        self._acked: dict[int, set[str]] = {}
        self._places: dict[tuple[int, int, int], str] = {}
        self._next: dict[int, int | None] = dict.fromkeys(range(QUEUES_MAX))
        self._busy: set[int] = set()
        # By queue: the committed offset, and since when; without an entry, nobody knows.
        self._committed: dict[int, tuple[int | None, int]] = dict.fromkeys(range(QUEUES_MAX), (None, 0))
        # The queues whose offset may have been committed after they were forgotten by the change that is open.
        self._touched: set[int] = set()
        self._is_settling = False
        # The messages that came after all offsets were set to 0 in the end.
        self._got: set[str] | None = None
        self.admin: Connection
        self.producer: Connection
        self.consumer: Connection

    def prepare(self, process: Process) -> None:
        """Make the first form, in a process that has nothing yet."""
        process.make_topic(CHANGING, self.history.last.queues)
        if self.is_guarded:
            for name, password, kind in ((*ROOT, "Super"), (USER, self.history.last.password, "Normal")):
                process.access.create_user(UserInfo(name, password, kind, "enable"))
            process.access.put_acl(read_acl(_policies(RIGHTS)[2]))
        process.broker.keeper.finish()

    # -- connections

    def connect(self) -> None:
        """Connect all three after a start of the broker, and ask again for a change that was not answered."""
        self.admin = self.world.connect("admin", _nothing)
        self.producer = self.world.connect("producer", _nothing, HeaderEncoding.JSON)
        self.consumer = self.world.connect("consumer", _nothing)
        self.calls = self.world.connect_grpc("changing") if self.has_grpc else None
        self._sign()
        self._next, self._busy = dict.fromkeys(range(QUEUES_MAX), None if self._got is None else 0), set()
        self.heartbeat()
        if self._change is not None:
            self._is_repeated = True
            self._ask_change(*self._change)
        elif self.history.is_open:
            # The heartbeat has the subscription that was changed.
            self.history.answered()

    def _sign(self) -> None:
        if self.is_guarded:
            user = USER, self.history.last.password
            self.producer.user = self.consumer.user = user
            if self.calls is not None:
                self.calls.sign(*user)

    def broker_died(self) -> None:
        """Note that offsets of the last seconds may be lost, and that some that were forgotten may be back."""
        before_ms = self.world.wall_ms - KEPT_AFTER_MS
        self._committed = {queue: each for queue, each in self._committed.items() if each[1] <= before_ms}

    def heartbeat(self) -> None:
        """Tell the broker the subscription."""
        if not self.is_guarded:
            self._subscribe(self.history.last.subscription, _nothing)

    def _subscribe(self, text: str, answered: Callable[[Frame | None], None]) -> None:
        self._version += 1
        subscription = make_subscription(CHANGING, text, self._version)
        if "=" in text:
            subscription = Subscription(CHANGING, text, SQL92, self._version)
        body = HEARTBEAT.write(Heartbeat("consumer", [ConsumerData(GROUP, subscription_data_set=[subscription])]))
        self.consumer.ask(RequestCode.HEART_BEAT, {}, answered, body)

    def act(self) -> None:
        """Change something, send, or consume."""
        luck = self.random.random()
        if self._is_settling and self._got is None:
            self._settle()
        elif luck < 0.15 and not self.history.is_open and not self._is_settling:
            self._change_something()
        elif self.is_guarded and luck < 0.17:
            self._usurp()
        elif luck < 0.6 and self.producer.waiting < WAITING_MAX and not self._is_settling:
            tag = self.random.choice(TAGS)
            for _ in range(self.random.choice((1, 3))):
                self._send(tag)
        else:
            self._consume()

    # -- the end

    def settle(self) -> None:
        """Change nothing from now on but what keeps messages from the consumer."""
        self._is_settling = True

    def _settle(self) -> None:
        form = self.history.last
        if self.history.is_open:
            return
        life = form.life + (not form.exists)
        topic = form._replace(exists=True, queues=QUEUES_MAX, perm=READ_WRITE, life=life)
        if self.is_guarded and not form.user:
            self._change_rights(form)
        elif self.is_guarded and not form.enabled:
            self._change_user(form, 0)
        elif self.is_guarded and form.rights != RIGHTS:
            self._ask(form._replace(rights=RIGHTS), *_policies(RIGHTS))
        elif form != topic:
            self._ask(topic, *_topic_change(topic))
        elif not form.consumes:
            self._ask(form._replace(consumes=True), *_group_change(is_enabled=True))
        elif form.subscription != "*":
            self._change_subscription(form, "*")
        else:
            self._got = set()
            self._next = dict.fromkeys(range(QUEUES_MAX), 0)

    def what_is_owed(self) -> Iterator[str]:
        """Say which message of the topic as it is in the end has not come, though it was acknowledged."""
        missing = self._acked.get(self.history.last.life, set()) - (self._got or set())
        if self._got is None:
            yield "the form of the changing topic is not settled"
        elif missing:
            yield f"{min(missing)} was acknowledged, and {GROUP} does not get it"

    # -- changes

    def _change_something(self) -> None:
        form = self.history.last
        if self.is_guarded:
            self._change_rights(form)
        elif not form.exists:
            changed = form._replace(exists=True, life=form.life + 1)
            self._ask(changed, *_topic_change(changed))
        else:
            self._change_topic(form)

    def _change_topic(self, form: Form) -> None:
        """Change the topic, its group or its subscription."""
        choose = self.random.choice
        kind = self.random.randrange(10)
        if kind < 6:
            changed = form._replace(queues=choose((1, 2, QUEUES_MAX)))
            if kind > 2:
                changed = form._replace(perm=choose(PERMS))
            if kind > 4:
                changed = form._replace(filter_type=choose(("SINGLE_TAG", "MULTI_TAG")))
            self._ask(changed, *_topic_change(changed))
        elif kind < 7:
            changed = form._replace(exists=False, offsets=form.offsets + 1)
            self._ask(changed, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": CHANGING})
        elif kind < 8:
            changed = form._replace(consumes=not form.consumes)
            self._ask(changed, *_group_change(is_enabled=changed.consumes))
        elif kind < 9:
            changed = form._replace(consumes=True, offsets=form.offsets + 1)
            self._ask(changed, RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": GROUP, "cleanOffset": "true"})
        else:
            self._change_subscription(form, choose(list(SUBSCRIPTIONS)))

    def _change_subscription(self, form: Form, text: str) -> None:
        self.history.ask(form._replace(subscription=text))
        self._subscribe(text, self._changed)

    def _change_rights(self, form: Form) -> None:
        kind = self.random.randrange(10)
        if not form.user:
            changed = form._replace(user=True, enabled=True, is_super=False, rights=())
            body = write_user(UserInfo(None, form.password, "Normal", "enable"))
            self._ask(changed, RequestCode.AUTH_CREATE_USER, {"username": USER}, body)
        elif kind < 5:
            self._change_user(form, kind % 3)
        elif kind < 6:
            self._ask(form._replace(user=False, rights=()), RequestCode.AUTH_DELETE_USER, {"username": USER})
        elif kind < 7 and form.rights:
            fields = {"subject": f"User:{USER}", "policyType": "Custom", "resource": f"Topic:{CHANGING}"}
            self._ask(form._replace(rights=()), RequestCode.AUTH_DELETE_ACL, fields)
        else:
            rights = self.random.choice((RIGHTS, RIGHTS, ("Pub",), ("Sub",)))
            self._ask(form._replace(rights=rights), *_policies(rights))

    def _usurp(self) -> None:
        """Ask to change the user that may do everything, which only such a user may."""
        body = write_user(UserInfo(None, ROOT[1], self.random.choice(("Super", None)), "enable"))
        answered = partial(self._usurped, self.history.sure)
        self.producer.ask(RequestCode.AUTH_UPDATE_USER, {"username": ROOT[0]}, answered, body)

    def _usurped(self, sure: int, answer: Frame | None) -> None:
        forms = self.history.since(sure)
        if answer is not None and answer.code == ResponseCode.SUCCESS and not any(form.is_super for form in forms):
            raise Violation(f"{USER} has changed {ROOT[0]}: {forms}")

    def _change_user(self, form: Form, kind: int) -> None:
        if kind == 0:
            changed = form._replace(enabled=not form.enabled)
        elif kind == 1:
            changed = form._replace(is_super=not form.is_super)
        else:
            changed = form._replace(password="second" if form.password == "first" else "first")
        words = "Super" if changed.is_super else "Normal", "enable" if changed.enabled else "disable"
        body = write_user(UserInfo(None, changed.password, *words))
        self._ask(changed, RequestCode.AUTH_UPDATE_USER, {"username": USER}, body)

    def _ask(self, form: Form, code: RequestCode, fields: dict[str, Any], body: bytes = b"") -> None:
        self.history.ask(form)
        self._change, self._is_repeated, self._asked_ms = (code, fields, body), False, self.world.wall_ms
        self._ask_change(code, fields, body)
        self._sign()

    def _ask_change(self, code: RequestCode, fields: dict[str, Any], body: bytes) -> None:
        self.admin.ask(code, fields, self._changed, body)

    def _changed(self, answer: Frame | None) -> None:
        if answer is None:
            return
        change = self._change
        if change and change[0] is RequestCode.DELETE_TOPIC_IN_BROKER and answer.code != ResponseCode.SUCCESS:
            if not self.world.was_full_since(self._asked_ms):
                raise Violation(f"a deletion is answered with {answer.code}: {answer.remark}")
            # The disk has no room for the note of it.
            self._ask_change(*change)
            return
        # A user that was made before the broker died is there, and a policy that was deleted then is not.
        if answer.code != ResponseCode.SUCCESS and not self._is_repeated:
            raise Violation(f"a change is answered with {answer.code}: {answer.remark}")
        if len({form.offsets for form in self.history.since(self.history.sure)}) > 1:
            free = set(range(QUEUES_MAX)) - self._touched - self._busy
            self._committed = dict.fromkeys(free, (None, self.world.wall_ms))
            self._next.update(dict.fromkeys(free))
        self._touched.clear()
        self._change = None
        self.history.answered()

    # -- messages

    def _send(self, tag: str) -> None:
        self._count += 1
        name, queue_id = f"c.{self._count}", self.random.randrange(QUEUES_MAX if self.random.random() < 0.5 else 1)
        properties = encode_properties({"UNIQ_KEY": f"c{self._count:07}", "TAGS": tag}).decode()
        values = ("p", CHANGING, "", 4, queue_id, 0, self.world.wall_ms, 0, properties, 0, "false", "false")
        self._sent[name], self._sent_ms[name] = (tag, self.history.sure, None), self.world.wall_ms
        answered = partial(self._answered, name, queue_id, self.history.last.password)
        if self.calls is not None and self.random.random() < 0.5:
            request = make("SendMessageRequest")
            message = request.messages.add(body=f"{name} ".encode())
            message.topic.name, system = CHANGING, message.system_properties
            system.message_id, system.tag, system.message_type, system.body_encoding = name, tag, 1, 1
            self.calls.call("SendMessage", request, partial(self._called, name, self.history.last.password))
            return
        fields = dict(zip("abcdefghijkm", values, strict=True))
        self.producer.ask(RequestCode.SEND_MESSAGE_V2, fields, answered, f"{name} ".encode())

    def _forms(self, name: str) -> list[Form]:
        """Return the forms that a message may have met."""
        _, first, end = self._sent[name]
        return self.history.since(first, end)

    def _answered(self, name: str, queue_id: int, password: str, answer: Frame | None) -> None:
        forms = self._ended(name)
        if answer is None:
            return
        may_be = {int(form.sent(queue_id, password)) for form in forms}
        life = self._outcome(name, answer.code, may_be, answer.code in REFUSALS, answer.code == ResponseCode.SUCCESS)
        if life is not None:
            self._place(life, queue_id, int((answer.ext_fields or {})["queueOffset"]), name)

    def _called(self, name: str, password: str, answers: list[Message] | None) -> None:
        forms = self._ended(name)
        if answers is not None:
            code = answers[0].status.code
            may_be = {int(form.called(password)) for form in forms}
            self._outcome(name, code, may_be, code == Code.INTERNAL_SERVER_ERROR, code == Code.OK)

    def _ended(self, name: str) -> list[Form]:
        """Note that a message meets no later forms than the present one; the forms that it may have met."""
        tag, first, _ = self._sent[name]
        self._sent[name] = tag, first, self.history.number
        return self._forms(name)

    def _outcome(self, name: str, code: int, may_be: set[int], is_full: bool, is_done: bool) -> int | None:
        """Take the code that answers a message; return the life of the topic that has it, if that is certain."""
        if code not in may_be and not (is_full and self.world.was_full_since(self._sent_ms[name])):
            raise Violation(f"{name} is answered with {code}, not {may_be}: {self._forms(name)}")
        if not is_done:
            self._refused.add(name)
            return None
        life = _life(self._forms(name))
        if life is not None:
            self._acked.setdefault(life, set()).add(name)
        return life

    def _place(self, life: int, queue_id: int, offset: int, name: str) -> None:
        known = self._places.setdefault((life, queue_id, offset), name)
        if known != name:
            raise Violation(f"offset {offset} of queue {queue_id} of {CHANGING} {life} has {name}, and had {known}")

    def _consume(self) -> None:
        free = [queue for queue in range(QUEUES_MAX) if queue not in self._busy]
        if not free:
            return
        queue_id = self.random.choice(free)
        self._busy.add(queue_id)
        begin = self._next[queue_id]
        fields: dict[str, Any] = {"consumerGroup": GROUP, "topic": CHANGING, "queueId": queue_id}
        terms = queue_id, self.history.sure, self.history.last.password
        if begin is None:
            fields["setZeroIfNotFound"] = "false"
            self.consumer.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields, partial(self._offset_told, *terms))
            return
        held = SUSPEND if self.random.random() < 0.3 else 0
        fields |= {
            "queueOffset": begin,
            "maxMsgNums": self.random.choice((1, 4, 32)),
            "sysFlag": COMMIT | held | (SUBSCRIPTION if self.is_guarded else 0),
            "commitOffset": begin,
            "suspendTimeoutMillis": self.random.randrange(500, 3_000),
            "subVersion": 0,
        }
        if self.is_guarded:
            fields["subscription"] = "*"
        self.consumer.ask(RequestCode.PULL_MESSAGE, fields, partial(self._pulled, *terms, begin))

    def _offset_told(self, queue_id: int, sure: int, password: str, answer: Frame | None) -> None:
        if answer is None:
            return
        self._busy.discard(queue_id)
        forms = self.history.since(sure)
        may = {form.may("Sub", password) for form in forms}
        if (answer.code == ResponseCode.NO_PERMISSION) not in {not each for each in may}:
            raise Violation(f"{GROUP} asks for its offset, and is told {answer.code}: {forms}")
        if answer.code == ResponseCode.NO_PERMISSION:
            return
        offset = int((answer.ext_fields or {})["offset"]) if answer.code == ResponseCode.SUCCESS else None
        committed = self._committed.get(queue_id)
        if committed is not None and committed[0] != offset and len({form.offsets for form in forms}) == 1:
            raise Violation(f"{GROUP} has offset {offset} in queue {queue_id}, and committed {committed[0]}")
        self._next[queue_id] = offset or 0

    def _pulled(self, queue_id: int, sure: int, password: str, begin: int, answer: Frame | None) -> None:
        self._committed.pop(queue_id, None)
        if self.history.is_open:
            self._touched.add(queue_id)
        if answer is None:
            return
        self._busy.discard(queue_id)
        forms = self.history.since(sure)
        may_be = {code for form in forms for code in form.pulled(queue_id, password)}
        if answer.code not in may_be:
            raise Violation(f"{GROUP} pulls from queue {queue_id}, and is told {answer.code}, not {may_be}: {forms}")
        if answer.code not in FOUND:
            return
        end = int((answer.ext_fields or {})["nextBeginOffset"])
        if answer.code != ResponseCode.PULL_OFFSET_MOVED:
            if len({form.offsets for form in forms}) == 1:
                self._committed[queue_id] = begin, self.world.wall_ms
            records = records_of(answer) if answer.code == ResponseCode.SUCCESS else []
            self._check(queue_id, begin, end, forms, records)
        self._next[queue_id] = end

    def _check(self, queue_id: int, begin: int, end: int, forms: list[Form], records: list[Record]) -> None:
        lives, subscriptions = _lives(forms), {form.subscription for form in forms}
        got = {record.queue_offset: name_of(record.body) for record in records}
        for record in records:
            name = got[record.queue_offset]
            met = self._forms(name)
            if name in self._refused or not _lives(met) & lives:
                raise Violation(f"{GROUP} gets {name}, which is refused or of another life: {forms}, not {met}")
            is_multi = bool(record.system_flags & SystemFlag.MULTI_TAGS)
            if all(is_multi != (form.filter_type == "MULTI_TAG") for form in met):
                raise Violation(f"{name} is stored with flags {record.system_flags}: {met}")
            if all(self._sent[name][0] not in SUBSCRIPTIONS[each] for each in subscriptions):
                raise Violation(f"{GROUP} gets {name} of tag {self._sent[name][0]}, not {subscriptions}")
        life = _life(forms)
        if life is not None:
            for offset in range(begin, end):
                known = self._places.get((life, queue_id, offset))
                if offset in got:
                    self._place(life, queue_id, offset, got[offset])
                elif known and all(self._sent[known][0] in SUBSCRIPTIONS[each] for each in subscriptions):
                    raise Violation(f"{GROUP} does not get {known} at {offset} of queue {queue_id}: {forms}")
        if self._got is not None:
            self._got |= set(got.values())


def _nothing(answer: Frame | None) -> None:
    """Take an answer that says nothing."""


def _lives(forms: Iterable[Form]) -> set[int]:
    return {form.life for form in forms if form.exists}


def _topic_change(form: Form) -> tuple[RequestCode, dict[str, Any]]:
    fields = {
        "topic": CHANGING,
        "defaultTopic": "",
        "readQueueNums": form.queues,
        "writeQueueNums": form.queues,
        "perm": form.perm,
        "topicFilterType": form.filter_type,
        "order": "false",
        "attributes": "",
    }
    return RequestCode.UPDATE_AND_CREATE_TOPIC, fields


def _group_change(*, is_enabled: bool) -> tuple[RequestCode, dict[str, Any], bytes]:
    body = GROUP_CONFIG.write(GroupConfig(GROUP, consume_enable=is_enabled))
    return RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body


def _policies(rights: tuple[str, ...]) -> tuple[RequestCode, dict[str, Any], bytes]:
    entries = [
        PolicyEntryInfo(f"Topic:{CHANGING}", list(rights), [], "Allow"),
        PolicyEntryInfo(f"Group:{GROUP}", ["Sub"], [], "Allow"),
    ]
    body = write_acl(AclInfo(f"User:{USER}", [PolicyInfo("Custom", entries)]))
    return RequestCode.AUTH_UPDATE_ACL, {"subject": f"User:{USER}"}, body


def _life(forms: Sequence[Form]) -> int | None:
    """Return the life of the topic that a request met; None if it is uncertain.

    A deletion that the process did not survive may have emptied the queues of a topic that is still there.
    """
    lives = _lives(forms)
    deleted = {form.life for form in forms if not form.exists}
    return min(lives) if len(lives) == 1 and lives.isdisjoint(deleted) else None
