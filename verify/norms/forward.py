"""The bodies of every normalisation: definitions and algorithms.

Notation: a row x has d elements, mean(x) = sum(x)/d, the divisor is d and never d-1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from verify.formula import Arithmetic, Value

# --- ingredients -------------------------------------------------------------------------------
# A body takes its reciprocal root and its divisor as ingredients, so that the wrong norms found
# in the field (eps outside the root, d-1 for d) are the same body with a wrong ingredient.

Rstd: TypeAlias = Callable[[Arithmetic, Value, Value], Value]
Divisor: TypeAlias = Callable[[Arithmetic, Value], Value]


def mean(ar: Arithmetic, x: Value) -> Value:
    """sum(x) / d."""
    return ar.sum(x) / ar.length(x)


def length(ar: Arithmetic, x: Value) -> Value:
    """The divisor d of every norm here."""
    return ar.length(x)


def length_minus_one(ar: Arithmetic, x: Value) -> Value:
    """The divisor d-1 of the unbiased variance: a fault in a norm."""
    return ar.length(x) - ar.number(1)


def rstd_eps_inside(ar: Arithmetic, variance: Value, eps: Value) -> Value:
    """1 / sqrt(variance + eps)."""
    return ar.number(1) / ar.sqrt(variance + eps)


def rstd_eps_outside(ar: Arithmetic, variance: Value, eps: Value) -> Value:
    """1 / (sqrt(variance) + eps): a fault in a norm that promises eps under the root."""
    return ar.number(1) / (ar.sqrt(variance) + eps)


def rstd_without_eps(ar: Arithmetic, variance: Value, eps: Value) -> Value:
    """1 / sqrt(variance): a fault in a norm that promises eps."""
    return ar.number(1) / ar.sqrt(variance)


# --- root mean square --------------------------------------------------------------------------


def rms_norm(
    ar: Arithmetic,
    x: Value,
    weight: Value,
    bias: Value,
    eps: Value,
    *,
    rstd: Rstd = rstd_eps_inside,
    divisor: Divisor = length,
) -> Value:
    """weight * x / sqrt(sum(x^2)/d + eps) + bias."""
    mean_square = ar.sum(ar.cast(x * x, "square")) / divisor(ar, x)
    x_hat = ar.cast(x * rstd(ar, mean_square, eps), "normalised")
    return x_hat * weight + bias


def gemma_rms_norm(ar: Arithmetic, x: Value, weight: Value, eps: Value) -> Value:
    """(1 + weight) * x / sqrt(sum(x^2)/d + eps): the weight is stored as its distance from 1."""
    return rms_norm(ar, x, ar.cast(ar.number(1) + weight, "gain"), ar.number(0), eps)


def crms_norm(ar: Arithmetic, z: Value, weight: Value, bias: Value, eps: Value) -> Value:
    """weight * z / sqrt((sum(z^2) + sum(z)^2)/d + eps) + bias, with z of length d-1.

    RMSNorm of the zero-mean row (z, -sum z) of length d, read off its first d-1 elements.
    """
    d = ar.length(z) + ar.number(1)
    dropped = ar.sum(z)
    rstd = rstd_eps_inside(ar, (ar.sum(z * z) + dropped * dropped) / d, eps)
    return ar.cast(z * rstd, "normalised") * weight + bias


def narrow_rms_norm(ar: Arithmetic, z: Value, weight: Value, bias: Value, eps: Value) -> Value:
    """weight * z / sqrt(sum(z^2)/d + eps) + bias, with z of length d-1.

    LayerNorm of width d in an orthonormal chart of the zero-mean rows. It equals
    sqrt(d/(d-1)) * RMSNorm(z; eps d/(d-1)) of width d-1, so a stock RMSNorm kernel runs it.
    """
    d = ar.length(z) + ar.number(1)
    rstd = rstd_eps_inside(ar, ar.sum(z * z) / d, eps)
    return ar.cast(z * rstd, "normalised") * weight + bias


# --- centred -----------------------------------------------------------------------------------


def _centred_norm(
    ar: Arithmetic,
    centred: Value,
    variance: Value,
    weight: Value,
    bias: Value,
    eps: Value,
    rstd: Rstd = rstd_eps_inside,
) -> Value:
    """weight * centred / sqrt(variance + eps) + bias: the tail that every LayerNorm shares."""
    x_hat = ar.cast(centred * rstd(ar, variance, eps), "normalised")
    return x_hat * weight + bias


def layer_norm(
    ar: Arithmetic,
    x: Value,
    weight: Value,
    bias: Value,
    eps: Value,
    *,
    rstd: Rstd = rstd_eps_inside,
    divisor: Divisor = length,
) -> Value:
    """weight * (x - mean x) / sqrt(mean((x - mean x)^2) + eps) + bias, in two passes."""
    centred = x - mean(ar, x)
    variance = ar.sum(ar.cast(centred * centred, "square")) / divisor(ar, x)
    return _centred_norm(ar, centred, variance, weight, bias, eps, rstd)


def layer_norm_one_pass(ar: Arithmetic, x: Value, weight: Value, bias: Value, eps: Value) -> Value:
    """LayerNorm with var x = mean(x^2) - mean(x)^2: unstable once |mean| >> spread."""
    mu = mean(ar, x)
    variance = mean(ar, x * x) - mu * mu
    return _centred_norm(ar, x - mu, variance, weight, bias, eps)


def layer_norm_shifted(
    ar: Arithmetic, x: Value, weight: Value, bias: Value, eps: Value, shift: Value
) -> Value:
    """LayerNorm in one pass over x - shift, for any number ``shift`` near the row's values."""
    return layer_norm_one_pass(ar, x - shift, weight, bias, eps)


