"""The file with a proxy's access control: the key with which it signs, and its checks of clients.

It has properties like a node's configuration file, or the JSON of the original's `rmq-proxy.json`; the names are the
original's (source: AuthConfig, ProxyConfig).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from broker.rocketmq.config.property_readers import PropertyError, data_of, properties_of
from broker.rocketmq.config.property_tables import read_property
from broker.rocketmq.proxy.access import Checks
from formats.errors import FormatError
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.access import UserInfo

__all__ = ["ProxyKeys", "load_proxy_keys"]

_KEY: Final = "innerClientAuthenticationCredentials"
_CLUSTER: Final = "rocketMQClusterName"
_CHECKS: Final = ("authenticationEnabled", "authorizationEnabled")
# The lines that the original's file needs for the above, and the settings that only brokers have.
_IMPLIED: Final = frozenset(
    (
        "authenticationMetadataProvider",
        "authenticationProvider",
        "authorizationMetadataProvider",
        "authorizationProvider",
        "enableAclRpcHookForClusterMode",
    )
)
_FIRST_USER: Final = "initAuthenticationUser"


@dataclass(frozen=True)
class ProxyKeys:
    """The checks of clients, and the user as whom the proxy signs; `unused` properties mean nothing here."""

    checks: Checks = field(default_factory=Checks)
    credentials: UserInfo | None = None
    unused: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[str]:
        found = []
        if self.credentials is not None and not self.checks.authentication:
            found.append(
                "clients that speak gRPC are not checked, and what they ask is signed with the proxy's key: set "
                "authenticationEnabled and authorizationEnabled"
            )
        elif self.credentials is not None and not self.checks.authorization:
            found.append(
                "what clients that speak gRPC may do is not checked, and what they ask is signed with the proxy's key: "
                "set authorizationEnabled"
            )
        if self.unused:
            found.append(f"unsupported properties ignored: {', '.join(self.unused)}")
        return found


def load_proxy_keys(path: Path) -> ProxyKeys:
    """Read the file. Raises `PropertyError`, whose text has no secret."""
    properties = _properties(path)
    if _FIRST_USER in properties:
        raise PropertyError(f"{path}: {_FIRST_USER}: a proxy has no users, it asks brokers for theirs: define it there")
    given = [name for name in (_KEY, *_CHECKS) if properties.get(name)]
    found = {name: read_property(path, "access", name, properties[name]) for name in given}
    is_asked, is_allowed = (bool(found.get(name)) for name in _CHECKS)
    checks = Checks(is_asked, is_allowed, properties.get(_CLUSTER) or Checks.cluster)
    if checks.authorization and not checks.authentication:
        raise PropertyError(f"{path}: authorizationEnabled needs to know who asks: set authenticationEnabled=true, too")
    unused = sorted(properties.keys() - {_KEY, _CLUSTER, *_CHECKS} - _IMPLIED)
    return ProxyKeys(checks, found.get(_KEY), tuple(unused))


def _properties(path: Path) -> dict[str, str]:
    data = data_of(path)
    if not data.lstrip().startswith(b"{"):
        return properties_of(path)
    try:
        value = fastjson.loads(data.decode())
    except (FormatError, UnicodeDecodeError):
        value = None
    if not isinstance(value, dict):
        raise PropertyError(f"{path}: is not JSON")
    return {str(name): _text(each) for name, each in value.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else fastjson.dumps(value)
