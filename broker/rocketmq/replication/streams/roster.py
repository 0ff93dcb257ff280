"""The other brokers of this name, from whose hosts slaves connect, as nameservers or controllers know them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker.rocketmq.remoting.peers import KnownPeers
from formats.errors import FormatError
from formats.rocketmq.hosts import split_address
from formats.rocketmq.remoting.bodies.controllers import BROKER_REPLICAS
from formats.rocketmq.remoting.bodies.routes import BROKER_MEMBER_GROUP_BODY
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame

__all__ = ["MEMBERS_MAX", "Found", "Roster", "told_members", "told_replicas"]

log = logging.getLogger("broker.rocketmq.replication")

# Minimum interval between requests for the addresses, as each stranger's connection would cause one.
ASK_MS: Final = 200
MEMBERS_MAX: Final = 1_024

# Receives the addresses of brokers, HOST:PORT, by id; None if no answer has them.
Found = Callable[[Mapping[int, str] | None], None]


class Roster:
    """The brokers that may connect as slaves. `ask` requests their addresses; `own_id` returns this broker's id.

    Known hosts are kept: nameservers forget a slave that loses the connection to them.
    """

    def __init__(
        self,
        peers: KnownPeers,
        ask: Callable[[Found], None],
        own_id: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._peers = peers
        self._ask = ask
        self._own_id = own_id
        self._now_ms = now_ms
        self._hosts: dict[int, str] = {}
        self._announced: dict[str, None] = {}
        self._waiting: list[Callable[[], None]] = []
        self._is_asking = False
        self._asked_ms: int | None = None

    def announce(self, address: str) -> None:
        """Admit a host that has asked this master for its addresses; the last `MEMBERS_MAX` are kept.

        Where a slave can act as master, Apache's registers only once it copies the log. A stranger could register as
        well, unless nameservers accept only signed registrations; `peerSecretKey` keeps it out.
        """
        self._announced.pop(address, None)
        self._announced[address] = None
        if len(self._announced) > MEMBERS_MAX:
            del self._announced[next(iter(self._announced))]

    def refusal(self, address: str, broker_id: int | None = None) -> str | None:
        """Return why an address is no slave's, or not that of the slave with this id; None if it is."""
        if broker_id is None and address in self._announced:
            return None
        own_id = self._own_id()
        hosts = [host for each, host in self._hosts.items() if each != own_id and broker_id in (None, each)]
        refusals = [self._peers.refusal_of_address(host, address) for host in dict.fromkeys(hosts)]
        if None in refusals:
            return None
        who = "no slave of this broker" if broker_id is None else f"no slave with id {broker_id}"
        return f"{who} is registered" if not refusals else f"it is {who}: {refusals[0]}"

    def renew(self, then: Callable[[], None]) -> bool:
        """Request the addresses, then call `then`; return False within `ASK_MS` of the last request."""
        if self._is_asking:
            self._waiting.append(then)
            return True
        now_ms = self._now_ms()
        if self._asked_ms is not None and now_ms - self._asked_ms < ASK_MS:
            return False
        self._asked_ms, self._is_asking = now_ms, True
        self._waiting.append(then)
        self._ask(self._take)
        return True

    def _take(self, found: Mapping[int, str] | None) -> None:
        for broker_id, address in (found or {}).items():
            place = split_address(address)
            if place is not None and (broker_id in self._hosts or len(self._hosts) < MEMBERS_MAX):
                self._hosts[broker_id] = place[0]
        names = {host for host in self._hosts.values() if not self._peers.addresses.of(host)}
        missing = 1

        def looked_up() -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                self._is_asking = False
                waiting, self._waiting = self._waiting, []
                for then in waiting:
                    then()

        for host in names:
            missing += 1
            if not self._peers.may_have_moved(host, looked_up):
                missing -= 1
        looked_up()


def told_members(answers: Sequence[Frame]) -> dict[int, str] | None:
    """Return the union of the addresses in the answers of nameservers; None without any."""
    told: dict[int, str] | None = None
    for answer in answers:
        if answer.code == ResponseCode.SUCCESS:
            try:
                group = BROKER_MEMBER_GROUP_BODY.read(answer.body).broker_member_group
            except FormatError as error:
                log.warning("a nameserver's answer about the brokers of this name cannot be read: %s", error)
            else:
                told = group.broker_addrs | (told or {})
    return told


def told_replicas(answer: Frame | None, name: str) -> dict[int, str] | None:
    """Return the addresses of a name's brokers in a controller's answer; None without any."""
    if answer is None or answer.code != ResponseCode.SUCCESS:
        return None
    try:
        replicas = BROKER_REPLICAS.read(answer.body).replicas_info_table.get(name)
    except FormatError as error:
        log.warning("a controller's answer about the brokers of this name cannot be read: %s", error)
        return None
    if replicas is None:
        return None
    all_of_them = (*replicas.in_sync_replicas, *replicas.not_in_sync_replicas)
    return {each.broker_id: each.broker_address for each in all_of_them}
