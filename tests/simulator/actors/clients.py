"""Clients: producers send again what is not acked, consumers confirm what they get, and both come back."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from formats.bmq.codes import AckStatus
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    AuthenticationMessage,
    AuthenticationResponse,
    BrokerResponse,
    CloseQueue,
    ConfigureStream,
    ConsumerInfo,
    ControlMessage,
    Expression,
    ExpressionVersion,
    NegotiationMessage,
    OpenQueue,
    QueueHandleParameters,
    Status,
    StreamParameters,
    SubQueueIdInfo,
    Subscription,
)
from formats.bmq.guid import GuidGenerator
from formats.bmq.wire.ack import Ack
from formats.bmq.wire.confirm import build_confirm_event
from formats.bmq.wire.event import HEARTBEAT_RESPONSE, EventType, build_event, build_schema_event
from formats.bmq.wire.put import PutFlag, append_put
from tests.broker.bmq.rig import ACK, READ, WRITE, Pushed, handle, identity
from tests.simulator.judges.accounts import check_refusal
from tests.simulator.judges.invariants import SHAPES, X_LOW, Post, Promise, Violation, name_of, payload_of
from tests.simulator.machines.ends import Item
from tests.simulator.machines.network import Link, Taken
from tests.simulator.machines.proofs import MEMBER, proof
from tests.simulator.worlds.features import Feature

if TYPE_CHECKING:
    from tests.simulator.machines.hosts import Host
    from tests.simulator.worlds.world import World

__all__ = ["PARTS", "Client", "Consumer", "Producer", "Tuning", "wants"]

RETRY_US = 200_000
CONNECT_TIMEOUT_US = 1_500_000
UNACKED_MAX = 60
X_MAX = 4
SPOILED_PART = 0.1
# A producer has numbers for this many shapes.
NUMBERS_MAX = 2

# The parts of a queue's messages that consumers may want: an expression, and its meaning.
PARTS: dict[str, Callable[[int], bool]] = {f"x < {X_LOW}": lambda x: x < X_LOW, f"x >= {X_LOW}": lambda x: x >= X_LOW}
# The ids of a consumer's subscriptions for its first part begin at 1, and those for each further part this much later.
PLACES_MAX = 10
# A sub-queue id under which no consumer has anything open.
NO_SUB_ID = 9
Request = OpenQueue | ConfigureStream | CloseQueue
_WITH_PROPERTIES = int(PutFlag.ACK_REQUESTED | PutFlag.MESSAGE_PROPERTIES)


def _place(subscription_id: int) -> int:
    """Return the place of a consumer's queue by the id of one of its subscriptions."""
    return (subscription_id - 1) % PLACES_MAX


def wants(part: str, x: int | None) -> bool:
    """Return whether an expression, a key of `PARTS` or empty, matches messages with this property."""
    return not part or (x is not None and PARTS[part](x))


class Tuning(NamedTuple):
    """The parameters of a consumer's streams; `part` is a key of `PARTS`, or empty for all messages."""

    priority: int
    messages_max: int
    part: str
    bytes_max: int = 1 << 20


@lru_cache(maxsize=4096)
def _request(r_id: int, choice: Request) -> bytes:
    return build_schema_event(ber.encode(ControlMessage(r_id=r_id, choice=choice)))


