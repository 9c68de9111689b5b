"""torch.compile of the eager norms: Inductor's generated C++ code.

Each norm is compiled as one graph with symbolic shapes, so that what is measured does not hang on
which shapes came before; a graph that cannot be compiled is an error, never a silent eager run.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import Any

import numpy as np

from verify.kernels.kernel import Callables
from verify.kernels.third_party import torch_eager
from verify.kernels.torch_arrays import callables_of, import_torch

KERNELS = tuple(
    replace(
        kernel,
        name=kernel.name.replace("torch.", "torch.compile."),
        adapter="verify.kernels.third_party.torch_compiled:callables",
        needs=("C++ compiler", "Python headers"),
        patience_s=180.0,
    )
    for kernel in torch_eager.KERNELS
)


def _set_up() -> None:
    """Name a compiler that is there, and compile in this process: no pool of workers."""
    if "CXX" not in os.environ and shutil.which("g++") is None:
        os.environ["CXX"] = shutil.which("clang++") or "clang++"
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


def _never_fall_back(torch: Any) -> None:
    """Every layout, format and eps is one more compilation, however many there are."""
    config = torch._dynamo.config  # noqa: SLF001 - where torch keeps its public settings
    for name in ("cache_size_limit", "accumulated_cache_size_limit"):  # torch 2.6's spelling,
        setattr(config, name, 1_000_000)  # still an alias of recompile_limit in 2.13


def callables(norm: str) -> Callables:
    """The compiled norm; one small row is run at once, so that the first call is not the slow one.

    The first compilation on a machine takes about a minute (C++ headers), later ones seconds.
    """
    _set_up()
    torch = import_torch()
    _never_fall_back(torch)
    compiled = torch.compile(torch_eager.norms()[norm], dynamic=True, fullgraph=True)
    kernel = callables_of(compiled)
    extra = {"num_groups": 2} if norm == "group_norm" else {}
    kernel.forward(np.ones((2, 8), np.float32), None, None, 1e-5, **extra)
    return kernel
