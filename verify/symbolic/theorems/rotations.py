"""Rotations, scales and lengths: which maps pass through a norm, and how long its rows are."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.norms.catalogue import BA, ZHANG
from verify.norms.forward import layer_norm, mean, rms_norm, rstd_eps_inside
from verify.symbolic.language import Blocks, RowArithmetic, Statement, total
from verify.symbolic.theorem import theorem
from verify.symbolic.theorems.centring import FOLKLORE, OURS, centred, row, variance

REFLECTIONS = (
    "H = I - 2 v v^T / <v,v> for any v that is not 0",
    "every orthogonal map is a product of reflections (Cartan, Dieudonné)",
)
FLASH_NORM = "Graef et al. 2024 (FlashNorm), arXiv:2407.09577"


def reflected(ar: RowArithmetic, v: Any, x: Any) -> Any:
    """H x = x - 2 v <v,x> / <v,v>, the reflection of x along v."""
    return x - v * (2 * ar.sum(v * x) / ar.sum(v * v))


def reflected_ones(ar: RowArithmetic, v: Any) -> Any:
    """H 1, the row of ones reflected along v: it says what H does to sums."""
    return 1 - v * (2 * ar.sum(v) / ar.sum(v * v))


@theorem(
    statement=r"\|Hx\| = \|x\|,\quad HHx = x,\quad"
    r" \mathrm{RMS}(Hx;\varepsilon) = H\,\mathrm{RMS}(x;\varepsilon)",
    hypotheses=(*REFLECTIONS, "weight 1 or folded into the reader, and bias 0"),
    citation="Ashkboos et al. 2024 (SliceGPT), arXiv:2401.15024, for orthogonal Q",
    used_in=("THE_SAME_WIDTH_NEEDS_A_FREE_DIRECTION", "rotating models before quantising them"),
)
def ROTATIONS_COMMUTE_WITH_RMS_NORM(s: Statement) -> None:
    """RMSNorm sees a row's length only, so it commutes with every orthogonal map."""
    i = s.index()
    x, v = s.arrays("x v", i)
    (gain,) = s.numbers("gain")
    (eps,) = s.numbers("eps", positive=True)
    ar = RowArithmetic((i,))
    hx = reflected(ar, v, x)
    s.equal("H is its own inverse", ("H(Hx)", reflected(ar, v, hx)), ("x", x), free=[i])
    s.equal(
        "H keeps the mean square",
        ("mean((Hx)^2)", mean(ar, hx * hx)),
        ("H is symmetric: <x, HHx> / d", mean(ar, x * reflected(ar, v, hx))),
        ("mean(x^2)", mean(ar, x * x)),
    )
    s.equal(
        "RMSNorm of a reflected row",
        ("RMSNorm(Hx)", rms_norm(ar, hx, gain, 0, eps)),
        ("Hx has the length of x", hx * rstd_eps_inside(ar, mean(ar, x * x), eps) * gain),
        ("H RMSNorm(x)", reflected(ar, v, rms_norm(ar, x, gain, 0, eps))),
        free=[i],
    )


@theorem(
    statement=r"PHx - HPx = -\frac{2\,\bar v}{\langle v,v\rangle}"
    r"\big((\mathbf 1^\top x)\,Pv - \langle Pv, x\rangle\,\mathbf 1\big)",
    hypotheses=(
        *REFLECTIONS,
        "the gap is 0 for all x if and only if mean v = 0 (H 1 = 1) or Pv = 0 (H 1 = -1)",
    ),
    citation=OURS,
    used_in=("rotating models: LayerNorm has to be made RMSNorm first",),
)
def ROTATIONS_DO_NOT_COMMUTE_WITH_LAYER_NORM(s: Statement) -> None:
    """A reflection commutes with LayerNorm if and only if it fixes the row of ones up to a sign."""
    i = s.index()
    x, v = s.arrays("x v", i)
    gain, c = s.numbers("gain c")
    (eps,) = s.numbers("eps", positive=True)
    ar = RowArithmetic((i,))
    level, mean_v = centred(ar, v), mean(ar, v)
    s.equal(
        "what a reflection does to the row of ones, it does to sums",
        ("sum of Hx", ar.sum(reflected(ar, v, x))),
        ("H is symmetric: <H 1, x>", ar.sum(reflected_ones(ar, v) * x)),
        (
            "sum x - 2 <v, x> sum v / <v, v>",
            ar.sum(x) - 2 * ar.sum(v * x) * ar.sum(v) / ar.sum(v * v),
        ),
    )
    along, across = ar.sum(v * v), ar.sum(level * x)
    s.equal(
        "centring and a reflection commute up to a multiple of mean v and of Pv",
        (
            "PHx - HPx",
            centred(ar, reflected(ar, v, x)) - reflected(ar, v, centred(ar, x)),
        ),
        (
            "the reflected parts alone",
            2 * v * across / along - 2 * level * ar.sum(v * x) / along,
        ),
        ("v = Pv + mean v", -2 * mean_v / along * (level * ar.sum(x) - across)),
        free=[i],
    )
    turned, passed = (reflected(ar, level, z) for z in (x, centred(ar, x)))
    s.equal(
        "a reflection along a zero-sum row fixes the row of ones: it passes centring",
        ("PHx", centred(ar, turned)),
        ("sum Hx = sum x", turned - mean(ar, x)),
        ("HPx", passed),
        free=[i],
    )
    s.equal(
        "and keeps the variance",
        ("var Hx", variance(ar, turned)),
        ("mean square of HPx", mean(ar, passed * passed)),
        ("var x", variance(ar, x)),
    )
    normed = layer_norm(ar, x, gain, 0, eps)
    s.equal(
        "so it passes LayerNorm",
        (
            "LayerNorm(Hx): its variance is that of x",
            centred(ar, turned) * rstd_eps_inside(ar, variance(ar, x), eps) * gain,
        ),
        ("H LayerNorm(x)", reflected(ar, level, normed)),
        free=[i],
    )
    s.equal(
        "a reflection along the row of ones turns the mean over, which LayerNorm does not see",
        ("LayerNorm(x - 2 mean x + c)", layer_norm(ar, x - 2 * mean(ar, x) + c, gain, 0, eps)),
        ("LayerNorm(x)", normed),
        free=[i],
    )
    s.differ(
        "a reflection that moves the row of ones does not pass",
        layer_norm(ar, reflected(ar, v, x), gain, 0, eps),
        reflected(ar, v, normed),
        free=[i],
        dims={"n": 2},
        values={"x": [1, -1], "v": [1, 0], "gain": 1, "eps": Fraction(9, 16)},
        index=(0,),
    )


