"""`bmqctl check`: plugins for monitoring systems."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from bmqctl.carrying.bridge.ends import CannotBegin
from bmqctl.cli.contexts.command import DialingCommand
from bmqctl.cli.families import expanded
from bmqctl.cli.securing import Keys, Security
from bmqctl.cli.watch.cluster_options import Nameserver, Nodes, options_of
from bmqctl.client.address import BadAddress, parse_address
from bmqctl.common.ending import faults_end
from bmqctl.common.refusal import with_remedy
from bmqctl.common.render import Output, OutputFormat, print_values, until_reader_leaves
from bmqctl.systems.checking.verdict import (
    BadThreshold,
    Finding,
    Measured,
    Measurement,
    Status,
    Thresholds,
    judge,
    parse_range,
)
from bmqctl.systems.opening import open_cluster
from bmqctl.systems.system import Unanswered
from formats.bmq.uri import parse_uri
from formats.errors import FormatError

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True)

DEFAULT_BROKER = "tcp://localhost:30114"
DISK_VALUES = ("free", "free_bytes")
_KEYS = ("name", "value", "unit", "warning", "critical", "status")
_CLUSTER_USUAL = Thresholds(
    {"problems": parse_range("0")}, {"quorum": parse_range("1:"), "without_primary": parse_range("0")}
)
_DISK_USUAL = Thresholds({"free": parse_range("15:")}, {"free": parse_range("5:")})

Warnings = Annotated[
    list[str] | None,
    typer.Option(
        "--warning", "-w", metavar="NAME=RANGE", help="Warn if this value is outside the range.", show_default=False
    ),
]
Criticals = Annotated[
    list[str] | None,
    typer.Option(
        "--critical", "-c", metavar="NAME=RANGE", help="Critical if this value is outside.", show_default=False
    ),
]
Broker = Annotated[str, typer.Option("--broker", "-b", help="A node of the cluster, as tcp://HOST:PORT.")]
Timeout = Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each node.")]


class CheckCommand(DialingCommand):
    """A plugin: words that it does not understand make the state unknown, not critical."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the words; the exit code of a refusal is that of an unknown state."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except typer.Exit as refusal:
            raise typer.Exit(Status.UNKNOWN if refusal.exit_code else 0) from None
        except Exception as refusal:
            if hasattr(refusal, "exit_code"):
                refusal.exit_code = int(Status.UNKNOWN)
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the check; its state is unknown if the machine prevents it."""
        try:
            return super().invoke(ctx)
        except OSError as fault:
            with _Unknown(), faults_end(lambda: ctx.command_path.partition(" ")[2]):
                raise fault


@app.callback()
def root() -> None:
    """Check a queue, a group, a cluster, a disk or a certificate, as a plugin of a monitoring system.

    The output is one line with the state, a summary and performance data; `--output json` has the same for programs.

    A threshold is NAME=RANGE, in which a range is that of monitoring plugins: `100` is 0 to 100, `2:` is 2 or more,
    `10:20` is 10 to 20, `~:5` is 5 or less, and with `@` before it the alert is inside. Times are in seconds.

    Exit codes: 0 OK; 1 WARNING; 2 CRITICAL, also if nobody answers; 3 UNKNOWN, also for invalid options.
    """


@app.command(cls=CheckCommand)
@expanded
def queue(
    uri: Annotated[
        str,
        typer.Argument(
            metavar="QUEUE", help="The queue: bmq://DOMAIN/QUEUE, optionally with ?id=APP.", show_default=False
        ),
    ],
    warning: Warnings = None,
    critical: Criticals = None,
    broker: Broker = DEFAULT_BROKER,
    timeout: Timeout = 5,
    output: Output = None,
    *,
    security: Security,
) -> None:
    """Check the backlog of a queue of BlazingMQ, or of one of its apps.

    Values: `messages`, those not confirmed; `oldest`, the seconds since the oldest of them arrived. The primary of the
    queue is asked, by way of the node that is named. The age is unknown at a C++ broker while nobody has opened the
    queue since it started.

    Examples:

        bmqctl check queue bmq://my.domain/orders -w messages=1000 -c messages=10000

        bmqctl check queue 'bmq://my.domain/orders?id=billing' -w oldest=60 -c oldest=600 --output json
    """
    from bmqctl.systems.blazingmq.status.asking import asking_of
    from bmqctl.systems.checking.blazingmq import QUEUE_VALUES, measure_queue

    thresholds = _thresholds("QUEUE", warning, critical, QUEUE_VALUES)
    try:
        parsed = parse_uri(uri)
    except FormatError as fault:
        _end("QUEUE", Status.UNKNOWN, f"{uri}: {fault.reason}", output)
    place = _place("QUEUE", broker)
    asking = asking_of(security.reach("check queue", timeout))
    _report("QUEUE", lambda: measure_queue(*place, asking, parsed), thresholds, output)


@app.command(cls=CheckCommand)
@expanded
def group(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.", show_default=False)],
    topic: Annotated[str, typer.Option(help="The topic that it consumes.", show_default=False)],
    warning: Warnings = None,
    critical: Criticals = None,
    nameserver: Nameserver = None,
    timeout: Timeout = 5,
    output: Output = None,
    *,
    security: Keys,
) -> None:
    """Check the lag of a consumer group of RocketMQ in a topic.

    Values: `lag`, the messages that it has not consumed; `oldest`, the seconds since the oldest of them was stored, by
    the clock of its broker. Messages of the group's retry topic are not counted.

    Example:

        bmqctl check group billing --topic orders -w lag=1000 -c lag=10000 -c oldest=600
    """
    import trio

    from bmqctl.systems.checking.rocketmq import GROUP_VALUES, measure_group
    from bmqctl.systems.rocketmq.cluster import places_of
    from bmqctl.systems.rocketmq.status.asker import asker_of
    from bmqctl.systems.rocketmq.status.group import group_state

    thresholds = _thresholds("GROUP", warning, critical, GROUP_VALUES)
    try:
        nameservers = places_of(None, nameserver).nameservers
        asker = asker_of(security.reach("check group", timeout))
    except CannotBegin as fault:
        _end("GROUP", Status.UNKNOWN, str(fault), output)

    def measure() -> Measured:
        state = trio.run(group_state, nameservers, topic, name, asker)
        return measure_group(topic, name, state.queues)

    _report("GROUP", measure, thresholds, output)


@app.command(cls=CheckCommand)
@expanded
def cluster(
    warning: Warnings = None,
    critical: Criticals = None,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker", "-b", help=f"A node, as tcp://HOST:PORT; by default {DEFAULT_BROKER}.", show_default=False
        ),
    ] = None,
    *,
    nodes: Nodes,
    timeout: Timeout = 5,
    output: Output = None,
    security: Security,
) -> None:
    """Check a cluster: its quorum, its primaries or masters, its replicas.

    Values: `problems`, as `bmqctl cluster explain` lists them; `quorum`, 1 or 0 (of RocketMQ's controllers, if there
    are any); `without_primary`, partitions or names of brokers that nobody serves; `in_sync`, the copies of the
    partition or name that has the fewest; `behind`, the records (BlazingMQ) or bytes (RocketMQ) that the last replica
    lacks. Unless told otherwise, no quorum or a missing primary is critical, and any problem a warning.

    Examples:

        bmqctl check cluster -w in_sync=3: -c in_sync=2:

        bmqctl check cluster --nameserver "10.0.0.5:9876;10.0.0.6:9876" -w behind=1048576
    """
    from bmqctl.systems.checking.blazingmq import CLUSTER_VALUES

    thresholds = _thresholds("CLUSTER", warning, critical, CLUSTER_VALUES, _CLUSTER_USUAL)
    try:
        found = open_cluster(options_of(broker, nodes, security.reach("check cluster", timeout)))
    except CannotBegin as fault:
        _end("CLUSTER", Status.UNKNOWN, str(fault), output)
    _report("CLUSTER", found.measure, thresholds, output)


@app.command(cls=CheckCommand)
def disk(
    folder: Annotated[Path, typer.Argument(help="The folder of a store, of either system.", show_default=False)],
    warning: Warnings = None,
    critical: Criticals = None,
    output: Output = None,
) -> None:
    """Check the space that is left on the disk of a store.

    Values: `free`, in percent; `free_bytes`. Unless told otherwise, less than 15 % is a warning, and less than 5 % is
    critical.

    Example:

        bmqctl check disk /var/lib/bmq -w free_bytes=10737418240: -c free_bytes=1073741824:
    """
    thresholds = _thresholds("DISK", warning, critical, DISK_VALUES, _DISK_USUAL)

    def measure() -> Measured:
        usage = shutil.disk_usage(folder)
        percent = round(100 * usage.free / usage.total, 2) if usage.total else 0.0
        summary = f"{folder}: {percent:g} % free, {usage.free:,} of {usage.total:,} bytes"
        return Measured(summary, [Measurement("free", percent, "%"), Measurement("free_bytes", usage.free, "B")])

    _report("DISK", measure, thresholds, output)


@app.command(cls=CheckCommand)
def certificate(
    place: Annotated[
        str,
        typer.Argument(metavar="PLACE", help="A port with TLS, HOST:PORT, or a file in PEM.", show_default=False),
    ],
    warning: Warnings = None,
    critical: Criticals = None,
    timeout: Timeout = 5,
    output: Output = None,
) -> None:
    """Check the days until a certificate ends: the one that a port shows, or the first to end of those in a file.

    Value: `days`. Unless told otherwise, less than 30 days are a warning, and less than 7 are critical. A file may have
    a list of revoked certificates instead, which ends when the next is due.

    Examples:

        bmqctl check certificate 10.0.0.5:9876

        bmqctl check certificate /etc/bmq/node.pem -w days=14: -c days=3:
    """
    from bmqctl.systems.checking.certificates import CERTIFICATE_VALUES, SOON_DAYS, measure_certificate

    usual = Thresholds({"days": parse_range(f"{SOON_DAYS}:")}, {"days": parse_range("7:")})
    thresholds = _thresholds("CERTIFICATE", warning, critical, CERTIFICATE_VALUES, usual)
    try:
        measured = measure_certificate(place, timeout)
    except ValueError as fault:
        _end("CERTIFICATE", Status.UNKNOWN, str(fault), output)
    except OSError as fault:
        status = Status.UNKNOWN if fault.filename else Status.CRITICAL
        _end("CERTIFICATE", status, f"{place}: {fault.strerror or fault}", output)
    _print(judge("CERTIFICATE", measured, thresholds), output)


class _Unknown:
    """A block in which a refusal makes the state unknown."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: object) -> None:
        if isinstance(fault, typer.Exit):
            raise typer.Exit(Status.UNKNOWN) from None