class Client:
    """One process with one link at a time, to whichever node takes it."""

    asks = False

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.random: Random = world.random
        self.name = self.machine = name
        self.link: Link | None = None
        self._attempts = 0
        self.sessions = 0
        self._requests = 0
        self._asked: dict[int, Request] = {}
        self.is_away = False
        self.host: Host | None = None  # at the other end of the link, or of the last one
        self.hosts: list[Host] = []  # where it may connect to; none for anywhere
        self.certified: frozenset[str] = frozenset()  # the names in its certificate

    # -- the link

    def dial(self) -> None:
        """Connect to a node, or try again later."""
        if self.link is not None or self.is_away:
            return
        self._attempts += 1
        attempt = self._attempts
        host = self.random.choice(self.hosts or self.world.hosts)

        def give_up() -> None:
            if self.link is None and attempt == self._attempts:
                self.dial()

        self.world.clock.after(CONNECT_TIMEOUT_US, give_up)
        if self.world.network.passes(self.name, host.name):
            self.world.clock.after(self.world.network.delay_us(), lambda: host.accept(self))

    def refused(self) -> None:
        """Dial again later, as nobody listens."""
        self._dial_later()

    def _dial_later(self) -> None:
        self.world.clock.after(self.random.randrange(1, RETRY_US), self.dial)

    def connected(self, link: Link, host: Host) -> None:
        if self.link is not None or self.is_away:
            link.close(self, "not wanted any longer")
            return
        self.link = link
        self.host = host
        self.sessions += 1
        self.world.say(f"{self.name} connects")
        self.send(self.introduce())
        self.begin()

    def introduce(self) -> bytes:
        """Encode the client's identity."""
        client_id = self.name.encode().rjust(6, b"_")
        who = identity(client_id=client_id.hex().upper())
        event = build_schema_event(ber.encode(NegotiationMessage(choice=who)))
        return proof(MEMBER) + event if Feature.USERS in self.world.features else event

    def prove_again(self, link: Link, taken: Taken) -> None:
        """Prove who it is, since the last proof is soon too old; `taken` is called when the node has that."""
        if link is self.link:
            self.send(proof(MEMBER), taken)

    def begin(self) -> None:
        """Do what follows the client's introduction: nothing here."""

    def send(self, data: bytes, taken: Taken | None = None) -> None:
        if self.link is not None:
            self.link.send(self, data, taken)

    def arrived(self, data: bytes, taken: Taken | None) -> None:
        """Bytes of a node: the world has read them when they were sent, and `taken` hands over what they say."""
        if taken is not None:
            taken()

    def lost(self, reason: str) -> None:
        self.world.say(f"{self.name} loses its link: {reason}")
        self.link = None
        self._asked.clear()
        self.forget()
        self._dial_later()

    def leave(self, us: int) -> None:
        """Go away for a while, without a word."""
        self.is_away = True
        if self.link is not None:
            self.link.close(self, "the peer closed the connection")
            self.link = None
        self._asked.clear()
        self.forget()
        self.world.clock.after(us, self.come_back)

    def come_back(self) -> None:
        if self.is_away:
            self.is_away = False
            self.dial()

    def forget(self) -> None:
        """Drop the state of the link."""

    @property
    def is_ready(self) -> bool:
        """Return True if all that it opens is open."""
        return True

    # -- what comes

    def tap(self, item: Item, link: Link) -> None:
        """The node sends it: what the records are to know of it at that moment."""

    def handle(self, link: Link, items: list[Item]) -> None:
        if link is not self.link:
            return
        for item in items:
            if link is not self.link:
                return  # it has died of one of them
            if isinstance(item, ControlMessage):
                self._answered(item)
            elif isinstance(item, NegotiationMessage):
                if not isinstance(item.choice, BrokerResponse) or item.choice.result.code:
                    raise AssertionError(f"{self.name} was not let in: {item}")
                self.open_all()
            elif item is EventType.HEARTBEAT_REQ:
                self.send(HEARTBEAT_RESPONSE)
            elif isinstance(item, AuthenticationMessage):
                if not isinstance(item.choice, AuthenticationResponse) or item.choice.status.category:
                    raise Violation(f"{self.name} is denied: {item}")
            else:
                self.received(item)

    def ask(self, choice: Request) -> None:
        self._requests += 1
        self._asked[self._requests] = choice
        self.send(_request(self._requests, choice))

    def _answered(self, message: ControlMessage) -> None:
        request = self._asked.pop(message.r_id or 0, None)
        if request is None:
            raise AssertionError(f"{self.name} did not ask what is answered with {message}")
        if isinstance(message.choice, Status):
            link = self.link

            def again() -> None:
                if self.link is link:
                    self.ask(request)

            self.world.clock.after(self.random.randrange(1, RETRY_US), again)
            return
        self.succeeded(request)

    def open_all(self) -> None:
        """The session begins."""
        raise AssertionError("a producer or a consumer says what it opens")

    def close_and_open(self) -> None:
        """Close all queues, if all are open, and open each again when that is answered."""

    def succeeded(self, request: Request) -> None:
        """A request was answered, and not with a failure."""
        raise AssertionError("a producer or a consumer says what follows")

    def received(self, item: Item) -> None:
        """An ACK, or a PUSH."""


