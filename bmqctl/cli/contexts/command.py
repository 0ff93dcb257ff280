"""Commands that connect to a broker, which take options that are not given from a context."""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand
from typer.main import get_command

from bmqctl.cli.contexts.completing import context_names
from bmqctl.cli.contexts.file import contexts_path, read_contexts, secret_of
from bmqctl.cli.contexts.model import BadContext, Context, System
from bmqctl.common.refusal import refuse

__all__ = ["VARIABLE", "DialingCommand", "context_defaults"]

VARIABLE: Final = "BMQCTL_CONTEXT"

# Options that name a broker, or say that the command connects to none or starts its own.
_OWN_ADDRESS: Final = frozenset(
    {
        "broker",
        "nameserver",
        "controller",
        "own_node",
        "profile",
        "dumpprofile",
        "dry_run",
        "offline",
        "config_dir",
        "help",
        "short_help",
    }
)
# Arguments and options that may name a topic with its nameserver.
_ENDS: Final = ("to", "uri")
# A context may give the nameserver of these, as in `rocketmq:///TOPIC`. Of commands with two ends, only those that can
# sign for either have such arguments.
_TOPICS: Final = ("uri", "to")
_TWO_TOPICS: Final = ("source", "destination")
_SIGNS_FOR_EITHER: Final = "to_authn_data"
_TOPIC: Final = "rocketmq://"
# The environment variable that names the broker, for commands that document one.
_ADDRESS_VARIABLE: Final = {"tool": "BMQ_PORT"}


