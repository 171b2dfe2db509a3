"""The emulator of tile instructions against a model in NumPy: products, shapes, addresses, threads, faults."""

import ctypes
import faulthandler
import functools
import itertools
import mmap
import os
import signal
import threading
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

from tests.harness import tile_emulator
from tests.harness.processes import run_python
from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain import target
from weft._engine.util.record import replace

pytestmark = pytest.mark.skipif(
    not tile_emulator.available(), reason=tile_emulator.obstacle() or ""
)

FEATURES = ",+amx-tile,+amx-bf16,+amx-int8,+amx-fp16"
TINY = float(np.finfo(np.float32).tiny)
PAGE = mmap.PAGESIZE


@pytest.fixture(autouse=True)
def emulator():
    tile_emulator.install()
    tile_emulator.reset()


# ---- assembly


def assemble(*functions):
    """Return callables for functions given as lists of instructions; `Code` keeps their memory."""
    lines = []
    for number, body in enumerate(functions):
        name = f"f{number}"
        lines += [f".globl {name}", f".type {name},@function", f"{name}:", *body, "retq"]
        lines.append(f".size {name}, .-{name}")
    text = "\n".join(f'module asm "{line}"' for line in lines)
    machine = target.current()
    machine = replace(machine, features=machine.features + FEATURES)
    names = [f"f{number}" for number in range(len(functions))]
    library = target.link(target.emit_object(text, machine, True), names, {})
    return [Code(library, library[name]) for name in names]


class Code(NamedTuple):
    """A function in assembly whose arguments are integers and arrays."""

    library: object
    address: int

    def __call__(self, *arguments):
        words = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(words))(self.address)(*words)


def configuration(shapes):
    """Return the memory of `ldtilecfg` for a dictionary of tiles and their (rows, bytes per row)."""
    memory = np.zeros(64, np.uint8)
    memory[0] = 1
    for tile, (rows, row_bytes) in shapes.items():
        memory[16 + 2 * tile] = row_bytes
        memory[48 + tile] = rows
    return memory


def product(name, c, a, b):
    """Return a function of (configuration, c, a, b) for one product; rows are 64 bytes apart."""
    return [
        "ldtilecfg (%rdi)",
        "movl $64, %eax",
        f"tileloadd (%rsi,%rax), %tmm{c}",
        f"tileloadd (%rdx,%rax), %tmm{a}",
        f"tileloaddt1 (%rcx,%rax), %tmm{b}",
        f"{name} %tmm{b}, %tmm{a}, %tmm{c}",
        f"tilestored %tmm{c}, (%rsi,%rax)",
        "tilerelease",
    ]


# ---- the model


class Product(NamedTuple):
    """The element types of a product, and the tiles of C, A and B in its test."""

    a: type
    b: type
    c: type
    tiles: tuple[int, int, int]


PRODUCTS = {
    "tdpbf16ps": Product(ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32, (0, 1, 2)),
    "tdpfp16ps": Product(np.float16, np.float16, np.float32, (7, 6, 5)),
    "tdpbssd": Product(np.int8, np.int8, np.int32, (2, 7, 0)),
    "tdpbsud": Product(np.int8, np.uint8, np.int32, (5, 0, 7)),
    "tdpbusd": Product(np.uint8, np.int8, np.int32, (3, 4, 6)),
    "tdpbuud": Product(np.uint8, np.uint8, np.int32, (6, 3, 1)),
}


def flushed(x):
    """Return float64 numbers, with zeros in place of numbers that are denormal in float32."""
    return np.where(np.abs(x) < TINY, np.copysign(0.0, x), x)


def rounded_sum(x, y):
    """Return x + y rounded once to float32, as float64, without denormal numbers.

    The sum in float64 is rounded to odd, so that the second rounding is correct.
    """
    total = x + y
    part = total - x
    error = (x - (total - part)) + (y - part)
    is_even = total.view(np.int64) % 2 == 0
    inexact = np.isfinite(total) & np.isfinite(error) & (error != 0) & is_even
    away = np.where(error > 0, np.inf, -np.inf)
    total = np.where(inexact, np.nextafter(total, away), total)
    return flushed(total.astype(np.float32).astype(np.float64))


