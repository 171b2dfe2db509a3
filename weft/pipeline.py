"""The whole compiler on one screen: trace → simplify → propagate → partition → simplify → stack → fuse → plan → codegen → load.

In:   a Jaxpr (made by `core.stage`) and how its inputs and outputs are laid out over devices.
Out:  an `Executable`, whose one native entry runs the program on all virtual devices of this process.

A program for many devices becomes the program of one (`partition`), and that one, mapped over the axes of the mesh
(`stack`), the program of the whole machine: mesh axes are leading dims, collectives are operations along them, and a value
that is equal on all devices of an axis simply lacks that dim, so it is stored and computed once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.compiler import schedule as scheduling
from weft.compiler.simplify import simplify
from weft.core.interpret import evaluate
from weft.core.primitive import BatchAxis
from weft.core.stage import stage
from weft.ir import check, dump
from weft.ir.jaxpr import Jaxpr
from weft.ir.shardings import NamedSharding, Sharding
from weft.ir.types import ShapedArray
from weft.partition import spmd
from weft.partition.meshes import common_mesh, to_spec
from weft.runtime.array import ArraySpec, physical
from weft.runtime.executable import Executable
from weft.transforms.batch import batch_flat, to_dim
from weft.util.config import config