class DialingCommand(TyperCommand):
    """A command that connects to a broker: it has an option `--context`, and is given the defaults of a context.

    One without an option that names a broker knows no contexts. They come after the options and their environment
    variables. If an option names the broker, the current context is not used: its credentials reach no other broker.
    """

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **settings)
        self._dials = any(each.name in ("broker", "nameserver") for each in self.params)
        if self._dials:
            self.params.append(_context_option())

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words, with the context's values for options that are not given."""
        if self._dials and not ctx.resilient_parsing and (args or not self.no_args_is_help):
            given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
            try:
                defaults, nameserver = self._defaults(given)
            except BadContext as fault:
                refuse(ctx.command_path.partition(" ")[2], str(fault))
            ctx.default_map = {**(ctx.default_map or {}), **defaults}
            rest = super().parse_args(ctx, args)
            for each in self._lacking(ctx.params) if nameserver else ():
                ctx.params[each] = f"{_TOPIC}{nameserver}{ctx.params[each].removeprefix(_TOPIC)}"
            return rest
        return super().parse_args(ctx, args)

    def _defaults(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """The defaults of options, and the nameserver of topics that name none."""
        name, lacking = given.get("context_name"), self._lacking(given)
        if "help" in given or (name is None and not lacking and self._has_own_address(given)):
            return {}, ""
        contexts = read_contexts(contexts_path())
        name = name or os.environ.get(VARIABLE) or contexts.current
        if name is None:
            if lacking:
                raise BadContext(_no_nameserver(given[lacking[0]]))
            return {}, ""
        context = contexts.named(name)
        options = {str(each.name) for each in self.params}
        try:
            return _DEFAULTS[context.system](self, context, options, given)
        except BadContext as fault:
            raise BadContext(f"context {name}: {fault}") from None

    def _of_broker(self, context: Context, options: Set[str], given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        if lacking := self._lacking(given):
            raise BadContext(f"is of BlazingMQ, and {_no_nameserver(given[lacking[0]])}")
        return self._broker_defaults(context, options, given), ""

    def _of_cluster(self, context: Context, options: Set[str], given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        end = None if "nameserver" in options else self._end_of(context, given)
        if end is not None:
            return self._topic_defaults(context, options, given, end), context.nameservers[0]
        return self._broker_defaults(context, options, given), ""

    def _topic_defaults(
        self, context: Context, options: Set[str], given: Mapping[str, Any], end: str
    ) -> dict[str, Any]:
        """The defaults for an end that is a topic of the context's cluster. Raises `BadContext`."""
        taken = given.keys() | {str(each.name) for each in self.params if _is_in_environment(each)}
        found = _output_of(context, options)
        # TO has what FROM has, if both are in the same cluster.
        if end == "destination":
            own = {each.removeprefix("to_") for each in taken if each.startswith("to_")}
            return found | {f"to_{each}": value for each, value in _secrets(context, options, own).items()}
        return found | _secrets(context, options, taken)

    def _end_of(self, context: Context, given: Mapping[str, Any]) -> str | None:
        """Return the first argument that is a topic of the context's cluster, or None.

        A topic that names its nameserver is one only with `--context`. Raises `BadContext` if it then could be either
        of two.
        """
        if lacking := self._lacking(given):
            return lacking[0]
        topics = self._topics(given) if given.get("context_name") else []
        if len(topics) < 2:
            return topics[0] if topics else None
        known = [each for each in topics if _nameserver(given[each]) in context.nameservers]
        if not known:
            places = " and ".join(given[each] for each in topics)
            raise BadContext(f"names the nameserver of neither end: {places}")
        return known[0]

    def _broker_defaults(self, context: Context, options: Set[str], given: Mapping[str, Any]) -> dict[str, Any]:
        multiple = {each.name for each in self.params if getattr(each, "multiple", False)}
        taken = given.keys() | {str(each.name) for each in self.params if _is_in_environment(each)}
        # With a topic as the source the broker is that of the destination.
        is_of_destination = "to_broker" in options and _is_topic(given.get("source"))
        if is_of_destination:
            taken = {each.removeprefix("to_") for each in taken if each.startswith("to_")}
        found = context_defaults(context, options, multiple, taken)
        return {f"to_{each}": value for each, value in found.items()} if is_of_destination else found

    def _topics(self, given: Mapping[str, Any]) -> list[str]:
        has_two = any(each.name == _SIGNS_FOR_EITHER for each in self.params)
        return [each for each in (*_TOPICS, *(_TWO_TOPICS if has_two else ())) if _is_topic(given.get(each))]

    def _lacking(self, given: Mapping[str, Any]) -> list[str]:
        return [each for each in self._topics(given) if str(given[each]).startswith(f"{_TOPIC}/")]

    def _has_own_address(self, given: Mapping[str, Any]) -> bool:
        if _OWN_ADDRESS & given.keys() or os.environ.get(_ADDRESS_VARIABLE.get(self.name or "", "")):
            return True
        if any(_is_topic(given.get(each)) for each in _ENDS) or given.get("mode") == "storage":
            return True
        return _is_topic(given.get("source")) and (_is_topic(given.get("destination")) or "to_broker" in given)


_DEFAULTS: Final = {System.BLAZINGMQ: DialingCommand._of_broker, System.ROCKETMQ: DialingCommand._of_cluster}


def _is_topic(text: Any) -> bool:
    return str(text).startswith(_TOPIC)


def _nameserver(uri: str) -> str:
    return uri.removeprefix(_TOPIC).partition("/")[0]


def _no_nameserver(uri: str) -> str:
    return f"{uri} names no nameserver: give {_TOPIC}HOST:PORT/TOPIC, or a context of RocketMQ"


def _is_in_environment(parameter: Any) -> bool:
    variables = [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar or ()
    return any(os.environ.get(each) for each in variables)


def context_defaults(context: Context, options: Set[str], multiple: Set[str | None], given: Set[str]) -> dict[str, Any]:
    """Return the options that a context gives a command with `options`, of which some are given.

    Raises `BadContext` if it does not fit.
    """
    found = _PLACES[context.system](context, options, multiple, given)
    return found | _secrets(context, options, given) | _output_of(context, options)


def _nameservers(context: Context, options: Set[str], multiple: Set[str | None], given: Set[str]) -> dict[str, Any]:
    if "nameserver" not in options:
        raise BadContext("is of RocketMQ, and this command needs a broker of BlazingMQ: give --broker or --context")
    # Each nameserver knows the whole cluster.
    nameservers: Any = list(context.nameservers) if "nameserver" in multiple else context.nameservers[0]
    found: dict[str, Any] = {"rocketmq": True, "nameserver": nameservers}
    return found | ({"controller": list(context.controllers)} if "controller" in options else {})


def _broker(context: Context, options: Set[str], multiple: Set[str | None], given: Set[str]) -> dict[str, Any]:
    if "broker" not in options:
        raise BadContext("is of BlazingMQ, and this command needs RocketMQ: give --nameserver or --context")
    if "rocketmq" in given:
        raise BadContext("is of BlazingMQ, and --rocketmq is given: give --nameserver or --context")
    return {"broker": [context.address] if "broker" in multiple else context.address}


_PLACES: Final = {System.BLAZINGMQ: _broker, System.ROCKETMQ: _nameservers}


def _secrets(context: Context, options: Set[str], given: Set[str]) -> dict[str, Any]:
    """Return the options of trust and credentials for a context's brokers. Raises `BadContext`."""
    found: dict[str, Any] = {}
    secrets: dict[str, Any] = {"tls_authority": context.tls_authority, "authn_mechanism": context.authn_mechanism}
    if "authn_data" in options and "authn_data" not in given:
        secrets["authn_data"] = secret_of(context)
    elif context.secret is not None and "authn_data" not in options:
        raise BadContext("has credentials, and this command cannot use any: give its broker by an option")
    for option, value in secrets.items():
        if value is None:
            continue
        if option not in options:
            raise BadContext(f"has --{option.replace('_', '-')}, which this command does not have")
        found[option] = value
    return found


def _output_of(context: Context, options: Set[str]) -> dict[str, Any]:
    return {"output": context.output} if context.output is not None and "output" in options else {}


def _context_option() -> Any:
    """Make the option `--context` as Typer makes options."""

    def declared(
        context_name: Annotated[
            str | None,
            typer.Option(
                "--context",
                metavar="NAME",
                help="The context to take the broker from, if no option names it; see `bmqctl context`.",
                envvar=VARIABLE,
                show_default=False,
                expose_value=False,
                autocompletion=context_names,
            ),
        ] = None,
    ) -> None:
        pass

    single = typer.Typer(add_completion=False)
    single.command()(declared)
    command: Any = get_command(single)
    return command.params[0]
