"""Wrong backward kernels: by how much each is off, and a row that shows it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.norms.catalogue import FORMULAS
from verify.norms.forward import (
    layer_norm,
    length_minus_one,
    mean,
    rms_norm,
    rstd_eps_inside,
    rstd_without_eps,
)
from verify.symbolic.language import Statement
from verify.symbolic.theorem import theorem
from verify.symbolic.theorems.centring import OURS, centred
from verify.symbolic.theorems.gradients import AUDIT, directed
from verify.symbolic.theorems.jacobians import NOTATION, rms_rstd

KERNELS = (AUDIT, "wrong backward kernels")


@theorem(
    statement=r"r\,g - dx = r\,\hat x\,\overline{\hat xg},\qquad"
    r" r\big(g-\tfrac{\hat x}{d-1}\textstyle\sum\hat xg\big) - dx"
    r" = -\tfrac{r\,\hat x}{d-1}\,\overline{\hat xg}",
    hypotheses=(NOTATION, "g = weight dy; for the divisor d - 1, d >= 2"),
    citation=OURS,
    used_in=KERNELS,
)
def BACKWARD_WITHOUT_THE_PROJECTION(s: Statement) -> None:
    """A backward pass that takes r for a constant, or divides the projection by d-1, is wrong."""
    i, ar, symbols = directed(s)
    x, eps, dy, weight = (symbols[name] for name in ("x", "eps", "dy", "weight"))
    dx = FORMULAS["rms_norm_backward"](ar, **symbols)[0]
    r, x_hat, g = rms_rstd(ar, x, eps), rms_norm(ar, x, 1, 0, eps), dy * weight
    s.equal(
        "r for a constant",
        ("r g - dx", r * g - dx),
        ("r x_hat mean(x_hat g)", r * x_hat * mean(ar, x_hat * g)),
        free=[i],
    )
    less = length_minus_one(ar, x)
    narrow = r * (g - x_hat * (ar.sum(x_hat * g) / less))
    s.equal(
        "the projection divided by d-1",
        ("r (g - x_hat <x_hat, g>/(d-1)) - dx", narrow - dx),
        ("-r x_hat mean(x_hat g)/(d-1)", -r * x_hat * mean(ar, x_hat * g) / less),
        free=[i],
    )
    outside = weight * r * (dy - x_hat * mean(ar, x_hat * dy))
    s.equal(
        "the weight after the projection instead of before it",
        ("weight r (dy - x_hat mean(x_hat dy)) - dx", outside - dx),
        (
            "r x_hat (mean(x_hat g) - weight mean(x_hat dy))",
            r * x_hat * (mean(ar, x_hat * g) - weight * mean(ar, x_hat * dy)),
        ),
        free=[i],
    )
    witness: dict[str, Any] = {"free": [i], "dims": {"n": 2}, "index": (0,)}
    witness["values"] = {"x": [1, 7], "weight": [1, 2], "dy": [1, 1], "eps": 144}
    s.differ("no gradient: without the projection", r * g, dx, **witness)
    s.differ("no gradient: the projection divided by d-1", narrow, dx, **witness)
    s.differ("no gradient: the weight after the projection", outside, dx, **witness)


@theorem(
    statement=r"r\Big(g-\frac{x\,\overline{xg}}{v}\Big) - dx"
    r" = -\varepsilon\,r^3\,\frac{x\,\overline{xg}}{v},\quad"
    r" dx = r\big(g - r^2 x\,\overline{xg}\big)",
    hypotheses=(NOTATION, "g = weight dy; the row is not 0"),
    citation=OURS,
    used_in=KERNELS,
)
def EPS_FORGOTTEN_IN_BACKWARD(s: Statement) -> None:
    """The projection is r^3, not r/v: with 1/v a backward pass loses the gradient along the row."""
    i, ar, symbols = directed(s)
    x, eps, g = symbols["x"], symbols["eps"], symbols["dy"] * symbols["weight"]
    dx, dweight, _ = FORMULAS["rms_norm_backward"](ar, **symbols)
    r, v, along = rms_rstd(ar, x, eps), mean(ar, x * x), mean(ar, x * g)
    forgotten = r * (g - x * along / v)
    s.equal(
        "eps forgotten in the projection",
        ("r (g - x mean(x g)/v) - dx", forgotten - dx),
        ("1/v - r^2 = eps r^2/v", -r * x * along * (eps * r * r / v)),
        free=[i],
    )
    s.equal(
        "what is lost is the gradient along the row",
        ("<x, r (g - x mean(x g)/v)>", ar.sum(x * forgotten)),
        ("0, where <x, dx> = eps r^3 <x, g>", ar.sum(x * dx) - eps * r * r * r * ar.sum(x * g)),
        ("0", 0),
    )
    saved, saved_dweight, _ = FORMULAS["rms_norm_backward"](ar, **symbols | {"eps": 0})
    q = rstd_without_eps(ar, v, eps)
    s.equal(
        "a saved rstd that misses eps",
        ("dx from q = 1/sqrt(v)", saved),
        ("q (g - x mean(x g)/v)", q * (g - x * along / v)),
        free=[i],
    )
    witness: dict[str, Any] = {"free": [i], "dims": {"n": 2}, "index": (0,)}
    witness["values"] = {"x": [1, 7], "weight": [1, 2], "dy": [1, 1], "eps": 144}
    s.differ("no gradient: eps forgotten in the projection", forgotten, dx, **witness)
    s.differ("no gradient: dx from a saved rstd that misses eps", saved, dx, **witness)
    s.differ(
        "no gradient: dweight from a saved rstd that misses eps", saved_dweight, dweight, **witness
    )


@theorem(
    statement=r"dx_{\mathrm{RMS}}(Px, dy) - dx_{\mathrm{LN}}(x, dy) = r\,\bar g\,\mathbf 1",
    hypotheses=(NOTATION, "g = weight dy; the gap is 0 if and only if the mean of g is 0"),
    citation=OURS,
    used_in=KERNELS,
)
def BACKWARD_WITHOUT_THE_MEAN(s: Statement) -> None:
    """RMSNorm's backward kernel at the centred row is LayerNorm's, but for the mean of g."""
    i, ar, symbols = directed(s)
    x, eps, g = symbols["x"], symbols["eps"], symbols["dy"] * symbols["weight"]
    dx = FORMULAS["layer_norm_backward"](ar, **symbols)[0]
    without = FORMULAS["rms_norm_backward"](ar, **symbols | {"x": centred(ar, x)})[0]
    r = rms_rstd(ar, centred(ar, x), eps)
    s.equal(
        "without the mean of g",
        ("RMSNorm's dx at Px, less LayerNorm's dx", without - dx),
        ("r mean(g)", r * mean(ar, g)),
        free=[i],
    )
    s.equal(
        "it is put right by centring, and by nothing else",
        ("P RMSNorm's dx at Px", centred(ar, without)),
        ("LayerNorm's dx", dx),
        free=[i],
    )
    x_hat, not_centred = layer_norm(ar, x, 1, 0, eps), x * r
    wrong = r * (g - mean(ar, g) - not_centred * mean(ar, g * not_centred))
    gap = mean(ar, x) * r
    s.equal(
        "x r for x_hat",
        ("r (g - mean g - x r mean(x r g)) - dx", wrong - dx),
        (
            "x r = x_hat + mean(x) r",
            -r * (x_hat * gap * mean(ar, g) + gap * (mean(ar, g * x_hat) + gap * mean(ar, g))),
        ),
        free=[i],
    )
    witness: dict[str, Any] = {"free": [i], "dims": {"n": 2}, "index": (0,)}
    witness["values"] = {"x": [3, 1], "weight": [1, 2], "dy": [1, 1], "eps": Fraction(9, 16)}
    s.differ("no gradient: without the mean of g", without, dx, **witness)
    s.differ("no gradient: x r for x_hat", wrong, dx, **witness)


@theorem(
    statement=r"dz_{\mathrm{RMS\text{-}like}} - dz_{\mathrm{CRMS}}"
    r" = \tfrac{r^3}d\,\big(\textstyle\sum z\big)\big(\sum gz\big)\,\mathbf 1",
    hypotheses=("g = weight dy, r = 1 / sqrt((|z|^2 + (sum z)^2)/d + eps), d = n + 1",),
    citation=OURS,
    used_in=KERNELS,
)
def CRMS_BACKWARD_WITHOUT_THE_SUM(s: Statement) -> None:
    """CRMSNorm's gradient is not RMSNorm's with another r: the dropped element moves with z."""
    i, ar, symbols = directed(s)
    z, eps, g = symbols["x"], symbols["eps"], symbols["dy"] * symbols["weight"]
    dz = FORMULAS["crms_norm_backward"](ar, **symbols)[0]
    d, dropped = ar.length(z) + 1, ar.sum(z)
    r = rstd_eps_inside(ar, (ar.sum(z * z) + dropped * dropped) / d, eps)
    wrong = r * (g - z * (r * r * (ar.sum(g * z) / d)))
    s.equal(
        "the gap is one number for the whole row",
        ("r (g - z r^2 <z, g>/d) - dz", wrong - dz),
        ("r^3 sum z <z, g>/d", r * r * r * dropped * ar.sum(g * z) / d),
        free=[i],
    )
    s.differ(
        "no gradient: without the sum",
        wrong,
        dz,
        free=[i],
        dims={"n": 2},
        values={"x": [1, 1], "weight": [1, 1], "dy": [1, 1], "eps": 2},
        index=(0,),
    )
