"""A nameserver's routes and a broker's services on one port, for clients with one address only.

Source: RemotingProtocolServer, GetTopicRouteActivity. The original has this port at its proxy, which may run in a
broker's process; this broker serves it by itself.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.rocketmq.access.guard import Guard
from broker.rocketmq.nameserver.requests import RouteRequests
from broker.rocketmq.nameserver.service import is_allowed
from broker.rocketmq.remoting.session import Service, Session
from formats.rocketmq.remoting.bodies.routes import TopicRoute
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame

__all__ = ["OnePort", "moved_routes"]


class OnePort:
    """A broker that also answers requests for routes; see `remoting.session.Service`."""

    def __init__(self, broker: Service, routes: RouteRequests, guard: Guard) -> None:
        self._broker = broker
        self._routes = routes
        self._guard = guard
        # The broker reads messages itself, with nothing in between.
        self.take = broker.take

    def receive(self, frame: Frame, session: Session) -> None:
        """Answer a request for a route; pass all others to the broker."""
        if frame.code != RequestCode.GET_ROUTEINFO_BY_TOPIC or frame.is_response:
            self._broker.receive(frame, session)
        elif is_allowed(self._guard, frame, session):
            session.answer(frame, self._routes.answer(frame))

    def disconnected(self, session: Session) -> None:
        self._broker.disconnected(session)


def moved_routes(
    find: Callable[[str], TopicRoute | None], address: str, told: str
) -> Callable[[str], TopicRoute | None]:
    """Return a function like `find` in whose routes the broker at an address has another one.

    The addresses of other brokers stay: clients connect to them there.
    """

    def find_moved(topic: str) -> TopicRoute | None:
        route = find(topic)
        if route is None:
            return None
        brokers = [
            data._replace(broker_addrs={each: told if at == address else at for each, at in data.broker_addrs.items()})
            for data in route.broker_datas
        ]
        return route._replace(broker_datas=brokers)

    return find_moved