@theorem(
    statement=r"\mathrm{RMS}(cx;c^2\varepsilon) = \mathrm{RMS}(x;\varepsilon),\quad"
    r" \mathrm{RMS}(cx;0) = \mathrm{RMS}(x;0)\quad (c>0)",
    hypotheses=("c > 0; x is not 0 where eps = 0", "a sign is odd: RMS(-x) = -RMS(x)"),
    citation=f"{ZHANG}, table 1 (re-scaling of the row); eps: {OURS}",
    used_in=("choosing eps after a change of scale", "the laws that `verify audit` tries"),
)
def RMS_NORM_IS_ZERO_HOMOGENEOUS(s: Statement) -> None:
    """A positive scale passes RMSNorm without a trace, if eps is scaled by its square."""
    i, ar, symbols = row(s)
    x, weight, bias, eps = (symbols[k] for k in ("x", "weight", "bias", "eps"))
    (c,) = s.numbers("c", positive=True)
    scaled = rstd_eps_inside(ar, c * c * mean(ar, x * x), c * c * eps)
    s.equal(
        "eps is measured in squares of x",
        ("RMSNorm(c x; c^2 eps)", rms_norm(ar, c * x, weight, bias, c * c * eps)),
        ("c leaves the mean square", c * x * scaled * weight + bias),
        ("sqrt(c^2 v) = c sqrt(v): RMSNorm(x; eps)", rms_norm(ar, x, weight, bias, eps)),
        free=[i],
    )
    s.equal(
        "with the same eps, the smaller row is the more damped",
        ("RMSNorm(c x; eps)", rms_norm(ar, c * x, weight, bias, eps)),
        ("RMSNorm(x; eps / c^2)", rms_norm(ar, x, weight, bias, eps / (c * c))),
        free=[i],
    )
    s.equal(
        "without eps, a scale passes and a sign stays",
        ("RMSNorm(-c x; 0)", rms_norm(ar, -c * x, weight, bias, 0)),
        ("RMSNorm(x; 0) with weight -weight", rms_norm(ar, x, -weight, bias, 0)),
        free=[i],
    )


@theorem(
    statement=r"\mathrm{LN}(cx + t\mathbf 1;c^2\varepsilon) = \mathrm{LN}(x;\varepsilon),\quad c>0",
    hypotheses=("c > 0, t any number; x is not constant where eps = 0",),
    citation=f"{BA}, and table 1; eps: {OURS}",
    used_in=("choosing eps after a change of scale", "the laws that `verify audit` tries"),
)
def LAYER_NORM_IS_AFFINE_INVARIANT(s: Statement) -> None:
    """LayerNorm does not see a positive scale and a shift of a row, if eps follows the scale."""
    i, ar, symbols = row(s, "t")
    x, weight, bias, eps = (symbols[k] for k in ("x", "weight", "bias", "eps"))
    (c,) = s.numbers("c", positive=True)
    moved = c * x + symbols["t"]
    s.equal(
        "the variance",
        ("var(c x + t)", variance(ar, moved)),
        ("the shift leaves the centred row", variance(ar, c * x)),
        ("c^2 var x", c * c * variance(ar, x)),
    )
    s.equal(
        "LayerNorm of c x + t",
        ("LayerNorm(c x + t; c^2 eps)", layer_norm(ar, moved, weight, bias, c * c * eps)),
        (
            "c^2 leaves the root",
            c * centred(ar, x) * (rstd_eps_inside(ar, variance(ar, x), eps) / c) * weight + bias,
        ),
        ("LayerNorm(x; eps)", layer_norm(ar, x, weight, bias, eps)),
        free=[i],
    )
    s.equal(
        "a negative scale turns the row over",
        (
            "LayerNorm(t - c x; c^2 eps)",
            layer_norm(ar, symbols["t"] - c * x, weight, bias, c * c * eps),
        ),
        ("LayerNorm(x) with weight -weight", layer_norm(ar, x, -weight, bias, eps)),
        free=[i],
    )