class Producer(Client):
    """Posts to queues; what is not acked when its link breaks it sends again, in order, before anything else."""

    def __init__(self, world: World, name: str, uris: list[str]) -> None:
        super().__init__(world, name)
        self.uris = uris
        self.unacked: dict[str, dict[bytes, Post]] = {uri: {} for uri in uris}
        self._numbers = dict.fromkeys(uris, 0)
        self.opened: set[str] = set()
        self._guids = GuidGenerator(name.encode().rjust(6, b"_"), 0)
        self.acked = self.refused_count = 0
        self.interval_us = 30_000
        self.size_max = 300
        self.with_properties: set[str] = set()  # the queues to which it posts such messages
        self.is_deaf = False  # acks are lost on their way to it
        self.silent: set[str] = set()  # queues to which it posts nothing for a while
        self._due: Counter[bytes] = Counter()  # how many acks its link may bring for each post
        self._spoiling = Random(f"spoiled {world.seed} {name}") if Feature.SPOILED in world.features else None
        self._spoiled: set[bytes] = set()  # the GUIDs of posts whose checksum is wrong
        self._shaping = Random(f"shapes {world.seed} {name}") if Feature.SHAPES in world.features else None
        self._shapes: dict[str, OrderedDict[int, int]] = {uri: OrderedDict() for uri in uris}  # their numbers

    def open_all(self) -> None:
        for queue_id, uri in enumerate(self.uris):
            self.ask(OpenQueue(handle_parameters=handle(queue_id, uri, WRITE | ACK)))

    def close_and_open(self) -> None:
        for queue_id, uri in enumerate(self.uris) if len(self.opened) == len(self.uris) else ():
            self.opened.discard(uri)
            self.ask(CloseQueue(handle_parameters=handle(queue_id, uri, WRITE | ACK)))

    def succeeded(self, request: Request) -> None:
        assert not isinstance(request, ConfigureStream)
        if isinstance(request, CloseQueue):
            self.ask(OpenQueue(handle_parameters=request.handle_parameters))
            return
        uri = self.uris[request.handle_parameters.q_id]
        self.opened.add(uri)
        self._shapes[uri].clear()
        again = list(self.unacked[uri].values())
        self.world.say(f"{self.name} opens {uri} and sends {len(again)} again")
        for post in again:
            self.world.records.posted_again(post)
        self._put(uri, again, is_new=False)

    def forget(self) -> None:
        self.opened.clear()
        self._due.clear()

    @property
    def is_ready(self) -> bool:
        return len(self.opened) == len(self.uris)

    def act(self) -> None:
        """Post a few, and go on for as long as the world wants it."""
        if not self.world.is_busy:
            return
        self.world.clock.after(int(self.random.expovariate(1) * self.interval_us) + 1, self.act)
        if not self.opened:
            return
        uri = self.random.choice([uri for uri in self.uris if uri in self.opened])
        if uri not in self.silent and len(self.unacked[uri]) < UNACKED_MAX:
            self.post(uri, self.random.choice((1, 1, 1, 2, 5)))

    def post(self, uri: str, count: int) -> None:
        """Post `count` messages in one event, now or when the queue opens."""
        posts = []
        for _ in range(count):
            self._numbers[uri] += 1
            guid = self._guids.make(self.world.clock.us * 1000)
            size = self.random.randrange(self.size_max)
            x = self.random.randrange(X_MAX) if uri in self.with_properties else None
            shape = self._shaping.randrange(len(SHAPES)) if self._shaping is not None and x is not None else 0
            post = Post(guid, uri, self.name, self._numbers[uri], size, self.world.clock.us, x, shape)
            self.world.records.posted(post)
            self.unacked[uri][guid] = post
            posts.append(post)
        if uri in self.opened:
            self._put(uri, posts, is_new=True)

    def _schema_id(self, uri: str, shape: int, *, is_new: bool) -> int:
        """Return the number of a shape, with a bit that says whether it had another one before.

        A message that is sent again says nothing of the number that its shape has.
        """
        if not shape or not is_new:
            return int(shape > 0)
        numbers = self._shapes[uri]
        if shape in numbers:
            numbers.move_to_end(shape)
            return numbers[shape] << 1
        numbers[shape] = len(numbers) + 1 if len(numbers) < NUMBERS_MAX else numbers.popitem(last=False)[1]
        return numbers[shape] << 1 | 1

    def _put(self, uri: str, posts: list[Post], *, is_new: bool) -> None:
        if not posts:
            return
        out = bytearray()
        queue_id = self.uris.index(uri)
        for post in posts:
            self.world.records.sent(post)
            payload = payload_of(post)
            flags = int(PutFlag.ACK_REQUESTED) if post.x is None else _WITH_PROPERTIES
            schema_id = self._schema_id(uri, post.shape, is_new=is_new)
            append_put(out, queue_id, post.guid, payload, crc32c(payload), flags, 0, schema_id)
            self._due[post.guid] += 1
            if self._spoiling is not None and self._spoiling.random() < SPOILED_PART:
                guid = self._spoiling.randbytes(len(post.guid))
                self._spoiled.add(guid)
                append_put(out, queue_id, guid, payload, crc32c(payload) ^ 1, flags, 0, schema_id)
        self.send(build_event(EventType.PUT, out))

    def tap(self, item: Item, link: Link) -> None:
        if not isinstance(item, Ack):
            return
        if item.guid in self._spoiled:
            if not item.status:
                raise Violation(f"{self.name} is acknowledged a post whose checksum is wrong")
            return
        self.world.records.ack(item.guid, item.status)
        if self.link is link:
            if not self._due[item.guid]:
                raise Violation(f"{name_of(self.world.records.posts[item.guid])} is acknowledged twice")
            self._due[item.guid] -= 1
        if item.status == AckStatus.LIMIT_MESSAGES and self.host is not None:
            check_refusal(self.host.node, self.uris[item.queue_id], item.guid)

    def repeat(self) -> None:
        """Receive acks again, after a new connection."""
        self.is_deaf = False
        self.silent.clear()
        if not self.is_away:
            self.leave(1)

    def received(self, item: Item) -> None:
        assert isinstance(item, Ack)
        if self.is_deaf:
            return
        if item.guid in self._spoiled:
            return
        self.unacked[self.uris[item.queue_id]].pop(item.guid, None)
        if item.status:
            self.refused_count += 1
        else:
            self.acked += 1


