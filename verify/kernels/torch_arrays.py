"""NumPy arrays as torch tensors over the same memory, and a norm of tensors as a kernel.

torch is imported by the functions here and by nothing else that the package loads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from verify.kernels.kernel import Callables
from verify.kernels.wire import dtype_named

# torch.Tensor, which is not imported here.
Tensor = Any
Norm = Callable[..., Tensor]


def import_torch() -> Any:
    """The torch module, with as many threads as OMP_NUM_THREADS says."""
    import torch

    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads) > 0:
        torch.set_num_threads(int(threads))
    return torch


def tensor_of(array: np.ndarray) -> Tensor:
    """A tensor over the array's own memory, with its strides.

    Raises ValueError (torch's) for negative strides, which no tensor can have.
    """
    torch = import_torch()
    if array.dtype.isbuiltin == 1:  # NumPy's own format, not one of ml_dtypes
        return torch.from_numpy(array)
    carrier = np.dtype(f"int{8 * array.dtype.itemsize}")
    return torch.from_numpy(array.view(carrier)).view(getattr(torch, array.dtype.name))


def array_of(tensor: Tensor) -> np.ndarray:
    """The values of a tensor, over its own memory if that is the CPU's."""
    torch = import_torch()
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"the kernel gave {type(tensor).__name__}: expected one torch.Tensor")
    tensor = tensor.detach().cpu()
    name = str(tensor.dtype).removeprefix("torch.")
    if name != "bfloat16" and not name.startswith("float8"):
        return np.asarray(tensor.numpy())
    carrier = getattr(torch, f"int{8 * tensor.element_size()}")
    return np.asarray(tensor.view(carrier).numpy()).view(dtype_named(name))


def _optional(array: np.ndarray | None) -> Tensor | None:
    return None if array is None else tensor_of(array)


def forward_of(norm: Norm) -> Callable[..., np.ndarray]:
    """``norm(x, weight, bias, eps, **extra)`` on tensors, called with arrays."""

    def forward(
        x: np.ndarray,
        weight: np.ndarray | None,
        bias: np.ndarray | None,
        eps: float,
        **extra: Any,
    ) -> np.ndarray:
        return array_of(norm(tensor_of(x), _optional(weight), _optional(bias), eps, **extra))

    return forward


def backward_of(norm: Norm) -> Callable[..., tuple[np.ndarray | None, ...]]:
    """(dx, dweight, dbias) by torch's autograd; None where torch gives None, or was given None."""

    def backward(
        x: np.ndarray,
        weight: np.ndarray | None,
        bias: np.ndarray | None,
        eps: float,
        dy: np.ndarray,
        **extra: Any,
    ) -> tuple[np.ndarray | None, ...]:
        torch = import_torch()
        leaves = [_optional(array) for array in (x, weight, bias)]
        asked = [leaf.requires_grad_() for leaf in leaves if leaf is not None]
        y = norm(*leaves, eps, **extra)
        given = torch.autograd.grad(y, asked, tensor_of(dy), allow_unused=True)
        grads = iter(given)
        found = [None if leaf is None else next(grads) for leaf in leaves]
        return tuple(None if grad is None else array_of(grad) for grad in found)

    return backward


def callables_of(norm: Norm) -> Callables:
    """A norm of tensors as a kernel: forward as it is, backward by autograd."""
    return Callables(forward_of(norm), backward_of(norm))
