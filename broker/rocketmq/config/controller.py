"""The configuration of a controller, beside a nameserver or alone, and of the group that it belongs to."""

from __future__ import annotations

from dataclasses import replace

from broker.rocketmq.config.node import PropertyError, RocketConfig
from broker.rocketmq.controller.options import FIRST_ID, read_peers
from formats.rocketmq.hosts import Host

__all__ = ["with_controller", "with_peers"]


def with_controller(config: RocketConfig, port: int | None) -> RocketConfig:
    """Make the configuration of a node with a controller on a port, if no others are configured for its group.

    Without a port, only check the configuration. Raises `PropertyError`.
    """
    options = config.controller
    if port is not None:
        if options.peers:
            raise PropertyError("a port of a controller is given, but controllerDLegerPeers has those of all")
        address = str(Host(config.broker_options.address.address, port))
        options = replace(options, peers={FIRST_ID: address}, self_id=FIRST_ID)
    elif not config.has_controller:
        return config
    if not options.peers:
        raise PropertyError(
            "a controller needs controllerDLegerPeers, the addresses of all controllers of its group by their ids, "
            f"as in {FIRST_ID}-127.0.0.1:9878"
        )
    if options.self_id not in options.peers:
        raise PropertyError(
            f"controllerDLegerSelfId is '{options.self_id}'; it has to be one of the ids in controllerDLegerPeers: "
            + ", ".join(options.peers)
        )
    return replace(config, controller=options, has_controller=True)


def with_peers(
    config: RocketConfig, peers: str | None, self_id: str | None, port: int | None, default_port: int
) -> RocketConfig:
    """Make the configuration of a controller that runs alone, or of one of several. Raises `PropertyError`."""
    options = config.controller
    try:
        options = replace(options, peers=options.peers if peers is None else read_peers(peers))
    except ValueError as error:
        raise PropertyError(f"the controllers' addresses: '{peers}' {error}") from None
    options = replace(options, self_id=options.self_id if self_id is None else self_id)
    found = replace(config, controller=options, has_controller=True)
    return with_controller(found, port or (None if options.peers else default_port))
