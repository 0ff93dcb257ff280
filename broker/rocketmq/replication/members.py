"""The brokers of one name that can stand in for each other, as nameservers know them (source: BrokerController).

With an acting master, each broker sends nameservers a heartbeat every second, so that they drop it soon after it fails,
and requests the other brokers: a master counts them, and a slave learns that the master is back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from broker.rocketmq.administration.registration import Nameservers
from broker.rocketmq.remoting.peers import KnownPeers
from broker.rocketmq.remoting.proof import UNPROVEN
from broker.rocketmq.remoting.requests import Handlers, Request, success
from broker.rocketmq.replication.options import ReplicationOptions, Role
from broker.rocketmq.replication.streams.roster import told_members
from broker.rocketmq.tables.options import BrokerOptions
from formats.rocketmq.hosts import split_address
from formats.rocketmq.remoting.bodies.routes import MASTER_ID
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import read_header, write_header
from formats.rocketmq.remoting.headers.replicating import ExchangeHaInfoRequest, ExchangeHaInfoResponse
from formats.rocketmq.remoting.headers.routing import BrokerHeartbeatRequest, GetBrokerMemberGroupRequest

__all__ = ["FoundMaster", "Members"]

log = logging.getLogger("broker.rocketmq.replication")


# Called with the address of a found master, and with the one for its log, if known.
FoundMaster = Callable[[str, str | None], None]


class Members:
    """All brokers of this name; see `node.Part`. `alive` is their number, this one included.

    `flushed` returns the offset up to which this log is on the disk. `now_ms` is a clock that never goes back. `peers`
    decides which hosts may speak for a master. `announce` is called with the host of a slave that asks this master for
    its addresses.
    """

    def __init__(
        self,
        options: ReplicationOptions,
        broker: BrokerOptions,
        flushed: Callable[[], int],
        now_ms: Callable[[], int],
        peers: KnownPeers | None = None,
        announce: Callable[[str], None] = lambda address: None,
    ) -> None:
        self._peers = peers or KnownPeers()
        self._announce = announce
        self.alive = options.total_replicas
        # The others by id, from the nameservers' last answer; None before the first.
        self.others: dict[int, str] | None = None
        # The least id of all, assumed to be the master's until nameservers name another.
        self.least = MASTER_ID
        self._options = options
        self._broker = broker
        self._flushed = flushed
        self._now_ms = now_ms
        self._nameservers: Nameservers | None = None
        self._found: FoundMaster = lambda address, ha_address: None
        self._wall_ms: Callable[[], int] = now_ms
        self._beat_ms: int | None = None
        self._asked_ms: int | None = None
        self._is_asking = False
        self.handlers: Handlers = {
            RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: self._notified,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self._exchange,
        }

    def join(self, nameservers: Nameservers, wall_ms: Callable[[], int], found: FoundMaster | None = None) -> None:
        """Begin to work. On a slave, `found` is called with a found master."""
        self._nameservers, self._wall_ms = nameservers, wall_ms
        if found is not None:
            self._found = found

    # -- see `node.Part`

    def end_step(self) -> bool:
        return False

    def leave(self) -> None:
        """Do nothing: the registration unregisters the broker."""

    def tick(self) -> None:
        nameservers, now_ms = self._nameservers, self._now_ms()
        if nameservers is None:
            return
        if self._beat_ms is None or now_ms - self._beat_ms >= self._options.beat_ms:
            self._beat_ms = now_ms
            nameservers.beat(self._heartbeat(), self._wall_ms())
        is_due = self._asked_ms is None or now_ms - self._asked_ms >= self._options.members_ms
        if is_due and not self._is_asking:
            self._asked_ms, self._is_asking = now_ms, True
            header = GetBrokerMemberGroupRequest(self._broker.cluster, self._broker.name)
            request = Frame(RequestCode.GET_BROKER_MEMBER_GROUP, 0, ext_fields=write_header(header))
            nameservers.ask(request, self._wall_ms(), self._answered)

    def _heartbeat(self) -> Frame:
        broker = self._broker
        header = BrokerHeartbeatRequest(broker.cluster, str(broker.address), broker.name, broker.broker_id)
        return Frame(RequestCode.BROKER_HEARTBEAT, 0, ext_fields=write_header(header))

    # -- the others

    def _answered(self, answers: Sequence[Frame]) -> None:
        """Handle the nameservers' answers: a broker counts as alive if one of them knows it."""
        self._is_asking = False
        told = told_members(answers)
        if told is None:
            return
        self.others = {each: address for each, address in told.items() if each != self._broker.broker_id}
        if told:
            self.alive = len(self.others) + 1
            least = min(told)
            self._take_least(least, told[least])

    def _take_least(self, least: int, address: str) -> None:
        """Note the broker with the least id: the acting master, or the master itself."""
        if self._options.role is not Role.SLAVE or least == self.least:
            return
        if split_address(address) is None:
            log.warning("a nameserver says that broker %d is at %r, which is no HOST:PORT", least, address[:80])
            return
        log.warning(
            "broker %d at %s has the least id of those that are there; before, %d had", least, address, self.least
        )
        self.least = least
        if least == MASTER_ID:
            self._found(address, None)

    # -- requests

    def _notified(self, request: Request) -> Frame:
        """Request the least id at the next tick, since any process can send such a notice."""
        self._asked_ms = None
        return success()

    def _exchange(self, request: Request) -> Frame:
        """Take the addresses of a master that is about to register, or return this master's."""
        header, broker = read_header(ExchangeHaInfoRequest, request.fields), self._broker
        if self._options.role is not Role.SLAVE:
            if header.master_ha_address is not None:
                return success(ExchangeHaInfoResponse())
            self._announce(request.peer.host.address)
            told = ExchangeHaInfoResponse(broker.ha_address, self._flushed(), str(broker.address))
            return success(told)
        if header.master_ha_address is not None and header.master_address is not None:
            refusal = self._refuse((header.master_address, header.master_ha_address), request.peer.host.address)
            if refusal is None:
                self._found(header.master_address, header.master_ha_address)
            else:
                log.warning("a message that claims to be from this broker's master is ignored: %s", refusal)
        return success(ExchangeHaInfoResponse())

    def _refuse(self, places: tuple[str, ...], address: str) -> str | None:
        """Return why a message from `address` about a master's addresses is ignored; None if it counts.

        Masters that know the secret register with nameservers, and send no such message.
        """
        if self._peers.secret is not None:
            return UNPROVEN
        for place in places:
            found = split_address(place)
            reason = f"{place[:80]!r} is no HOST:PORT"
            refusal = reason if found is None else self._peers.refusal_of_address(found[0], address)
            if refusal is not None:
                return refusal
        return None
