"""The tool's parameters, from its command line or a profile (source: `m_bmqtool::Parameters`, `bmqtoolcmd.xsd`)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bmqctl.cli.tool.commands import MessageProperty, Subscription, parse_flags, properties_of
from bmqctl.cli.tool.grammar import CommandError, decode, encode
from bmqctl.cli.tool.log import DEFAULT_FORMAT, Severity

__all__ = [
    "LATENCIES",
    "MODES",
    "VERBOSITIES",
    "ParameterError",
    "Parameters",
    "default_broker",
    "dump_profile",
    "load_profile",
]

MODES: Final = ("cli", "auto", "storage", "syschk")
LATENCIES: Final = ("none", "hires", "epoch")
VERBOSITIES: Final[dict[str, Severity]] = {
    "silent": Severity.OFF,
    "trace": Severity.TRACE,
    "debug": Severity.DEBUG,
    "info": Severity.INFO,
    "warning": Severity.WARN,
    "error": Severity.ERROR,
    "fatal": Severity.ERROR,
}
_DEFAULT_PORT: Final = "30114"
_UNCONFIRMED = re.compile(r"\s*(\d+)\s*:\s*(\d+)\s*")
_COUNT = re.compile(r"(\d+)([sS]?)")


class ParameterError(Exception):
    """An invalid option; the text names it."""


def default_broker() -> str:
    """Return the default broker: on this host, at the port in `BMQ_PORT`."""
    return f"tcp://localhost:{os.environ.get('BMQ_PORT', _DEFAULT_PORT)}"


@dataclass(slots=True)
class Parameters:
    """The fields of a profile, under the reference's names in snake case."""

    mode: str = "cli"
    broker: str = ""
    tls_authority: str = ""
    queue_uri: str = ""
    queue_flags: str = ""
    latency: str = "none"
    latency_report: str = ""
    dump_msg: bool = False
    confirm_msg: bool = False
    event_size: int = 1
    msg_size: int = 1024
    post_rate: int = 1
    events_count: str = "0"
    max_unconfirmed: str = "1024:33554432"
    post_interval: int = 1000
    verbosity: str = "info"
    log_format: str = DEFAULT_FORMAT
    memory_debug: bool = False
    threads: int = 1
    shutdown_grace: int = 0
    no_session_event_handler: bool = False
    storage: str = ""
    log: str = ""
    sequential_message_pattern: str = ""
    message_properties: tuple[MessageProperty, ...] = ()
    subscriptions: tuple[Subscription, ...] = ()
    auto_pub_sub_modulo: int = 0
    timeout_sec: int = 300
    authn_mechanism: str = ""
    authn_data: str = field(default="", repr=False)

    def check(self) -> None:
        """Raise `ParameterError` if options do not fit together, `CommandError` if one is invalid."""
        for name, value, allowed in (
            ("mode", self.mode, MODES),
            ("latency", self.latency, LATENCIES),
            ("verbosity", self.verbosity, tuple(VERBOSITIES)),
        ):
            if value.lower() not in allowed:
                raise ParameterError(f"{name} must be one of {', '.join(allowed)}, not '{value}'")
        self.mode, self.latency, self.verbosity = self.mode.lower(), self.latency.lower(), self.verbosity.lower()
        if self.mode == "auto" and not self.queue_uri:
            raise ParameterError("--queueuri must be given in mode auto")
        if self.mode == "auto" and not self.queue_flags:
            raise ParameterError("--queueflags must be given in mode auto")
        if self.no_session_event_handler and self.mode not in ("cli", "storage"):
            raise ParameterError("--nosessioneventhandler goes with the modes cli and storage only")
        if self.latency != "none" and self.sequential_message_pattern:
            raise ParameterError("--latency and --messagepattern exclude each other")
        for name, number in (
            ("--eventsize", self.event_size),
            ("--msgsize", self.msg_size),
            ("--postrate", self.post_rate),
            ("--postinterval", self.post_interval),
            ("--shutdownGrace", self.shutdown_grace),
            ("--autoPubSubModulo", self.auto_pub_sub_modulo),
            ("--timeout", self.timeout_sec),
        ):
            if number < 0:
                raise ParameterError(f"{name} must not be negative")
        self.limits()
        self.events()
        parse_flags(self.queue_flags)
        properties_of(self.message_properties)

    def limits(self) -> tuple[int, int]:
        """Limits of unconfirmed messages and bytes."""
        match = _UNCONFIRMED.fullmatch(self.max_unconfirmed)
        if match is None:
            raise ParameterError(f"--maxunconfirmed must be MESSAGES:BYTES, not '{self.max_unconfirmed}'")
        return int(match[1]), int(match[2])

    def events(self) -> int:
        """Number of events to post; 0 is unlimited."""
        match = _COUNT.fullmatch(self.events_count.strip())
        if match is None:
            raise ParameterError(f"--eventscount must be a number, or seconds as in 30s, not '{self.events_count}'")
        if not match[2]:
            return int(match[1])
        if not self.post_interval:
            raise ParameterError("--eventscount in seconds needs a --postinterval")
        return int(match[1]) * 1000 // self.post_interval * self.post_rate


def load_profile(text: str) -> Parameters:
    """Parse a JSON profile; omitted parameters have their defaults. Raises `ParameterError` if it is invalid."""
    try:
        values = json.loads(text)
    except json.JSONDecodeError as fault:
        raise ParameterError(f"no JSON: {fault}") from None
    if not isinstance(values, Mapping):
        raise ParameterError("not a JSON object")
    known: dict[str, Any] = {"broker": default_broker(), **values}
    try:
        return decode(Parameters, known)
    except CommandError as fault:
        raise ParameterError(str(fault)) from None


def dump_profile(parameters: Parameters) -> str:
    return json.dumps(encode(parameters), indent=2)
