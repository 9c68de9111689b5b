"""Planted kernels: plain NumPy norms, each right or wrong in one named way.

They are run by the audit as a user's callables, `tests/planted/wrong_norms.py:name`; they must be
caught, and named, or left in peace.
"""

from __future__ import annotations

import ctypes
import os
import time

import ml_dtypes
import numpy as np

F32 = np.float32


def _pairwise(values: np.ndarray) -> np.ndarray:
    """The sum over the last axis (kept) as a tree, in the format of the values."""
    while values.shape[-1] > 1:
        even = values.shape[-1] // 2 * 2
        merged = values[..., 0:even:2] + values[..., 1:even:2]
        values = np.concatenate([merged, values[..., even:]], axis=-1)
    return values


def _mean(values: np.ndarray) -> np.ndarray:
    return np.mean(values, axis=-1, keepdims=True, dtype=F32)


# --- right ----------------------------------------------------------------------------------------


def right_rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    h = x.astype(F32)
    return (h / np.sqrt(_mean(h * h) + F32(eps)) * weight.astype(F32)).astype(x.dtype)


def right_layer(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float) -> np.ndarray:
    h = x.astype(F32)
    centred = h - _mean(h)
    y = centred / np.sqrt(_mean(centred * centred) + F32(eps))
    return (y * weight.astype(F32) + bias.astype(F32)).astype(x.dtype)


def llama_rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """Right too, in the other cast order."""
    h = x.astype(F32)
    x_hat = (h / np.sqrt(_mean(h * h) + F32(eps))).astype(x.dtype)
    return (weight.astype(F32) * x_hat.astype(F32)).astype(x.dtype)


# --- hazardous ------------------------------------------------------------------------------------


def one_pass_layer(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float) -> np.ndarray:
    h = x.astype(F32)
    mu = _mean(h)
    variance = np.maximum(_mean(h * h) - mu * mu, F32(0))
    y = (h - mu) / np.sqrt(variance + F32(eps))
    return (y * weight.astype(F32) + bias.astype(F32)).astype(x.dtype)


# --- wrong ----------------------------------------------------------------------------------------


def eps_outside_rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    h = x.astype(F32)
    return (h / (np.sqrt(_mean(h * h)) + F32(eps)) * weight.astype(F32)).astype(x.dtype)


def no_eps_rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    h = x.astype(F32)
    return (h / np.sqrt(_mean(h * h)) * weight.astype(F32)).astype(x.dtype)


def d_minus_one_layer(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float
) -> np.ndarray:
    h = x.astype(F32)
    centred = h - _mean(h)
    variance = np.sum(centred * centred, axis=-1, keepdims=True) / F32(max(h.shape[-1] - 1, 1))
    y = centred / np.sqrt(variance + F32(eps))
    return (y * weight.astype(F32) + bias.astype(F32)).astype(x.dtype)


def bf16_accumulator_rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    h = x.astype(ml_dtypes.bfloat16)
    d = np.asarray(h.shape[-1], F32)
    mean = (_pairwise(h * h).astype(F32) / d).astype(h.dtype)
    rstd = np.asarray(1, h.dtype) / np.sqrt(mean + np.asarray(eps, h.dtype))
    return (h * rstd * weight.astype(h.dtype)).astype(x.dtype)


def fp16_square_rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    h = x.astype(F32)
    with np.errstate(over="ignore"):
        square = (h * h).astype(np.float16).astype(F32)
        return (h / np.sqrt(_mean(square) + F32(eps)) * weight.astype(F32)).astype(x.dtype)


def truncating_rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """The cast to 16 bits drops the low bits."""
    h = x.astype(F32)
    y = h / np.sqrt(_mean(h * h) + F32(eps)) * weight.astype(F32)
    if x.dtype != ml_dtypes.bfloat16:
        return y.astype(x.dtype)
    return (np.ascontiguousarray(y).view(np.uint32) >> 16).astype(np.uint16).view(x.dtype)


def doubled_rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """No fault with a name: the answer is doubled."""
    return right_rms(x, weight, eps) * np.asarray(2, x.dtype)


# --- ill-behaved ----------------------------------------------------------------------------------


def crashing_rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    if x.shape[-1] == 1024:
        ctypes.string_at(0)
    return right_rms(x, weight, eps)


def ending_rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    os._exit(7)


def hanging_rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    time.sleep(3600)
    return x


def refusing_rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    raise TypeError(f"no kernel for {x.dtype}")


def writing_rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    y = right_rms(x, weight, eps)
    x[..., 0] = 0
    return y


def batch_dependent_rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """Sums in another order once there are many rows."""
    h = x.astype(F32)
    square = h * h
    total = _pairwise(square) if len(x) < 50 else np.add.accumulate(square, axis=-1)[..., -1:]
    y = h / np.sqrt(total / F32(h.shape[-1]) + F32(eps)) * weight.astype(F32)
    return y.astype(x.dtype)


def nan_swallowing_rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return np.nan_to_num(right_rms(x, weight, eps).astype(F32)).astype(x.dtype)
