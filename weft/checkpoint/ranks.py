"""Joint stages of saving and restoring in all processes of a program. A single process does not wait.

In:   the name of the action, the same in every process.
Out:  the results of all processes; an error in one of them is an error in all.
Laws: a failing process reports its error instead of staying away, so that no process waits for it.
"""

from __future__ import annotations

from collections.abc import Callable

from weft._engine import processes
from weft._engine.util.errors import CheckpointError, CheckpointSupersededError


class JointStages:
    """The processes that take part in `name`, in stages; `doing` is shown to processes that wait."""

    def __init__(self, name: str, doing: str):
        self._all = processes.current()
        number = 0 if self._all is None else self._all.next_number(name)
        self._name, self._doing = f"{name} {number}", doing
        self.rank = 0 if self._all is None else self._all.rank
        self.size = 1 if self._all is None else self._all.size

    def report_progress(self, text: str) -> None:
        """Report the progress of this process in the current stage."""
        if self._all is not None:
            self._all.client.report_progress(f"{self._doing}: {text}")

    def run_stage(self, stage: str, work: Callable[[], str]) -> list[str]:
        """Do `work` in every process and wait for all; return the results in order of rank. An error in one process is raised there
        unchanged, and in the others as CheckpointError, or as CheckpointSupersededError if it is one."""
        if self._all is None:
            return [work()]
        failure, result = None, ""
        try:
            result = work()
        except BaseException as error:
            failure = error
        self._all.client.report_progress("")
        brings = [
            result,
            None if failure is None else _words(failure),
            isinstance(failure, CheckpointSupersededError),
        ]
        answers = self._all.client.barrier(
            f"{self._name} {stage}", self._all.collective_timeout, value=brings
        )
        if failure is not None:
            raise failure
        for _, text, is_superseded in answers:
            if is_superseded:
                raise CheckpointSupersededError(text)
        for rank, (_, text, _) in enumerate(answers):
            if text is not None:
                raise CheckpointError(f"process {rank}: {text}")
        return [text for text, *_ in answers]


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if not isinstance(error, OSError) else str(error)
