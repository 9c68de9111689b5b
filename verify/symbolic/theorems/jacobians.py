"""Jacobians of the norms: closed forms, what they kill, and what they are in a chart.

Derivatives are taken of the bodies themselves, symbol by symbol; the closed forms of this file are
steps on the way.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.formula import Value
from verify.norms.backward import derf_backward, dyisru_backward, dyt_backward
from verify.norms.catalogue import BA, DERF, JIANG, STOLLENWERK, ZHANG, ZHU
from verify.norms.forward import (
    crms_norm,
    derf,
    dyisru,
    dyt,
    layer_norm,
    mean,
    narrow_rms_norm,
    rms_norm,
    rstd_eps_inside,
)
from verify.symbolic.language import Blocks, RowArithmetic, Statement, derivative
from verify.symbolic.theorem import theorem
from verify.symbolic.theorems.centring import (
    OURS,
    centred,
    of_each_block,
    row,
)
from verify.symbolic.theorems.charts import WIDTH, chart, decompressed

NOTATION = "r = 1 / sqrt(v + eps), v the mean square of x, for LayerNorm its variance"


def rms_rstd(ar: RowArithmetic, x: Value, eps: Value) -> Value:
    """r, the reciprocal root of RMSNorm at x."""
    return rstd_eps_inside(ar, mean(ar, x * x), eps)


def rms_jacobian(ar: RowArithmetic, x: Value, eps: Value, h: Value) -> Value:
    """J_RMS(x) h = r (h - x_hat mean(x_hat h)), for weight 1."""
    x_hat = rms_norm(ar, x, 1, 0, eps)
    return rms_rstd(ar, x, eps) * (h - x_hat * mean(ar, x_hat * h))


def layer_norm_jacobian(ar: RowArithmetic, x: Value, eps: Value, h: Value) -> Value:
    """J_LN(x) h = J_RMS(Px) P h, for weight 1."""
    return rms_jacobian(ar, centred(ar, x), eps, centred(ar, h))


@theorem(
    statement=r"J_{\mathrm{RMS}}(x) = r\,\big(I - \tfrac1d\hat x\hat x^\top\big)"
    r" = J_{\mathrm{RMS}}(x)^\top,\quad \hat x = r\,x",
    hypotheses=(NOTATION, "weight 1; a weight scales the rows of J: diag(weight) J"),
    citation=f"derivative of {ZHANG}",
    used_in=("RMS_NORM_BACKWARD_IS_THE_ADJOINT", "forward-mode derivatives (JVP)"),
)
def JACOBIAN_OF_RMS_NORM(s: Statement) -> None:
    """RMSNorm's Jacobian is r times the identity less the part along the row; it is symmetric."""
    i, ar, symbols = row(s)
    x, weight, bias, eps = (symbols[k] for k in ("x", "weight", "bias", "eps"))
    h, u = s.arrays("h u", i)
    r, x_hat = rms_rstd(ar, x, eps), rms_norm(ar, x, 1, 0, eps)
    s.equal(
        "the reciprocal root",
        ("Dr", derivative(r, "x", "h")),
        ("-r^3/2 times the derivative of the mean square", -r * r * r / 2 * mean(ar, 2 * x * h)),
        ("-r^2 mean(x_hat h)", -r * r * mean(ar, x_hat * h)),
    )
    s.equal(
        "the normalised row",
        ("Dx_hat", derivative(x_hat, "x", "h")),
        ("r h + x Dr", r * h + x * derivative(r, "x", "h")),
        ("r (h - x_hat mean(x_hat h))", rms_jacobian(ar, x, eps, h)),
        free=[i],
    )
    s.equal(
        "with weight and bias",
        ("D RMSNorm(x)", derivative(rms_norm(ar, x, weight, bias, eps), "x", "h")),
        ("weight J h", weight * rms_jacobian(ar, x, eps, h)),
        free=[i],
    )
    s.equal(
        "it is symmetric",
        ("<u, J h>", ar.sum(u * rms_jacobian(ar, x, eps, h))),
        ("r (<u, h> - <x_hat, u> <x_hat, h>/d)", _form(ar, x, eps, u, h)),
        ("<J u, h>", ar.sum(rms_jacobian(ar, x, eps, u) * h)),
    )


def _form(ar: RowArithmetic, x: Value, eps: Value, u: Value, h: Value) -> Value:
    """<u, J_RMS(x) h>, multiplied out."""
    x_hat = rms_norm(ar, x, 1, 0, eps)
    along = ar.sum(x_hat * u) * ar.sum(x_hat * h) / ar.length(x)
    return rms_rstd(ar, x, eps) * (ar.sum(u * h) - along)


