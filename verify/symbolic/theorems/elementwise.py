"""Element-wise replacements of norms: what they cannot be, how far they are off, where they stop.

A replacement such as DyT acts on each element of a row by itself, y_i = f(x_i). Rows of d = n + 1
elements are written as n elements and a last one, which is any element, as a norm sees no order.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.norms.backward import dyisru_backward, dyt_backward
from verify.norms.catalogue import STOLLENWERK, ZHU
from verify.norms.forward import derf, dyisru, dyt, layer_norm, mean, rms_norm
from verify.symbolic.language import (
    Blocks,
    Expression,
    Index,
    RowArithmetic,
    Statement,
    apply,
    derivative,
    lift,
    sqrt,
    total,
)
from verify.symbolic.theorem import theorem
from verify.symbolic.theorems.centring import FOLKLORE, OURS

WIDTH = "d = n + 1 >= 2; f is any function, with any gain, bias and slope of its own in it"
AUDIT = "the audit of element-wise replacements"
ONE = RowArithmetic((None,))
FORMATS = {"float32": 24, "float16": 11, "bfloat16": 8, "float8_e4m3fn": 4, "float8_e5m2": 3}


def split_row(s: Statement) -> tuple[Index, RowArithmetic, Expression, Expression, Expression]:
    """An index, the arithmetic of rows of n + 1 elements, and x of n elements, t, and eps > 0."""
    i = s.index()
    (x,), (t,), (eps,) = s.arrays("x", i), s.numbers("t"), s.numbers("eps", positive=True)
    return i, RowArithmetic((i, None)), x, t, eps


@theorem(
    statement=r"\max\big(|f(t)-\gamma a|,|f(t)-\gamma b|\big) \ge \tfrac12|\gamma||a-b|:\quad"
    r" \mathrm{RMS}(0,t)_d=\sqrt d,\ \mathrm{RMS}(ct\mathbf 1,t)_d=\sqrt{\tfrac d{1+nc^2}}\ (t>0)",
    hypotheses=(
        WIDTH,
        "eps = 0; with c = 1 the two rows are t e_d and t 1: off by |gamma| (sqrt(d) - 1) / 2",
        "as c grows the bound tends to |gamma| sqrt(d) / 2, all that a constant needs for t > 0",
        "the larger of two squares is at least their mean",
    ),
    citation=OURS,
    used_in=(AUDIT, "comparing DyT, Derf and DyISRU with the norm that they replace"),
)
def A_REPLACEMENT_MISSES_SOME_ROW(s: Statement) -> None:
    """Two rows share an element, but not its normalised value: no element-wise f can give both."""
    i, ar, x, _, _ = split_row(s)
    gain, bias, c = s.numbers("gain bias c")
    (tau,) = s.numbers("tau", positive=True)
    n, f = RowArithmetic((i,)).length(x), apply("f", tau)

    def last(row_head: Any) -> Any:
        return rms_norm(ar, Blocks((row_head, tau)), gain, bias, 0).parts[1]

    one_hot, constant = last(lift(0)), last(c * tau)
    peak, height = sqrt(1 + n), sqrt((1 + n) / (1 + n * (c * c)))
    s.equal(
        "the last element of RMSNorm, of t e_d and of (c t 1, t)",
        ("their difference", one_hot - constant),
        ("gain (sqrt(d) - sqrt(d / (1 + n c^2)))", gain * (peak - height)),
    )
    s.equal(
        "of the constant row t 1",
        ("RMS(t 1)", last(tau)),
        ("gain + bias", gain + bias),
    )
    for name, other, value in (("(c t 1, t)", constant, height), ("t 1", last(tau), lift(1))):
        middle, distance = f - bias - gain * (peak + value) / 2, gain * (peak - value)
        s.at_least(
            f"the squared errors of f at t e_d and at {name}",
            (
                "their sum, less half the squared distance",
                (f - one_hot) * (f - one_hot) + (f - other) * (f - other) - distance * distance / 2,
            ),
            ("twice the squared distance of f from the middle", 2 * (middle * middle)),
        )


@theorem(
    statement=r"\mathrm{LN}(t\mathbf 1\mp c(\mathbf 1-e_d))_d=\pm\sqrt{d-1}\ (c>0),\quad"
    r" |\mathrm{LN}(x)_i|\le\sqrt{d-1} \;\Rightarrow\;"
    r" \sup_x|f(x_i)-\mathrm{LN}(x)_i| \ge \sqrt{d-1} = \sup_x|0-\mathrm{LN}(x)_i|",
    hypotheses=(WIDTH, "eps = 0, weight 1; the upper bound is NORMALISED_ROWS_ARE_BOUNDED"),
    citation=OURS,
    used_in=(AUDIT, "comparing DyT and Derf with the LayerNorm that they replace"),
)
def NO_REPLACEMENT_OF_LAYER_NORM_BEATS_ZERO(s: Statement) -> None:
    """In the worst case no element-wise function is closer to LayerNorm than the constant 0."""
    i, ar, _, t, _ = split_row(s)
    (c,) = s.numbers("c", positive=True)
    f, n = apply("f", t), RowArithmetic((i,)).length(t)

    def last(step: Any) -> Any:
        return layer_norm(ar, Blocks((t + step, t)), 1, 0, 0).parts[1]

    s.equal("t below the others", ("LN(t + c, ..., t)", last(c)), ("-sqrt(d-1)", -sqrt(n)))
    s.equal("t above the others", ("LN(t - c, ..., t)", last(-c)), ("sqrt(d-1)", sqrt(n)))
    low, high = f + sqrt(n), f - sqrt(n)
    s.at_least(
        "the squared errors of f at the two rows",
        (
            "their sum, less 2 (d-1)",
            (f - last(c)) * (f - last(c)) + (f - last(-c)) * (f - last(-c)) - 2 * n,
        ),
        ("(f + sqrt(d-1))^2 + (f - sqrt(d-1))^2 - 2 (d-1)", low * low + high * high - 2 * n),
        ("2 f^2", 2 * (f * f)),
    )


@theorem(
    statement=r"\gamma^*=\frac{\sum_t y_tz_t}{\sum_t z_t^2}:"
    r"\quad \sum_t(y_t-\gamma^*z_t)z_t=0,\quad"
    r" \sum_t(y_t-\gamma z_t)^2=\sum_t(y_t-\gamma^*z_t)^2+(\gamma-\gamma^*)^2\sum_tz_t^2",
    hypotheses=(
        "for one channel: y_t is the norm's output, z_t = tanh(alpha x_t) at token t, alpha given",
        "z is not 0 at all tokens; for beta, not the same at all tokens",
    ),
    citation=f"{FOLKLORE} (least squares), for the gain and bias of {ZHU}",
    used_in=("initialising a replacement from a trained norm",),
)
def THE_LEAST_SQUARES_GAIN_OF_A_REPLACEMENT(s: Statement) -> None:
    """The best gain is sum y z / sum z^2; a ratio of lengths or a mean of ratios is another one."""
    s.dimension("tokens")
    t = s.index("tokens")
    x, y, z = s.arrays("x y z", t)
    gain, bias, alpha = s.numbers("gain bias alpha")
    over_tokens = RowArithmetic((t,))

    def error(gain: Any, bias: Any) -> Any:
        miss = y - dyt(ONE, x, gain, bias, alpha)
        return total(t, miss * miss)

    tanh = ONE.tanh(alpha * x)
    energy = total(t, tanh * tanh)
    best = total(t, y * tanh) / energy
    s.equal(
        "what is left is orthogonal to tanh(alpha x)",
        ("<y, tanh>", total(t, y * tanh)),
        ("<gain* tanh, tanh>", total(t, best * tanh * tanh)),
    )
    s.at_least(
        "any other gain is worse",
        ("error(gain) - error(gain*)", error(gain, 0) - error(best, 0)),
        ("(gain - gain*)^2 sum tanh^2", (gain - best) * (gain - best) * energy),
    )
    y_mean, tanh_mean = mean(over_tokens, y), mean(over_tokens, tanh)
    centred_y, centred_tanh = y - y_mean, tanh - tanh_mean
    spread = total(t, centred_tanh * centred_tanh)
    slope = total(t, centred_y * centred_tanh) / spread
    off = bias - (y_mean - gain * tanh_mean)
    s.at_least(
        "gain and bias together",
        ("error less its minimum", error(gain, bias) - error(slope, y_mean - slope * tanh_mean)),
        (
            "(gain - gain*)^2 var tanh + (bias - mean y + gain mean tanh)^2, times tokens",
            (gain - slope) * (gain - slope) * spread + over_tokens.length(y) * (off * off),
        ),
    )
    optimum, point = total(t, y * z) / total(t, z * z), {"y": [1, 7], "z": [1, 1]}
    s.differ(
        "the ratio of lengths",
        optimum,
        sqrt(total(t, y * y) / total(t, z * z)),
        dims={"tokens": 2},
        values=point,
    )
    s.differ(
        "the mean of ratios, without an eps in its divisor",
        optimum,
        mean(over_tokens, y / z),
        dims={"tokens": 2},
        values=point | {"z": [1, 2]},
    )


@theorem(
    statement=r"\mathrm{RMS}(x)_i=\frac{\sqrt d\,x_i}{\sqrt{x_i^2+\beta}},\ "
    r" \beta=\sum_{j\ne i}x_j^2+d\varepsilon,\quad y'=\rho\big(1-\tfrac{y^2}d\big)"
    r" \text{ with } \rho=\tfrac{\sqrt d}{\sqrt{x_i^2+\beta}},"
    r"\text{ or } \rho \text{ constant: } y=\sqrt d\tanh\tfrac{\rho x}{\sqrt d}",
    hypotheses=("d = n + 1", "y' is the derivative by x_i, the other elements fixed"),
    citation=f"{STOLLENWERK}; eps: {OURS}",
    used_in=("comparing DyT and DyISRU with RMSNorm", "choosing beta and alpha from data"),
)
def DYT_IS_A_FROZEN_RMS_NORM(s: Statement) -> None:
    """DyISRU freezes the energy of the other elements in RMSNorm, DyT the whole denominator."""
    i, ar, x, t, eps = split_row(s)
    (weight, bias, h, rho), row = s.numbers("weight bias h rho"), Blocks((x, t))
    (bound,) = s.numbers("bound", positive=True)  # sqrt(d), of which the last claim needs no more
    d, others = ar.length(row), RowArithmetic((i,)).sum(x * x)
    beta = others + d * eps
    y = rms_norm(ar, row, 1, 0, eps).parts[1]
    s.equal(
        "an element of RMSNorm is DyISRU",
        ("RMSNorm(x)_i", rms_norm(ar, row, weight, bias, eps).parts[1]),
        (
            "DyISRU(x_i), beta the energy of the others and d eps",
            dyisru(ONE, t, weight * sqrt(d), bias, beta),
        ),
    )
    slope = derivative(y, "t", "h")
    s.equal(
        "its derivative by that element",
        ("RMSNorm", slope),
        ("DyISRU's backward pass", dyisru_backward(ONE, t, sqrt(d), beta, h)[0]),
        ("rho (1 - y^2 / d)", sqrt(d) / sqrt(t * t + beta) * (1 - y * y / d) * h),
    )
    frozen = bound * ONE.tanh(rho / bound * t)
    s.equal(
        "with rho constant, DyT solves the same equation",
        (
            "the derivative of DyT with gain sqrt(d) and alpha rho / sqrt(d)",
            derivative(dyt(ONE, t, bound, bias, rho / bound), "t", "h"),
        ),
        ("rho (1 - y^2 / d)", rho * (1 - frozen * frozen / (bound * bound)) * h),
    )


@theorem(
    statement=r"\mathrm{DyT}(cx;\alpha)=\mathrm{DyT}(x;c\alpha),\quad"
    r" \mathrm{DyISRU}(cx;\beta)=\mathrm{DyISRU}(x;\beta/c^2),\quad"
    r" \alpha-\tfrac{\partial}{\partial x}\tanh(\alpha x)=\alpha\tanh^2(\alpha x)\ge0",
    hypotheses=(
        "c > 0; alpha and beta are constants, where a norm divides by each row's own length",
        "a norm's gradient shrinks with the scale of its row (NORMS_CONTRACT_GRADIENTS)",
    ),
    citation=OURS,
    used_in=("the conditioning of gradients with and without a norm", AUDIT),
)
def A_SCALE_PASSES_A_REPLACEMENT(s: Statement) -> None:
    """A scale of a row, which a norm takes out, is a change of alpha or of beta."""
    x, weight, bias, shift = s.numbers("x weight bias shift")
    c, alpha, beta = s.numbers("c alpha beta", positive=True)
    for name, scaled, moved in (
        ("DyT", dyt(ONE, c * x, weight, bias, alpha), dyt(ONE, x, weight, bias, c * alpha)),
        (
            "Derf",
            derf(ONE, c * x, weight, bias, alpha, shift),
            derf(ONE, x, weight, bias, c * alpha, shift),
        ),
        (
            "DyISRU",
            dyisru(ONE, c * x, weight, bias, beta),
            dyisru(ONE, x, weight, bias, beta / (c * c)),
        ),
    ):
        s.equal(name, ("of c x", scaled), ("of x, with another constant", moved))
    tanh = ONE.tanh(alpha * x)
    s.at_least(
        "DyT's slope is alpha at most, whatever the scale",
        ("alpha less the backward pass of 1", alpha - dyt_backward(ONE, x, 1, alpha, 1)[0]),
        ("alpha tanh^2", alpha * (tanh * tanh)),
    )


@theorem(
    statement=r"t(u)=\frac{u-1}{u+1}=\tanh a,\ u=e^{2a}:\quad 1-t(u)=\frac2{u+1},\quad"
    r" t(E)=1-2^{-(p+1)} \text{ for } E=2^{p+2}-1,\quad"
    r" t(E+e^2)-t(E)\ge0,\ t(E)-t\big(\tfrac E{1+e^2}\big)\ge0",
    hypotheses=(
        "precision p: the spacing below 1 is 2^-p, so 1 and its neighbour meet at 1 - 2^-(p+1)",
        "rounding to nearest gives 1 from that midpoint on: at the tie, 1 is the even one",
        "so tanh(a), correctly rounded, is 1 if and only if e^(2a) >= 2^(p+2) - 1",
        "h = 2^(p+1) > 1/2 and E are positive numbers in the claims for every precision",
    ),
    citation=OURS,
    used_in=("WHERE_THE_GRADIENT_OF_DYT_IS_ROUNDED_TO_ZERO", AUDIT),
)
def WHERE_DYT_SATURATES(s: Statement) -> None:
    """tanh(a) rounds to exactly 1 from e^(2a) = 2^(p+2) - 1 on, and not before."""
    (a, da, e), (u, E, h) = s.numbers("a da e"), s.numbers("u E h", positive=True)
    by_exp = tanh_of(apply("exp", 2 * a))
    s.equal(
        "t(exp(2a)) has the derivative of tanh",
        ("its derivative by a", derivative(by_exp, "a", "da")),
        ("1 - t^2", (1 - by_exp * by_exp) * da),
    )
    s.equal("and its value at 0", ("t(1)", tanh_of(lift(1))), ("0", lift(0)))
    s.equal("it is odd", ("t(1/u)", tanh_of(1 / u)), ("-t(u)", -tanh_of(u)))
    s.equal("the distance from 1", ("1 - t(u)", 1 - tanh_of(u)), ("2 / (u+1)", 2 / (u + 1)))
    s.equal("the midpoint", ("t(2h - 1)", tanh_of(2 * h - 1)), ("1 - 1/h", 1 - 1 / h))
    s.at_least(
        "from E on: u = E + e^2",
        ("t(u) - t(E)", tanh_of(E + e * e) - tanh_of(E)),
        ("the distances from 1", 2 / (E + 1) - 2 / (E + e * e + 1)),
        ("2 e^2 / ((E + 1)(E + 1 + e^2))", 2 * (e * e) / ((E + 1) * (E + 1 + e * e))),
    )
    s.at_least(
        "before it: u = E / (1 + e^2)",
        ("t(E) - t(u)", tanh_of(E) - tanh_of(E / (1 + e * e))),
        ("2 E e^2 / ((E + 1)(E + 1 + e^2))", 2 * E * (e * e) / ((E + 1) * (E + 1 + e * e))),
    )
    for name, p in FORMATS.items():
        s.equal(
            f"{name}: the threshold is {saturation(p)}",
            ("tanh there", tanh_of(lift(saturation(p)))),
            (f"the midpoint 1 - 2^-{p + 1}", lift(1 - Fraction(1, 2 ** (p + 1)))),
        )


def tanh_of(u: Expression) -> Any:
    """tanh(a) for u = e^(2a)."""
    return (u - 1) / (u + 1)


def saturation(precision: int) -> int:
    """The least e^(2a) at which tanh(a) rounds to 1; the significand has ``precision`` bits."""
    return int(2 ** (precision + 2) - 1)


@theorem(
    statement=r"1-t^2=\frac{4u}{(u+1)^2}>0,\quad u=2^{p+2}-1:\ 1-t^2=2^{-p}-2^{-2(p+1)},\qquad"
    r" (1-2^{-p})-t^2\ge0 \text{ for } 0\le t\le 1-2^{-p}",
    hypotheses=(
        "the gradient is 1 - t t of the rounded t, each operation rounded to nearest, precision p",
        "1 - 2^-p is in the format: t t below it rounds to it at most, so 1 - t t is not 0",
        "q = 2^p - 1 is any positive number in the claim for every precision",
    ),
    citation=OURS,
    used_in=(AUDIT, "training DyT in low precision"),
)
def WHERE_THE_GRADIENT_OF_DYT_IS_ROUNDED_TO_ZERO(s: Statement) -> None:
    """1 - t t of a rounded t is 0 exactly where t is 1: all that is lost is less than 2^-p."""
    (e,), (u, q) = s.numbers("e"), s.numbers("u q", positive=True)

    def slope(u: Any) -> Any:
        return 1 - tanh_of(u) * tanh_of(u)

    s.at_least(
        "the true gradient is positive everywhere",
        ("1 - t^2", slope(u)),
        ("(1 - t)(1 + t)", 2 / (u + 1) * (2 * u / (u + 1))),
        ("4 u / (u+1)^2", 4 * u / ((u + 1) * (u + 1))),
    )
    largest, grown = 1 - 1 / (q + 1), 1 + e * e
    s.at_least(
        "the square of t = (1 - 2^-p) / (1 + e^2) is at most 1 - 2^-p",
        ("(1 - 2^-p) - t^2", largest - largest / grown * (largest / grown)),
        (
            "(1 - 2^-p)(2 e^2 + e^4 + 2^-p) / (1 + e^2)^2",
            q / (q + 1) * (2 * (e * e) + e * e * (e * e) + 1 / (q + 1)) / (grown * grown),
        ),
    )
    for name, p in FORMATS.items():
        s.equal(
            f"{name}: what is lost at the threshold",
            ("1 - t^2", slope(lift(saturation(p)))),
            (f"2^-{p} - 2^-{2 * p + 2}", lift(Fraction(1, 2**p) - Fraction(1, 4 ** (p + 1)))),
        )
