"""The steps of a folder: listing, naming, replacing and removing them.

In:   the folder that `save` was given.
Out:  numbers of steps.
Laws: one rename gives a step its name, or takes it away; an incomplete step has the name of a temporary folder, with the token of the
      group that writes it. Only a group whose claim holds removes steps and folders of others.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
from pathlib import Path

from weft._engine.util.errors import CheckpointError
from weft.checkpoint import arguments, layout
from weft.checkpoint.claims import Claim, own_claims

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_REMOVED = "-removed"
_TOKEN = re.compile(rf"\d+{re.escape(layout.TEMPORARY)}-(\d+)")


def folders(path: str | os.PathLike) -> dict[int, Path]:
    """Return step -> its folder, in order; including orbax's folders, whose names may have a prefix."""
    root = Path(os.path.abspath(path))
    if not root.is_dir():
        return {}
    folder_of_step = {}
    for folder in root.iterdir():
        step = layout.step_of(folder)
        if (
            step is not None
            and folder.is_dir()
            and ((folder / layout.STEP).exists() or layout.items_of(folder))
        ):
            folder_of_step[step] = folder
    return dict(sorted(folder_of_step.items()))


def steps(path: str | os.PathLike) -> list[int]:
    """Return the complete steps, in order.

    >>> weft.checkpoint.steps("/nowhere")
    []
    """
    return list(folders(arguments.absolute_path("checkpoint.steps(path)", path)))


def latest_step(path: str | os.PathLike) -> int | None:
    """Return the newest complete step; None if there is none.

    >>> weft.checkpoint.latest_step("/nowhere") is None
    True
    """
    return max(folders(arguments.absolute_path("checkpoint.latest_step(path)", path)), default=None)


def delete(path: str | os.PathLike, step: int) -> None:
    """Remove a step. Raises FileNotFoundError if it does not exist, CheckpointSupersededError if this program saved in the folder and
    another one has since begun to save there."""
    call = "checkpoint.delete(path, step)"
    root = arguments.absolute_path(call, path)
    arguments.check_integer(call, "step", step, 0)
    own_claims.check(root)
    present = folders(root)
    if step not in present:
        raise FileNotFoundError(
            f"checkpoint.delete: {root} has no step {step}; there are {list(present)}."
        )
    _remove(present[step])


def temporary_folder(claim: Claim, step: int) -> Path:
    """Return the temporary folder of a step for the owner of a claim."""
    return claim.root / f"{step}{layout.TEMPORARY}-{claim.token}"


def _remove(folder: Path, claim: Claim | None = None) -> None:
    """Remove a folder: first rename it, so that it is never visible in part, then delete it. With `claim`, undo the rename if the claim
    was lost: the new owner may have replaced the folder."""
    renamed = folder.with_name(
        folder.name
        + (_REMOVED if layout.TEMPORARY in folder.name else f"{layout.TEMPORARY}{_REMOVED}")
    )
    shutil.rmtree(renamed, ignore_errors=True)
    folder.rename(renamed)
    if claim is not None and not claim.is_held():
        with contextlib.suppress(OSError):
            renamed.rename(folder)
        return
    layout.sync_folder(folder.parent)
    shutil.rmtree(renamed, ignore_errors=True)  # the next sweep removes what remains


def prune(claim: Claim, keep: int | None, keep_every: int | None) -> None:
    """Remove the steps that are neither among the newest `keep` nor divided by `keep_every`, while the claim holds."""
    if keep is None:
        return
    existing = folders(claim.root)
    for step in list(existing)[:-keep]:
        if (not keep_every or step % keep_every) and claim.is_held():
            with contextlib.suppress(FileNotFoundError):
                _remove(existing[step], claim)


def sweep(claim: Claim) -> None:
    """Remove the remains of interrupted saves, and folders of groups with smaller tokens, which can no longer commit them."""
    for folder in claim.root.glob(f"*{layout.TEMPORARY}*"):
        token = _TOKEN.fullmatch(folder.name)
        if folder.name.endswith(_REMOVED):
            shutil.rmtree(folder, ignore_errors=True)
        elif token is None or int(token[1]) <= claim.token:
            _remove(folder)


def commit(temporary: Path, final: Path, overwrite: bool) -> None:
    """Rename a complete folder to its final name; with `overwrite`, replace an existing folder of that name."""
    if overwrite and final.exists():
        _exchange(temporary, final)
        shutil.rmtree(temporary)
    else:
        temporary.rename(final)
    layout.sync_folder(final.parent)


def _exchange(one: Path, other: Path) -> None:
    """Exchange the names of two folders atomically."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if (
        rename is None
        or rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) != 0
    ):
        why = os.strerror(ctypes.get_errno() or errno.ENOSYS)
        raise CheckpointError(
            f"a step cannot be replaced atomically on this file system ({why}); delete it first (weft.checkpoint.delete)"
        )
