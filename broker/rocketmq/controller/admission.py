"""Admission of requests at a controller: a change is accepted only from the node that it concerns.

`remoting.peers` recognizes nodes. Administrators' requests are accepted from configured addresses, and most of them
from the hosts of the group, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.rocketmq.access.guard import Guard
from broker.rocketmq.controller.groups import Groups
from broker.rocketmq.controller.liveness import Live
from broker.rocketmq.controller.options import ControllerOptions
from broker.rocketmq.remoting.administrators import Administrators
from broker.rocketmq.remoting.peers import KnownPeers, escaped
from broker.rocketmq.remoting.session import Session
from formats.rocketmq.hosts import split_address
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.routing import BrokerHeartbeatRequest
from formats.rocketmq.remoting.headers.table import HEADERS

__all__ = ["ControllerAdmission"]

FindLive = Callable[[str, int], Live | None]
# HOST:PORT.
_Place = str


class ControllerAdmission:
    """Decides which requests a controller accepts. `find_live` returns the state of a live broker."""

    def __init__(
        self,
        options: ControllerOptions,
        groups: Groups,
        find_live: FindLive,
        guard: Guard,
        peers: KnownPeers | None = None,
        administrators: Administrators | None = None,
    ) -> None:
        self._options = options
        self._groups = groups
        self._find_live = find_live
        self._guard = guard
        self._peers = peers or KnownPeers()
        self._administrators = administrators or Administrators(are_checked=lambda: guard.authenticates)
        # The admitted controllers, by connection.
        self._controllers: dict[Session, str] = {}

    def take(self, request: Frame, session: Session) -> bool:
        """Answer a request of a proof; return False for any other frame."""
        return self._peers.take(request, session)

    def check(self, request: Frame, session: Session) -> None:
        """Check a request, if access control is on. Raises `Denied` and `FormatError`."""
        if self._guard.is_on:
            self._guard.check(request, session.host.address)

    def refuse_controller(self, sender: str, session: Session) -> str | None:
        """Return why a connection is not recognized as controller `sender`'s; None if it is."""
        known = self._controllers.get(session)
        if known == sender:
            return None
        address = self._options.peers.get(sender)
        if known is not None or address is None or sender == self._options.self_id:
            return f"it says that it is controller '{escaped(sender)}'" + (f", and was {known}" if known else "")
        reason = self._peers.refusal(_host_of(address), session, sender)
        if reason is None:
            self._controllers[session] = sender
            return None
        # The lookup affects the next message.
        self._peers.may_have_moved(_host_of(address), lambda: None)
        return f"it says that it is controller {sender}, but {reason}"

    def disconnected(self, session: Session) -> None:
        self._controllers.pop(session, None)
        self._peers.disconnected(session)

    def admit(self, request: Frame, session: Session) -> Callable[[], str | None]:
        """Return a function that returns, now or later, why a connection may not send a request, or None.

        Raises `FormatError` for an invalid header.
        """
        code = request.code
        if code == RequestCode.UPDATE_CONTROLLER_CONFIG:
            return lambda: self._refuse_administrator(session, can_end_group=True)
        find, codecs = _PLACES.get(code), HEADERS.get(code)
        if code == RequestCode.CLEAN_BROKER_DATA:
            assert codecs is not None
            assert codecs.request is not None
            cleaned: Any = codecs.request.read(request.ext_fields)
            return lambda: self._refuse_administrator(session, can_end_group=cleaned.clean_living)
        if find is None or codecs is None or codecs.request is None:
            return lambda: None
        header: Any = codecs.request.read(request.ext_fields)

        def refusal() -> str | None:
            if code == RequestCode.CONTROLLER_ELECT_MASTER and header.designate_elect:
                return self._refuse_administrator(session, can_end_group=False)
            place = find(self._groups, header)
            if place is None or split_address(place) is None:
                # The decision about the request refuses it.
                return None
            return self._refuse_broker(place, session) or self._refuse_move(header, session)

        return refusal

    def refuse_beat(self, header: BrokerHeartbeatRequest, session: Session) -> str | None:
        """Return why a heartbeat is ignored; None if it counts."""
        place = _known(self._groups, header.broker_name, header.broker_id)
        return None if place is None else self._refuse_broker(place, session)

    def _refuse_broker(self, place: _Place, session: Session) -> str | None:
        host = _host_of(place)
        reason = self._peers.refusal(host, session)
        if reason is not None:
            self._peers.may_have_moved(host, lambda: None)
        return None if reason is None else f"it speaks for the broker at {escaped(place)}, but {reason}"

    def _refuse_move(self, header: Any, session: Session) -> str | None:
        """Return why a broker may not change its address, or None. A live broker cannot move to another host."""
        told = getattr(header, "broker_address", None)
        if told is None:
            return None
        name, broker_id = header.broker_name or "", header.broker_id or 0
        known, live = _known(self._groups, name, broker_id), self._find_live(name, broker_id)
        if known is None or live is None or told == known or live.owner is session:
            return None
        if self._peers.refusal(_host_of(known), session) is None:
            return None
        return f"broker {broker_id} of {escaped(name)} is alive at {known}"

    def _refuse_administrator(self, session: Session, *, can_end_group: bool) -> str | None:
        """Return why an administrator's request is refused; None if it is accepted.

        With a secret, the group's hosts do not count for a request that `can_end_group`, since every account of such a
        host has its address.
        """
        hosts: set[str] = set()
        if self._peers.secret is None or not can_end_group:
            hosts.update(_host_of(address) for address in self._options.peers.values())
            for group in self._groups.by_name.values():
                hosts.update(_host_of(replica.address) for replica in group.replicas.values())
        refusal = self._administrators.refusal(session.host.address, self._peers, hosts)
        if refusal is not None:
            for host in hosts:
                self._peers.may_have_moved(host, lambda: None)
        return refusal


def _host_of(place: _Place) -> str:
    found = split_address(place)
    return "" if found is None else found[0]


def _known(groups: Groups, name: str | None, broker_id: int | None) -> _Place | None:
    group = groups.by_name.get(name or "")
    return None if group is None else group.address(broker_id)


# Returns the address of the broker that a request speaks for; None if another check refuses it, or it changes nothing:
# an election that no known broker requests has the outcome of the leader's own elections.
_PLACES: Final[Mapping[int, Callable[[Groups, Any], _Place | None]]] = {
    RequestCode.CONTROLLER_APPLY_BROKER_ID: lambda groups, header: (header.register_check_code or "").partition(";")[0],
    RequestCode.CONTROLLER_REGISTER_BROKER: lambda groups, header: header.broker_address or "",
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: lambda groups, header: _known(
        groups, header.broker_name, header.master_broker_id
    ),
    RequestCode.CONTROLLER_ELECT_MASTER: lambda groups, header: _known(groups, header.broker_name, header.broker_id),
}
