"""What a norm can reach: LayerNorm of width d is RMSNorm of width d-1, strictly less than of d."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.norms.catalogue import JIANG
from verify.norms.forward import dyisru, layer_norm, mean, rms_norm, rstd_eps_inside
from verify.symbolic.language import Blocks, RowArithmetic, Statement, sqrt, total
from verify.symbolic.theorem import theorem
from verify.symbolic.theorems.centring import FOLKLORE, OURS, centred, of_each_block, row
from verify.symbolic.theorems.charts import WIDTH, wide_row
from verify.symbolic.theorems.rotations import reflected, reflected_ones

FREE_DIRECTION = (
    "H = I - 2 w w^T / <w,w>, and h = H 1, so that h / sqrt(d) is the unit row that H turns to"
    " 1 / sqrt(d)"
)


@theorem(
    statement=r"\mathbf 1^\top Hx = \langle H\mathbf 1, x\rangle;\quad \langle H\mathbf 1, x\rangle"
    r" = 0 \Rightarrow \mathrm{LN}(Hx;\varepsilon) = H\,\mathrm{RMS}(x;\varepsilon);\quad"
    r" \mathbf 1^\top H\,\mathrm{RMS}(x;\varepsilon) ="
    r" \frac{\langle H\mathbf 1, x\rangle}{\sqrt{\mathrm{mean}(x^2)+\varepsilon}}",
    hypotheses=(
        FREE_DIRECTION,
        "x = H P y, for any y, stands for every row orthogonal to h",
        "every unit row is h / sqrt(d) for some H: THE_REFLECTION_BETWEEN_TWO_ROWS",
        "only if: LayerNorm's rows sum to 0, so the last equation asks <h, x> = 0 of every row",
    ),
    citation=OURS,
    used_in=("the order of expressivity", "Pre-RMSNorm to Pre-LN at the same width"),
)
def THE_SAME_WIDTH_NEEDS_A_FREE_DIRECTION(s: Statement) -> None:
    """A rotation makes RMSNorm a LayerNorm of the same width iff one direction is never written."""
    i = s.index()
    x, w = s.arrays("x w", i)
    (gain,) = s.numbers("gain")
    (eps,) = s.numbers("eps", positive=True)
    ar = RowArithmetic((i,))
    h, d = reflected_ones(ar, w), ar.length(x)
    sum_of_hx = ar.sum(reflected(ar, w, x))
    s.equal(
        "Hx sums to 0 exactly where x is orthogonal to H 1",
        ("sum of Hx", sum_of_hx),
        ("H is symmetric: <H 1, x>", ar.sum(h * x)),
    )
    s.equal("H 1 has squared length d", ("<H 1, H 1>", ar.sum(h * h)), ("d", d))
    level = centred(ar, x)
    unwritten = reflected(ar, w, level)
    s.equal(
        "H P y stands for every row orthogonal to H 1: a projection on them is H P H",
        ("y less its part along H 1", x - h * (ar.sum(h * x) / d)),
        ("H P H y", reflected(ar, w, centred(ar, reflected(ar, w, x)))),
        free=[i],
    )
    s.equal(
        "if: H x is a zero-sum row already",
        ("PHx, for x = H P y", centred(ar, reflected(ar, w, unwritten))),
        ("H is its own inverse", level),
        free=[i],
    )
    s.equal(
        "if: and has the length of x",
        ("H LayerNorm(Py), where Py = Hx", reflected(ar, w, layer_norm(ar, level, gain, 0, eps))),
        ("RMSNorm(x)", rms_norm(ar, unwritten, gain, 0, eps)),
        free=[i],
    )
    rstd = rstd_eps_inside(ar, mean(ar, x * x), eps)
    s.equal(
        "only if: H RMSNorm(x) sums to <H 1, x> / rms, a row of LayerNorm to 0",
        (
            "sum of H RMSNorm(x) - LayerNorm(Hx)",
            ar.sum(
                reflected(ar, w, rms_norm(ar, x, gain, 0, eps))
                - layer_norm(ar, reflected(ar, w, x), gain, 0, eps)
            ),
        ),
        ("sum of H RMSNorm(x)", ar.sum(reflected(ar, w, rms_norm(ar, x, gain, 0, eps)))),
        ("gain <H 1, x> / rms", gain * ar.sum(h * x) * rstd),
    )


@theorem(
    statement=r"H_{q-p}\,p = q - \frac{\|q\|^2-\|p\|^2}{\|q-p\|^2}\,(q-p)",
    hypotheses=("p and q are different rows; of the same length, the fraction is 0",),
    citation=f"{FOLKLORE} (Householder 1958)",
    used_in=("THE_SAME_WIDTH_NEEDS_A_FREE_DIRECTION",),
)
def THE_REFLECTION_BETWEEN_TWO_ROWS(s: Statement) -> None:
    """The reflection along q - p takes p to q if they have the same length, and back."""
    i = s.index()
    p, q = s.arrays("p q", i)
    ar = RowArithmetic((i,))
    w, gap = q - p, ar.sum(q * q) - ar.sum(p * p)
    apart = ar.sum(w * w)
    s.equal(
        "there",
        ("H p", reflected(ar, w, p)),
        ("2 <w, p> = |q|^2 - |p|^2 - |w|^2", p - w * ((gap - apart) / apart)),
        ("q less a multiple of the gap", q - w * (gap / apart)),
        free=[i],
    )
    s.equal(
        "and back",
        ("H q", reflected(ar, w, q)),
        ("p less the same multiple", p - w * (gap / apart)),
        free=[i],
    )


@theorem(
    statement=r"\textstyle\sum_j A_{kj}\,\mathrm{LN}_d(x)_j"
    r" = \sum_{j<d} (A_{kj}-A_{kd})\,\mathrm{LN}_d(x)_j,\quad \mathbf 1^\top\mathrm{LN}_d(x) = 0",
    hypotheses=(WIDTH, "stated without weight and bias, proved with both folded into A and b"),
    citation=f"{JIANG}, eq. 6",
    used_in=("the conversion of readers to the chart", "the order of expressivity"),
)
def A_LINEAR_READER_OF_LAYER_NORM_LOSES_A_COLUMN(s: Statement) -> None:
    """LayerNorm's rows sum to 0, so its linear images fill an affine space of dimension d-1."""
    i, ar, wide, symbols = wide_row(s)
    s.dimension("m")
    k = s.index("m")
    (a,) = s.arrays("A", k, i)
    a_last, b = s.arrays("a_last b", k)
    x, weight, bias, eps = (symbols[name] for name in ("x", "weight", "bias", "eps"))
    (gain,) = s.numbers("gain")
    y, matrix = layer_norm(wide, x, 1, 0, eps), Blocks((a, a_last))
    s.equal(
        "the sum of a row of LayerNorm does not depend on the row",
        ("sum of LayerNorm(x)", wide.sum(layer_norm(wide, x, gain, bias, eps))),
        ("Px sums to 0", gain * wide.sum(y) + wide.sum(bias)),
        ("the sum of the bias", wide.sum(bias)),
    )
    folded, last = matrix * weight, a_last * weight.parts[1]
    constant = wide.sum(matrix * bias) + b
    s.equal(
        "the last column goes",
        ("A LayerNorm(x) + b", wide.sum(matrix * layer_norm(wide, x, weight, bias, eps)) + b),
        ("fold the weight and the bias", wide.sum(folded * y) + constant),
        ("take the last column from all", wide.sum((folded - last) * y) + constant),
        ("d-1 columns are left", ar.sum((folded.parts[0] - last) * y.parts[0]) + constant),
        free=[k],
    )
    s.equal(
        "or the mean of the columns",
        ("A LayerNorm(x) + b", wide.sum(matrix * y) + b),
        ("the rows of A centred", wide.sum(centred(wide, matrix) * y) + b),
        free=[k],
    )


