"""The file of contexts, and the credentials that its contexts name."""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from bmqctl.cli.contexts.model import BadContext, Context, Contexts, SecretSource, parse_contexts

__all__ = ["contexts_path", "read_contexts", "secret_of", "write_contexts"]

FILE_BYTES_MAX: Final = 4 << 20
SECRET_BYTES_MAX: Final = 64 << 10
PRIVATE: Final = 0o600


def contexts_path(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the path of the file: below `$XDG_CONFIG_HOME`, or `~/.config` without an absolute one.

    None if there is no home directory: `$HOME` is not set, and the user id has no entry in the password file.
    """
    folder = Path(environment.get("XDG_CONFIG_HOME", ""))
    if not folder.is_absolute():
        home = _home(environment)
        if home is None:
            return None
        folder = home / ".config"
    return folder / "bmqctl" / "contexts.json"


def _home(environment: Mapping[str, str]) -> Path | None:
    try:
        home = Path(environment.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return None
    return home if home.is_absolute() else None


def read_contexts(path: Path | None) -> Contexts:
    """Read the file; without one there are no contexts. Raises `BadContext`, which names the file."""
    if path is None:
        return Contexts()
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            data = file.read(FILE_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except PermissionError as fault:
        raise BadContext(
            f"{path}: {fault.strerror}; set XDG_CONFIG_HOME to a folder that this account can read, or name the broker"
        ) from None
    except OSError as fault:
        raise BadContext(f"{path}: {fault.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise BadContext(f"{path}: more than {FILE_BYTES_MAX:,} bytes; move it away, or mend it")
    try:
        contexts = parse_contexts(data.decode("utf-8"))
    except UnicodeDecodeError as fault:
        raise BadContext(f"{path}: no UTF-8 at offset {fault.start}; move it away, or mend it") from None
    except BadContext as fault:
        raise BadContext(f"{path}: {fault}; move it away, or mend it") from None
    if contexts.has_secrets and mode & ~PRIVATE:
        raise BadContext(f"{path}: holds credentials, and others may read it: chmod 600 {path}")
    return contexts


def write_contexts(path: Path | None, contexts: Contexts) -> None:
    """Replace the file by one that only its owner reads. Raises `BadContext` if that fails."""
    if path is None:
        raise BadContext("there is no home directory: set HOME, or XDG_CONFIG_HOME to an absolute path")
    # A link, to a folder that is kept elsewhere, stays one.
    place = path.resolve()
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Such files have the mode 0600.
        handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(contexts.to_text())
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(place)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as fault:
        raise BadContext(f"{path}: {fault.strerror}") from None


def secret_of(context: Context, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the credentials that a context has or names. Raises `BadContext` if they are missing."""
    secret = context.secret
    if secret is None or context.secret_source is SecretSource.HERE:
        return secret
    if context.secret_source is SecretSource.ENVIRONMENT:
        if not environment.get(secret):
            raise BadContext(f"its credentials are in the variable {secret}, which is not set")
        return environment[secret]
    return _first_line(Path(secret))


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(SECRET_BYTES_MAX + 1)
    except OSError as fault:
        raise BadContext(f"its credentials are in {path}: {fault.strerror}") from None
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise BadContext(f"its credentials are in {path}, which is not UTF-8 text") from None
    if len(data) > SECRET_BYTES_MAX or len(lines) != 1 or not lines[0]:
        raise BadContext(f"its credentials are in {path}, which should be one line, with user:password or the like")
    return lines[0]
