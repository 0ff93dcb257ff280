"""Connections over TCP and TLS under anyio, for the clients of both systems."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import anyio
import anyio.abc

__all__ = ["dial_stream", "open_stream", "tls_context"]


def tls_context(authority: Path | str) -> ssl.SSLContext:
    """Make a context for a BlazingMQ broker that trusts the certificates of the file `authority`, in PEM.

    Raises `OSError` if it has none.
    """
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


async def open_stream(
    host: str, port: int, timeout_s: float, tls: ssl.SSLContext | None = None
) -> anyio.abc.ByteStream:
    """Connect. Raises `OSError` with the reason if nothing listens, answers in time, or is trusted."""
    try:
        with anyio.fail_after(timeout_s):
            if tls is None:
                return await anyio.connect_tcp(host, port)
            return await anyio.connect_tcp(host, port, ssl_context=tls, tls_standard_compatible=False)
    except TimeoutError:
        raise TimeoutError(f"no answer within {timeout_s:g} s") from None
    except ssl.SSLError as fault:
        raise OSError(f"no TLS: {fault}") from None
    except OSError as fault:
        raise OSError(_reason(fault)) from fault
    except (anyio.BrokenResourceError, anyio.EndOfStream) as fault:
        raise OSError(f"no TLS: {fault.__cause__ or 'the connection was closed'}; the peer may have none") from None


async def dial_stream(
    host: str, port: int, timeout_s: float, tls: ssl.SSLContext | None = None
) -> anyio.abc.ByteStream:
    """Connect as `open_stream` does; the error names the place."""
    try:
        return await open_stream(host, port, timeout_s, tls)
    except OSError as fault:
        raise OSError(f"all attempts to connect to {host}:{port} failed: {fault}") from fault


def _reason(fault: BaseException) -> str:
    """The reason of a failed connection, without the event loop's own words."""
    if isinstance(fault, OSError) and fault.errno is not None:
        # The resolver's numbers are below 0.
        return os.strerror(fault.errno) if fault.errno > 0 else fault.strerror or str(fault)
    if isinstance(fault, BaseExceptionGroup):
        # A host with several addresses has a reason for each.
        return _reason(fault.exceptions[0])
    return str(fault) if fault.__cause__ is None else _reason(fault.__cause__)
