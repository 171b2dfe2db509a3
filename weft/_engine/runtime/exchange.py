"""Transfers between processes outside of compiled programs: gathering arrays, and changing their layout.

In:   arrays over processes, NumPy arrays of one process; every participating process calls with the same layouts.
Out:  NumPy arrays of the values of all processes, arrays of another layout.
Laws: transfers follow from layouts alone, so that processes need not ask each other. A block that a process already has is not sent; the
      holders of replicas share the sending. If processes request different things, the error lists the requests.
Next: `processes` transports messages; compiled programs have their own collectives (`partition`).
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft._engine import processes
from weft._engine.backends.array_spec import (
    ArraySpec,
    is_whole_everywhere,
    numbers_by_process,
    undo_transpose,
)
from weft._engine.backends.process_blocks import Numbers
from weft._engine.runtime.array import Array
from weft._engine.util.errors import ProcessFailureError, describe
from weft._engine.util.source import user_frame


def require_processes() -> Any:
    """Return the state shared between processes; raise RuntimeError in a single process."""
    shared_state = processes.current()
    if shared_state is None:
        raise RuntimeError("there is one process: weft.distributed.initialize was not called.")
    return shared_state


def agree(api: str, message: str, value: str = "") -> list[str]:
    """Return the text `value` of each process, in order of rank, once all have called `api` with an equal `message`.

    Raises ProcessFailureError if a process made another call, or does not arrive in time.
    """
    all_ranks = require_processes()
    frame = user_frame()
    own = [api, message, "" if frame is None else str(frame), value]
    number = all_ranks.next_number("joint call")
    replies = all_ranks.client.barrier(
        f"joint call {number} of all processes", all_ranks.collective_timeout, value=own
    )
    other = next((rank for rank, theirs in enumerate(replies) if theirs[:2] != own[:2]), None)
    if other is None:
        return [theirs[3] for theirs in replies]
    rows = [
        (f"process {rank}", f"{theirs[0]} of {theirs[1]}", theirs[2] and f"at {theirs[2]}")
        for rank, theirs in enumerate(replies)
        if rank in (0, all_ranks.rank, other)
    ]
    raise ProcessFailureError(
        describe(
            api,
            "the processes call different things.",
            rows,
            None,
            "Every process makes the same calls in the same order, with values of the same shapes and "
            "dtypes.",
            "Look for a branch that depends on the process index.",
        ),
        (other,),
    )


def digest(values: Sequence[np.ndarray]) -> str:
    """Return a hash of the values."""
    sha = hashlib.sha1(usedforsecurity=False)
    for value in values:
        if value.nbytes:
            sha.update(np.ascontiguousarray(value).view(np.uint8).data)
    return sha.hexdigest()


# ---- messages


def all_gather(value: np.ndarray, origin: str) -> np.ndarray:
    """Return the arrays of all processes, stacked in order of rank: [processes, *shape]."""
    all_ranks, data = require_processes(), np.ascontiguousarray(value)
    result = np.empty((all_ranks.size, *value.shape), value.dtype)
    if data.nbytes:
        _execute_plans(
            [
                (
                    _plan(
                        "all_gather",
                        data.nbytes,
                        groups=(tuple(range(all_ranks.size)),),
                        origin=origin,
                    ),
                    data,
                    result,
                )
            ]
        )
    return result


def broadcast(value: np.ndarray, source: int, origin: str) -> np.ndarray:
    """Return the array of process `source`; other processes pass an array of its shape and dtype."""
    all_ranks, data = require_processes(), np.ascontiguousarray(value)
    result = np.empty_like(data)
    if data.nbytes:
        ranks = (source, *[rank for rank in range(all_ranks.size) if rank != source])
        _execute_plans(
            [(_plan("broadcast", data.nbytes, groups=(ranks,), origin=origin), data, result)]
        )
    return result.reshape(value.shape)


def _plan(kind: str, nbytes: int, *, groups: tuple = (), pairs: tuple = (), origin: str) -> Any:
    from weft._engine.processes.collective_plan import CollectiveKind, CollectivePlan

    return CollectivePlan(CollectiveKind(kind), "uint8", nbytes, None, groups, pairs, origin)


def _execute_plans(messages: Sequence[tuple[Any, np.ndarray, np.ndarray]]) -> None:
    """Execute plans with their inputs and outputs: all are started before the first wait."""
    transport = require_processes().transport
    try:
        requests = [
            transport.start(transport.plan(plan), source.ctypes.data, out.ctypes.data)
            for plan, source, out in messages
        ]
        for request in requests:
            transport.wait(request)
    except BaseException:
        _abandoned.append(messages)  # other processes may still write into these buffers
        raise


#: messages that failed, kept alive forever
_abandoned: list[Sequence] = []


# ---- whole values


def gather_value(array: Array, origin: str) -> np.ndarray:
    """Return the value of an array over processes; all processes call this."""
    spec = array._spec
    numbers = _holders(spec, origin)
    if len(numbers) == require_processes().size and is_whole_everywhere(spec, numbers):
        return array._numpy()
    local_blocks = np.empty(_held_shape(spec, next(iter(numbers.values()))), spec.storage_dtype)
    if spec.storage_bytes:
        local_blocks[...] = spec.backend.get_blocks(array._live(), spec.stored)
    gathered = all_gather(local_blocks, origin)
    whole = np.empty(spec.global_shape, spec.storage_dtype)
    n = len(spec.splits)
    grid = whole.reshape([k for pair in zip(spec.splits, spec.local_shape) for k in pair])
    grid = grid.transpose([*range(0, 2 * n, 2), *range(1, 2 * n, 2)])
    for rank, block_numbers in numbers.items():
        grid[np.ix_(*block_numbers)] = gathered[rank]
    return undo_transpose(whole, spec.order)


def check_present(api: str, sharding: Any, ranks: Iterable[int]) -> None:
    """Raise ValueError if the sharding has devices of processes that were lost before `weft.distributed.shrink`."""
    if any(rank < 0 for rank in ranks):
        raise ValueError(
            f"{api}: {sharding!r} has devices from before weft.distributed.shrink().\n"
            "  Make a mesh of weft.devices()."
        )


def _holders(spec: ArraySpec, api: str) -> dict[int, Numbers]:
    """Return the blocks that each process has; for an array from before `weft.distributed.shrink`, only blocks of survivors.

    Raises ProcessFailureError in all processes if no process has some of the blocks.
    """
    numbers = numbers_by_process(spec)
    if all(rank >= 0 for rank in numbers):
        return numbers
    now = {-1 - first: rank for rank, first in enumerate(require_processes().first_numbers)}
    surviving = dict(
        sorted(
            (now.get(rank, rank), held)
            for rank, held in numbers.items()
            if rank >= 0 or rank in now
        )
    )
    blocks = {block for held in surviving.values() for block in itertools.product(*held)}
    missing = math.prod(spec.splits) - len(blocks)
    if missing:
        raise ProcessFailureError(
            describe(
                api,
                f"{spec.aval.str_short()} has lost {missing} of its {math.prod(spec.splits)} blocks.",
                [("sharding", repr(spec.sharding))],
                user_frame(),
                "A block survives if one of the remaining processes has a replica.",
                "Restore the array from the last checkpoint, onto a mesh of weft.devices().",
            )
        )
    return surviving


def _held_shape(spec: ArraySpec, numbers: Numbers) -> tuple[int, ...]:
    return (*map(len, numbers), *spec.local_shape)


# ---- other layouts


def change_layout(array: Array, want: ArraySpec) -> Array:
    """Return `array` in the layout `want`, over processes. Every process of either layout calls this.

    Raises ValueError for a layout on one process: `process_allgather` gathers the value in all processes.
    """
    have = array._spec
    source, target = _holders(have, "device_put"), numbers_by_process(want)
    check_present("device_put", want.sharding, target)
    if len(target) == 1 and len(source) > 1:
        raise _make_single_process_error(have, want)
    rank = require_processes().rank
    origin = f"changing the layout of {have.aval.str_short()}"
    transfers = _transfers(have, want, source, target)
    local_blocks = spec_blocks(array) if rank in source else None
    result = np.empty(want.storage_shape, want.storage_dtype) if rank in target else None
    if local_blocks is not None and result is not None and (rank, rank) in transfers:
        own = transfers[rank, rank]
        _unpack(_pack(local_blocks, source[rank], own), own, target[rank], result)
    itemsize, ranks = have.storage_dtype.itemsize, sorted({*source, *target})
    messages, arrivals = [], []
    for pairs in _rounds(ranks, transfers):
        count = max([_element_count(transfers[pair]) for pair in pairs]) * itemsize
        out, box = np.zeros(count, np.uint8), np.empty(count, np.uint8)
        for pair in pairs:
            if pair[0] == rank and local_blocks is not None:
                packed = _pack(local_blocks, source[rank], transfers[pair]).view(np.uint8)
                out[: packed.size] = packed
            if pair[1] == rank:
                arrivals.append((pair, box))
        messages.append((_plan("permute", count, pairs=tuple(pairs), origin=origin), out, box))
    _execute_plans(messages)
    if result is None:
        return Array(want, want.backend.allocate(want))
    for pair, box in arrivals:
        _unpack(box.view(have.storage_dtype), transfers[pair], target[rank], result)
    return Array(want, want.backend.put_blocks(result, want))


def _rounds(ranks: list[int], transfers: Mapping) -> Iterator[list[tuple[int, int]]]:
    """Yield rounds of pairs of processes: in each round a process sends to one, and receives from one."""
    for shift in range(1, len(ranks)):
        pairs = [(p, ranks[(i + shift) % len(ranks)]) for i, p in enumerate(ranks)]
        pairs = [pair for pair in pairs if pair in transfers]
        if pairs:
            yield pairs


def _make_single_process_error(have: ArraySpec, want: ArraySpec) -> ValueError:
    return ValueError(
        describe(
            "device_put",
            f"{have.aval.str_short()} is on devices of several processes, and would move to one of them.",
            [("sharding", repr(have.sharding)), ("target", repr(want.sharding))],
            user_frame(),
            "For a reshard between processes, the input and target shardings both span processes.",
            "Call multihost_utils.process_allgather(x, tiled=True) in every process to have the value in each.",
        )
    )


def _element_count(regions: list[tuple[Region, Region]]) -> int:
    return sum([_size(here) for here, _ in regions])


def _pack(blocks: np.ndarray, numbers: Numbers, regions: list[tuple[Region, Region]]) -> np.ndarray:
    """Return the values of regions of the blocks `numbers`, one region after another."""
    parts = [np.ascontiguousarray(blocks[_region_index(numbers, here)]) for here, _ in regions]
    return np.concatenate([part.reshape(-1) for part in parts])


def _unpack(
    values: np.ndarray, regions: list[tuple[Region, Region]], numbers: Numbers, result: np.ndarray
) -> None:
    """Copy regions that arrived one after another to their places in the blocks `numbers` of a result."""
    at = 0
    for here, there in regions:
        count = _size(here)
        shape = [stop - start for _, start, stop in here]
        result[_region_index(numbers, there)] = values[at : at + count].reshape(shape)
        at += count


def spec_blocks(array: Array) -> np.ndarray:
    """Return the local blocks of an array."""
    return array._spec.backend.get_blocks(array._live(), array._spec)


#: for each dim (block number, start, stop): a part of a block
Region = tuple[tuple[int, int, int], ...]


def _transfers(
    have: ArraySpec, want: ArraySpec, source: dict[int, Numbers], target: dict[int, Numbers]
) -> dict[tuple[int, int], list[tuple[Region, Region]]]:
    """Return what each process sends to each: (sender, receiver) -> parts of blocks of `have`, and their places in blocks of `want`."""
    transfers: dict[tuple[int, int], list] = {}
    holders: dict[tuple[int, ...], list[int]] = {}
    for rank, held in source.items():
        for block in itertools.product(*held):
            holders.setdefault(block, []).append(rank)
    for q, numbers in target.items():
        for combined in itertools.product(
            *[_overlaps(*along) for along in zip(have.local_shape, want.local_shape, numbers)]
        ):
            block_holders = holders[tuple(here[0] for here, _ in combined)]
            giver = q if q in block_holders else block_holders[q % len(block_holders)]
            region = tuple(here for here, _ in combined), tuple(there for _, there in combined)
            transfers.setdefault((giver, q), []).append(region)
    return transfers


def _overlaps(
    have: int, want: int, block_numbers: Sequence[int]
) -> list[tuple[tuple[int, int, int], tuple[int, int, int]]]:
    """Return the overlaps along one dim of blocks of size `have` with the blocks number `block_numbers` of size `want`.

    Each overlap is a pair of (block, start, stop): the part of the former, and its place in the latter.

    >>> _overlaps(4, 6, [1])
    [((1, 2, 4), (1, 0, 2)), ((2, 0, 4), (1, 2, 6))]
    """
    pairs = []
    for number in block_numbers:
        first, last = number * want, (number + 1) * want
        for block in range(first // have if have else 0, -(-last // have) if have else 0):
            start, stop = max(first, block * have), min(last, (block + 1) * have)
            pairs.append(
                (
                    (block, start - block * have, stop - block * have),
                    (number, start - first, stop - first),
                )
            )
    return pairs


def _size(region: Region) -> int:
    return math.prod(stop - start for _, start, stop in region)


def _region_index(numbers: Numbers, region: Region) -> tuple:
    """Return the index of a region in the grid of this process's blocks."""
    return (
        *[mine.index(block) for mine, (block, _, _) in zip(numbers, region)],
        *[slice(start, stop) for _, start, stop in region],
    )
