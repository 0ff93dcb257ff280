"""Admission of requests that change the tables of a nameserver.

A broker registers from its own host. While its connection is open, only that connection can unregister it, and only the
next elected master under controllers can take its id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from broker.rocketmq.nameserver.routes import Registration, Routes
from broker.rocketmq.remoting.administrators import Administrators
from broker.rocketmq.remoting.peers import KnownPeers, escaped
from broker.rocketmq.remoting.session import Session
from formats.errors import FormatError
from formats.rocketmq.hosts import split_address
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.table import HEADERS

__all__ = ["AdmissionRefusal", "NameserverAdmission"]

_FROM_BROKERS: Final = frozenset({RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER})
_ADMINISTRATIVE: Final = frozenset(
    {
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
    }
)


class AdmissionRefusal(NamedTuple):
    """The reason of a refusal, and the host whose addresses may have changed since the last lookup, or None."""

    reason: str
    host: str | None = None


class NameserverAdmission:
    """Decides which requests a nameserver accepts. `is_signed` checks a registration's signature."""

    def __init__(
        self,
        routes: Routes,
        peers: KnownPeers,
        administrators: Administrators,
        is_signed: Callable[[Frame], bool] = lambda frame: True,
    ) -> None:
        self._routes = routes
        self._peers = peers
        self._administrators = administrators
        self._is_signed = is_signed

    def refusal(self, request: Frame, session: Session) -> AdmissionRefusal | None:
        """Return why a connection may not send a request; None if it may, or the request is unreadable."""
        code = request.code
        if code in _ADMINISTRATIVE:
            if self._administrators.networks is None:
                return None
            reason = self._administrators.refusal(session.host.address, self._peers, ())
            return None if reason is None else AdmissionRefusal(reason)
        if code not in _FROM_BROKERS:
            return None
        codecs = HEADERS.get(code)
        assert codecs is not None
        assert codecs.request is not None
        try:
            header: Any = codecs.request.read(request.ext_fields)
        except FormatError:
            return None
        address: str = header.broker_addr
        place = split_address(address)
        if place is None:
            return AdmissionRefusal(f"'{escaped(address)}' is no HOST:PORT")
        if not self._is_signed(request):
            return AdmissionRefusal(
                "the nodes of this cluster sign their registrations: innerClientAuthenticationCredentials"
            )
        reason = self._peers.refusal(place[0], session)
        if reason is not None:
            return AdmissionRefusal(f"it speaks for the broker at {escaped(address)}, but {reason}", place[0])
        owner = self._routes.owner_of(header.broker_name, address)
        if code == RequestCode.UNREGISTER_BROKER and owner is not None and owner is not session:
            return AdmissionRefusal(f"broker {escaped(address)} has registered by another connection, which is open")
        return None

    def refuse_takeover(self, told: Registration, connection: object) -> str | None:
        """Return why a broker may not replace a registered one; None if it may, or replaces none."""
        if not isinstance(connection, Session) or self._peers.is_proven(connection):
            return None
        for name, owner in self._routes.owners_at(told.address):
            # A restarted broker may register before the loss of its old connection is noticed, except on this machine,
            # whose kernel closes the connections of a process that ends.
            is_restart = name == told.name and isinstance(owner, Session) and not self._is_local(owner)
            if owner is not connection and not is_restart:
                known = f"broker {escaped(told.address)} is registered as {escaped(name)}"
                return f"{known} by another connection, which is open"
        holder = self._routes.holder(told.name, told.broker_id)
        if holder is None or holder.address == told.address or holder.connection is connection:
            return None
        # Only where controllers elect masters may an id pass from one live broker to another.
        if told.topics.data_version.state_version > holder.state_version > 0:
            return None
        return f"broker {escaped(holder.address)} has id {told.broker_id} of {escaped(told.name)}, and is there"

    def _is_local(self, session: Session) -> bool:
        return self._peers.addresses.is_here(session.host.address)