def expected(name, c, a, b):
    """Return C + A B of (rows, columns), (rows, steps, group) and (steps, columns, group)."""
    if c.dtype == np.int32:
        exact = np.einsum("mkg,kng->mn", a.astype(np.int64), b.astype(np.int64)) + c
        return exact.astype(np.int32)
    a, b, c = (x.astype(np.float64) for x in (a, b, c))
    if name == "tdpbf16ps":
        a, b = flushed(a), flushed(b)
    halves = []
    for i in range(2):
        half = np.zeros(c.shape)
        for k in range(b.shape[0]):
            half = rounded_sum(a[:, k, i, None] * b[k, None, :, i], half)
        halves.append(half)
    return rounded_sum(flushed(c), rounded_sum(*halves)).astype(np.float32)


def numbers(rng, shape, dtype):
    """Return random numbers: all bits for integers; for floats of wide range, with special ones."""
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    exponents = rng.integers(-12, 12, shape) + rng.choice([0, 0, 0, -60, -115], shape)
    floats = rng.standard_normal(shape) * 2.0**exponents
    special = [0.0, -0.0, 1e-40, -1e-39, 1.5, 6e-8, 3e38]
    with np.errstate(over="ignore"):
        return np.where(rng.random(shape) < 0.05, rng.choice(special, shape), floats).astype(dtype)


def run_product(code, name, c, a, b, garbage=0x5A):
    """Run one product of arrays as `expected` has them; check that no other memory is written."""
    memory = np.full((3, 16, 64), garbage, np.uint8)
    parts = [np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8) for x in (c, a, b)]
    for place, part in zip(memory, parts):
        place[: part.shape[0], : part.shape[1]] = part
    before = memory.copy()
    shapes = {tile: part.shape for tile, part in zip(PRODUCTS[name].tiles, parts)}
    code(configuration(shapes), *memory)
    written = memory[0, : c.shape[0], : parts[0].shape[1]]
    result = written.copy().view(c.dtype)
    before[0, : c.shape[0], : parts[0].shape[1]] = written
    np.testing.assert_array_equal(memory, before)
    return result


@functools.cache
def product_code(name):
    return assemble(product(name, *PRODUCTS[name].tiles))[0]


def zeros(name, rows=16, columns=16, steps=16):
    """Return C, A and B of zeros for a product."""
    types = PRODUCTS[name]
    group = 4 // np.dtype(types.a).itemsize
    shapes = (rows, columns), (rows, steps, group), (steps, columns, group)
    return [np.zeros(shape, dtype) for shape, dtype in zip(shapes, (types.c, types.a, types.b))]


# ---- products


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_match_the_model(name):
    rng = np.random.default_rng(1)
    sizes = [(16, 16, 16), (1, 1, 1), (16, 1, 16), *rng.integers(1, 17, (20, 3)).tolist()]
    for rows, columns, steps in sizes:
        c, a, b = (numbers(rng, x.shape, x.dtype) for x in zeros(name, rows, columns, steps))
        result = run_product(product_code(name), name, c, a, b)
        with np.errstate(over="ignore", invalid="ignore"):
            np.testing.assert_array_equal(result, expected(name, c, a, b))
    counts = tile_emulator.counts()
    assert counts == dict.fromkeys(
        ("ldtilecfg", "tileloaddt1", "tilestored", "tilerelease", name), len(sizes)
    ) | {"tileloadd": 2 * len(sizes)}


@pytest.mark.parametrize("name", ["tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud"])
def test_integer_sums_wrap(name):
    c, a, b = zeros(name)
    c[:] = np.iinfo(np.int32).max
    a[:], b[:] = 100, 100
    assert (run_product(product_code(name), name, c, a, b) == -(2**31) + 640_000 - 1).all()


@pytest.mark.parametrize(
    "addends, result",
    [
        ((2.0**24, 1, -(2.0**24), 1), 2),  # even and odd steps have separate sums
        ((2.0**24, 0, 1, 0, 1), 2.0**24),
        ((2.0**24, 3), 2.0**24 + 4),
        ((0, 2.0**24, 1.5), 2.0**24 + 2),
        ((2.0**24, 0, 1.5), 2.0**24 + 2),
    ],
)
def test_bf16_sums_are_rounded_in_order(addends, result):
    c, a, b = zeros("tdpbf16ps")
    a.reshape(16, 32)[0, : len(addends)] = addends
    b[:, 0] = 1
    assert run_product(product_code("tdpbf16ps"), "tdpbf16ps", c, a, b)[0, 0] == result