class Consumer(Client):
    """Reads one app of each of its queues, and confirms after a while, or keeps what it got until it must hurry.

    A queue's place is its id; with `one_id` all places are apps of one queue under one id. With `has_each` it has a
    subscription for each of the `PARTS`.
    """

    def __init__(
        self,
        world: World,
        name: str,
        reads: list[tuple[str, str]],
        part: str = "",
        *,
        one_id: bool = False,
        has_each: bool = False,
    ) -> None:
        super().__init__(world, name)
        self._parts = tuple(PARTS) if has_each else ()
        self.reads = reads  # (URI, app id; none for a queue of one app)
        self.subscribed = 0  # the number of them
        self.tuning = Tuning(0, self.random.choice((1, 3, 1000)), part)  # what it wants
        self._tunings: list[list[Tuning]] = [[] for _ in reads]  # what is in force, and what it has asked for since
        self._ids = [(0, place + 1) if one_id else (place, int(bool(app))) for place, (_, app) in enumerate(reads)]
        self._held: list[dict[bytes, int]] = [{} for _ in reads]  # by GUID, the id of the subscription
        self._shapes: dict[tuple[int, int], int] = {}  # by queue id and number
        self.confirm_us = 15_000
        self.keeps_part = 0.02
        self._kept: list[tuple[int, bytes]] = []
        self._closing: set[int] = set()  # places that it closes, and has not open again
        self.closed_us = 0  # how long it leaves closed what it has closed
        self.got = 0

    def open_all(self) -> None:
        for place in range(len(self.reads)):
            self.ask(OpenQueue(handle_parameters=self._parameters(place)))

    def _parameters(self, place: int) -> QueueHandleParameters:
        (queue_id, sub_id), (uri, app) = self._ids[place], self.reads[place]
        info = SubQueueIdInfo(sub_id=sub_id, app_id=app) if app else None
        return handle(queue_id, f"{uri}?id={app}" if app else uri, READ, sub_id_info=info)

    def close_and_open(self) -> None:
        # A second close in flight would be refused, repeated, and close what is open again by then.
        if not self.is_ready or self._closing or any(len(tunings) > 1 for tunings in self._tunings):
            return
        self.confirm_kept()
        for place in range(len(self.reads)):
            self._closing.add(place)
            self.ask(CloseQueue(handle_parameters=self._parameters(place)))

    def succeeded(self, request: Request) -> None:
        if not isinstance(request, ConfigureStream):
            parameters = request.handle_parameters
            info = parameters.sub_id_info
            place = self._ids.index((parameters.q_id, info.sub_id if info else 0))
            if isinstance(request, OpenQueue):
                self._closing.discard(place)
                self._configure(place)
            else:
                self._tunings[place].clear()
                self._held[place].clear()
                self.subscribed -= 1
                self._open_again(OpenQueue(handle_parameters=parameters))
            return
        place = _place(request.stream_parameters.subscriptions[0].s_id)
        tunings = self._tunings[place]
        if len(tunings) > 1:
            tunings.pop(0)
        else:
            self.subscribed += 1
        if tunings[-1] != self.tuning:
            self._configure(place)

    def _open_again(self, request: OpenQueue) -> None:
        link = self.link
        if self.closed_us:
            self.world.clock.after(self.closed_us, lambda: self.ask(request) if self.link is link else None)
        else:
            self.ask(request)

    def _configure(self, place: int) -> None:
        tuning = self.tuning
        self._tunings[place].append(tuning)
        consumer = ConsumerInfo(
            max_unconfirmed_messages=tuning.messages_max,
            max_unconfirmed_bytes=tuning.bytes_max,
            consumer_priority=tuning.priority,
            consumer_priority_count=1,
        )
        app = self.reads[place][1]
        version = ExpressionVersion.VERSION_1 if tuning.part or self._parts else ExpressionVersion.UNDEFINED
        subscriptions = [
            Subscription(
                s_id=number * PLACES_MAX + place + 1,
                expression=Expression(version=version, text=part),
                consumers=(consumer,),
            )
            for number, part in enumerate(self._parts or (tuning.part,))
        ]
        parameters = StreamParameters(app_id=app or "__default", subscriptions=tuple(subscriptions))
        self.ask(ConfigureStream(q_id=self._ids[place][0], stream_parameters=parameters))

    def tune(self, tuning: Tuning) -> None:
        """Want other parameters from now on."""
        self.tuning = tuning
        for place, tunings in enumerate(self._tunings):
            if self.is_ready and not self._closing and len(tunings) == 1 and tunings[0] != tuning:
                self._configure(place)

    def forget(self) -> None:
        self._kept.clear()
        self._shapes.clear()
        self._closing.clear()
        for place, tunings in enumerate(self._tunings):
            tunings.clear()
            self._held[place].clear()
        self.subscribed = 0

    @property
    def is_ready(self) -> bool:
        """Return True if it receives new messages."""
        return self.subscribed == len(self.reads)

    def tap(self, item: Item, link: Link) -> None:
        if isinstance(item, Pushed):
            place = _place(item.subscription_id)
            uri, app = self.reads[place]
            records = self.world.records
            is_heard = self.link is link
            self.world.attempts.pushed(link, self.host if is_heard else None, uri, app or "__default", item.guid)
            records.push(self, uri, app or "__default", item.guid, item.payload, is_heard=is_heard)
            x = records.posts[item.guid].x
            parts = [each.part for each in self._tunings[place]]
            if self._parts:
                parts = [self._parts[item.subscription_id // PLACES_MAX]]
            if is_heard and not any(wants(part, x) for part in parts):
                raise Violation(f"{self.name} wants {parts}, and gets a message of which x is {x}")
            # The number of a shape has no checksum: it may rot without a trace.
            if is_heard and not any(host.disk.has_rotted for host in self.world.hosts):
                self._learn(item.queue_id, item.schema_id, records.posts[item.guid].shape)

    def _learn(self, queue_id: int, schema_id: int, shape: int) -> None:
        """Check that it can read the properties of a message by the shape that their number had before."""
        number = schema_id >> 1
        known = shape if schema_id & 1 else self._shapes.get((queue_id, number), shape)
        if number:
            self._shapes[queue_id, number] = shape
        if known != shape or (shape > 0) != (schema_id > 0):
            raise Violation(f"{self.name} takes properties of shape {shape} for {known}: their schema is {schema_id}")

    def received(self, item: Item) -> None:
        assert isinstance(item, Pushed)
        self.got += 1
        place = _place(item.subscription_id)
        uri, _ = self.reads[place]
        if self.world.records.promises[uri] is Promise.PASSED or place in self._closing:
            return
        self._count(place, item.guid, item.subscription_id)
        if self.world.attempts.kills(uri, item.guid):
            self.world.say(f"{self.name} dies of a message")
            self.leave(self.world.attempts.away_us())
            return
        self._kept.append((place, item.guid))
        if self.world.is_busy and self.random.random() < self.keeps_part:
            return
        if self.world.is_ending:
            return
        link = self.link
        what = self._kept.pop()

        def confirm() -> None:
            if self.link is link:
                self.confirm([what])

        hold_us = self.world.attempts.hold_us(uri, item.guid)
        self.world.clock.after(hold_us + int(self.random.expovariate(1) * self.confirm_us), confirm)

    def _count(self, place: int, guid: bytes, subscription_id: int) -> None:
        """Check that a subscription holds no more than it has asked for.

        Messages that others were done with do not count, nor those of an app before its domain named it for good.
        """
        all_held, tuning = self._held[place], self._tunings[place][0]
        if guid in all_held:
            return
        all_held[guid] = subscription_id
        posts = self.world.records.posts
        held = {each for each, by in all_held.items() if by == subscription_id}
        # The last one may exceed the limit of bytes.
        size = sum(len(payload_of(posts[each])) for each in held - {guid})
        if len(held) <= tuning.messages_max and size < tuning.bytes_max:
            return
        uri, app = self.reads[place]
        records, view = self.world.records, self.world.records.views[uri][app or "__default"]
        held -= view.confirm_sent
        held -= {each for each in held if posts[each].purged or posts[each].refused}
        held -= {each for each in held if posts[each].made_us < view.begun_us}
        size = sum(len(payload_of(posts[each])) for each in held - {guid})
        is_beyond = len(held) > tuning.messages_max or size >= tuning.bytes_max
        if is_beyond and view.owes and records.promises[uri] is Promise.KEPT and uri not in records.lives_us:
            what = f"{len(held)} messages of {uri}, {size} bytes before the last"
            raise Violation(f"{self.name} holds {what}, and has asked for {tuning}")

    def confirm_kept(self) -> None:
        """Be done with all that is held."""
        kept, self._kept = self._kept, []
        self.confirm(kept)

    def confirm_some(self, random: Random) -> None:
        """Be done with some of what is held, of any app and in any order, in one event."""
        kept, self._kept = self._kept, []
        random.shuffle(kept)
        count = random.randint(0, len(kept))
        self._kept = kept[count:]
        self.confirm(kept[:count], odd_at=random.randint(0, count) if random.random() < 0.2 else None)

    def confirm(self, what: list[tuple[int, bytes]], *, odd_at: int | None = None) -> None:
        """Send one event of confirms; once a node has handled it, it must hold.

        At `odd_at` it has one for a sub-queue id that is not open: the others hold all the same.
        """
        what = [each for each in what if each[0] not in self._closing]
        if not what or self.link is None:
            return
        records = self.world.records
        done = [(*self.reads[place], guid) for place, guid in what]
        for uri, app, guid in done:
            records.confirm_sent(uri, app or "__default", guid)
            self.world.attempts.confirmed(self.link, app or "__default", guid)
        rows = [(self._ids[place][0], guid, self._ids[place][1]) for place, guid in what]
        for place, guid in what:
            self._held[place].pop(guid, None)
        if odd_at is not None:
            rows.insert(odd_at, (rows[0][0], rows[0][1], NO_SUB_ID))
        host = self.host

        def taken() -> None:
            for uri, app, guid in done:
                records.confirmed(uri, app or "__default", (guid,))
                if host is not None:
                    self.world.passage.confirmed(host, app or "__default", guid, self.world.clock.us)

        self.send(build_confirm_event(rows), taken)
