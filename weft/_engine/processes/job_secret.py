"""The secret that all processes of one job share to authenticate each other.

The launcher generates it and passes it on in the environment variable WEFT_JOB_SECRET. Without a
launcher the user sets that variable, or WEFT_JOB_SECRET_FILE: a file that only its owner can read.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from collections.abc import Mapping

VARIABLE, FILE_VARIABLE, INSECURE_VARIABLE = (
    "WEFT_JOB_SECRET",
    "WEFT_JOB_SECRET_FILE",
    "WEFT_INSECURE",
)
_MIN_LENGTH = 16


def make_secret() -> str:
    """Return a new secret: 64 hexadecimal digits."""
    return secrets.token_hex(32)


def find_secret(environment: Mapping[str, str] | None = None) -> bytes:
    """Return the secret from the environment, or b"" if it has none.

    Raises ValueError for a secret below 16 characters, and for a file that others can read.
    """
    variables = os.environ if environment is None else environment
    text, source = variables.get(VARIABLE, ""), VARIABLE
    path = variables.get(FILE_VARIABLE, "")
    if not text and path:
        text, source = _read_private(path), path
    if text and len(text) < _MIN_LENGTH:
        raise ValueError(
            f"initialize: the secret in {source} has {len(text)} characters; it must have at least "
            f"{_MIN_LENGTH}. `openssl rand -hex 32` prints one."
        )
    return text.encode()


def make_start_secret(secret: bytes, start: str) -> bytes:
    """Return the secret of one start of a program; `start` is the launcher's name for it, or "".

    Starts that share a user's secret refuse each other: a process that finds another start at its
    coordinator's address must not join it.
    """
    return hmac.digest(secret, start.encode(), "sha256") if start else secret


def is_insecure_allowed() -> bool:
    """Return whether the user accepts unauthenticated connections from other machines."""
    return os.environ.get(INSECURE_VARIABLE, "").lower() in ("1", "true", "yes", "on")


def _read_private(path: str) -> str:
    with open(path) as file:
        status = os.fstat(file.fileno())
        if stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid not in (0, os.getuid()):
            raise ValueError(
                f"initialize: {path} ({FILE_VARIABLE}) can be read by other users. A file with a "
                f"job's secret has mode 600: chmod 600 {path}"
            )
        return file.read().strip()
