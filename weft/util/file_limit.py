"""How many files and connections this process may have open.

In:   a number of files, and what needs them.
Out:  a limit that is high enough, or an error that names the number.
"""

from __future__ import annotations

import resource


def raise_file_limit(needed: int, purpose: str) -> None:
    """Allow this process `needed` open files.

    Every process may raise its limit, usually 1,024, up to its hard limit; OSError if that is lower.

    >>> raise_file_limit(16, "a test")
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise OSError(
            f"{purpose} need {needed} open files, and this process may have {hard} "
            f"(its hard limit): raise it (ulimit -Hn {needed}, or LimitNOFILE= of its service)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
