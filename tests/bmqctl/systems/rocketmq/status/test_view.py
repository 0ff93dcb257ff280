"""The view that is put together from the answers of a RocketMQ cluster, and how it is shown."""

from __future__ import annotations

import json

import pytest

from bmqctl.systems.rocketmq.status.printing import explanation_lines, json_value, status_lines
from bmqctl.systems.rocketmq.status.problems import problems_of
from bmqctl.systems.rocketmq.status.view import BrokerAnswers, Unheard, View, number_of, peers_of, view_of
from tests.bmqctl.systems.rocketmq.status.answers import (
    BROKERS,
    CONTROLLERS,
    END,
    NAME,
    NAMESERVERS,
    broker,
    configured,
    info,
    replicas,
    well,
)


def test_group_with_controllers_is_what_the_leader_says() -> None:
    view = view_of(well())
    assert view.leader == CONTROLLERS[0]
    (name,) = view.names
    assert (name.name, name.cluster, name.master_epoch, name.members_epoch, name.least) == (
        NAME,
        "DefaultCluster",
        3,
        7,
        2,
    )
    assert name.master is not None
    assert name.master.address == BROKERS[0]
    assert [each.broker_id for each in name.brokers] == [1, 2, 3]
    assert [each.is_in_sync for each in name.brokers] == [True, True, True]
    assert [each.behind for each in name.brokers] == [None, 0, 0]
    assert [each.heard_ms for each in name.brokers] == [None, 5_000, 5_000]
    assert all(each.is_registered and each.epoch == 3 for each in name.brokers)


def test_lag_is_what_the_master_has_more_and_never_less_than_nothing() -> None:
    brokers = dict(well().brokers)
    brokers[BROKERS[1]] = broker(2, is_master=False, end=END - 700)
    brokers[BROKERS[2]] = broker(3, is_master=False, end=END + 50)
    (name,) = view_of(well(brokers=brokers)).names
    assert [each.behind for each in name.brokers] == [None, 700, 0]


def test_broker_that_is_gone_has_no_lag() -> None:
    brokers = dict(well().brokers)
    brokers[BROKERS[1]] = Unheard("Connection refused")
    heard = well(brokers=brokers, sets={NAME: replicas((1, 3), gone=(2,))})
    gone = view_of(heard).names[0].brokers[1]
    assert (gone.is_alive, gone.is_in_sync, gone.behind, gone.error) == (False, False, None, "Connection refused")


def test_master_by_configuration_is_the_broker_with_id_0() -> None:
    (name,) = view_of(configured(inSyncReplicas=2)).names
    assert not name.has_controller
    assert name.least == 2
    assert [(each.broker_id, each.is_master, each.is_in_sync) for each in name.brokers] == [
        (0, True, None),
        (2, False, None),
    ]
    assert name.brokers[1].behind == 0


def test_broker_that_alone_was_named_is_shown() -> None:
    heard = configured()
    heard = heard._replace(nameservers={NAMESERVERS[0]: Unheard("Connection refused")})
    heard = heard._replace(brokers={BROKERS[0]: heard.brokers[BROKERS[0]]})
    (name,) = view_of(heard).names
    assert [(each.address, each.is_master) for each in name.brokers] == [(BROKERS[0], True)]


def test_broker_that_nameservers_take_for_master_and_for_slave_is_master() -> None:
    heard = configured()
    nameservers = {NAMESERVERS[0]: info(*BROKERS[:2]), NAMESERVERS[1]: info(BROKERS[1], BROKERS[0])}
    (name,) = view_of(heard._replace(nameservers=nameservers)).names
    assert [each.is_master for each in name.brokers] == [True, True]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("n0:10.0.0.1:9878;n1:10.0.0.2:9878;", ("10.0.0.1:9878", "10.0.0.2:9878")),
        ("10.0.0.1:9878;10.0.0.2:9878;", ("10.0.0.1:9878", "10.0.0.2:9878")),
        ("n0:[::1]:9878;[::2]:9878", ("[::1]:9878", "[::2]:9878")),
        ("n0:host:99999;n1:;;nonsense", ()),
        (None, ()),
    ],
)
def test_addresses_of_controllers_are_read(text: str | None, found: tuple[str, ...]) -> None:
    assert peers_of(text) == found


@pytest.mark.parametrize(("text", "number"), [("3", 3), ("-1", 7), ("x", 7), ("", 7), ("9" * 40, 7)])
def test_number_that_cannot_be_one_is_the_default(text: str, number: int) -> None:
    assert number_of({"minInSyncReplicas": text}, "minInSyncReplicas", 7) == number


def shown(view: View) -> list[str]:
    return list(status_lines(view, problems_of(view), 7_500))


def test_tables_of_a_cluster_that_is_well() -> None:
    lines = shown(view_of(well()))
    assert lines[:3] == [
        "Cluster      DefaultCluster",
        f"Nameservers  {', '.join(NAMESERVERS)}",
        "Healthy      yes",
    ]
    assert "10.0.0.1:9878  group1  AVAILABLE  leader" in lines
    assert "10.0.0.2:9878  group1  AVAILABLE  follows 10.0.0.1:9878" in lines
    assert f"Master       {BROKERS[0]}, epoch 3" in lines
    assert "In sync      3 of 3, set 7, 2 needed" in lines
    assert lines[-1].split("  ")[0] == "3"
    assert lines[-1].endswith("yes      3      1,000,000  0 bytes  2.5 s ago")


def test_tables_of_a_cluster_that_is_not_well() -> None:
    brokers: dict[str, BrokerAnswers | Unheard] = dict(well().brokers)
    brokers[BROKERS[1]] = Unheard("Connection refused")
    heard = well(
        nameservers={**well().nameservers, NAMESERVERS[1]: Unheard("Connection refused")},
        controllers={**well().controllers, CONTROLLERS[1]: Unheard("Connection refused")},
        brokers=brokers,
        sets={NAME: replicas((1, 3), gone=(2,))},
    )
    text = "\n".join(shown(view_of(heard)))
    assert "Healthy      no: see `bmqctl cluster explain`" in text
    assert "10.0.0.2:9876 (UNREACHABLE)" in text
    assert "10.0.0.2:9878          UNREACHABLE" in text
    assert "2   10.0.0.2:10911  slave   GONE       no" in text


def test_json_has_everything_in_camel_case() -> None:
    view = view_of(well())
    value = json.loads(json.dumps(json_value(view, problems_of(view))))
    assert value["isHealthy"] is True
    assert value["leader"] == CONTROLLERS[0]
    assert value["names"][0]["masterEpoch"] == 3
    assert value["names"][0]["masterAddress"] == BROKERS[0]
    assert value["names"][0]["brokers"][1]["isInSync"] is True
    assert value["nameservers"][0]["masters"] == {NAME: BROKERS[0]}


def test_explanation_has_a_remedy_behind_each_problem() -> None:
    heard = well(nameservers={**well().nameservers, NAMESERVERS[1]: Unheard("Connection refused")})
    view = view_of(heard)
    problem, remedy = explanation_lines(view, problems_of(view))
    assert problem == "nameserver 10.0.0.2:9876 cannot be asked: Connection refused"
    assert remedy.startswith("    start it again")
    assert list(explanation_lines(view_of(well()), [])) == [
        "No problems, according to 3 nameservers, 3 controllers and 3 brokers."
    ]