@theorem(
    statement=r"\textstyle\sum_j W_{kj}\,\mathrm{RMS}(x;\gamma,\beta)_j + b_k"
    r" = r\,\sum_j (W_{kj}\gamma_j)\,x_j + \big(b_k + \sum_j W_{kj}\beta_j\big)",
    hypotheses=("r = 1 / sqrt(mean(x^2) + eps), one number for each row",),
    citation=FLASH_NORM,
    used_in=("kernels that scale after the matrix product", "folding the affine part"),
)
def DEFERRED_SCALE(s: Statement) -> None:
    """The scale of a norm may wait until after the linear reader, and its affine part goes in."""
    i, ar, symbols = row(s)
    s.dimension("m")
    k = s.index("m")
    (a,) = s.arrays("A", k, i)
    (b,) = s.arrays("b", k)
    x, weight, bias, eps = (symbols[name] for name in ("x", "weight", "bias", "eps"))
    folded_bias = total(i, a * bias) + b
    for name, norm, read, square in (
        ("RMSNorm", rms_norm, x, mean(ar, x * x)),
        ("LayerNorm", layer_norm, centred(ar, x), variance(ar, x)),
    ):
        r = rstd_eps_inside(ar, square, eps)
        s.equal(
            f"a linear reader of {name}",
            (f"A {name}(x) + b", total(i, a * norm(ar, x, weight, bias, eps)) + b),
            ("the bias is read once", total(i, a * (read * weight * r)) + folded_bias),
            ("r leaves the sum", r * total(i, a * weight * read) + folded_bias),
            free=[k],
        )
    folded = total(i, (a * weight - mean(ar, a * weight)) * x)
    s.equal(
        "for LayerNorm the mean goes into the folded matrix as well",
        ("A diag(w) Px", total(i, a * weight * centred(ar, x))),
        ("the rows of A diag(w), centred, times x", folded),
        free=[k],
    )


@theorem(
    statement=r"\|\mathrm{RMS}(x;\varepsilon)\|^2 = d\,\frac{v}{v+\varepsilon} \le d,\quad"
    r" |\mathrm{RMS}(x)_i| \le \sqrt d,\quad |\mathrm{LN}(x)_i| \le \sqrt{d-1}",
    hypotheses=("weight 1, bias 0; v = mean(x^2), for LayerNorm the variance", "d = n + 1"),
    citation=FOLKLORE,
    used_in=("ranges of formats", "the range of inputs of a linear reader"),
)
def NORMALISED_ROWS_ARE_BOUNDED(s: Statement) -> None:
    """A normalised row has length sqrt(d) at most, and equal to it if and only if eps is 0."""
    i = s.index()
    (x,) = s.arrays("x", i)
    (t,) = s.numbers("t")
    (eps,) = s.numbers("eps", positive=True)
    ar, wide = RowArithmetic((i,)), RowArithmetic((i, None))
    d, square, y = ar.length(x), mean(ar, x * x), rms_norm(ar, x, 1, 0, eps)
    s.at_least(
        "the squared length is d less what eps takes",
        ("d - |y|^2", d - ar.sum(y * y)),
        ("|y|^2 = d v / (v + eps)", d - d * square / (square + eps)),
        ("d eps / (v + eps)", d * eps / (square + eps)),
    )
    # An element is called the last of a row of n + 1, as a norm does not see the order.
    whole = Blocks((x, t))
    largest, square = rms_norm(wide, whole, 1, 0, eps).parts[1], mean(wide, whole * whole)
    s.at_least(
        "an element of RMSNorm",
        ("d - y_i^2", (d + 1) - largest * largest),
        ("over v + eps", ((d + 1) * (square + eps) - t * t) / (square + eps)),
        ("the others' squares", (ar.sum(x * x) + (d + 1) * eps) / (square + eps)),
    )
    level, spread = centred(wide, whole), centred(ar, x)
    y, square = layer_norm(wide, whole, 1, 0, eps).parts[1], mean(wide, level * level)
    others = ar.sum(spread * spread) * d / (d + 1)
    s.at_least(
        "an element of LayerNorm",
        ("(d-1) - y_i^2", d - y * y),
        ("over var + eps", (d * (square + eps) - level.parts[1] * level.parts[1]) / (square + eps)),
        ("the others' deviations from their own mean", (others + d * eps) / (square + eps)),
    )
    one_hot = Blocks((0 * x, t))
    y = layer_norm(wide, one_hot, 1, 0, 0)
    s.equal(
        "both bounds are attained by a row with one element, without eps",
        ("LayerNorm(0, t)^2 + RMSNorm(0, t)^2", y.parts[1] * y.parts[1] + (d + 1)),
        ("(d - 1) + d", d + (d + 1)),
    )
