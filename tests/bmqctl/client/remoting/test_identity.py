"""Ids of clients."""

from __future__ import annotations

import os
import runpy
import socket

from bmqctl.client.remoting import identity


def test_processes_with_one_number_on_hosts_with_one_name_have_different_ids() -> None:
    found = {runpy.run_path(identity.__file__)["new_client_id"]() for _ in range(2)}
    assert len(found) == 2
    assert {each.partition("#")[0] for each in found} == {f"{socket.gethostname()}@{os.getpid()}"}
