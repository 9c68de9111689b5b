"""What is known about a kernel without importing its package, and what it is once imported."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

# What libraries say when memory ends: torch's allocator, C++, libgomp starting a thread.
NO_MEMORY = re.compile(
    r"allocate memory|not enough memory|bad_alloc|out of memory|thread creation failed",
    re.IGNORECASE,
)


class KernelError(ValueError):
    """A kernel that does not exist, does not import or has another signature.

    The message is one line: what came, what was expected, what to write.
    """


@dataclass(frozen=True)
class Kernel:
    """A kernel under audit, described by names only: making one imports nothing.

    ``adapter`` is ``module:function``, a factory that is called as ``function(**arguments)`` in
    the child process and gives `Callables`. ``parameters`` are those of weight and bias that the
    kernel has. ``weight_formats`` name the formats that weight and bias may have, "same" being
    that of x. ``layouts``: "contiguous", "strided" (gaps between elements), "offset" (does not
    start where its buffer starts), "expanded" (a stride of 0), "channels_last". ``needs`` names
    what must be on the machine beside the package. ``patience_s`` is a fair time limit for one
    call, in seconds, compilation included.
    """

    name: str
    formula: str
    adapter: str
    package: str
    version: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict, hash=False)
    formats: tuple[str, ...] = ("float32", "bfloat16", "float16")
    weight_formats: tuple[str, ...] = ("same",)
    layouts: tuple[str, ...] = ("contiguous",)
    parameters: tuple[str, ...] = ("weight", "bias")
    has_backward: bool = False
    needs: tuple[str, ...] = ()
    run_on: str = "cpu"
    patience_s: float = 20.0


# forward(x, weight, bias, eps, **extra) -> y of x's shape; weight and bias may be None, ``extra``
# holds what the formula's layout asks for, as num_groups.
Forward = Callable[..., np.ndarray]

# backward(x, weight, bias, eps, dy, **extra) -> (dx, dweight or None, dbias or None).
Backward = Callable[..., tuple[np.ndarray | None, ...]]


@dataclass(frozen=True)
class Callables:
    """An imported kernel. The arrays given are NumPy's, with ml_dtypes for bfloat16 and narrower.

    Their strides are the layout under audit, and a kernel that writes into them is to be seen: an
    adapter copies nothing on the way in. ``parameters`` and ``detail`` say what only the import
    could tell (None: what the `Kernel` says).
    """

    forward: Forward
    backward: Backward | None = None
    parameters: tuple[str, ...] | None = None
    detail: Mapping[str, str] = field(default_factory=dict, hash=False)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint at the nearest known name, or nothing.

    >>> did_you_mean("torch.rmsnorm", ["torch.rms_norm", "torch.layer_norm"])
    "; did you mean 'torch.rms_norm'?"
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""
