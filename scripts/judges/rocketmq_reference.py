"""Apache RocketMQ's own nameserver and broker, from Maven's jars."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST

__all__ = ["ReferenceProcess"]

READY_S: Final = 180.0
# Attempts to start it if a port is taken, and the broker's output then.
STARTS: Final = 3
_TAKEN: Final = "Address already in use"
# Output of the broker and the nameserver when they are ready, and of the proxy.
_READY: Final = (b"boot success", b"rocketmq-proxy startup successfully")
# Its own script asks for 8 GiB, but the client shares the machine.
_HEAP: Final = ("-Xms1g", "-Xmx1g", "-Xmn512m", "-XX:+UseG1GC")


class ReferenceProcess:
    """A nameserver and a broker in two processes, with a store in `folder`. `ready_s` is from their start on.

    With `has_proxy`, the broker's process also has the proxy for gRPC. `properties` are added to the broker's
    configuration; `heap` are Java's options for the memory of each. With a `nameserver` elsewhere, HOST:PORT, there is
    only a broker.
    """

    def __init__(
        self,
        class_path: str,
        folder: Path,
        properties: str = "",
        heap: Sequence[str] = _HEAP,
        nameserver: str | None = None,
        *,
        has_proxy: bool = False,
    ) -> None:
        self._class_path = class_path
        self._folder = folder
        self._properties = properties
        self._heap = heap
        self.port = free_port()
        self._elsewhere = nameserver
        self._nameserver_port = free_port()
        self._grpc_port = free_port() if has_proxy else None
        self._processes: list[subprocess.Popen[bytes]] = []
        self.ready_s = 0.0

    @property
    def nameserver(self) -> str:
        """HOST:PORT."""
        return self._elsewhere or f"{HOST}:{self._nameserver_port}"

    @property
    def endpoint(self) -> str:
        """HOST:PORT of the proxy for gRPC clients."""
        return f"{HOST}:{self._grpc_port}"

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def start(self) -> Self:
        """Start both, and wait until they are ready.

        On a busy machine another process may take a port before they listen.
        """
        for left in reversed(range(STARTS)):
            try:
                return self._start()
            except SystemExit as fault:
                if not left or _TAKEN not in str(fault):
                    raise
        raise AssertionError

    def _start(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        namesrv, broker = self._folder / "namesrv.conf", self._folder / "broker.conf"
        namesrv.write_text(f"listenPort={self._nameserver_port}\nbindAddress={HOST}\n")
        broker.write_text(
            f"brokerName=broker-a\nbrokerIP1={HOST}\nbrokerIP2={HOST}\nbindAddress={HOST}\n"
            f"listenPort={self.port}\nhaListenPort={free_port()}\nnamesrvAddr={self.nameserver}\n"
            f"storePathRootDir={self._folder / 'store'}\nflushDiskType=ASYNC_FLUSH\n{self._properties}"
        )
        begin = time.monotonic()
        if self._elsewhere is None:
            self._run("org.apache.rocketmq.namesrv.NamesrvStartup", namesrv, ["-c", str(namesrv)])
        if self._grpc_port is None:
            self._run("org.apache.rocketmq.broker.BrokerStartup", broker, ["-c", str(broker)])
        else:
            self._run("org.apache.rocketmq.proxy.ProxyStartup", broker, self._proxy_words(broker))
        try:
            for process in self._processes:
                self._wait(process, begin)
        except BaseException:
            self.kill()
            raise
        self.ready_s = time.monotonic() - begin
        return self

    def _proxy_words(self, broker: Path) -> list[str]:
        proxy = self._folder / "proxy.json"
        ports = {"grpcServerPort": self._grpc_port, "remotingListenPort": free_port()}
        proxy.write_text(json.dumps({"rocketMQClusterName": "DefaultCluster", **ports}))
        return ["-pm", "local", "-n", self.nameserver, "-bc", str(broker), "-pc", str(proxy)]

    def _run(self, main: str, config: Path, words: Sequence[str]) -> None:
        settings = (f"-Duser.home={self._folder}", f"-Drocketmq.home.dir={self._folder}")
        with (self._folder / f"{config.stem}.out").open("wb") as out:
            self._processes.append(
                subprocess.Popen(
                    ["java", *self._heap, *settings, "-cp", self._class_path, main, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )
            )

    def _wait(self, process: subprocess.Popen[bytes], begin: float) -> None:
        out = self._folder / ("broker.out" if process is self._processes[-1] else "namesrv.out")
        while not any(said in out.read_bytes() for said in _READY):
            if process.poll() is not None or time.monotonic() > begin + READY_S:
                raise SystemExit(f"the reference does not start: {out.read_text()[-2000:]}")
            time.sleep(0.01)

    def close(self) -> None:
        """Stop both, the broker first."""
        self._end(subprocess.Popen.terminate)

    def kill(self) -> None:
        self._end(subprocess.Popen.kill)

    def _end(self, how: Callable[[subprocess.Popen[bytes]], None]) -> None:
        for process in reversed(self._processes):
            how(process)
            process.wait()
        self._processes.clear()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
