"""Second derivatives: the gradients of a backward pass, which double backward computes.

A backward pass gives dx(x, weight, dy). For v, the gradient with respect to dx, double backward
computes the gradients of F = <v, dx> with respect to dy, weight and x.
"""

from __future__ import annotations

from typing import Any

from verify.formula import Value
from verify.norms.backward import layer_norm_backward, rms_norm_backward
from verify.norms.forward import layer_norm, mean, rms_norm
from verify.symbolic.language import RowArithmetic, Statement, derivative
from verify.symbolic.theorem import theorem
from verify.symbolic.theorems.centring import OURS, centred, row, variance
from verify.symbolic.theorems.jacobians import (
    NOTATION,
    layer_norm_jacobian,
    rms_jacobian,
    rms_rstd,
)


@theorem(
    statement=r"\mathrm{RMS}(x) = \nabla\, d\sqrt{\mathrm{mean}(x^2)+\varepsilon},\quad"
    r" \mathrm{LN}(x) = \nabla\, d\sqrt{\mathrm{var}(x)+\varepsilon}",
    hypotheses=("weight 1 and bias 0", "hence J is a Hessian: symmetric, and so is D^2, totally"),
    citation=f"{OURS}; the gradient of a norm is classical",
    used_in=("DOUBLE_BACKWARD_OF_RMS_NORM", "DOUBLE_BACKWARD_OF_LAYER_NORM"),
)
def NORMS_ARE_GRADIENTS(s: Statement) -> None:
    """A normalised row is the gradient of the row's length, smoothed by eps: a convex function."""
    i, ar, symbols = row(s)
    x, eps = symbols["x"], symbols["eps"]
    (h,) = s.arrays("h", i)
    d, length = ar.length(x), ar.sqrt(mean(ar, x * x) + eps)
    s.equal(
        "RMSNorm",
        ("D d sqrt(mean(x^2) + eps)", derivative(d * length, "x", "h")),
        ("half the derivative of sum(x^2), over the root", ar.sum(x * h) / length),
        ("<RMSNorm(x), h>", ar.sum(rms_norm(ar, x, 1, 0, eps) * h)),
    )
    spread = ar.sqrt(variance(ar, x) + eps)
    s.equal(
        "LayerNorm",
        ("D d sqrt(var(x) + eps)", derivative(d * spread, "x", "h")),
        ("<Px, Ph>, over the root", ar.sum(centred(ar, x) * centred(ar, h)) / spread),
        ("<LayerNorm(x), h>", ar.sum(layer_norm(ar, x, 1, 0, eps) * h)),
    )


def second(ar: RowArithmetic, x: Value, eps: Value, g: Value, v: Value) -> Value:
    """The gradient of <g, J_RMS(x) v> by x.

    It is -r^2 (x_hat mean(g v) + g mean(x_hat v) + v mean(x_hat g)
    - 3 x_hat mean(x_hat g) mean(x_hat v)).
    """
    x_hat, r = rms_norm(ar, x, 1, 0, eps), rms_rstd(ar, x, eps)
    along_g, along_v = mean(ar, x_hat * g), mean(ar, x_hat * v)
    mixed = g * along_v + v * along_g
    return -r * r * (x_hat * (mean(ar, g * v) - 3 * along_g * along_v) + mixed)


def _symbols(s: Statement) -> tuple[RowArithmetic, dict[str, Any]]:
    """`row` with dy, the gradient v of dx, and directions h, k."""
    i, ar, symbols = row(s)
    return ar, symbols | dict(zip(("dy", "v", "h", "k"), s.arrays("dy v h k", i), strict=True))