@theorem(
    statement=r"\mathrm{RMS}(0) = \beta,\quad \mathrm{RMS}\big(t\,\tfrac a{\|a\|}\big) = \beta +"
    r" \gamma\odot\frac{t}{\sqrt{t^2/d+\varepsilon}}\,\frac a{\|a\|},\quad"
    r" \mathrm{RMS}(te_k) = \beta + \gamma_k\frac{t}{\sqrt{t^2/d+\varepsilon}}\,e_k",
    hypotheses=(
        "t > 0, a any row but 0",
        "with no weight 0 the row 0 and t e_1 .. t e_d go to d+1 affinely independent rows",
    ),
    citation=OURS,
    used_in=("the order of expressivity: strictly more than LayerNorm of the same width",),
)
def RMS_NORM_REACHES_EVERY_DIRECTION(s: Statement) -> None:
    """RMSNorm keeps every direction, so its rows fill an open ball of radius sqrt(d)."""
    i, ar, symbols = row(s)
    s.dimension("m")
    j = s.index("m")
    x, weight, bias, eps = (symbols[name] for name in ("x", "weight", "bias", "eps"))
    (t,) = s.numbers("t", positive=True)
    d, unit = ar.length(x), x / sqrt(ar.sum(x * x))
    reached = t * rstd_eps_inside(ar, t * t / d, eps)
    s.equal(
        "the row 0",
        ("RMSNorm(0)", rms_norm(ar, 0 * x, weight, bias, eps)),
        ("0 / sqrt(0 + eps)", 0 * x / sqrt(eps) * weight + bias),
        ("bias", bias),
        free=[i],
    )
    s.equal(
        "a unit row times t",
        ("RMSNorm(t a / |a|)", rms_norm(ar, t * unit, weight, bias, eps)),
        ("its mean square is t^2 / d", reached * unit * weight + bias),
        free=[i],
    )
    y = rms_norm(ar, t * unit, 1, 0, eps)
    s.at_least(
        "the radius grows from 0 to sqrt(d)",
        ("d - |RMSNorm(t a / |a|)|^2", d - ar.sum(y * y)),
        ("d - c^2", d - reached * reached),
        ("d eps / (t^2 / d + eps)", d * eps / (t * t / d + eps)),
    )
    weight_right, bias_right = s.arrays("weight_right bias_right", j)
    weight_k, bias_k = s.numbers("weight_k bias_k")
    wide = RowArithmetic((i, None, j))
    place = Blocks((0 * weight, t, 0 * weight_right))
    weights = Blocks((weight, weight_k, weight_right))
    biases = Blocks((bias, bias_k, bias_right))
    length = wide.length(place)
    c = t * rstd_eps_inside(wide, t * t / length, eps)
    of_each_block(
        s,
        "t at one place, after n and before m zeros",
        wide,
        ("RMSNorm(t e_k)", rms_norm(wide, place, weights, biases, eps)),
        ("bias, and c weight_k at that place", Blocks((bias, c * weight_k + bias_k, bias_right))),
    )


