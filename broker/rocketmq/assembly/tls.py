"""The part of the composition root that makes the contexts of TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

from broker.rocketmq.config.node import PropertyError
from broker.shell.connections.certificates import SelfSignedContext
from broker.shell.connections.tls import tls_error

__all__ = ["TLS_NAMES", "tls_for_grpc"]

# The settings of the certificate, as messages name them.
TLS_NAMES = "tlsCertPath and tlsKeyPath"


def tls_for_grpc(
    certificate: Path | None, key: Path | None, names: str, *, makes_own: bool = True
) -> ssl.SSLContext | None:
    """Make the context of TLS on the port for gRPC. Without a certificate, it makes one if `makes_own` is set.

    Raises `PropertyError`, whose text has the `names` of the two settings.
    """
    if certificate is None and key is None:
        return _prepared(SelfSignedContext(ssl.PROTOCOL_TLS_SERVER)) if makes_own else None
    if certificate is None or key is None:
        raise PropertyError(f"TLS needs both a certificate and its key: {names}")
    context = _prepared(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        text = f"{certificate}, {key}: no certificate in PEM and its key, without a password ({tls_error(error)})"
        raise PropertyError(text) from None
    except OSError as error:
        raise PropertyError(f"{certificate} or {key}: {error.strerror}") from None
    return context


def _prepared(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    return context


def _no_password() -> str:
    """Give OpenSSL no password: otherwise it would ask for one on the terminal."""
    return ""
