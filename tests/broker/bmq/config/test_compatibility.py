"""Modes and storages of domains that go together, on one node and in a cluster of several."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.bmq.assembly.domains import Domains
from broker.bmq.config import load_broker_config
from tests.broker.bmq.config.load_rig import CLUSTERS, DOMAIN, write, write_broker

MODES = {"priority": {}, "fanout": {"appIDs": ["foo"]}, "broadcast": {}}


@pytest.mark.parametrize(
    ("mode", "storage", "alone", "together"),
    [
        ("priority", "fileBacked", True, True),
        ("fanout", "fileBacked", True, True),
        ("broadcast", "inMemory", True, True),
        ("priority", "inMemory", True, False),
        ("fanout", "inMemory", True, False),
        ("broadcast", "fileBacked", False, False),
    ],
)
def test_modes_and_storages(tmp_path: Path, mode: str, storage: str, alone: bool, together: bool) -> None:
    parameters = dict(DOMAIN["definition"]["parameters"], mode={mode: MODES[mode]})
    parameters["storage"] = dict(parameters["storage"], config={storage: {}})
    definition = {"definition": {"location": "planets", "parameters": parameters}}
    several = CLUSTERS["myClusters"][0]
    assert len(several["nodes"]) > 1
    single = dict(several, nodes=[node for node in several["nodes"] if node["id"] == 2])
    for number, (cluster, fits) in enumerate(((single, alone), (several, together))):
        folder = tmp_path / str(number)
        (folder / "domains").mkdir(parents=True)
        write_broker(folder)
        write(folder, "clusters.json", dict(CLUSTERS, myClusters=[cluster]))
        write(folder, "domains/shop.json", definition)
        found = Domains(load_broker_config(folder)).resolve("shop")
        assert found is not None
        assert bool(found.incompatible) is not fits
        if not fits:
            remedy = "inMemory" if storage == "fileBacked" else "fileBacked"
            expected = f"incompatible queue mode ({mode}) and storage type ({storage}): set {remedy}"
            assert found.incompatible.startswith(expected)