@theorem(
    statement=r"\mathrm{LN}_1(x) = \beta,\quad \mathrm{LN}_2(p,q;\varepsilon)"
    r" = \mathrm{RMS}_1\big(\tfrac{p-q}2;\varepsilon\big)\,(1,-1),\quad"
    r" \det\big(\mathrm{LN}_2(x),\mathrm{LN}_2(y)\big) = 0",
    hypotheses=("eps = 0 makes LN_2 a sign, and RMS_2 a point of the circle of radius sqrt(2)",),
    citation=OURS,
    used_in=("the order of expressivity: the smallest widths at which it is strict",),
)
def SMALL_WIDTHS(s: Statement) -> None:
    """LayerNorm of width 1 is constant and of width 2 lies on a line; RMSNorm does neither."""
    i = s.index()
    p, q, weight, bias, weight_2, bias_2 = s.numbers("p q weight bias weight_2 bias_2")
    p_2, q_2 = s.numbers("p_2 q_2")
    (eps,) = s.numbers("eps", positive=True)
    one, two = RowArithmetic((None,)), RowArithmetic((None, None))
    s.equal(
        "width 1: LayerNorm forgets the row, RMSNorm does not",
        (
            "LayerNorm(p) + RMSNorm(p)",
            layer_norm(one, p, weight, bias, eps) + rms_norm(one, p, weight, bias, eps),
        ),
        (
            "the bias, and weight p / sqrt(p^2 + eps) + bias",
            bias + dyisru(one, p, weight, bias, eps),
        ),
    )
    half = (p - q) / 2
    squashed = rms_norm(one, half, 1, 0, eps)
    weights, biases = Blocks((weight, weight_2)), Blocks((bias, bias_2))
    of_each_block(
        s,
        "width 2",
        two,
        ("LayerNorm(p, q)", layer_norm(two, Blocks((p, q)), weights, biases, eps)),
        ("RMSNorm of half the difference", Blocks((squashed, -squashed)) * weights + biases),
    )
    u, v = (layer_norm(two, Blocks(pair), 1, 0, eps).parts for pair in ((p, q), (p_2, q_2)))
    s.equal(
        "width 2: any two rows of LayerNorm are dependent",
        ("u_1 v_2", u[0] * v[1]),
        ("both are multiples of (1, -1)", -u[0] * v[0]),
        ("u_2 v_1", u[1] * v[0]),
    )
    sign, circle = (norm(two, Blocks((p, q)), 1, 0, 0) for norm in (layer_norm, rms_norm))
    s.equal(
        "width 2 without eps: LayerNorm is a sign",
        ("(p - q)^2 y_1^2", (p - q) * (p - q) * sign.parts[0] * sign.parts[0]),
        ("(p - q)^2", (p - q) * (p - q)),
    )
    s.equal(
        "width 2 without eps: RMSNorm lies on a circle",
        ("(p^2 + q^2) |y|^2", (p * p + q * q) * two.sum(circle * circle)),
        ("2 (p^2 + q^2)", 2 * (p * p + q * q)),
    )
    x, y = s.arrays("x y", i)
    ar, j = RowArithmetic((i,)), s.index()

    def determinant(norm: Any, x: Any, y: Any) -> Any:
        """u_i v_j - u_j v_i, the determinant of two normalised rows."""
        u, v = norm(ar, x, 1, 0, eps), norm(ar, y, 1, 0, eps)
        return u * v.at(i, j) - u.at(i, j) * v

    s.differ(
        "RMSNorm of width 2 reaches 0 and two independent rows",
        determinant(rms_norm, x, y),
        determinant(layer_norm, x, y),
        free=[i, j],
        dims={"n": 2},
        values={"x": [1, 1], "y": [1, -1], "eps": Fraction(9, 16)},
        index=(0, 1),
    )
    s.differ(
        "RMSNorm's rows do not sum to 0",
        total(i, rms_norm(ar, x, 1, 0, eps)),
        total(i, layer_norm(ar, y, 1, 0, eps)),
        dims={"n": 2},
        values={"x": [1, 1], "y": [1, -1], "eps": Fraction(9, 16)},
    )