def _thresholds(
    title: str,
    warning: list[str] | None,
    critical: list[str] | None,
    names: Sequence[str],
    usual: Thresholds | None = None,
) -> Thresholds:
    try:
        found = Thresholds.of(warning or (), critical or (), names)
    except BadThreshold as fault:
        _end(title, Status.UNKNOWN, str(fault), None)
    return found if usual is None else found.over(usual)


def _place(title: str, broker: str) -> tuple[str, int]:
    try:
        return parse_address(broker)
    except BadAddress:
        _end(title, Status.UNKNOWN, f"--broker {broker}: expected tcp://HOST:PORT", None)


def _report(title: str, measure: Callable[[], Measured], thresholds: Thresholds, output: OutputFormat | None) -> None:
    """Measure, judge, print, and exit with the state; who does not answer is critical."""
    from bmqctl.client.admin import AdminLost
    from bmqctl.systems.blazingmq.status.asking import NotReported, Refused
    from bmqctl.systems.rocketmq.status.group import GroupUnknown, NobodyAnswers

    try:
        measured = measure()
    except (Refused, GroupUnknown, NotReported) as fault:
        _end(title, Status.UNKNOWN, str(fault), output)
    except (AdminLost, NobodyAnswers, Unanswered) as fault:
        _end(title, Status.CRITICAL, str(fault), output)
    except OSError as fault:
        place = f"{fault.filename}: " if fault.filename else ""
        _end(title, Status.UNKNOWN, f"{place}{fault.strerror or fault}", output)
    except (LookupError, TypeError, ValueError, AttributeError) as fault:
        _end(title, Status.UNKNOWN, f"a broker's answer cannot be read: {type(fault).__name__}: {fault}", output)
    _print(judge(title, measured, thresholds), output)


def _end(title: str, status: Status, reason: str, output: OutputFormat | None) -> NoReturn:
    _print(Finding(title, status, with_remedy(reason)), output)
    raise AssertionError("a state other than OK is an exit")


def _print(finding: Finding, output: OutputFormat | None) -> None:
    with until_reader_leaves():
        match output:
            case OutputFormat.JSON | OutputFormat.JSONL:
                print(json.dumps(finding.as_json(), indent=4 if output is OutputFormat.JSON else None))
            case OutputFormat.CSV:
                print_values(finding.rows(), _KEYS, output)
            case _:
                print(finding.line())
    if finding.status is not Status.OK:
        raise typer.Exit(finding.status)