@theorem(
    statement=r"J_{\mathrm{LN}}(x) = J_{\mathrm{RMS}}(Px)\,P = P\,J_{\mathrm{RMS}}(Px)"
    r" = r\,\big(P - \tfrac1d\hat x\hat x^\top\big) = J_{\mathrm{LN}}(x)^\top,\quad"
    r" J_{\mathrm{LN}}(x)\mathbf 1 = 0",
    hypotheses=(NOTATION, "weight 1; a weight scales the rows of J: diag(weight) J"),
    citation=f"derivative of {BA}; by {JIANG}, eq. 1 and 2, the chain rule on RMSNorm",
    used_in=("LAYER_NORM_BACKWARD_IS_THE_ADJOINT", "forward-mode derivatives (JVP)"),
)
def JACOBIAN_OF_LAYER_NORM(s: Statement) -> None:
    """LayerNorm's Jacobian is RMSNorm's at the centred row, projected: symmetric, and 0 on ones."""
    i, ar, symbols = row(s)
    x, weight, bias, eps = (symbols[k] for k in ("x", "weight", "bias", "eps"))
    h, u = s.arrays("h u", i)
    t, ds = s.numbers("t ds")
    x_hat, jh = layer_norm(ar, x, 1, 0, eps), layer_norm_jacobian(ar, x, eps, h)
    r = rms_rstd(ar, centred(ar, x), eps)
    s.equal(
        "the chain rule on RMSNorm of Px",
        ("Dx_hat", derivative(x_hat, "x", "h")),
        ("J_RMS(Px) P h", jh),
        ("x_hat sums to 0: P J_RMS(Px) h", centred(ar, rms_jacobian(ar, centred(ar, x), eps, h))),
        (
            "r (P h - x_hat mean(x_hat h))",
            r * (centred(ar, h) - x_hat * mean(ar, x_hat * h)),
        ),
        free=[i],
    )
    s.equal(
        "with weight and bias",
        ("D LayerNorm(x)", derivative(layer_norm(ar, x, weight, bias, eps), "x", "h")),
        ("weight J h", weight * jh),
        free=[i],
    )
    s.equal(
        "it is symmetric",
        ("<u, J h>", ar.sum(u * jh)),
        (
            "r (<Pu, Ph> - <x_hat, u> <x_hat, h>/d)",
            _form(ar, centred(ar, x), eps, centred(ar, u), centred(ar, h)),
        ),
        ("<J u, h>", ar.sum(layer_norm_jacobian(ar, x, eps, u) * h)),
    )
    s.equal(
        "it kills the row of ones: a change of t in x + t 1",
        ("D LayerNorm(x + t 1) - D LayerNorm(x)[h]", _shifted(ar, symbols, t) - weight * jh),
        ("weight J(x + t 1) (ds 1)", weight * layer_norm_jacobian(ar, x + t, eps, ds)),
        ("0", 0),
        free=[i],
    )
    s.equal("and its rows sum to 0", ("sum of J h", ar.sum(jh)), ("P h sums to 0", 0))
    s.differ(
        "RMSNorm's does not",
        derivative(rms_norm(ar, x + t, 1, 0, eps), "t", "ds"),
        0,
        free=[i],
        dims={"n": 2},
        values={"x": [1, 7], "t": 0, "ds": 1, "eps": 144},
        index=(0,),
    )


def _shifted(ar: RowArithmetic, symbols: Any, t: Any) -> Value:
    """The derivative of LayerNorm(x + t 1) along h in x and along ds in t."""
    x, weight, bias, eps = (symbols[k] for k in ("x", "weight", "bias", "eps"))
    y = layer_norm(ar, x + t, weight, bias, eps)
    return derivative(y, "x", "h") + derivative(y, "t", "ds")


