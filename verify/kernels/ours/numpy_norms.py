"""RMSNorm and LayerNorm as people write them in NumPy: float32 inside, one cast at the end."""

from __future__ import annotations

import numpy as np

from verify.kernels.kernel import Callables, Kernel, KernelError

ADAPTER = "verify.kernels.ours.numpy_norms:callables"
LAYOUTS = ("contiguous", "strided", "offset", "expanded")

KERNELS = (
    Kernel(
        name="numpy.rms_norm",
        formula="rms_norm",
        adapter=ADAPTER,
        package="numpy",
        arguments={"norm": "rms_norm"},
        weight_formats=("same", "float32"),
        layouts=LAYOUTS,
        parameters=("weight",),
    ),
    Kernel(
        name="numpy.layer_norm",
        formula="layer_norm",
        adapter=ADAPTER,
        package="numpy",
        arguments={"norm": "layer_norm"},
        weight_formats=("same", "float32"),
        layouts=LAYOUTS,
    ),
)


def rms_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float
) -> np.ndarray:
    """x: (..., d), weight: (d,) or None; statistics in float32, the result in x's format."""
    if bias is not None:
        raise KernelError("numpy.rms_norm has no bias: expected None")
    h = x.astype(np.float32)
    y = h / np.sqrt(np.mean(h * h, axis=-1, keepdims=True) + np.float32(eps))
    if weight is not None:
        y = y * weight.astype(np.float32)
    return y.astype(x.dtype)


def layer_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float
) -> np.ndarray:
    """x: (..., d), weight and bias: (d,) or None; two passes in float32, the result as x."""
    h = x.astype(np.float32)
    centred = h - np.mean(h, axis=-1, keepdims=True)
    var = np.mean(centred * centred, axis=-1, keepdims=True)
    y = centred / np.sqrt(var + np.float32(eps))
    if weight is not None:
        y = y * weight.astype(np.float32)
    if bias is not None:
        y = y + bias.astype(np.float32)
    return y.astype(x.dtype)


def callables(norm: str) -> Callables:
    """The norm of that name as a kernel; neither has a gradient."""
    return Callables({"rms_norm": rms_norm, "layer_norm": layer_norm}[norm])