@theorem(
    statement=r"F=\langle v, dx\rangle:\quad \partial_{dy}F = \gamma\,Jv,\quad"
    r" \partial_\gamma F = dy\,Jv,\quad \partial_x F = -r^2\big(\hat x\,\overline{gv}"
    r" + g\,\overline{\hat xv} + v\,\overline{\hat xg}"
    r" - 3\hat x\,\overline{\hat xg}\,\overline{\hat xv}\big)",
    hypotheses=(NOTATION, "g = weight dy; a bar is the mean over the row"),
    citation=OURS,
    used_in=("double backward of rms_norm_backward and qk_norm_backward: gradient penalties",),
)
def DOUBLE_BACKWARD_OF_RMS_NORM(s: Statement) -> None:
    """By dy it is the forward derivative along v, by x a form that is symmetric in g, v and h."""
    ar, symbols = _symbols(s)
    x, weight, bias, eps = (symbols[name] for name in ("x", "weight", "bias", "eps"))
    dy, v, h, k = (symbols[name] for name in ("dy", "v", "h", "k"))
    dx = rms_norm_backward(ar, x, weight, eps, dy)[0]
    y, f, g = rms_norm(ar, x, weight, bias, eps), ar.sum(v * dx), dy * weight
    jv = rms_jacobian(ar, x, eps, v)
    s.equal(
        "with respect to dy",
        ("D <v, dx> along k", derivative(f, "dy", "k")),
        ("<k, D RMSNorm(x) along v>", ar.sum(k * derivative(y, "x", "v"))),
        ("<k, weight J v>", ar.sum(k * (weight * jv))),
    )
    s.equal(
        "with respect to weight",
        ("D <v, dx> along k", derivative(f, "weight", "k")),
        ("<k, dy J v>", ar.sum(k * (dy * jv))),
    )
    s.equal(
        "with respect to x",
        ("D <v, dx> along h", derivative(f, "x", "h")),
        ("a form in g, v and h", _cubic(ar, x, eps, (g, v, h))),
        ("<h, ddx(g, v)>", ar.sum(h * second(ar, x, eps, g, v))),
    )
    s.equal(
        "v and h may change places",
        ("D <v, dx> along h", derivative(f, "x", "h")),
        ("<g, ddx(v, h)>", ar.sum(g * second(ar, x, eps, v, h))),
        ("D <h, dx> along v", derivative(ar.sum(h * dx), "x", "v")),
    )
    s.equal(
        "and it is the second derivative of the loss",
        ("D D <dy, y> along v and h", derivative(derivative(ar.sum(dy * y), "x", "v"), "x", "h")),
        ("D <v, dx> along h", derivative(f, "x", "h")),
    )


def _cubic(ar: RowArithmetic, x: Value, eps: Value, rows: tuple[Value, Value, Value]) -> Value:
    """The third derivative of d sqrt(mean(x^2) + eps) along three rows, in no order."""
    x_hat, r = rms_norm(ar, x, 1, 0, eps), rms_rstd(ar, x, eps)
    (g, v, h), (a, b, c) = rows, (mean(ar, x_hat * each) for each in rows)
    pairs = c * mean(ar, g * v) + b * mean(ar, g * h) + a * mean(ar, v * h)
    return -r * r * ar.length(x) * (pairs - 3 * a * b * c)


@theorem(
    statement=r"F=\langle v, dx\rangle:\quad \partial_{dy}F = \gamma\,Jv,\quad"
    r" \partial_\gamma F = dy\,Jv,\quad \partial_x F = -r^2\big(\hat x\,\overline{Pg\,Pv}"
    r" + Pg\,\overline{\hat xv} + Pv\,\overline{\hat xg}"
    r" - 3\hat x\,\overline{\hat xg}\,\overline{\hat xv}\big)",
    hypotheses=(NOTATION, "g = weight dy; a bar is the mean over the row"),
    citation=OURS,
    used_in=("double backward of layer_norm_backward and group_norm_backward",),
)
def DOUBLE_BACKWARD_OF_LAYER_NORM(s: Statement) -> None:
    """It is RMSNorm's at the centred row, with g and v centred; by x it sums to 0."""
    ar, symbols = _symbols(s)
    x, weight, bias, eps = (symbols[name] for name in ("x", "weight", "bias", "eps"))
    dy, v, h, k = (symbols[name] for name in ("dy", "v", "h", "k"))
    dx = layer_norm_backward(ar, x, weight, eps, dy)[0]
    y, f = layer_norm(ar, x, weight, bias, eps), ar.sum(v * dx)
    jv, c = layer_norm_jacobian(ar, x, eps, v), centred(ar, x)
    pg, pv, ph = (centred(ar, each) for each in (dy * weight, v, h))
    ddx = second(ar, c, eps, pg, pv)
    s.equal(
        "with respect to dy",
        ("D <v, dx> along k", derivative(f, "dy", "k")),
        ("<k, D LayerNorm(x) along v>", ar.sum(k * derivative(y, "x", "v"))),
        ("<k, weight J v>", ar.sum(k * (weight * jv))),
    )
    s.equal(
        "with respect to weight",
        ("D <v, dx> along k", derivative(f, "weight", "k")),
        ("<k, dy J v>", ar.sum(k * (dy * jv))),
    )
    s.equal(
        "with respect to x",
        ("D <v, dx> along h", derivative(f, "x", "h")),
        ("a form in Pg, Pv and Ph", _cubic(ar, c, eps, (pg, pv, ph))),
        ("<h, ddx(Pg, Pv)>", ar.sum(h * ddx)),
    )
    s.equal(
        "v and h may change places",
        ("D <v, dx> along h", derivative(f, "x", "h")),
        ("D <h, dx> along v", derivative(ar.sum(h * dx), "x", "v")),
    )
    s.equal("by x it sums to 0", ("sum of ddx(Pg, Pv)", ar.sum(ddx)), ("each part does", 0))


