"""`import weft` is light, and every public name is found on first use or says that it is not there yet."""

import copy
import pickle
import subprocess
import sys
from importlib import import_module

import pytest

import weft
from tests.harness.processes import run_python


def test_importing_weft_loads_nothing_heavy():
    program = (
        "import sys, weft\n"
        "heavy = {'numpy', 'llvmlite', 'scipy', 'rich', 'opt_einsum', 'ml_dtypes', 'typing'} & set(sys.modules)\n"
        "print(sorted(heavy), sorted(name for name in sys.modules if name.startswith('weft')))"
    )
    command = [sys.executable, "-S", "-c", program]  # -S: what site loads is not weft's business
    import_path = weft.__path__[0].removesuffix("weft")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=import_path)
    assert done.stdout == "[] ['weft', 'weft._version']\n", done.stderr


@pytest.mark.parametrize("name", sorted({*weft._LAZY_NAMES, *weft._SUBMODULES}))
def test_every_name_is_there_or_says_that_it_is_not_yet(name):
    try:
        value = getattr(weft, name)
    except AttributeError as error:
        assert str(error) == f"weft does not have the public name weft.{name} yet"
    else:
        assert value is getattr(weft, name)
        assert name in dir(weft)


def test_vars_of_a_lazy_module_has_all_its_names():
    program = (
        "import pkgutil, weft\n"
        "from importlib import import_module\n"
        "own = vars(type(pkgutil))['__dict__'].__get__            # does not load the other names\n"
        "lazy = {'weft': weft}\n"
        "def look(module):\n"
        "    if '__getattr__' in own(module) and '__dir__' in own(module):\n"
        "        lazy[module.__name__] = module\n"
        "    for found in pkgutil.iter_modules(getattr(module, '__path__', [])):\n"
        "        if found.ispkg or found.name == 'primitives':\n"
        "            look(import_module(f'{module.__name__}.{found.name}'))\n"
        "for name in sorted(weft._SUBMODULES - {'compat', 'ops', 'tools'}):\n"
        "    look(import_module(f'weft.{name}'))\n"
        "late = [name for name, module in lazy.items() if {*dir(module)} - {*own(module)}]\n"
        "assert {'weft', 'weft.numpy', 'weft.lax', 'weft.random', 'weft.scipy.stats'} <= {*late}, late\n"
        "for name, module in lazy.items():\n"
        "    assert {*dir(module)} <= {*vars(module)}, (name, {*dir(module)} - {*vars(module)})\n"
        "    assert all(vars(module)[public] is getattr(module, public) for public in dir(module)), name\n"
        "print(len(lazy))"
    )
    done = run_python("-c", program)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 25


@pytest.mark.parametrize("name", ["weft", "weft.numpy", "weft.scipy.stats", "weft.checkpoint"])
def test_lazy_modules_are_pickled_by_name(name):
    module = import_module(name)
    text = pickle.dumps(module)
    assert pickle.loads(text) is module and copy.deepcopy(module) is module
    done = run_python("-c", f"import pickle; print(pickle.loads({text!r}).__name__)")
    assert done.stdout.strip() == name, done.stderr


def test_an_unknown_name_is_an_ordinary_error():
    with pytest.raises(AttributeError, match="module 'weft' has no attribute 'jitt'"):
        weft.jitt


def test_a_mistake_inside_a_module_is_not_called_missing(monkeypatch, tmp_path):
    (tmp_path / "broken_module.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(weft._LAZY_NAMES, "broken", "broken_module")
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        weft.broken


def test_a_first_result_loads_only_what_it_needs():
    program = (
        "import sys, numpy\n"
        "before = set(sys.modules)\n"
        "import weft.compat\n"
        "weft.compat.install_as_jax()\n"
        "import jax.numpy as wnp\n"
        "assert float(wnp.sin(wnp.zeros(3)).sum()) == 0\n"
        "print(sorted({\n"
        "    'ml_dtypes', 'dataclasses', 'hashlib', 'logging', 'platform', 'string',\n"
        "    'traceback', 'llvmlite', 'scipy', 'rich', 'opt_einsum', 'importlib.resources',\n"
        "    'weft._engine.codegen.gemm.gemm',\n"
        "    'weft._engine.partition.propagation.propagate', 'weft.random', 'weft.nn',\n"
        "    'weft.lax', 'weft.numpy.linalg', 'weft.numpy.fft', 'weft._engine.numpy.manipulation',\n"
        "    'weft._engine.numpy.sorting', 'weft._engine.ops.linalg', 'weft._engine.ops.fft',\n"
        "    'weft._engine.ops.sorting', 'weft._engine.ops.contraction',\n"
        "    'weft._engine.ops.slicing', 'weft._engine.ops.dynamic_slicing', 'weft._engine.ops.keys',\n"
        "    'weft._engine.ops.callback', 'weft._engine.control.call_rules',\n"
        "    'weft._engine.transforms.jvp', 'weft._engine.transforms.batch',\n"
        "    'weft._engine.backends.reference', 'weft._engine.codegen.runtime.dispatch',\n"
        "    'weft._engine.codegen.runtime.heap', 'weft._engine.ops.functions.rounding',\n"
        "    'weft._engine.ops.functions.logarithmic', 'weft._engine.codegen.kernel.complex',\n"
        "    'weft._engine.codegen.kernel.vector_scan',\n"
        "    'weft._engine.compiler.kernels.scatters',\n"
        "    'weft._engine.compiler.kernels.library_calls',\n"
        "    'weft._engine.compiler.rewrite.loop_hoisting', 'weft._engine.numpy.selection'\n"
        "}\n"
        "             & (set(sys.modules) - before)))"
    )
    import_path = weft.__path__[0].removesuffix("weft")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=import_path
    )
    assert done.stdout == "[]\n", done.stderr


def test_dtype_knows_small_floats_by_name_in_a_fresh_process():
    import_path = weft.__path__[0].removesuffix("weft")
    program = "import weft.numpy as wnp, numpy as np; assert wnp.dtype is np.dtype; assert wnp.dtype('bfloat16') == wnp.bfloat16"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, cwd=import_path)


def test_arrays_have_their_methods_where_lax_alone_is_used():
    import_path = weft.__path__[0].removesuffix("weft")
    program = "import weft; assert weft.lax.cond(True, lambda x: x.astype(int), lambda x: x.sum().astype(int), 2.5) == 2"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, cwd=import_path)


def test_api_modules_import_without_loading_all_functions():
    program = (
        "import importlib, pkgutil, sys, weft.numpy, weft.nn, weft._engine.ops, weft._engine.transforms\n"
        "for package in (weft.numpy, weft.nn, weft._engine.ops, weft._engine.transforms):\n"
        "    for module in pkgutil.iter_modules(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(module.name)\n"
        "print(*[m for m in sys.modules if m.startswith('weft._engine.ops.functions.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert {"hurwitz", "incomplete", "incomplete_beta"}.isdisjoint(
        done.stdout.replace("weft._engine.ops.functions.", "").split()
    ), done.stdout
    assert done.returncode == 0, done.stderr
