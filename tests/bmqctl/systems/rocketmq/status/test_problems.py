"""Problems of a RocketMQ cluster, case by case."""

from __future__ import annotations

import pytest

from bmqctl.systems.rocketmq.status.problems import Problem, problems_of
from bmqctl.systems.rocketmq.status.view import Heard, Unheard, view_of
from tests.bmqctl.systems.rocketmq.status.answers import (
    BROKERS,
    CONTROLLERS,
    END,
    NAME,
    NAMESERVERS,
    broker,
    configured,
    info,
    metadata,
    replicas,
    well,
)

REFUSED = Unheard("Connection refused")


def problems(heard: Heard) -> list[Problem]:
    return problems_of(view_of(heard))


def one(heard: Heard) -> Problem:
    (found,) = problems(heard)
    assert found.text
    assert found.remedy
    return found


def test_cluster_that_is_well_has_no_problems() -> None:
    assert problems(well()) == []


def test_lone_master_without_slaves_and_controllers_is_well() -> None:
    assert problems(configured(slaves=0)) == []


def test_disk_that_is_going_to_lose_messages() -> None:
    lacks = "messages of topic t that group g has not consumed"
    answers = {**well().brokers, BROKERS[0]: broker(1, is_master=True)._replace(runtime={"unconsumedFileAlarm": lacks})}
    found = one(well(brokers=answers))
    assert found.text == f"the disk of broker 1 at {BROKERS[0]} of {NAME} is full: it is going to remove {lacks}"
    assert "cleanFileForciblyInterval" in found.remedy


def test_nameserver_and_controller_that_cannot_be_asked() -> None:
    found = one(well(nameservers={**well().nameservers, NAMESERVERS[0]: REFUSED}))
    assert found.text == "nameserver 10.0.0.1:9876 cannot be asked: Connection refused"
    found = one(well(controllers={**well().controllers, CONTROLLERS[1]: REFUSED}))
    assert found.text == "controller 10.0.0.2:9878 cannot be asked: Connection refused"
    assert "majority" in found.remedy


def test_controllers_without_a_quorum() -> None:
    alone = {
        CONTROLLERS[0]: REFUSED,
        CONTROLLERS[1]: metadata(CONTROLLERS[1], None),
        CONTROLLERS[2]: REFUSED,
    }
    texts = [each.text for each in problems(well(controllers=alone, sets={}))]
    assert "the controllers have no quorum: 1 of 3 answer, 2 are needed; no master is elected" in texts
    # Nobody knows who is in sync, and brokers wait.
    assert any(text.startswith(f"{NAME} waits for a controller") for text in texts)


def test_no_controller_answers() -> None:
    texts = [each.text for each in problems(well(controllers=dict.fromkeys(CONTROLLERS, REFUSED), sets={}))]
    assert "the controllers have no quorum: 0 of 3 answer, 2 are needed; no master is elected" in texts


def test_controllers_of_which_nobody_leads() -> None:
    none = {address: metadata(address, None) for address in CONTROLLERS}
    texts = [each.text for each in problems(well(controllers=none, sets={}))]
    assert "no controller leads, though 3 of 3 answer; no master is elected" in texts


def test_two_controllers_that_lead() -> None:
    controllers = {**well().controllers, CONTROLLERS[1]: metadata(CONTROLLERS[1], CONTROLLERS[1])}
    assert one(well(controllers=controllers)).text == (
        "more than one controller says that it leads: 10.0.0.1:9878, 10.0.0.2:9878"
    )


def test_controllers_that_name_different_members() -> None:
    controllers = {**well().controllers, CONTROLLERS[2]: metadata(CONTROLLERS[2], peers="n2:10.0.0.3:9878;")}
    found = one(well(controllers=controllers))
    assert found.text.startswith("controllers name different members of their group")
    assert "controllerDLegerPeers" in found.remedy


def test_leader_that_does_not_tell_who_is_in_sync() -> None:
    refusal = "controller 10.0.0.1:9878 does not report who is in sync: NO_PERMISSION"
    found = problems(well(refusal=refusal))
    assert [each.text for each in found] == [refusal]
    assert "--authn-data" in found[0].remedy


def test_name_without_a_master() -> None:
    heard = well(
        sets={NAME: replicas((1,), gone=(1,), master=None)},
        nameservers={address: info() for address in NAMESERVERS},
        brokers={**well().brokers, BROKERS[0]: REFUSED},
    )
    found = problems(heard)
    assert found[0].text == f"{NAME} has no master: nobody takes messages"
    assert f"start a broker that was in sync: broker 1 at {BROKERS[0]}" in found[0].remedy
    assert "enableElectUncleanMaster" in found[0].remedy


def test_master_that_is_gone_and_not_replaced() -> None:
    heard = well(
        sets={NAME: replicas(gone=(1,))},
        brokers={**well().brokers, BROKERS[0]: REFUSED},
    )
    found = problems(heard)
    assert found[0].text == (
        f"the master of {NAME}, broker 1 at {BROKERS[0]}, is not alive, and no other one is elected yet"
    )