@pytest.mark.parametrize(
    "mode", [0x0000, 0x2000, 0x4000, 0x6000], ids="nearest down up zero".split()
)
def test_rounding_mode_is_ignored_and_kept(mode):
    (code,) = assemble(
        [
            "ldmxcsr (%r8)",
            *product("tdpbf16ps", 0, 1, 2),
            "stmxcsr 4(%r8)",
            "ldmxcsr 8(%r8)",
        ]
    )
    modes = np.array([0x1F80 | mode, 0, 0x1F80], np.uint32)
    a, b, c = (np.zeros((16, 64), np.uint8) for _ in range(3))
    a.view(ml_dtypes.bfloat16)[0, :2] = 2.0**24, 3
    b.view(ml_dtypes.bfloat16)[0, :2] = 1
    code(configuration(dict.fromkeys(range(3), (16, 64))), c, a, b, modes)
    assert c.view(np.float32)[0, 0] == 2**24 + 4
    assert modes[1] == modes[0]


@pytest.mark.parametrize(
    "a_value, b_value, c_value",
    [(2.0**-130, 2.0**20, 0), (2.0**-70, 2.0**-60, 0), (0, 0, 2.0**-140), (1, -TINY, 1.5 * TINY)],
    ids=["input", "product", "c", "sum"],
)
def test_bf16_denormals_become_zero(a_value, b_value, c_value):
    c, a, b = zeros("tdpbf16ps")
    a[0, 0, 0], b[0, 0, 0], c[0, 0] = a_value, b_value, c_value
    result = run_product(product_code("tdpbf16ps"), "tdpbf16ps", c, a, b)
    np.testing.assert_array_equal(result.view(np.uint32), 0)


def test_fp16_denormals_are_multiplied():
    c, a, b = zeros("tdpfp16ps")
    a[0, 0, 0], b[0, 0, 0] = 2.0**-24, 2.0**-24
    result = run_product(product_code("tdpfp16ps"), "tdpfp16ps", c, a, b)
    assert result[0, 0] == 2.0**-48


def test_nan_stays_in_its_row_and_shape():
    c, a, b = zeros("tdpbf16ps", columns=5)
    a[3, 0, 0] = np.inf
    result = run_product(product_code("tdpbf16ps"), "tdpbf16ps", c, a, b).view(np.uint32)
    assert (result[3] == 0xFFC00000).all()
    assert (np.delete(result, 3, axis=0) == 0).all()


# ---- configurations and shapes


def test_configuration_is_stored():
    store, load, release = assemble(["sttilecfg (%rdi)"], ["ldtilecfg (%rdi)"], ["tilerelease"])
    memory = configuration({0: (16, 64), 3: (1, 7), 7: (9, 40)})
    memory[1] = 2  # the start row
    other = configuration({4: (2, 8)})
    unconfigured = np.zeros(64, np.uint8)
    for configure, result in [
        (lambda: None, unconfigured),
        (lambda: load(memory), memory),
        (lambda: load(other), other),
        (release, unconfigured),
        (lambda: load(memory), memory),
        (lambda: load(unconfigured), unconfigured),
    ]:
        configure()
        stored = np.full(64, 77, np.uint8)
        store(stored)
        np.testing.assert_array_equal(stored, result)


def test_configuring_and_tilezero_clear_tiles():
    configure, load, clear, store, release = assemble(
        ["ldtilecfg (%rdi)"],
        ["movl $64, %eax", "tileloadd (%rdi,%rax), %tmm6"],
        ["tilezero %tmm6"],
        ["movl $64, %eax", "tilestored %tmm6, (%rdi,%rax)"],
        ["tilerelease"],
    )
    full, ones = configuration({6: (16, 64)}), np.ones(1024, np.uint8)

    def values():
        memory = np.full(1024, 77, np.uint8)
        store(memory)
        return set(memory)

    configure(full)
    assert values() == {0}
    load(ones)
    assert values() == {1}
    clear()
    assert values() == {0}
    load(ones)
    configure(full)
    assert values() == {0}
    release()
    assert tile_emulator.counts()["tilezero"] == 1


