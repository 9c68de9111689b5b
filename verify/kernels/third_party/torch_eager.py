"""torch.nn.functional's norms, run eagerly; backward by autograd."""

from __future__ import annotations

from typing import Any

from verify.kernels.kernel import Callables, Kernel, KernelError
from verify.kernels.torch_arrays import Norm, Tensor, callables_of, import_torch

ADAPTER = "verify.kernels.third_party.torch_eager:callables"
FORMATS = ("float32", "bfloat16", "float16", "float64")
LAYOUTS = ("contiguous", "strided", "offset", "expanded")

KERNELS = (
    Kernel(
        name="torch.rms_norm",
        formula="rms_norm",
        adapter=ADAPTER,
        package="torch",
        arguments={"norm": "rms_norm"},
        formats=FORMATS,
        weight_formats=("same", "float32"),
        layouts=LAYOUTS,
        parameters=("weight",),
        has_backward=True,
    ),
    Kernel(
        name="torch.layer_norm",
        formula="layer_norm",
        adapter=ADAPTER,
        package="torch",
        arguments={"norm": "layer_norm"},
        formats=FORMATS,
        weight_formats=("same", "float32"),
        layouts=LAYOUTS,
        has_backward=True,
    ),
    Kernel(
        name="torch.group_norm",
        formula="group_norm",
        adapter=ADAPTER,
        package="torch",
        arguments={"norm": "group_norm"},
        formats=FORMATS,
        weight_formats=("same", "float32"),
        layouts=(*LAYOUTS, "channels_last"),
        has_backward=True,
    ),
)


def norms() -> dict[str, Norm]:
    """Each norm as a function (x, weight, bias, eps) of tensors. Imports torch."""
    functional: Any = import_torch().nn.functional

    def rms_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        if bias is not None:
            raise KernelError("torch's rms_norm has no bias: expected None")
        return functional.rms_norm(x, x.shape[-1:], weight, eps)

    def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)

    def group_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float, num_groups: int) -> Tensor:
        return functional.group_norm(x, num_groups, weight, bias, eps)

    return {"rms_norm": rms_norm, "layer_norm": layer_norm, "group_norm": group_norm}


def callables(norm: str) -> Callables:
    """The norm of that name as a kernel."""
    return callables_of(norms()[norm])
