"""Stories of a cluster as text: commands, and what happens then.

    # what this is about
    cluster 3
    run 100
    ----
       0 n0 starts
    ...

Comments begin with `#`; the commands of a block end at the line of dashes, what is expected of it at an empty line. The
numbers before what happens are milliseconds; `skip` drops what happened so far in its block. To write what happens now
into the files: `scripts/simulate --stories --rewrite`; read the difference before you commit it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.simulator.actors.clients import Consumer, Producer
from tests.simulator.machines.hosts import Death, Host
from tests.simulator.play import quiet
from tests.simulator.worlds.cluster import ClusterWorld

__all__ = ["STORIES", "Story", "told"]

STORIES = sorted(Path(__file__).parent.glob("*.txt"))
DASHES = "----"
SEED = 4


def told(text: str) -> str:
    """The story in `text` as it goes now."""
    with quiet():
        return _told(Story(), text)


def _told(story: Story, text: str) -> str:
    out: list[str] = []
    is_answer = False
    for line in text.splitlines():
        if line == DASHES:
            out += [DASHES, *story.take()]
            is_answer = True
        elif not line:
            is_answer = False
            out.append("")
        elif not is_answer:
            out.append(line)
            if not line.startswith("#"):
                story.do(*line.split())
    return "\n".join(out) + "\n"


class Story:
    """The world of one story."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._world = ClusterWorld(SEED, nodes=1, features=frozenset())
        self._commands: dict[str, Callable[..., None]] = {
            "cluster": self.cluster,
            "run": self.run,
            "start": lambda name: self._host(name).start(),
            "kill": lambda name: self._host(name).die(Death.KILL),
            "stop": lambda name: self._host(name).retire(lambda: None),
            "crash": self.crash,
            "pause": lambda name, ms: self._host(name).pause(int(ms) * 1000),
            "fill": lambda name, size: self._host(name).fill_disk(int(size)),
            "free": lambda name: self._host(name).free_disk(),
            "split": self.split,
            "heal": lambda: self._world.network.heal(),
            "connect": self.connect,
            "post": self.post,
            "status": self.status,
            "clients": self.clients,
            "rest": self.rest,
            "skip": self._out.clear,
        }

    def do(self, command: str, *words: str) -> None:
        """Carry out a command."""
        self._commands[command](*words)
        self._gather()

    def take(self) -> list[str]:
        """Take the lines since the last call."""
        out = [*self._out]
        self._out.clear()
        return out

    def _gather(self) -> None:
        lines = self._world.lines
        assert lines is not None or not self._out
        for line in lines or ():
            _, seconds, text = line.split(maxsplit=2)
            self._out.append(f"{float(seconds) * 1000:6.0f} {text}")
        if lines is not None:
            lines.clear()

    def _host(self, name: str) -> Host:
        return self._world.hosts[int(name[1:])]

    # -- commands

    def cluster(self, nodes: str) -> None:
        """Start the given number of nodes, on empty disks."""
        self._world = ClusterWorld(SEED, nodes=int(nodes), features=frozenset())
        self._world.lines = []
        self._world.network.split_part = 0
        for host in self._world.hosts:
            host.start()

    def crash(self, name: str, calls: str) -> None:
        """A node dies `calls` calls to its disk into its next rollover, and starts again half a second later."""
        self._host(name).rollover_calls_left = int(calls)

    def run(self, ms: str) -> None:
        """Time goes by."""
        self._world.run_until(self._world.clock.us + int(ms) * 1000)

    def split(self, *words: str) -> None:
        """Have nothing pass between the machines before and after the `|`."""
        at = words.index("|")
        pairs = {(one, other) for one in words[:at] for other in words[at + 1 :]}
        self._world.network.blocked |= pairs | {(other, one) for one, other in pairs}

    def connect(self, name: str, *hosts: str) -> None:
        """A client connects to one of these nodes: p0, p1 post, c0 reads the priority queue, ffoo and fbar the apps."""
        (client,) = (client for client in self._world.clients if client.name == name)
        client.hosts = [self._host(host) for host in hosts]
        if isinstance(client, Consumer):
            client.keeps_part = 0
            client.tuning = client.tuning._replace(messages_max=1000)
        client.dial()

    def post(self, name: str, queue: str, count: str) -> None:
        """A producer posts `count` messages to `priority` or `fanout`."""
        (client,) = (client for client in self._world.clients if client.name == name)
        assert isinstance(client, Producer)
        (uri,) = (uri for uri in client.uris if queue in uri)
        client.post(uri, int(count))

    def status(self) -> None:
        """Write the state of every node."""
        for host in self._world.hosts:
            member = host.member
            if host.node is None or member is None:
                self._out.append(f"       {host.name} does not run")
                continue
            election, (partition,) = member.election, member.partitions.values()
            roles = f"{election.role.value} in term {election.term}, metadata {member.metadata.fsm_state.name}"
            position = f"({partition.position.primary_lease_id}, {partition.position.sequence_number})"
            self._out.append(f"       {host.name} {roles}, partition {partition.state.name} at {position}")

    def clients(self) -> None:
        """Write the messages and acks that clients have received."""
        for client in self._world.clients:
            if isinstance(client, Producer) and client.hosts:
                waiting = sum(map(len, client.unacked.values()))
                refused = f", {client.refused_count} refused" if client.refused_count else ""
                self._out.append(f"       {client.name} has {client.acked} acks{refused} and waits for {waiting}")
            elif isinstance(client, Consumer) and client.hosts:
                self._out.append(f"       {client.name} has got {client.got} messages")

    def rest(self) -> None:
        """All comes to its end as it must: delivered, confirmed, the same at all nodes, the stores sound."""
        self._world.clients = [client for client in self._world.clients if client.hosts]
        for client in self._world.clients:
            client.hosts = []
        self._world.rest()
        self._out.append("       all is well")