def test_master_that_does_not_act_as_one() -> None:
    found = one(well(brokers={**well().brokers, BROKERS[0]: broker(1, is_master=False)}))
    assert found.text == f"broker 1 at {BROKERS[0]} of {NAME} is to be master, and does not act as one yet"
    assert "20 s" in found.remedy


def test_fewer_in_sync_than_there_have_to_be() -> None:
    brokers = {**well().brokers, BROKERS[0]: broker(1, is_master=True, minInSyncReplicas=3)}
    heard = well(sets={NAME: replicas((1, 2))}, brokers=brokers)
    first, second = problems(heard)
    assert first.text == f"{NAME} has 2 brokers in sync, fewer than minInSyncReplicas=3: senders are refused"
    assert first.remedy.endswith(f"-b {BROKERS[0]} -k minInSyncReplicas -v 2")
    assert second.text.startswith(f"broker 3 at {BROKERS[2]} of {NAME} is not in sync, 0 bytes behind its master")


def test_nameserver_that_knows_another_master() -> None:
    nameservers = {**well().nameservers, NAMESERVERS[2]: info(BROKERS[1], BROKERS[0], BROKERS[2])}
    assert one(well(nameservers=nameservers)).text == (
        f"nameserver {NAMESERVERS[2]} says that the master of {NAME} is {BROKERS[1]}, and the controller says "
        f"{BROKERS[0]}"
    )


def test_nameserver_that_knows_no_master() -> None:
    assert (
        "is nobody, and the controller says"
        in one(well(nameservers={**well().nameservers, NAMESERVERS[0]: info()._replace(broker_addr_table={})})).text
    )


def test_broker_that_is_registered_and_not_alive() -> None:
    heard = well(sets={NAME: replicas((1, 2), gone=(3,))}, brokers={**well().brokers, BROKERS[2]: REFUSED})
    found = one(heard)
    assert found.text == f"broker 3 at {BROKERS[2]} of {NAME} is registered with the controller and not alive"
    assert "cleanBrokerMetadata -a 10.0.0.1:9878 -bn broker-a -b 3 -c DefaultCluster" in found.remedy


def test_broker_that_is_alive_and_cannot_be_asked() -> None:
    found = one(well(brokers={**well().brokers, BROKERS[2]: REFUSED}))
    assert found.text == f"broker 3 at {BROKERS[2]} of {NAME} cannot be asked: Connection refused"


@pytest.mark.parametrize(("lag", "count"), [(600, 0), (601, 1)])
def test_slave_that_is_far_behind(lag: int, count: int) -> None:
    brokers = {
        **well().brokers,
        BROKERS[0]: broker(1, is_master=True, haMaxGapNotInSync=600),
        BROKERS[1]: broker(2, is_master=False, end=END - lag),
    }
    found = problems(well(brokers=brokers))
    assert [each.text for each in found] == [
        f"broker 2 at {BROKERS[1]} of {NAME} is far behind, {lag} bytes behind its master, more than "
        "haMaxGapNotInSync=600"
    ] * count


@pytest.mark.parametrize(
    ("mode", "remedy"),
    [
        ("false", "start it with enableControllerMode=true and controllerAddr, as the others of its name"),
        ("true", "start it with a controllerAddr that names these controllers"),
    ],
)
def test_broker_that_the_controller_does_not_know(mode: str, remedy: str) -> None:
    stranger = "10.0.0.4:10911"
    heard = well(
        nameservers={address: info(*BROKERS, stranger) for address in NAMESERVERS},
        brokers={**well().brokers, stranger: broker(4, is_master=False, enableControllerMode=mode)},
    )
    found = one(heard)
    who = f"broker 4 at {stranger} of {NAME}"
    assert found.text == f"{who} is known to nameservers, and the controller does not know it"
    assert found.remedy == remedy


def test_master_and_slave_by_configuration() -> None:
    found = one(configured())
    assert found.text == (f"{NAME} has a master and slaves by configuration: if the master is gone, nobody replaces it")
    assert found.remedy == "run controllers, and its brokers with enableControllerMode=true and controllerAddr"


def test_slaves_by_configuration_without_a_master() -> None:
    heard = configured()
    data = heard.nameservers[NAMESERVERS[0]]
    assert not isinstance(data, Unheard)
    of_name = data.broker_addr_table[NAME]._replace(broker_addrs={2: BROKERS[1]})
    heard = heard._replace(nameservers={NAMESERVERS[0]: data._replace(broker_addr_table={NAME: of_name})})
    found = problems(heard)
    assert found[0].text == f"{NAME} has no master: nobody takes messages"
    assert found[0].remedy == "start the broker with brokerRole=ASYNC_MASTER or SYNC_MASTER"


def test_sync_master_with_too_few_slaves() -> None:
    heard = configured(slaves=0, brokerRole="SYNC_MASTER", inSyncReplicas=4)
    assert one(heard).text == (
        f"{NAME} has 3 brokers that keep up, fewer than inSyncReplicas=4: senders are answered FLUSH_SLAVE_TIMEOUT"
    )
    assert problems(configured(slaves=0, brokerRole="SYNC_MASTER", inSyncReplicas=3)) == []
    assert problems(configured(slaves=0, brokerRole="ASYNC_MASTER", inSyncReplicas=4)) == []