@theorem(
    statement=r"J_{\mathrm{RMS}}(x)\,x = \varepsilon r^3 x,\quad"
    r" J_{\mathrm{LN}}(x)\,x = \varepsilon r^3\,Px,\quad"
    r" \varepsilon = 0:\ J(x)\,x = 0",
    hypotheses=(NOTATION, "t x, for a number t, stands for every row along x; t > 0 without eps"),
    citation=OURS,
    used_in=("gradient tests: <x, dx> = eps r^3 <x, g>", "training along the direction of a row"),
)
def RADIAL_DIRECTION(s: Statement) -> None:
    """A change of a row's length passes a norm only through eps: not at all if eps is 0."""
    i, ar, symbols = row(s)
    x, eps = symbols["x"], symbols["eps"]
    (ds,) = s.numbers("ds")
    (t,) = s.numbers("t", positive=True)
    along, square = t * x, mean(ar, x * x)
    r, r_centred = rms_rstd(ar, along, eps), rms_rstd(ar, centred(ar, along), eps)
    s.equal(
        "RMSNorm along a ray",
        ("D RMSNorm(t x)", derivative(rms_norm(ar, along, 1, 0, eps), "t", "ds")),
        ("J(t x) (ds x)", rms_jacobian(ar, along, eps, ds * x)),
        ("1 - t^2 r^2 mean(x^2) is left of ds r x", ds * r * x * (1 - t * t * r * r * square)),
        ("eps r^3 ds x", eps * r * r * r * (ds * x)),
        free=[i],
    )
    s.equal(
        "LayerNorm along a ray",
        ("D LayerNorm(t x)", derivative(layer_norm(ar, along, 1, 0, eps), "t", "ds")),
        ("J(t x) (ds x)", layer_norm_jacobian(ar, along, eps, ds * x)),
        ("eps r^3 ds P x", eps * r_centred * r_centred * r_centred * (ds * centred(ar, x))),
        free=[i],
    )
    without = rms_norm(ar, along, 1, 0, 0), layer_norm(ar, along, 1, 0, 0)
    for name, y in zip(("RMSNorm", "LayerNorm"), without, strict=True):
        s.equal(
            f"{name} without eps does not see a length",
            (f"D {name}(t x; 0)", derivative(y, "t", "ds")),
            ("0", 0),
            free=[i],
        )


@theorem(
    statement=r"\frac{\partial\,\mathrm{RMS}_i}{\partial x_j} = -\frac{x_i x_j r^3}d,\quad"
    r" \frac{\partial\,\mathrm{LN}_i}{\partial x_j} = -\frac rd(1+\hat x_i\hat x_j)\quad(i\ne j),"
    r"\quad \frac{\partial\,\mathrm{DyT}_i}{\partial x_j} = 0",
    hypotheses=(
        NOTATION,
        f"{WIDTH}: j is the last element, i any other; a norm does not see the order",
    ),
    citation=f"{OURS}; DyT: {ZHU}; Derf: {DERF}; DyISRU: {STOLLENWERK}",
    used_in=("what an element-wise replacement of a norm gives up", "tests of Jacobians"),
)
def OFF_DIAGONAL_ENTRIES(s: Statement) -> None:
    """An element of a norm falls with the others' energy; an element-wise replacement is blind."""
    i, ar, symbols = row(s)
    x, eps, weight = symbols["x"], symbols["eps"], symbols["weight"]
    t, ds, shift = s.numbers("t ds shift")
    beta, _ = s.numbers("beta pi", positive=True)
    wide, whole = RowArithmetic((i, None)), Blocks((x, t))
    d, r = wide.length(whole), rms_rstd(wide, whole, eps)
    first, last = rms_norm(wide, whole, 1, 0, eps).parts
    s.equal(
        "RMSNorm, off the diagonal",
        ("D RMSNorm_i by x_j", derivative(first, "t", "ds")),
        ("-x_i x_j r^3 / d", -(x * t * r * r * r / d) * ds),
        free=[i],
    )
    s.equal(
        "RMSNorm, on the diagonal",
        ("D RMSNorm_j by x_j", derivative(last, "t", "ds")),
        ("r - x_j^2 r^3 / d", (r - t * t * r * r * r / d) * ds),
    )
    r = rms_rstd(wide, centred(wide, whole), eps)
    first, last = layer_norm(wide, whole, 1, 0, eps).parts
    s.equal(
        "LayerNorm, off the diagonal",
        ("D LayerNorm_i by x_j", derivative(first, "t", "ds")),
        ("-r (1 + y_i y_j) / d", -(r * (1 + first * last) / d) * ds),
        free=[i],
    )
    s.equal(
        "LayerNorm, on the diagonal",
        ("D LayerNorm_j by x_j", derivative(last, "t", "ds")),
        ("r (d - 1 - y_j^2) / d", r * (d - 1 - last * last) / d * ds),
    )
    (h,) = s.arrays("h", i)
    for name, y, diagonal in _element_wise(ar, x, weight, beta, shift, h):
        s.equal(
            f"{name} has no entry off the diagonal",
            (f"D {name}(x)_i along h", derivative(y, "x", "h")),
            ("a slope times h_i", diagonal),
            free=[i],
        )
    s.differ(
        "RMSNorm is not element-wise",
        derivative(rms_norm(wide, whole, 1, 0, eps).parts[0], "t", "ds"),
        0,
        free=[i],
        dims={"n": 1},
        values={"x": [1], "t": 7, "ds": 1, "eps": 144},
        index=(0,),
    )


