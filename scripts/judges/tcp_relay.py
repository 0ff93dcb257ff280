"""A TCP relay for the reference's suite, which wants a program `tproxy` to stand between a client and a broker.

    tproxy -r HOST:PORT [-p PORT] [-a ADDRESS]

It prints its address. When killed, it cuts all its connections. At SIGTERM it prints the numbers of bytes carried and
of connections.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Sequence

__all__ = ["main"]

READ_BYTES = 64 << 10


class Relay:
    """Carries bytes between its clients and the remote, and counts them."""

    def __init__(self, remote_host: str, remote_port: int) -> None:
        self._remote = remote_host, remote_port
        self.connections = self.bytes_there = self.bytes_back = 0

    async def serve(self, address: str, port: int) -> None:
        """Listen on `port` (0: any) and carry the bytes of every connection to the remote and back, until SIGTERM."""
        server = await asyncio.start_server(self._accept, address, port)
        host, bound = server.sockets[0].getsockname()
        print(f"Listening on {host}:{bound}", flush=True)
        enough = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, enough.set)
        await enough.wait()
        print(
            f"{self.connections} connections, {self.bytes_there} bytes there, {self.bytes_back} bytes back", flush=True
        )

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*self._remote)
        except OSError:
            writer.close()
            return
        self.connections += 1
        await asyncio.gather(self._carry_there(reader, back), self._carry_back(there, writer))

    async def _carry_there(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for size in _carry(reader, writer):
            self.bytes_there += size

    async def _carry_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for size in _carry(reader, writer):
            self.bytes_back += size


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncIterator[int]:
    with contextlib.suppress(OSError):
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            yield len(data)
            await writer.drain()
    writer.close()


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="tproxy", description="Relay TCP connections.")
    parser.add_argument("-r", dest="remote", required=True, metavar="HOST:PORT", help="address to relay to")
    parser.add_argument("-p", dest="port", type=int, default=0, help="address to listen on (default: any free port)")
    parser.add_argument(
        "-a", dest="address", default="127.0.0.1", help="local address to listen at (default: %(default)s)"
    )
    options = parser.parse_args(words)
    host, _, port = options.remote.rpartition(":")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(Relay(host, int(port)).serve(options.address, options.port))


if __name__ == "__main__":
    main()
