"""The TLS settings of a broker: its certificate, its protocol versions, and the authorities that it trusts.

Connecting peers and dialed brokers see the same certificate. Connecting peers are asked for one only if so configured;
a dialed broker must have one for the host that was dialed.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path

from broker.bmq.config import ConfigError
from broker.bmq.config.broker_schema import ClientCertificate, TlsConfig
from broker.shell.connections.reloading import FileContext, TlsContext

__all__ = ["accepting_context", "dialing_context", "make_context", "make_dialing_context"]

WHERE = "$.appConfig.tlsConfig"

_VERIFY_MODES = {
    ClientCertificate.NONE: ssl.CERT_NONE,
    ClientCertificate.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientCertificate.REQUIRED: ssl.CERT_REQUIRED,
}

_VERSIONS = {"TLSV1.2": ssl.TLSVersion.TLSv1_2, "TLSV1.3": ssl.TLSVersion.TLSv1_3}


def accepting_context(config: TlsConfig, file: str) -> TlsContext:
    return FileContext(partial(make_context, config, file), config.files, ConfigError)


def dialing_context(config: TlsConfig, file: str) -> TlsContext:
    return FileContext(partial(make_dialing_context, config, file), config.files, ConfigError)


def make_context(config: TlsConfig, file: str) -> ssl.SSLContext:
    """Make the TLS context for accepted connections. Raises `ConfigError` about `file`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = _VERIFY_MODES[config.client_certificate]
    _equip(context, config, file)
    revoked = config.certificate_revocation_list
    if revoked is not None:
        if context.verify_mode is ssl.CERT_NONE:
            reason = "clients are not asked for certificates that it could revoke"
            remedy = 'set "clientCertificate" to "REQUIRED" or "OPTIONAL"'
            raise ConfigError(file, f"{WHERE}.certificateRevocationList", reason, remedy)
        _check_readable(revoked, "certificateRevocationList", file)
        remedy = "name a list in PEM"
        _load(lambda: context.load_verify_locations(revoked), "certificateRevocationList", revoked, file, remedy)
        if not context.cert_store_stats()["crl"]:
            reason = f"{revoked}: no list of revoked certificates"
            raise ConfigError(file, f"{WHERE}.certificateRevocationList", reason, remedy)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def make_dialing_context(config: TlsConfig, file: str) -> ssl.SSLContext:
    """Make the TLS context for dialed connections. Raises like `make_context`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _equip(context, config, file)
    return context


def _equip(context: ssl.SSLContext, config: TlsConfig, file: str) -> None:
    context.minimum_version, context.maximum_version = _versions(config.versions, file)
    # The authorities complete the presented chain where the certificate's file lacks a part.
    authority, certificate, key = config.certificate_authority, config.certificate, config.key
    for member, path in (("certificateAuthority", authority), ("certificate", certificate), ("key", key)):
        _check_readable(path, member, file)
    remedy = "name a certificate in PEM"
    _load(lambda: context.load_verify_locations(authority), "certificateAuthority", authority, file, remedy)
    what, remedy = f"{certificate} with key {key}", "name a matching certificate and key in PEM"
    _load(lambda: context.load_cert_chain(certificate, key, _no_password), "certificate", what, file, remedy)


def _check_readable(path: str, member: str, file: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        reason = f"{path}: {(error.strerror or 'cannot be read').lower()}"
        raise ConfigError(file, f"{WHERE}.{member}", reason, "name a readable file in PEM") from None


def _load(load: Callable[[], None], member: str, what: str, file: str, remedy: str) -> None:
    try:
        load()
    except ssl.SSLError as error:
        reason = (error.reason or "not PEM").replace("_", " ").lower()
        raise ConfigError(file, f"{WHERE}.{member}", f"{what}: {reason}", remedy) from None
    except OSError as error:
        # A file may vanish after it was found readable.
        reason = (error.strerror or "cannot be read").lower()
        raise ConfigError(file, f"{WHERE}.{member}", f"{what}: {reason}", remedy) from None


def _versions(text: str, file: str) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    names = [name.strip().upper() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in _VERSIONS]
    if unknown or not names:
        remedy = "list TLSv1.2 or TLSv1.3, or both separated by a comma"
        raise ConfigError(file, f"{WHERE}.versions", f'is "{text}"', remedy)
    versions = [_VERSIONS[name] for name in names]
    return min(versions), max(versions)


def _no_password() -> str:
    # An encrypted key would make OpenSSL ask the terminal.
    return ""
