"""`bmqctl journal dump --follow` beside a node: what is posted comes once, over a rollover, a stop and a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from bmqctl.client.admin import AdminClient
from bmqctl.testing import NodeProcess
from tests.rigs.official import Connect, queue_name
from tests.waiting import WAIT_S


def test_every_message_once(bmq_node: NodeProcess, connect: Connect) -> None:
    queue = queue_name()
    program = [sys.executable, "-c", "from bmqctl.app import main; main()", "journal", "dump"]
    options = ["--follow", "--offset-gt", "0", "--type", "message", "--payload", "text", "--queue", queue]
    posted: list[str] = []

    def post(count: int) -> None:
        client = connect(bmq_node)
        client.open(queue, write=True)
        payloads = [f"message {number}" for number in range(len(posted), len(posted) + count)]
        client.post_all(queue, [payload.encode() for payload in payloads])
        posted.extend(payloads)
        client.stop()

    with subprocess.Popen(
        [*program, *options, str(bmq_node.data_dir)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as follow:
        try:
            assert follow.stdout is not None
            found = []
            for step in ("nothing", "rollover", "rollover", "stop", "kill"):
                if step == "rollover":
                    with AdminClient("127.0.0.1", bmq_node.port) as admin:
                        assert admin.send("CLUSTERS CLUSTER local STORAGE PARTITION 0 ROLLOVER") == "SUCCESS"
                elif step == "stop":
                    bmq_node.restart()
                elif step == "kill":
                    bmq_node.restart(signal.SIGKILL)
                post(20)
                found += [json.loads(follow.stdout.readline()) for _ in range(20)]
            assert [row["payload"] for row in found] == posted
            assert {row["queue_uri"] for row in found} == {queue}
            follow.send_signal(signal.SIGINT)
            out, err = follow.communicate(timeout=WAIT_S)
            assert (follow.returncode, out, err) == (0, "", "")
        finally:
            follow.kill()