@pytest.mark.parametrize("rows, row_bytes", [(1, 1), (5, 20), (16, 63), (15, 64)])
def test_ragged_tiles_touch_only_their_bytes(rows, row_bytes):
    """The tile ends where the memory ends."""
    (code,) = assemble(
        [
            "ldtilecfg (%rdi)",
            "tileloadd (%rsi,%rdx), %tmm1",
            "tilestored %tmm1, (%rcx,%rdx)",
            "tilerelease",
        ]
    )
    memory = mmap.mmap(-1, 2 * PAGE)
    pages = np.frombuffer(memory, np.uint8)
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(pages.ctypes.data + PAGE), PAGE, 0)
    pages[:PAGE] = np.arange(PAGE) % 251
    stride = 70
    start = PAGE - stride * (rows - 1) - row_bytes
    out = np.full(1200, 255, np.uint8)
    code(configuration({1: (rows, row_bytes)}), pages.ctypes.data + start, stride, out)
    want = np.full(1200, 255, np.uint8)
    for row in range(rows):
        begin = start + row * stride
        want[row * stride : row * stride + row_bytes] = pages[begin : begin + row_bytes]
    np.testing.assert_array_equal(out, want)


# ---- addresses

REGISTERS = "rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15".split()
SAVED = "rbx rbp r12 r13 r14 r15".split()
DISPLACEMENTS = 0, 127, -128, 128, -70_000, 5000


class Address(NamedTuple):
    """A memory operand of an instruction."""

    base: str | None
    index: str | None
    scale: int
    displacement: int

    def __str__(self):
        registers = f"%{self.base}" if self.base else ""
        registers += f",%{self.index},{self.scale}" if self.index else ""
        return f"{self.displacement or ''}({registers})"


def addresses():
    """Return operands with every base, every index, and each combination of the other parts."""
    parts = itertools.cycle(itertools.product((1, 2, 4, 8), DISPLACEMENTS))
    indices = [name for name in REGISTERS if name != "rsp"]
    others = {base: next(i for i in indices if i != base) for base in REGISTERS}
    with_base = [Address(base, None, 1, d) for base in REGISTERS for d in DISPLACEMENTS[:4]]
    with_both = [Address(base, others[base], *next(parts)) for base in REGISTERS]
    with_index = [Address("rsp", index, *next(parts)) for index in indices]
    return [*with_base, *with_both, *with_index]


def with_address(instruction, address, before=(), after=()):
    """Return a function of (configuration, base, index, out) with one instruction that has a memory operand.

    All registers that it needs are kept in vector registers, because the operand may use any.
    """
    return [
        *[f"pushq %{name}" for name in SAVED],
        "movq %rsp, %xmm0",
        "movq %rcx, %xmm1",
        "movq %rsi, %xmm2",
        "movq %rdx, %xmm3",
        "ldtilecfg (%rdi)",
        *before,
        *([f"movq %xmm2, %{address.base}"] if address.base else []),
        *([f"movq %xmm3, %{address.index}"] if address.index else []),
        instruction.format(address),
        "movq %xmm0, %rsp",
        "movq %xmm1, %rcx",
        "movl $64, %eax",
        *after,
        "tilerelease",
        *[f"popq %{name}" for name in reversed(SAVED)],
    ]


class Stack:
    """Memory that may also serve as a stack, since an operand may have the base RSP."""

    def __init__(self):
        self.bytes = np.random.default_rng(2).integers(0, 256, 1 << 18, np.uint8)
        self.place = 1 << 17
        self.address = self.bytes.ctypes.data + self.place


