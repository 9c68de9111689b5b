"""The bodies of every backward pass.

Notation: dy is the gradient with respect to the output, g = dy * weight, x_hat the normalised
row. Parameter gradients sum over all rows.
"""

from __future__ import annotations

from verify.formula import Arithmetic, Value
from verify.norms.forward import mean, rstd_eps_inside


def rms_norm_backward(
    ar: Arithmetic, x: Value, weight: Value, eps: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """dx = rstd (g - x_hat mean(g x_hat)), dweight = sum_rows(dy x_hat), dbias = sum_rows(dy)."""
    rstd = ar.cast(rstd_eps_inside(ar, mean(ar, x * x), eps), "saved_rstd")
    return _rms_vjp(ar, x * rstd, rstd, weight, dy)


def _rms_vjp(
    ar: Arithmetic, x_hat: Value, rstd: Value, weight: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """The adjoint of x -> x rstd(x) at x_hat, and the gradients of the affine part."""
    g = dy * weight
    dx = rstd * (g - x_hat * mean(ar, g * x_hat))
    return dx, ar.sum_rows(dy * x_hat), ar.sum_rows(dy)


def gemma_rms_norm_backward(
    ar: Arithmetic, x: Value, weight: Value, eps: Value, dy: Value
) -> tuple[Value, Value]:
    """As RMSNorm's with gain 1 + weight; there is no bias."""
    gain = ar.cast(ar.number(1) + weight, "gain")
    return rms_norm_backward(ar, x, gain, eps, dy)[:2]


def layer_norm_backward(
    ar: Arithmetic, x: Value, weight: Value, eps: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """dx = rstd (g - mean g - x_hat mean(g x_hat)), dweight and dbias as RMSNorm's."""
    mu = mean(ar, x)
    centred = x - mu
    rstd = ar.cast(rstd_eps_inside(ar, mean(ar, centred * centred), eps), "saved_rstd")
    x_hat = (x - ar.cast(mu, "saved_mean")) * rstd
    g = dy * weight
    dx = rstd * ((g - mean(ar, g)) - x_hat * mean(ar, g * x_hat))
    return dx, ar.sum_rows(dy * x_hat), ar.sum_rows(dy)


def layer_norm_backward_folded(
    ar: Arithmetic, x: Value, weight: Value, eps: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """dx = rstd g + b x + c, b = (sum(g) mean - sum(g x)) rstd^3/d, c = -b mean - rstd sum(g)/d.

    The same gradient in the form that CPU kernels use: one multiply-add per element, but b x + c
    cancels when |mean| is large.
    """
    mu = mean(ar, x)
    centred = x - mu
    rstd = ar.cast(rstd_eps_inside(ar, mean(ar, centred * centred), eps), "saved_rstd")
    mu = ar.cast(mu, "saved_mean")
    g = dy * weight
    sum_g = ar.sum(g)
    b = (sum_g * mu - ar.sum(g * x)) * rstd * rstd * rstd / ar.length(x)
    c = ar.number(0) - b * mu - sum_g * rstd / ar.length(x)
    return rstd * g + b * x + c, ar.sum_rows(dy * (x - mu) * rstd), ar.sum_rows(dy)


def crms_norm_backward(
    ar: Arithmetic, z: Value, weight: Value, eps: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """dz = rstd (g - (z + sum z) rstd^2 sum(g z)/d), with z of length d-1."""
    d = ar.length(z) + ar.number(1)
    dropped = ar.sum(z)
    rstd = rstd_eps_inside(ar, (ar.sum(z * z) + dropped * dropped) / d, eps)
    return _short_vjp(ar, z, z + dropped, rstd, weight, dy)


def narrow_rms_norm_backward(
    ar: Arithmetic, z: Value, weight: Value, eps: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """dz = rstd (g - z rstd^2 sum(g z)/d), with z of length d-1."""
    d = ar.length(z) + ar.number(1)
    rstd = rstd_eps_inside(ar, ar.sum(z * z) / d, eps)
    return _short_vjp(ar, z, z, rstd, weight, dy)


def _short_vjp(
    ar: Arithmetic, z: Value, half_gradient: Value, rstd: Value, weight: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """The adjoint for rows of length d-1; ``half_gradient`` is half the gradient of d*variance."""
    d = ar.length(z) + ar.number(1)
    g = dy * weight
    dz = rstd * (g - half_gradient * (rstd * rstd * (ar.sum(g * z) / d)))
    return dz, ar.sum_rows(dy * (z * rstd)), ar.sum_rows(dy)


def _through_sum(
    gradients: tuple[Value, Value, Value], dresidual_out: Value
) -> tuple[Value, Value, Value, Value]:
    """The norm's gradients at h = x + residual, carried to x and to the residual alike."""
    dh, dweight, dbias = gradients
    dx = dh + dresidual_out
    return dx, dx, dweight, dbias


def add_rms_norm_backward(
    ar: Arithmetic,
    x: Value,
    residual: Value,
    weight: Value,
    eps: Value,
    dy: Value,
    dresidual_out: Value,
) -> tuple[Value, Value, Value, Value]:
    """dx = dresidual = (RMSNorm's dx at h = x + residual) + dresidual_out, dweight, dbias."""
    return _through_sum(rms_norm_backward(ar, x + residual, weight, eps, dy), dresidual_out)


def add_layer_norm_backward(
    ar: Arithmetic,
    x: Value,
    residual: Value,
    weight: Value,
    eps: Value,
    dy: Value,
    dresidual_out: Value,
) -> tuple[Value, Value, Value, Value]:
    """dx = dresidual = (LayerNorm's dx at h = x + residual) + dresidual_out, dweight, dbias."""
    return _through_sum(layer_norm_backward(ar, x + residual, weight, eps, dy), dresidual_out)


def dyt_backward(
    ar: Arithmetic, x: Value, weight: Value, alpha: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """dx = dy weight alpha (1 - t^2), dweight = sum_rows(dy t), dbias; t = tanh(alpha x)."""
    t = ar.tanh(alpha * x)
    dx = dy * weight * alpha * (ar.number(1) - t * t)
    return dx, ar.sum_rows(dy * t), ar.sum_rows(dy)


def derf_backward(
    ar: Arithmetic, x: Value, weight: Value, alpha: Value, shift: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """dx = dy weight alpha (2/sqrt(pi)) exp(-a^2), dweight = sum_rows(dy erf a), dbias.

    Here a = alpha x + shift.
    """
    a = alpha * x + shift
    slope = ar.number(2) / ar.sqrt(ar.pi()) * ar.exp(ar.number(0) - a * a)
    return dy * weight * alpha * slope, ar.sum_rows(dy * ar.erf(a)), ar.sum_rows(dy)


def dyisru_backward(
    ar: Arithmetic, x: Value, weight: Value, beta: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """dx = dy weight beta r^3, dweight = sum_rows(dy x r), dbias, with r = 1/sqrt(x^2 + beta)."""
    rstd = rstd_eps_inside(ar, x * x, beta)
    dx = dy * weight * (beta * rstd * rstd * rstd)
    return dx, ar.sum_rows(dy * (x * rstd)), ar.sum_rows(dy)
