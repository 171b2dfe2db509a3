"""The command `weft cache`: the compiled programs on disk, their size, limit and deletion.

In:  the parsed command line.
Out: lines on standard output, and the exit status.
"""

import argparse
import time

from weft._engine.util import cache
from weft._engine.util.messages.quantities import quantity

_SECONDS_PER_DAY = 86400


def run_cache_command(options: argparse.Namespace) -> int:
    """Run `weft cache`; return 1 if the cache is disabled."""
    if cache.directory() is None:
        print(
            "The cache of compiled programs is disabled (WEFT_CACHE_DIR, enable_compilation_cache)."
        )
        return 1
    actions = {"list": _list_files, "clear": _clear, "limit": _limit}
    actions.get(options.action, _print_size)(options)
    return 0


def _print_size(_: argparse.Namespace) -> None:
    files = cache.stored_files()
    total = sum(size for _, size, _ in files)
    print(f"folder  {cache.directory()}")
    print(f"size    {_spell_size(total)} in {quantity(len(files), 'file')}")
    print(f"limit   {_spell_size(cache.size_limit())}")


def _list_files(options: argparse.Namespace) -> None:
    files = sorted(cache.stored_files(), reverse=True)
    for changed, size, path in files[: options.top]:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(changed))
        print(f"{at}  {_spell_size(size):>10}  {path}")
    if len(files) > options.top:
        print(f"and {quantity(len(files) - options.top, 'older file')}")


def _clear(options: argparse.Namespace) -> None:
    files = cache.stored_files()
    if options.older is not None:
        latest = time.time() - options.older * _SECONDS_PER_DAY
        files = [file for file in files if file[0] < latest]
    deleted = cache.delete_oldest(files, sum(size for _, size, _ in files) + 1)
    print(f"{quantity(len(files), 'file')} deleted, {_spell_size(deleted)} freed")


def _limit(options: argparse.Namespace) -> None:
    if options.size is not None:
        cache.store_size_limit(options.size)
        freed = cache.prune(options.size)
        if freed:
            print(f"{_spell_size(freed)} freed")
    print(f"limit   {_spell_size(cache.size_limit())}")


def _spell_size(nbytes: int) -> str:
    """Return a number of bytes as text.

    >>> _spell_size(0), _spell_size(4096), _spell_size(3 << 29)
    ('0 B', '4.0 KiB', '1.5 GiB')
    """
    if nbytes < 1024:
        return f"{nbytes} B"
    power = min((nbytes.bit_length() - 1) // 10, 3)
    return f"{nbytes / 1024**power:.1f} {'KMG'[power - 1]}iB"