@pytest.mark.parametrize("instruction", ["tileloadd", "tileloaddt1"])
def test_loads_from_all_addresses(instruction):
    operands = addresses()
    store = ["tilestored %tmm3, (%rcx,%rax)"]
    codes = assemble(*[with_address(instruction + " {}, %tmm3", a, after=store) for a in operands])
    config, stack = configuration({3: (16, 64)}), Stack()
    for number, (operand, code) in enumerate(zip(operands, codes)):
        stride = (136 if number % 2 or operand.base == "rsp" else -136) if operand.index else 0
        want = np.array([stack.bytes[stack.place + r * stride :][:64] for r in range(16)])
        out = np.zeros((16, 64), np.uint8)
        code(config, stack.address - operand.displacement, stride // operand.scale, out)
        np.testing.assert_array_equal(out, want, err_msg=str(operand))
    assert tile_emulator.counts()[instruction] == len(operands)


def test_stores_to_all_addresses():
    operands = addresses()
    load = ["movl $64, %eax", "tileloadd (%rcx,%rax), %tmm3"]
    codes = assemble(*[with_address("tilestored %tmm3, {}", a, before=load) for a in operands])
    config = configuration({3: (16, 64)})
    tile = np.random.default_rng(3).integers(0, 256, (16, 64), np.uint8)
    for operand, code in zip(operands, codes):
        stack = Stack()
        stride = 136 if operand.index else 0
        code(config, stack.address - operand.displacement, stride // operand.scale, tile)
        for row in range(0 if operand.index else 15, 16):
            np.testing.assert_array_equal(
                stack.bytes[stack.place + row * stride :][:64], tile[row], err_msg=str(operand)
            )


def test_configurations_at_all_addresses():
    operands = addresses()
    loads = assemble(
        *[with_address("ldtilecfg {}", a, after=["sttilecfg (%rcx)"]) for a in operands]
    )
    stores = assemble(*[with_address("sttilecfg {}", a) for a in operands])
    first, second, stack = configuration({1: (2, 3)}), configuration({2: (16, 64)}), Stack()
    index = 24
    for operand, load, store in zip(operands, loads, stores):
        offset = index * operand.scale if operand.index else 0
        base = stack.address - operand.displacement - offset
        stack.bytes[stack.place :][:64] = second
        out = np.zeros(64, np.uint8)
        load(first, base, index, out)
        np.testing.assert_array_equal(out, second, err_msg=str(operand))
        store(first, base, index, out)
        np.testing.assert_array_equal(stack.bytes[stack.place :][:64], first, err_msg=str(operand))


def test_configuration_relative_to_the_instruction():
    bytes_of = ",".join(map(str, configuration({5: (4, 12)})))
    (code,) = assemble(
        ["ldtilecfg 1f(%rip)", "sttilecfg (%rdi)", "tilerelease", "retq", f"1: .byte {bytes_of}"]
    )
    out = np.zeros(64, np.uint8)
    code(out)
    np.testing.assert_array_equal(out, configuration({5: (4, 12)}))


def test_addresses_without_base():
    """They are absolute, so the memory must be in the lowest 2 GiB."""
    map_32bit, size = 0x40, 1 << 14
    c_library = ctypes.CDLL(None, use_errno=True)
    c_library.mmap.restype = ctypes.c_void_p
    rights = mmap.PROT_READ | mmap.PROT_WRITE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | map_32bit
    start = c_library.mmap(None, ctypes.c_size_t(size), rights, flags, -1, ctypes.c_long(0))
    assert 0 < start < 1 << 31
    memory = np.frombuffer((ctypes.c_uint8 * size).from_address(start), np.uint8)
    memory[:] = np.random.default_rng(4).integers(0, 256, size, np.uint8)
    memory[:64] = config = configuration({3: (16, 64)})
    stride, scale = 96, 4
    (code,) = assemble(
        [
            f"ldtilecfg {start}",
            f"movl ${stride // scale}, %r12d",
            f"tileloadd {start + 128}(,%r12,{scale}), %tmm3",
            f"tilestored %tmm3, {start + 8192}(,%r12,{scale})",
            f"sttilecfg {start + 64}",
            "tilerelease",
        ]
    )
    saved = assemble(["pushq %r12", f"movq ${code.address}, %rax", "callq *%rax", "popq %r12"])[0]
    saved()
    np.testing.assert_array_equal(memory[64:128], config)
    rows = [memory[begin:][: 16 * stride].reshape(16, stride)[:, :64] for begin in (128, 8192)]
    np.testing.assert_array_equal(*rows)


# ---- threads


def test_each_thread_has_its_own_tiles():
    configure, load, store, release = assemble(
        ["ldtilecfg (%rdi)"],
        ["movl $64, %eax", "tileloadd (%rdi,%rax), %tmm0"],
        ["movl $64, %eax", "tilestored %tmm0, (%rdi,%rax)"],
        ["tilerelease"],
    )
    count = 4
    barrier = threading.Barrier(count, timeout=30)
    results = {}

    def work(number):
        configure(configuration({0: (number + 1, 64)}))
        load(np.full(1024, number, np.uint8))
        barrier.wait()
        memory = np.full(1024, 77, np.uint8)
        store(memory)
        release()
        results[number] = memory.reshape(16, 64)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(count):
        assert (results[number][: number + 1] == number).all()
        assert (results[number][number + 1 :] == 77).all()
    each = dict.fromkeys(("ldtilecfg", "tileloadd", "tilestored", "tilerelease"), 1)
    assert tile_emulator.counts_by_thread() == [each] * count
    assert tile_emulator.counts() == dict.fromkeys(each, count)


def run_in_workers():
    """Print the sums of one product in each of 3 threads of the pool that were created before the handler was set, and the counts."""
    name, threads = "tdpbssd", 3
    wait = ["lock incq (%rdi)", "1: pause", f"cmpq ${threads}, (%rdi)", "jb 1b"]
    task = [  # of (table, task, worker): all tasks run at the same time, so in different threads
        *wait,
        "movq %rsi, %r8",
        "shlq $10, %r8",
        "movq 24(%rdi), %rsi",
        "addq %r8, %rsi",
        "movq 16(%rdi), %rdx",
        "movq %rdx, %rcx",
        "movq 8(%rdi), %rdi",
        *product(name, 0, 1, 2),
    ]
    start, run = assemble(wait, task)
    table = np.zeros(4, np.int64)
    pool.parallel_for(start.address, table.ctypes.data, threads)
    tile_emulator.install()
    ones, sums = np.ones((16, 64), np.int8), np.zeros((threads, 16, 16), np.int32)
    config = configuration(dict.fromkeys(range(3), (16, 64)))
    table[:] = 0, config.ctypes.data, ones.ctypes.data, sums.ctypes.data
    pool.parallel_for(run.address, table.ctypes.data, threads)
    print(
        set(sums.ravel().tolist()), *(dict(x) for x in tile_emulator.counts_by_thread()), sep="\n"
    )


def test_workers_created_before_the_handler():
    each = "{'ldtilecfg': 1, 'tilerelease': 1, 'tileloadd': 2, 'tileloaddt1': 1, 'tilestored': 1, 'tdpbssd': 1}"
    done = run_python("-c", f"import {__name__} as t; t.run_in_workers()", WEFT_NUM_THREADS="3")
    assert done.stdout.splitlines() == ["{64}", *[each] * 3], done.stderr


# ---- faults

_LOAD = ["movl $64, %eax", "tileloadd (%rsi,%rax), %tmm0"]
_DOT = ["tdpbf16ps %tmm2, %tmm1, %tmm0"]
_SQUARE = dict.fromkeys(range(3), (16, 64))


class Case(NamedTuple):
    """Instructions after `ldtilecfg`, with a page of memory in RSI; the shapes of the tiles, and other bytes of their configuration."""

    body: list[str]
    ends_with: signal.Signals | None
    shapes: dict[int, tuple[int, int]] = _SQUARE
    others: dict[int, int] = {}


ILLEGAL, FAULT = signal.SIGILL, signal.SIGSEGV
CASES = {
    "legal": Case([*_LOAD, *_DOT, "tilerelease"], None),
    "palette": Case([], FAULT, others={0: 2}),
    "reserved-after-start": Case([], FAULT, others={15: 1}),
    "reserved-columns": Case([], FAULT, others={32: 1}),
    "reserved-rows": Case([], FAULT, others={63: 1}),
    "too-many-rows": Case([], FAULT, {0: (17, 64)}),
    "too-many-columns": Case([], FAULT, {0: (16, 65)}),
    "columns-in-two-bytes": Case([], FAULT, others={17: 1}),
    "rows-without-columns": Case([], FAULT, {0: (1, 0)}),
    "columns-without-rows": Case([], FAULT, {0: (0, 1)}),
    "load-unmapped": Case(["xorl %eax, %eax", "tileloadd (%rax,%rax), %tmm0"], FAULT),
    "store-unmapped": Case(["xorl %eax, %eax", "tilestored %tmm0, (%rax,%rax)"], FAULT),
    "configure-unmapped": Case(["xorl %eax, %eax", "ldtilecfg (%rax)"], FAULT),
    "load-after-release": Case(["tilerelease", *_LOAD], ILLEGAL),
    "product-after-release": Case(["tilerelease", *_DOT], ILLEGAL),
    "zero-unconfigured": Case(["tilezero %tmm5"], ILLEGAL),
    "load-unconfigured": Case(["tileloadd (%rsi,%rax), %tmm7"], ILLEGAL),
    "store-unconfigured": Case(["tilestored %tmm4, (%rsi,%rax)"], ILLEGAL),
    "product-unconfigured": Case(["tdpbssd %tmm2, %tmm1, %tmm3"], ILLEGAL),
    "legal-product-in-bytes": Case([".byte 0xc4, 0xe2, 0x73, 0x5e, 0xc2"], None),
    "same-a-and-b": Case([".byte 0xc4, 0xe2, 0x73, 0x5e, 0xc1"], ILLEGAL),
    "same-a-and-c": Case([".byte 0xc4, 0xe2, 0x73, 0x5e, 0xc0"], ILLEGAL),
    "same-b-and-c": Case([".byte 0xc4, 0xe2, 0x7b, 0x5e, 0xc1"], ILLEGAL),
    "rows-differ": Case(_DOT, ILLEGAL, {**_SQUARE, 0: (15, 64)}),
    "columns-differ": Case(_DOT, ILLEGAL, {**_SQUARE, 0: (16, 60)}),
    "steps-differ": Case(_DOT, ILLEGAL, {**_SQUARE, 1: (16, 60)}),
    "partial-group": Case(_DOT, ILLEGAL, {0: (16, 64), 1: (16, 63), 2: (15, 64)}),
    "legal-load-in-bytes": Case([".byte 0xc4, 0xe2, 0x7b, 0x4b, 0x04, 0x26"], None),
    "no-sib": Case([".byte 0xc4, 0xe2, 0x7b, 0x4b, 0x06"], ILLEGAL),
    "tile-8": Case([".byte 0xc4, 0x62, 0x7b, 0x4b, 0x04, 0x26"], ILLEGAL),
    "wide": Case([".byte 0xc4, 0xe2, 0xfb, 0x4b, 0x04, 0x26"], ILLEGAL),
    "256-bit": Case([".byte 0xc4, 0xe2, 0x7f, 0x4b, 0x04, 0x26"], ILLEGAL),
    "other-illegal": Case(["ud2"], ILLEGAL),
}


def status_of(action):
    """Return the exit code of a forked child that runs the action; negative: a signal."""
    child = os.fork()
    if not child:
        action()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_with_faulthandler(is_later):
    """Execute a tile instruction and an illegal one under faulthandler, enabled before or after the emulator."""
    code, illegal = assemble(["tilerelease"], ["ud2"])
    if is_later:
        tile_emulator.install()
    faulthandler.enable()
    tile_emulator.install()
    code()
    print("released", tile_emulator.counts().total(), flush=True)
    illegal()


def run_with_own_handler():
    """Send SIGILL to a process that had its own handler before the emulator."""
    signal.signal(signal.SIGILL, lambda *_: print("handled", flush=True))
    tile_emulator.install()
    os.kill(os.getpid(), signal.SIGILL)


ACTIONS = {
    "faulthandler-before": functools.partial(run_with_faulthandler, False),
    "faulthandler-after": functools.partial(run_with_faulthandler, True),
    "own-handler": run_with_own_handler,
}


def print_statuses():
    """Print the exit code of a process for each action and each case."""
    for name, action in ACTIONS.items():
        print(name, status_of(action), flush=True)
    codes = assemble(*[["ldtilecfg (%rdi)", *case.body] for case in CASES.values()])
    memory = np.zeros(4096, np.uint8)
    tile_emulator.install()
    for (name, case), code in zip(CASES.items(), codes):
        config = configuration(case.shapes)
        for place, value in case.others.items():
            config[place] = value
        print(name, status_of(functools.partial(code, config, memory)), flush=True)


@pytest.fixture(scope="module")
def statuses():
    """Return the lines that the processes print, and what faulthandler prints."""
    done = run_python("-c", f"import {__name__} as t; t.print_statuses()")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize("name", CASES)
def test_faults_end_the_process(name, statuses):
    ends_with = CASES[name].ends_with
    assert f"{name} {-ends_with if ends_with else 0}" in statuses[0]


def test_faulthandler_reports_other_instructions(statuses):
    lines, errors = statuses
    assert lines[:4] == [
        "released 1",
        f"faulthandler-before {-ILLEGAL}",
        "released 1",
        f"faulthandler-after {-ILLEGAL}",
    ]
    assert errors.count("Fatal Python error: Illegal instruction") == 2
    assert errors.count(" in run_with_faulthandler") == 2


def test_sent_signals_reach_the_previous_handler(statuses):
    assert statuses[0][4:6] == ["handled", "own-handler 0"]
