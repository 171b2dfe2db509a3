"""Program: the schedule of one compiled jaxpr, between memory planning and native code.

In:   kernels, matmuls, sorts, library calls, copies, host calls and loops over planned buffers (built by `compiler`).
Out:  one native entry `i32 entry(ptr slots)` made by `codegen.program.program`: pointer i is the address of `Program.slots[i]`
      for ins, outs and consts; after them comes the arena, in which the temps are at their offsets. The result is 0, or
      not where a host call raised.
Laws: steps run in order; a step's parallelism is its own; nothing returns to Python but `HostCall`. What depends on the process that
      runs a program (who it is, how it reaches others) are words of a constant, which are filled in when it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, Literal, Union, get_args

from weft._engine.ir.loops import Kernel
from weft._engine.util.record import record
from weft._engine.util.trees.narrowing import is_tuple

# thresholds, measured on several machines
#: that an iteration touches: longer ones take long anyway
OUTLINED_BYTES = 1 << 14
#: bytes of memory traffic of one call
OUTLINED_CALL_BYTES = 1 << 27


class SlotKind(StrEnum):
    """The origin of a buffer."""

    INPUT = "in"
    OUTPUT = "out"
    CONSTANT = "const"
    TEMP = "temp"  # in the arena


@record
class Slot:
    """A buffer of the program. `offset` counts bytes in the arena and is meaningful for `temp` only; of one that is `own`, in the
    memory of a task of the loop that uses it."""

    kind: SlotKind
    nbytes: int
    offset: int = 0
    own: bool = False

    @property
    def is_temp(self) -> bool:
        """Whether the buffer lives in the arena."""
        return self.kind is SlotKind.TEMP

    @property
    def is_input(self) -> bool:
        return self.kind is SlotKind.INPUT

    @property
    def is_output(self) -> bool:
        return self.kind is SlotKind.OUTPUT

    @property
    def is_constant(self) -> bool:
        return self.kind is SlotKind.CONSTANT


@record
class BufRef:
    """Address `base(slot) + offset + sum(loop_var * stride)`, in bytes; the variables are those of enclosing loops."""

    slot: int
    offset: int = 0
    strides: tuple[tuple[str, int], ...] = ()


@record
class Launch:
    """Run `kernel` on `args` (one per kernel buffer, in order). `work`: what it costs, in bytes of memory traffic, where it has
    loops that go over its buffers more often than once."""

    kernel: Kernel
    args: tuple[BufRef, ...]
    work: int = 0


@record
class Gemm:
    """C[b..., m, n] = sum over ko..., k of A[b..., ko..., m, k] * B[b..., ko..., k, n].

    All strides count elements and may be any non-negative number (transposed operands, stride 0 broadcasts).
    `batch` entries are (extent, a_stride, b_stride, c_stride); `outer_k` entries are (extent, a_stride, b_stride).
    Where the rows of A are not evenly spaced, `a_rows` has the outer dims that they are counted over, (extent, a_stride)
    each, outermost first, and `a_strides[0]` holds for runs of m / product of those; `b_cols` does so for columns of B.
    `acc_type` is the accumulator (f32 for f16/bf16/f32, f64, i32, ...); results are rounded once to `out_type`.

    With a `band`, C is read only where low <= n - m <= high; it need not be written elsewhere.

    With an `epilogue`, C is not written (`c` is None). That kernel is run on every tile of finished sums, while they are hot.
    Its buffers are the sums (of `acc_type`), a `PLACE` of six i64, and `epilogue_args`.

    With `groups`, there is one such product for each index of those dims, (extent, a_stride, b_stride, c_stride), and it has some of the
    rows ("m") or of what is summed ("k"), as `grouped` says: `first` and `count` (i32) have for each product, in the order of the dims,
    from which index on and how many. The last dim goes through the groups of rows, which follow one another; rows of none are filled
    with zeros. Then rows of C are dense, and there is no batch, outer k, band or epilogue.
    """

    m: int
    n: int
    k: int
    a: BufRef
    b: BufRef
    c: BufRef | None
    a_strides: tuple[int, int]  # (m, k)
    b_strides: tuple[int, int]  # (k, n)
    c_strides: tuple[int, int]  # (m, n)
    in_type: str
    acc_type: str
    out_type: str
    batch: tuple[tuple[int, int, int, int], ...] = ()
    outer_k: tuple[tuple[int, int, int], ...] = ()
    a_rows: tuple[tuple[int, int], ...] = ()
    b_cols: tuple[tuple[int, int], ...] = ()
    band: tuple[int, int] | None = None
    epilogue: Kernel | None = None
    epilogue_args: tuple[BufRef, ...] = ()
    grouped: Literal["", "m", "k"] = ""
    groups: tuple[tuple[int, int, int, int], ...] = ()
    first: BufRef | None = None
    count: BufRef | None = None


#: what the i64 words of an epilogue's place mean; `pitch` is the number of elements between rows of sums
PLACE = ("row", "rows", "col", "cols", "batch", "pitch")
#: most arguments that an epilogue takes
MOST_EPILOGUE_ARGS = 24


class SortKind(StrEnum):
    """The result of sorting a row."""

    VALUES = "values"
    ORDER = "order"
    TOP = "top"


@record
class Sort:
    """Sort `rows` dense rows of `n` elements of `type` at `source`. By `kind`:

    values: `out` has the elements in ascending order
    order:  `out` has the i32 positions in ascending order of their elements, or descending; equal ones as they are in
            `previous` (i32 positions), or in the row if there is none
    top:    `out` has the `k` greatest in descending order, `places` their i32 positions, the first of equals first
    """

    kind: SortKind
    type: str
    rows: int
    n: int
    source: BufRef
    out: BufRef
    previous: BufRef | None = None
    places: BufRef | None = None
    k: int = 0
    descending: bool = False

    @property
    def gives_order(self) -> bool:
        """Whether `out` has positions instead of elements."""
        return self.kind is SortKind.ORDER

    @property
    def gives_top(self) -> bool:
        """Whether `out` has the `k` greatest elements alone."""
        return self.kind is SortKind.TOP


@record
class FftPart:
    """What a step of a convolution does besides its transform: rows of the source have but `taken` numbers, and zeros follow; only the
    first `given` numbers of a result are written. The first `times_source` elements that are transformed, or `times_out` of their
    transforms, are multiplied by `factors`: of each element the real parts for all rows, or columns, then the imaginary ones. Real parts
    change places with imaginary ones as the source is read, or the result written."""

    taken: int
    given: int
    times_source: int
    times_out: int
    swaps_source: bool
    swaps_out: bool
    factors: BufRef


FftKind = Literal["forward", "inverse", "half", "all", "real", "cross", "uncross", "down", "undown"]


@record
class Fft:
    """Transform `rows` dense rows of `n` numbers whose parts have `type`, by `kind`:

    forward, inverse    complex numbers to as many; the inverse has the factor 1 / n
    half                real numbers to the first n // 2 + 1 frequencies, all to all frequencies
    real                those n // 2 + 1 to real numbers, with the factor 1 / n

    cross, uncross      the second half of a transform of n times `inner` complex numbers: of `inner` rows each, number j of row p is
                        multiplied by exp(-2 pi i p j / (n inner)), and frequency k of it comes to k inner + p; uncross is the inverse;
                        n is at least 16 and `inner` a multiple of it, so that no lane is empty
    down, undown        forward and inverse by the function that crosses rows of the same n

    Elsewhere, where `inner` is not 1, a row is n times `inner` complex numbers, and each of these is transformed by itself; `out` may be
    `source`. `tables` are those of `ir.fft`; `part` says what a step of a convolution does besides.
    """

    kind: FftKind
    type: str
    n: int
    rows: int
    inner: int
    source: BufRef
    out: BufRef
    tables: BufRef
    part: FftPart | None = None


@record
class LibraryCall:
    """Call `routine` of BLAS or LAPACK on each of `count` problems. Of its `arguments`, all taken by reference,

    one letter      is a character
    an int          is an integer, a float a number of the routine's type
    a name          is the array of that name; of a problem it has that many elements, dense, after those of the one before
    (name, k)       is that array from its element k on
    ("work", t, n)  is memory for n elements of dtype t

    `arrays` are (name, address, elements of each problem, dtype name). Those named x... are only read. Integers are int32
    here, whatever the library's are; integers that are written (y...) are 0 before.
    """

    routine: str
    count: int
    arguments: tuple[str | int | float | tuple[str, int] | tuple[str, str, int], ...]
    arrays: tuple[tuple[str, BufRef, int, str], ...]


@record
class Copy:
    """Copy `nbytes` bytes; source and destination do not overlap."""

    dst: BufRef
    src: BufRef
    nbytes: int


@record
class Join:
    """Put parts side by side: each is (address, bytes of a row, where its rows begin in those of the result, `pitch` bytes apart)."""

    out: BufRef
    rows: int
    pitch: int
    parts: tuple[tuple[BufRef, int, int], ...]


@record
class Pad:
    """Copy runs of `run` bytes into `rows` rows of `row` bytes, from byte `lead` on, and fill the rest with zeros. Rows are counted over
    `dims`, innermost first, (extent, first, count, stride): those whose index is below first or from first + count on have no run; from
    one run to the next are as many bytes of the source."""

    dst: BufRef
    src: BufRef
    row: int
    lead: int
    run: int
    rows: int
    dims: tuple[tuple[int, int, int, int], ...]


@record
class HostCall:
    """Call `fn(*input_views, *output_views)` in Python with NumPy views of the buffers, holding the GIL; an exception
    stops the program and surfaces in the caller. Each operand is (ref, shape, numpy dtype name), dense row-major."""

    fn: Callable[..., Any]
    ins: tuple[tuple[BufRef, tuple[int, ...], str], ...]
    outs: tuple[tuple[BufRef, tuple[int, ...], str], ...]


@record
class Loop:
    """Run `body` for var = 0 .. extent-1, in order (backward when `reverse`). Where `tasks` holds, iterations are independent and run in
    parallel, each with `own_bytes` of memory for slots that are `own`; there are no host calls and no library calls in the body."""

    var: str
    extent: int
    body: tuple["Step", ...]
    reverse: bool = False
    tasks: bool = False
    own_bytes: int = 0


@record
class WhileLoop:
    """Run `cond_body`, then while the bool byte at `cond` is nonzero: `body`, `cond_body`."""

    cond_body: tuple["Step", ...]
    cond: BufRef
    body: tuple["Step", ...]


@record
class Branch:
    """Run branch number clamp(i32 at `index`, 0, len-1)."""

    index: BufRef
    branches: tuple[tuple["Step", ...], ...]


@record
class Start:
    """Begin an exchange with other processes: word `word` of `words` is the handle of its plan, and the request goes to `request`.
    Both buffers belong to the exchange until it is waited for."""

    what: str
    word: int
    words: BufRef
    source: BufRef
    out: BufRef
    request: BufRef


@record
class Wait:
    """Wait until the exchange of `request` is done, and has written its result."""

    words: BufRef
    request: BufRef


Step = Union[
    Launch,
    Gemm,
    Sort,
    Fft,
    LibraryCall,
    Copy,
    Join,
    Pad,
    HostCall,
    Loop,
    WhileLoop,
    Branch,
    Start,
    Wait,
]

#: class -> names of its fields, for every class that can hold addresses
_HOLDERS = {cls: cls.__match_args__ for cls in (*get_args(Step), FftPart)}


def refs_of(part: object) -> Iterator[BufRef]:
    """Yield every address in a step, or in a tuple of steps, those in bodies of loops and branches included.

    >>> [ref.slot for ref in refs_of(Loop("i", 2, (Copy(BufRef(1), BufRef(0), 8),)))]
    [1, 0]
    """
    if type(part) is BufRef:
        yield part
    elif is_tuple(part):
        for item in part:
            yield from refs_of(item)
    elif type(part) in _HOLDERS:
        for name in _HOLDERS[type(part)]:
            yield from refs_of(getattr(part, name))


#: where the words of a program that exchanges begin: the addresses of the functions that start exchanges and wait for them
START_WORD, WAIT_WORD, FIRST_WORD = 0, 1, 2


@record
class Program:
    """Slots come in the order: ins, outs, consts, temps."""

    slots: tuple[Slot, ...]
    steps: tuple[Step, ...]
    arena_bytes: int
    name: str = "program"
