"""Services of installed packages, found by entry points and made with configured settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any

from broker.bmq.config import ConfigError
from broker.bmq.config.broker_schema import PluginConfig
from broker.bmq.config.errors import HIDDEN

__all__ = ["Setting", "load_plugin", "settings_of"]

Setting = bool | int | float | str


def settings_of(plugin: PluginConfig) -> dict[str, Setting]:
    """Return the settings by key, with secrets in plain text."""
    return {each.key: each.value.plain for each in plugin.settings}


def load_plugin(group: str, plugin: PluginConfig, file: str, where: str, built_in: Iterable[str]) -> Any:
    """Load the entry point of `group` with the plugin's name, and make the service with its settings.

    Raises `ConfigError` about the member `where` of `file` if it fails, or if there is no such entry point; the error
    names the existing and `built_in` ones.
    """
    settings = settings_of(plugin)
    for found in entry_points(group=group, name=plugin.name):
        try:
            return found.load()(settings)
        except Exception as error:
            raise ConfigError(
                file, where, f"cannot be started: {_unsecret(error, settings)}", "correct its settings"
            ) from None
    known = sorted({*built_in, *(each.name for each in entry_points(group=group))})
    raise ConfigError(
        file,
        f"{where}.name",
        f"is {plugin.name!r}, which no installed package provides",
        f"install the package, or use one of {', '.join(known)}",
    )


def _unsecret(error: Exception, settings: Mapping[str, Setting]) -> str:
    """Format a package's error without settings that it may quote."""
    text = f"{type(error).__name__}: {error}"
    for value in settings.values():
        if isinstance(value, str) and value:
            text = text.replace(value, HIDDEN)
    return text
