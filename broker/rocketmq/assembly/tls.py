"""The part of the composition root that makes the contexts of TLS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from broker.rocketmq.assembly.group import Connect
from broker.rocketmq.config.node import PropertyError
from broker.rocketmq.config.tls import TlsMode, TlsOptions
from broker.shell.connections.certificates import SelfSignedContext
from broker.shell.connections.reloading import FileContext, TlsContext
from broker.shell.connections.tls import tls_error
from broker.shell.loop.server import Listener

__all__ = ["PROPERTIES", "Tls", "TlsNames", "make_tls"]


class TlsNames(NamedTuple):
    """The settings of TLS, as messages name them."""

    certificate: str
    mode: str
    dials: str
    dial_trust: str
    client_trust: str = ""
    client_crl: str = ""
    client_auth: str = ""


PROPERTIES = TlsNames(
    "tlsCertPath and tlsKeyPath",
    "tlsServerMode",
    "tlsEnable=true",
    "tlsClientTrustCertPath",
    "tlsServerTrustCertPath",
    "tlsServerCrlPath",
    "tlsServerNeedClientAuth",
)


class Tls(NamedTuple):
    """The contexts of a process: for its ports, of which some may take plain connections, and for dialing."""

    mode: TlsMode
    accepts: TlsContext | None
    dials: TlsContext | None

    def listener(self, sock: socket.socket, connect: Connect) -> Listener:
        return Listener(sock, self.accepts, connect, takes_plain=self.mode is TlsMode.PERMISSIVE)


def make_tls(options: TlsOptions, names: TlsNames = PROPERTIES) -> Tls:
    """Make the contexts. Raises `PropertyError`, with the `names` of settings, for files that cannot be used."""
    if options.dial_trust is not None and not options.is_dialing:
        raise PropertyError(f"{names.dial_trust}: connections to other nodes use no TLS", f"set {names.dials}")
    if options.client_certificates is ssl.CERT_REQUIRED and options.mode is not TlsMode.ENFORCING:
        text = f"clients without a certificate could use plain connections in the mode {options.mode.value}"
        raise PropertyError(text, f"set {names.mode}={TlsMode.ENFORCING.value}")
    accepts: TlsContext | None = None
    if options.mode is not TlsMode.DISABLED and _can_accept(options, names):
        accepts = _by_files(partial(_of_ports, options, names), options, options.client_trust, options.client_crl)
    dials = _by_files(partial(_of_dials, options, names), options, options.dial_trust) if options.is_dialing else None
    return Tls(options.mode, accepts, dials)


def _by_files(make: Callable[[], ssl.SSLContext], options: TlsOptions, *files: Path | None) -> TlsContext:
    named = [each for each in (options.certificate, options.key, *files) if each is not None]
    return FileContext(make, named, PropertyError) if named else make()


def _can_accept(options: TlsOptions, names: TlsNames) -> bool:
    if _has_certificate(options, names) or options.makes_own:
        return True
    if options.mode is TlsMode.ENFORCING:
        text = f"{names.mode}={options.mode.value}: TLS needs a certificate and its key"
        raise PropertyError(text, f"set {names.certificate}")
    return False


def _of_ports(options: TlsOptions, names: TlsNames) -> ssl.SSLContext:
    kind = ssl.SSLContext if _has_certificate(options, names) else SelfSignedContext
    context = kind(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2"])
    _prepare(context, options)
    if options.client_trust is not None:
        _trust(context, options.client_trust, names.client_trust)
    elif options.client_certificates is not ssl.CERT_NONE:
        raise PropertyError(f"the certificates of clients need an authority: {names.client_trust}")
    context.verify_mode = options.client_certificates
    if options.client_crl is not None:
        if options.client_certificates is ssl.CERT_NONE:
            raise PropertyError(f"{names.client_crl}: clients show no certificate", f"set {names.client_auth}")
        _trust(context, options.client_crl, names.client_crl)
        if not context.cert_store_stats()["crl"]:
            raise PropertyError(f"{options.client_crl} ({names.client_crl}): no list of revoked certificates in PEM")
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def _of_dials(options: TlsOptions, names: TlsNames) -> ssl.SSLContext:
    _has_certificate(options, names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _prepare(context, options)
    if options.dial_trust is not None:
        _trust(context, options.dial_trust, names.dial_trust)
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _has_certificate(options: TlsOptions, names: TlsNames) -> bool:
    if (options.certificate is None) != (options.key is None):
        raise PropertyError(f"TLS needs both a certificate and its key: {names.certificate}")
    return options.certificate is not None


def _prepare(context: ssl.SSLContext, options: TlsOptions) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    certificate, key = options.certificate, options.key
    if certificate is None or key is None:
        return
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        text = f"{certificate}, {key}: no certificate in PEM and its key, without a password ({tls_error(error)})"
        raise PropertyError(text) from None
    except OSError as error:
        raise PropertyError(f"{certificate} or {key}: {error.strerror}") from None


def _trust(context: ssl.SSLContext, authority: Path, name: str) -> None:
    try:
        context.load_verify_locations(authority)
    except ssl.SSLError as error:
        text = f"{authority} ({name}): no certificates in PEM ({tls_error(error)})"
        raise PropertyError(text) from None
    except OSError as error:
        raise PropertyError(f"{authority} ({name}): {error.strerror}") from None


def _no_password() -> str:
    """Return no password: OpenSSL would ask for one on the terminal."""
    return ""
