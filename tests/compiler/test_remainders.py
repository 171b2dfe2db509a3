"""Every size from 0 to 70 in every dim, for each family of kernels and every instruction set of
this machine."""

from __future__ import annotations

import platform

import pytest

from tests.compiler.tails import FAMILIES, compare, shapes


@pytest.mark.parametrize("family", FAMILIES)
def test_every_size(family):
    compare(family, shapes())


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86-64 levels")
@pytest.mark.parametrize("level", ["avx2", "generic"])
@pytest.mark.parametrize("family", FAMILIES)
def test_restricted_instruction_sets(family, level, monkeypatch):
    monkeypatch.setenv("WEFT_CPU_FEATURES", level)
    compare(family, shapes()[3::11])