@theorem(
    statement=r"\partial_xF - \partial_xF|_{r\text{ constant}}"
    r" = -r^2\,\hat x\,\big(\overline{gv} - 3\,\overline{\hat xg}\,\overline{\hat xv}\big)",
    hypotheses=(
        NOTATION,
        "F = <v, dx>; the saved r of the forward pass depends on x, though a kernel only reads it",
    ),
    citation=OURS,
    used_in=("backward kernels that are differentiated again, by a framework or by hand",),
)
def SAVED_STATISTICS_ARE_NO_CONSTANTS(s: Statement) -> None:
    """Double backward that takes the saved r for a constant loses a multiple of the row."""
    ar, symbols = _symbols(s)
    x, weight, eps, dy = (symbols[name] for name in ("x", "weight", "eps", "dy"))
    v, h = symbols["v"], symbols["h"]
    (q,) = s.numbers("q")
    g, r, x_hat = dy * weight, rms_rstd(ar, x, eps), rms_norm(ar, x, 1, 0, eps)
    f = ar.sum(v * rms_norm_backward(ar, x, weight, eps, dy)[0])
    s.equal(
        "dx as a function of x and of a saved root q",
        ("<v, dx>, for q = r", f),
        ("<v, q (g - x q^2 mean(g x))>, for q = r", ar.sum(v * _from_saved(ar, x, r, g))),
    )
    s.equal(
        "its derivative with q held",
        (
            "D <v, q (g - x q^2 mean(g x))> along h",
            derivative(ar.sum(v * _from_saved(ar, x, q, g)), "x", "h"),
        ),
        ("-q^3 (<v, h> mean(g x) + <v, x> mean(g h))", _with_root_held(ar, x, q, (g, v, h))),
    )
    lost = mean(ar, g * v) - 3 * mean(ar, x_hat * g) * mean(ar, x_hat * v)
    held = _with_root_held(ar, x, r, (g, v, h))
    s.equal(
        "what is lost",
        ("D <v, dx> along h, less the same with r held", derivative(f, "x", "h") - held),
        (
            "-r^2 (mean(g v) - 3 mean(x_hat g) mean(x_hat v)) <x_hat, h>",
            -r * r * lost * ar.sum(x_hat * h),
        ),
    )
    s.differ(
        "r held",
        derivative(f, "x", "h"),
        held,
        dims={"n": 2},
        values={
            "x": [1, 7],
            "weight": [1, 1],
            "dy": [1, 0],
            "v": [1, 0],
            "h": [1, 1],
            "eps": 144,
        },
    )


def _from_saved(ar: RowArithmetic, x: Value, root: Value, g: Value) -> Value:
    """dx from a row and its saved reciprocal root."""
    return root * (g - x * (root * root * mean(ar, g * x)))


def _with_root_held(
    ar: RowArithmetic, x: Value, root: Value, rows: tuple[Value, Value, Value]
) -> Value:
    """The derivative of <v, dx> along h with the root held, for rows g, v and h."""
    g, v, h = rows
    along = ar.sum(v * h) * mean(ar, g * x) + ar.sum(v * x) * mean(ar, g * h)
    return -root * root * root * along
