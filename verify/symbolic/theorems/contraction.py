"""How much of a gradient a norm lets through: at most r = 1/sqrt(v + eps) of it, and none back."""

from __future__ import annotations

from verify.formula import Value
from verify.norms.forward import layer_norm, mean, rms_norm
from verify.symbolic.language import Index, Statement, total
from verify.symbolic.theorem import theorem
from verify.symbolic.theorems.centring import OURS, centred, row
from verify.symbolic.theorems.jacobians import (
    NOTATION,
    layer_norm_jacobian,
    rms_jacobian,
    rms_rstd,
)


@theorem(
    statement=r"|J h|^2 \le r^2\,|h|^2 \le |h|^2/\varepsilon,\qquad"
    r" r^2|h|^2 - |J_{\mathrm{RMS}}h|^2 = r^2\,d\,\mathrm{mean}(\hat x h)^2\,(1+\varepsilon r^2)",
    hypotheses=(NOTATION, "weight 1; equality for h orthogonal to x, and of mean 0 for LayerNorm"),
    citation=OURS,
    used_in=("Lipschitz constants of Pre-LN networks", "exploding gradients of short rows"),
)
def NORMS_CONTRACT_GRADIENTS(s: Statement) -> None:
    """A norm stretches no direction more than r times, and r is 1/sqrt(eps) at most."""
    i, ar, symbols = row(s)
    x, eps = symbols["x"], symbols["eps"]
    (h,) = s.arrays("h", i)
    r, d = rms_rstd(ar, x, eps), ar.length(x)
    along = mean(ar, rms_norm(ar, x, 1, 0, eps) * h)
    jh, damped = rms_jacobian(ar, x, eps, h), 1 + eps * r * r
    s.at_least(
        "RMSNorm stretches no direction more than r times",
        ("r^2 |h|^2 - |J h|^2", r * r * ar.sum(h * h) - ar.sum(jh * jh)),
        ("r^2 d mean(x_hat h)^2 (1 + eps r^2)", r * r * d * (along * along) * damped),
    )
    s.at_least(
        "and none more than 1/sqrt(eps) times",
        ("|h|^2 / eps - |J h|^2", ar.sum(h * h) / eps - ar.sum(jh * jh)),
        (
            "1/eps - r^2 = r^2 mean(x^2) / eps",
            r * r * mean(ar, x * x) / eps * ar.sum(h * h) + r * r * d * (along * along) * damped,
        ),
    )
    square = ar.sum(x * x)
    across = h - x * (ar.sum(x * h) / square)
    s.equal(
        "r is attained, on every direction orthogonal to x",
        ("J (h - x <x, h>/|x|^2)", rms_jacobian(ar, x, eps, across)),
        ("r (h - x <x, h>/|x|^2)", r * across),
        free=[i],
    )
    r, level = rms_rstd(ar, centred(ar, x), eps), mean(ar, h)
    along = mean(ar, layer_norm(ar, x, 1, 0, eps) * h)
    jh, damped = layer_norm_jacobian(ar, x, eps, h), 1 + eps * r * r
    s.at_least(
        "LayerNorm stretches no direction more than r times",
        ("r^2 |h|^2 - |J h|^2", r * r * ar.sum(h * h) - ar.sum(jh * jh)),
        (
            "|h|^2 = |Ph|^2 + d mean(h)^2",
            r * r * d * (along * along) * damped + r * r * d * (level * level),
        ),
    )
    c, ph = centred(ar, x), centred(ar, h)
    across = ph - c * (ar.sum(c * h) / ar.sum(c * c))
    s.equal(
        "which it attains on every row of mean 0 that is orthogonal to Px",
        ("J (Ph - Px <Px, h>/|Px|^2)", layer_norm_jacobian(ar, x, eps, across)),
        ("r (Ph - Px <Px, h>/|Px|^2)", r * across),
        free=[i],
    )


@theorem(
    statement=r"\langle h, J_{\mathrm{RMS}}h\rangle = \varepsilon r^3|h|^2"
    r" + \frac r{2d}\sum_{ij}(\hat x_i h_j - \hat x_j h_i)^2 \ge \varepsilon r^3|h|^2",
    hypotheses=(NOTATION, "weight 1; Lagrange's identity is the sum over pairs"),
    citation=OURS,
    used_in=("the potentials of NORMS_ARE_GRADIENTS are convex",),
)
def JACOBIANS_ARE_POSITIVE(s: Statement) -> None:
    """No direction is turned back: the Jacobian is positive, eps r^3 at least for RMSNorm."""
    i, ar, symbols = row(s)
    x, eps = symbols["x"], symbols["eps"]
    (h,) = s.arrays("h", i)
    r, d, squares = rms_rstd(ar, x, eps), ar.length(x), ar.sum(h * h)
    x_hat = rms_norm(ar, x, 1, 0, eps)
    form = ar.sum(h * rms_jacobian(ar, x, eps, h))
    lengths = ar.sum(x_hat * x_hat) * squares - ar.sum(x_hat * h) * ar.sum(x_hat * h)
    s.at_least(
        "RMSNorm",
        ("<h, J h> - eps r^3 |h|^2", form - eps * r * r * r * squares),
        ("|x_hat|^2/d = 1 - eps r^2", r * lengths / d),
        ("Lagrange: half the sum over pairs", r * _pairs(s, x_hat, h, i) / (2 * d)),
    )
    c, ph = centred(ar, x), centred(ar, h)
    r, squares = rms_rstd(ar, c, eps), ar.sum(ph * ph)
    s.at_least(
        "LayerNorm",
        ("<h, J h>", ar.sum(h * layer_norm_jacobian(ar, x, eps, h))),
        (
            "eps r^3 |Ph|^2 and half the sum over pairs",
            eps * r * r * r * squares
            + r * _pairs(s, layer_norm(ar, x, 1, 0, eps), ph, i) / (2 * d),
        ),
    )


def _pairs(s: Statement, a: Value, b: Value, i: Index) -> Value:
    """sum_ij (a_i b_j - a_j b_i)^2, twice Lagrange's sum over pairs."""
    j = s.index()
    minor = a * b.at(i, j) - a.at(i, j) * b
    return total(i, total(j, minor * minor))
