"""Closed standard output, as in `weft info | head`: commands then end without a message."""

import os
import select
import sys

CLOSED_OUTPUT = (
    128 + 13
)  # the status that a shell shows for a process that the signal SIGPIPE ended


def is_output_closed() -> bool:
    """Return whether nothing reads standard output any more."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # no poll, or no file
        return True


def drop_output() -> None:
    """Discard further writes to standard output, including Python's buffered text."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