def _element_wise(
    ar: RowArithmetic, x: Value, weight: Value, alpha: Value, shift: Value, h: Value
) -> tuple[tuple[str, Value, Value], ...]:
    """(name, output, slope times h) of the element-wise replacements of a norm."""
    return (
        ("DyT", dyt(ar, x, weight, 0, alpha), dyt_backward(ar, x, weight, alpha, h)[0]),
        (
            "Derf",
            derf(ar, x, weight, 0, alpha, shift),
            derf_backward(ar, x, weight, alpha, shift, h)[0],
        ),
        ("DyISRU", dyisru(ar, x, weight, 0, alpha), dyisru_backward(ar, x, weight, alpha, h)[0]),
    )


@theorem(
    statement=r"J_{\mathrm{CRMS}}(z) = E\,J_{\mathrm{RMS}}(Dz)\,D = E\,J_{\mathrm{LN}}(Dz)\,D,"
    r"\quad J_{\mathrm{LN}}(Qz)\,Q = Q\,J_{\mathrm{narrow}}(z)",
    hypotheses=(
        WIDTH,
        "D z = (z, -sum z), E drops the last element, Q: THE_HOUSEHOLDER_CHART_IS_AN_ISOMETRY",
        "J_CRMS is not symmetric: J_CRMS^T = D^T J_RMS(Dz) E^T, as D^T is not E",
    ),
    citation=f"{OURS}, after {JIANG}",
    used_in=("GRADIENTS_ARE_PULLED_BACK_THROUGH_CHARTS", "training in a chart"),
)
def JACOBIANS_IN_CHARTS(s: Statement) -> None:
    """The short norms' Jacobians are LayerNorm's, pulled back through their charts."""
    i = s.index()
    z, h, u = s.arrays("z h u", i)
    (eps,) = s.numbers("eps", positive=True)
    ar, wide = RowArithmetic((i,)), RowArithmetic((i, None))
    row_z, row_h = decompressed(ar, z), decompressed(ar, h)
    y = crms_norm(ar, z, 1, 0, eps)
    s.equal(
        "CRMSNorm",
        ("D CRMSNorm(z)", derivative(y, "z", "h")),
        ("E J_RMS(Dz) Dh", rms_jacobian(wide, row_z, eps, row_h).parts[0]),
        (
            "Dz and Dh sum to 0: E J_LN(Dz) Dh",
            layer_norm_jacobian(wide, row_z, eps, row_h).parts[0],
        ),
        free=[i],
    )
    s.differ(
        "CRMSNorm's Jacobian is not symmetric",
        ar.sum(u * derivative(y, "z", "h")),
        ar.sum(h * derivative(y, "z", "u")),
        dims={"n": 2},
        values={"z": [1, 0], "h": [0, 1], "u": [1, 0], "eps": Fraction(1, 3)},
    )
    qz, qh = chart(ar, z), chart(ar, h)
    normed = layer_norm(wide, qz, 1, 0, eps)
    of_each_block(
        s,
        "LayerNorm of a row in the isometric chart",
        wide,
        ("D LN(Qz)", Blocks(tuple(derivative(part, "z", "h") for part in normed.parts))),
        ("LN(Qz) = Q narrow(z): Q J_narrow(z) h", chart(ar, narrow_jacobian(ar, z, eps, h))),
        ("Qz and Qh sum to 0: J_RMS(Qz) Qh", rms_jacobian(wide, qz, eps, qh)),
    )
    s.equal(
        "where J_narrow is the narrow norm's",
        ("D narrow(z)", derivative(narrow_rms_norm(ar, z, 1, 0, eps), "z", "h")),
        ("r (h - z r^2 <z, h>/d)", narrow_jacobian(ar, z, eps, h)),
        free=[i],
    )


def narrow_jacobian(ar: RowArithmetic, z: Value, eps: Value, h: Value) -> Value:
    """J_narrow(z) h = r (h - z_hat <z_hat, h>/d), for z of length d-1 and weight 1."""
    d = ar.length(z) + 1
    z_hat = narrow_rms_norm(ar, z, 1, 0, eps)
    r = rstd_eps_inside(ar, ar.sum(z * z) / d, eps)
    return r * (h - z_hat * (ar.sum(z_hat * h) / d))
