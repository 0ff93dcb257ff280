"""Elections that an administrator asks for."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bmqctl.clients.rocketmq.link import AccessKeys, RemotingLink
from bmqctl.systems.rocketmq.status.asker import Asker, NobodyAnswers, body_of
from bmqctl.systems.rocketmq.status.asking import Places, Secret, hear
from bmqctl.systems.rocketmq.status.view import Broker, view_of
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.headers.codec import read_header, write_header
from formats.rocketmq.remoting.headers.replicating import ElectMasterRequest, ElectMasterResponse

__all__ = ["step_down"]


async def step_down(places: Places, name: str, wanted: int | None, timeout_s: float, secret: Secret | None) -> str:
    """Have a broker in sync become the master of a name, the one with an id or the one that lacks least.

    Returns its address. Raises `NobodyAnswers`, also if there is no such broker, or the controller refuses.
    """
    view = view_of(await hear(places, timeout_s, secret))
    found = next((each for each in view.names if each.name == name), None)
    if found is None:
        raise NobodyAnswers(
            f"{name}: no such brokers; there are {', '.join(each.name for each in view.names) or 'none'}"
        )
    if view.leader is None or not found.has_controller:
        raise NobodyAnswers(f"{name}: no controller leads that knows these brokers, and only controllers elect masters")
    chosen = _chosen(name, found.brokers, wanted)
    header = ElectMasterRequest(
        found.cluster, name, chosen, designate_elect=True, invoked_ms=time.time_ns() // 1_000_000
    )

    async def elect(link: RemotingLink) -> str:
        answer = await link.call(RequestCode.CONTROLLER_ELECT_MASTER, write_header(header), timeout_s)
        body_of(answer, f"broker {chosen} as the master of {name}")
        return read_header(ElectMasterResponse, answer.ext_fields).master_address or ""

    keys = None if secret is None else AccessKeys(*secret)
    return await Asker(timeout_s, keys).over(view.leader, elect)


def _chosen(name: str, brokers: Sequence[Broker], wanted: int | None) -> int:
    fit = {
        each.broker_id: each
        for each in brokers
        if each.broker_id is not None and not each.is_master and each.is_in_sync and each.error is None
    }
    if wanted is not None and wanted not in fit:
        raise NobodyAnswers(
            f"{name}: broker {wanted} is no slave in sync; there are {', '.join(map(str, fit)) or 'none'}"
        )
    if not fit:
        raise NobodyAnswers(f"{name}: no slave is in sync, which could become the master")
    return wanted if wanted is not None else min(fit, key=lambda each: (fit[each].behind or 0, each))
