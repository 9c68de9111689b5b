"""The torch adapters give torch's own result, bit for bit, and share the caller's memory."""

from __future__ import annotations

import numpy as np
import pytest

from verify.audit.sandbox import Reply, Sandbox
from verify.kernels.registry import kernel_named, skipped
from verify.kernels.third_party import torch_eager
from verify.kernels.torch_arrays import array_of, tensor_of
from verify.kernels.wire import dtype_named

torch = pytest.importorskip("torch")
F = torch.nn.functional

FORMATS = ["float32", "bfloat16", "float16"]
NORMS = ["rms_norm", "layer_norm", "group_norm"]
EPS = 1e-5


def numbers(*shape: int, format: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(0.5, 2, shape).astype(np.float32).astype(dtype_named(format))


def laid_out(layout: str, format: str) -> np.ndarray:
    """(2, 8, 3, 4) numbers in a layout."""
    x = numbers(2, 8, 3, 4, format=format)
    if layout == "channels_last":
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    if layout == "strided":
        return numbers(2, 8, 3, 8, format=format)[..., ::2]
    return x


def torchs_own(array: np.ndarray) -> torch.Tensor:
    """A tensor with the same values, strides and format, made without the adapter."""
    base = torch.from_numpy(np.ascontiguousarray(array.astype(np.float32)))
    dtype = getattr(torch, array.dtype.name)
    strides = [s // array.itemsize for s in array.strides]
    size = sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True)) + 1
    return torch.zeros(size, dtype=dtype).as_strided(array.shape, strides).copy_(base.to(dtype))


def torchs_norm(norm: str, x, weight, bias):
    if norm == "rms_norm":
        return F.rms_norm(x, x.shape[-1:], weight, EPS)
    if norm == "layer_norm":
        return F.layer_norm(x, x.shape[-1:], weight, bias, EPS)
    return F.group_norm(x, 4, weight, bias, EPS)


def case(norm: str, format: str, layout: str, weight_format: str | None = None) -> dict:
    """The arguments of a call; float32 weights if asked for."""
    x = laid_out(layout, format)
    d = x.shape[1] if norm == "group_norm" else x.shape[-1]
    features = {"format": weight_format or format}
    bias = None if norm == "rms_norm" else numbers(d, seed=2, **features)
    return {"x": x, "weight": numbers(d, seed=1, **features), "bias": bias}


def extra(norm: str) -> dict:
    return {"num_groups": 4} if norm == "group_norm" else {}


def bits(array: np.ndarray | None) -> bytes | None:
    return None if array is None else np.ascontiguousarray(array).tobytes()


def own(arguments: dict) -> list:
    return [None if a is None else torchs_own(a) for a in arguments.values()]


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "strided"])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("norm", NORMS)
def test_forward_is_torchs_own_bit_for_bit(norm, format, layout):
    arguments = case(norm, format, layout)
    y = torch_eager.callables(norm).forward(**arguments, eps=EPS, **extra(norm))
    expected = torchs_norm(norm, *own(arguments))
    assert y.dtype == arguments["x"].dtype
    assert bits(y) == bits(array_of(expected))


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@pytest.mark.parametrize("format", ["bfloat16", "float16"])
@pytest.mark.parametrize("norm", NORMS)
def test_weights_may_be_float32(norm, format):
    arguments = case(norm, format, "contiguous", "float32")
    y = torch_eager.callables(norm).forward(**arguments, eps=EPS, **extra(norm))
    assert y.dtype == arguments["x"].dtype
    assert bits(y) == bits(array_of(torchs_norm(norm, *own(arguments))))


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("norm", NORMS)
def test_backward_is_autograds_bit_for_bit(norm, format, layout):
    arguments = case(norm, format, layout)
    dy = numbers(*arguments["x"].shape, format=format, seed=3)
    grads = torch_eager.callables(norm).backward(**arguments, eps=EPS, dy=dy, **extra(norm))
    leaves = [None if t is None else t.requires_grad_() for t in own(arguments)]
    torchs_norm(norm, *leaves).backward(torchs_own(dy))
    expected = [None if t is None else bits(array_of(t.grad)) for t in leaves]
    assert [bits(g) for g in grads] == expected


def test_gradients_of_what_is_absent_are_none():
    x = numbers(2, 4, format="float32")
    dx, dweight, dbias = torch_eager.callables("layer_norm").backward(x, None, None, EPS, x)
    assert dx.shape == x.shape
    assert (dweight, dbias) == (None, None)


@pytest.mark.parametrize("format", [*FORMATS, "float64", "float8_e4m3fn", "float8_e5m2"])
def test_a_tensor_shares_the_arrays_memory_and_strides(format):
    x = numbers(4, 8, format=format)[1:, ::2]
    tensor = tensor_of(x)
    assert tensor.dtype == getattr(torch, format)
    assert tensor.data_ptr() == x.ctypes.data
    assert tensor.stride() == tuple(s // x.itemsize for s in x.strides)
    assert bits(array_of(tensor)) == bits(x)


def test_rms_norm_says_that_it_has_no_bias():
    x = numbers(2, 4, format="float32")
    with pytest.raises(ValueError, match="torch's rms_norm has no bias: expected None"):
        torch_eager.callables("rms_norm").forward(x, x[0], x[0], EPS)


def test_through_the_sandbox_it_is_the_same_kernel_in_the_same_layout():
    arguments = case("group_norm", "float32", "channels_last")
    y = torch_eager.callables("group_norm").forward(**arguments, eps=EPS, num_groups=4)
    with Sandbox(kernel_named("torch.group_norm")) as sandbox:
        reply = sandbox.forward(arguments, {"eps": EPS, "num_groups": 4}, 60)
        assert isinstance(reply, Reply), reply
        assert bits(reply.y) == bits(y)
        assert reply.modified == ()
        reply = sandbox.backward({**arguments, "dy": y}, {"eps": EPS, "num_groups": 4}, 60)
        assert isinstance(reply, Reply), reply
        assert [out.shape for out in reply.outputs] == [(2, 8, 3, 4), (8,), (8,)]


@pytest.mark.skipif(
    "torch.compile.group_norm" in dict(skipped()),
    reason=str(dict(skipped()).get("torch.compile.group_norm")),
)
def test_the_compiled_kernel_computes_the_same_norm():
    """Slow: about 10 s, a minute where no C++ header was ever compiled."""
    arguments = case("group_norm", "float32", "contiguous")
    exact = torchs_norm("group_norm", *(None if a is None else a.double() for a in own(arguments)))
    with Sandbox(kernel_named("torch.compile.group_norm")) as sandbox:
        reply = sandbox.forward(arguments, {"eps": EPS, "num_groups": 4})
        assert isinstance(reply, Reply), reply
        assert np.abs(reply.y - exact.numpy()).max() < 1e-5
        assert reply.modified == ()
