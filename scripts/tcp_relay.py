"""A TCP relay for the reference's suite, which wants a program `tproxy` to stand between a client and a broker.

    tproxy -r HOST:PORT [-p PORT]

It says on standard output where it listens. Killed, it cuts all its connections.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Sequence

__all__ = ["main"]

READ_BYTES = 64 << 10


async def relay(port: int, remote_host: str, remote_port: int) -> None:
    """Listen on `port` (0: any) and carry the bytes of every connection to the remote and back, until cancelled."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(remote_host, remote_port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_carry(reader, back), _carry(there, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    host, bound = server.sockets[0].getsockname()
    print(f"Listening on {host}:{bound}", flush=True)
    async with server:
        await server.serve_forever()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


def main(words: Sequence[str] | None = None) -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="tproxy", description="Relay TCP connections.")
    parser.add_argument("-r", dest="remote", required=True, metavar="HOST:PORT", help="where to")
    parser.add_argument("-p", dest="port", type=int, default=0, help="where to listen (default: any free port)")
    options = parser.parse_args(words)
    host, _, port = options.remote.rpartition(":")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(relay(options.port, host, int(port)))


if __name__ == "__main__":
    main()
