"""`bmqctl replay`: messages of a store, posted once more."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import typer

from bmqctl.cli.families import expanded
from bmqctl.cli.messages import replay_options as options
from bmqctl.cli.securing import Security
from bmqctl.common.render import Output, wanted_format

__all__ = ["replay"]


@expanded
def replay(
    context: typer.Context,
    store: options.Store,
    to: options.To = None,
    broker: options.Broker = "tcp://localhost:30114",
    queues: options.Queues = None,
    apps: options.Apps = None,
    topics: options.Topics = None,
    queue_ids: options.QueueIds = None,
    since: options.Since = None,
    until: options.Until = None,
    guids: options.Guids = None,
    ids: options.Ids = None,
    keys: options.Keys = None,
    tags: options.Tags = None,
    groups: options.Groups = None,
    delayed: options.Delayed = False,
    where: options.Where = None,
    statuses: options.Statuses = None,
    partition: options.Partition = None,
    renames: options.Renames = None,
    create_topics: options.CreateTopics = False,
    pace: options.Pace = "max",
    dry_run: options.DryRun = False,
    state: options.State = None,
    window: options.Window = 4096,
    patience: options.Patience = 30.0,
    output: Output = None,
    as_json: options.Json = False,
    *,
    security: Security,
) -> None:
    """Post messages of a store of BlazingMQ or RocketMQ again, to a broker of BlazingMQ or a cluster of RocketMQ.

    Options that select are combined with AND, repeated values of one option with OR. Messages are posted in the order
    of the store, with their properties, the place where they come from, and `replay_time`, the original time in seconds
    since 1970. Between the systems they are mapped as by `bmqctl bridge`. The journal of BlazingMQ has times in whole
    seconds: with a pace, the messages of one second are spread evenly over it.

    Examples:

        bmqctl replay --dry-run --queue bmq://my.domain/orders --since 2026-11-21T05:00 store/

        bmqctl replay --app billing --status outstanding --rename bmq://my.domain/*=bmq://test.domain/* store/

        bmqctl replay --where 'region == "eu" && amount > 100' --pace original store/

        bmqctl replay --state replay.state --pace 10 --broker tcp://10.0.0.5:30114 store/

        bmqctl replay --topic orders --tag paid --to rocketmq://127.0.0.1:9876 rocketmq-store/

        bmqctl replay --topic orders --group billing --to bmq://my.domain/orders rocketmq-store/

        bmqctl replay --queue bmq://my.domain/orders --to 'rocketmq://127.0.0.1:9876/orders?key=customer' store/

    With --state no message is posted twice to BlazingMQ, however a run ended: a message that may or may not have
    reached the broker is posted again under the same GUID, which the broker recognizes for its domain's
    deduplicationTimeMs. RocketMQ keeps such a message a second time, with the same unique id.

    Messages that a queue has no room for are posted again until --patience ends; other refusals are final for this run.

    Exit codes: 0 if all selected messages were posted (or could be, with --dry-run); 1 if not; 2 if the replay cannot
    begin: an invalid option, no such store, no broker, no such topic, or a --state of another replay.
    """
    from bmqctl.carrying.replay.run import ReplayOptions
    from bmqctl.cli.files.printing import stopped_by
    from bmqctl.cli.messages.replay_job import missing_guids
    from bmqctl.cli.messages.replay_options import COMMAND
    from bmqctl.cli.messages.replay_preparing import (
        blazingmq_plan,
        check_delayed,
        guid_of,
        open_destination,
        open_progress,
        prepare,
        refuse_foreign,
        rocketmq_plan,
        speed_of,
    )
    from bmqctl.stores.blazingmq.read.files import missing_journals
    from bmqctl.stores.rocketmq.read.files import is_store

    reach = security.reach(COMMAND)
    destination = open_destination(to, broker, reach)
    speed = speed_of(pace)
    with stopped_by(COMMAND, store), ExitStack() as stack:
        if is_store(store):
            refuse_foreign(
                context, options.BLAZINGMQ_OPTIONS, f"{store} is a RocketMQ store, and {{}} is for BlazingMQ's"
            )
            if delayed:
                check_delayed(destination)
            make, names, about = rocketmq_plan(context, store, stack)
        else:
            refuse_foreign(context, options.ROCKETMQ_OPTIONS, f"{store} is no store of RocketMQ, and {{}} is for these")
            make, names, about = blazingmq_plan(context, store, stack)
        about |= {"--where": where, "--rename": renames or []}
        if to is not None:
            about["--to"] = destination.lasting(to)
        progress_of = partial(open_progress, state, dry_run, stack)
        job = prepare(make, names, destination, renames or [], state, about, progress_of)
        job.tell_missing(f"{store / name}: is missing" for name in missing_journals(store))
        job.tell_missing(f"left out: {each}" for each in job.plan.left_out)
        job.tell_missing(missing_guids(job.plan, frozenset(map(guid_of, guids or []))))
        account = job.rehearse() if dry_run else job.post(ReplayOptions(speed, window, patience, create_topics))
    job.tell(account, dry_run, wanted_format(output, as_json))