def chan_merge(
    n: Value, mu: Value, m2: Value, n_right: Value, mu_right: Value, m2_right: Value
) -> tuple[Value, Value, Value]:
    """Counts, means and sums of squared deviations of two sets, merged into those of the union."""
    total = n + n_right
    delta = mu_right - mu
    share = n_right / total
    return total, mu + delta * share, m2 + m2_right + delta * delta * (n * share)


def layer_norm_welford(ar: Arithmetic, x: Value, weight: Value, bias: Value, eps: Value) -> Value:
    """LayerNorm with mean and variance by merging the elements' statistics."""
    leaves = (ar.number(1), x, ar.number(0))
    count, mu, m2 = ar.fold(leaves, chan_merge)
    return _centred_norm(ar, x - mu, m2 / count, weight, bias, eps)


def layer_norm_folded_shift(
    ar: Arithmetic, x: Value, weight: Value, bias: Value, eps: Value
) -> Value:
    """LayerNorm as x * scale + (bias - mean * scale): the mean is subtracted after scaling."""
    mu = mean(ar, x)
    centred = x - mu
    scale = rstd_eps_inside(ar, mean(ar, centred * centred), eps) * weight
    return x * scale + (bias - mu * scale)


# --- residual added in the same kernel -----------------------------------------------------------


def add_rms_norm(
    ar: Arithmetic, x: Value, residual: Value, weight: Value, bias: Value, eps: Value
) -> tuple[Value, Value]:
    """RMSNorm of h = x + residual, and h.

    The points "residual_statistics" and "residual_normalised" say which of the two uses of h
    sees it rounded: both (round, then normalise), neither (float32 throughout), or only the
    second (mixed): the three policies found in the field.
    """
    h = x + residual
    seen, normalised = (ar.cast(h, f"residual_{use}") for use in ("statistics", "normalised"))
    rstd = rstd_eps_inside(ar, mean(ar, seen * seen), eps)
    return ar.cast(normalised * rstd, "normalised") * weight + bias, h


def add_layer_norm(
    ar: Arithmetic, x: Value, residual: Value, weight: Value, bias: Value, eps: Value
) -> tuple[Value, Value]:
    """LayerNorm of h = x + residual, and h; the same two rounding points as `add_rms_norm`."""
    h = x + residual
    seen, normalised = (ar.cast(h, f"residual_{use}") for use in ("statistics", "normalised"))
    mu = mean(ar, seen)
    variance = mean(ar, (seen - mu) * (seen - mu))
    return _centred_norm(ar, normalised - mu, variance, weight, bias, eps), h


# --- element-wise replacements -------------------------------------------------------------------


def dyt(ar: Arithmetic, x: Value, weight: Value, bias: Value, alpha: Value) -> Value:
    """weight * tanh(alpha x) + bias."""
    return weight * ar.cast(ar.tanh(alpha * x), "normalised") + bias


def derf(ar: Arithmetic, x: Value, weight: Value, bias: Value, alpha: Value, shift: Value) -> Value:
    """weight * erf(alpha x + shift) + bias."""
    return weight * ar.cast(ar.erf(alpha * x + shift), "normalised") + bias


def dyisru(ar: Arithmetic, x: Value, weight: Value, bias: Value, beta: Value) -> Value:
    """weight * x / sqrt(x^2 + beta) + bias: RMSNorm with the other elements' energy frozen."""
    return x * rstd_eps_inside(ar, x * x, beta) * weight + bias
