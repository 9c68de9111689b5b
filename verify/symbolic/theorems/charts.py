"""Charts of the zero-sum rows: LayerNorm as a norm of one element less, and the way back."""

from __future__ import annotations

from typing import Any

from verify.norms.catalogue import JIANG
from verify.norms.forward import (
    crms_norm,
    layer_norm,
    mean,
    narrow_rms_norm,
    rms_norm,
)
from verify.symbolic.language import Blocks, Index, RowArithmetic, Statement, lift
from verify.symbolic.theorem import theorem
from verify.symbolic.theorems.centring import OURS, centred, of_each_block, row, sides, variance

WIDTH = "d = n + 1 >= 2, written as a row of n elements and a last one"


def wide_row(s: Statement) -> tuple[Index, RowArithmetic, RowArithmetic, dict[str, Any]]:
    """The arithmetics of rows of n and of n + 1 elements, and x, weight, bias in two blocks."""
    i, ar, symbols = row(s)
    last = dict(
        zip(("x", "weight", "bias"), s.numbers("x_last weight_last bias_last"), strict=True)
    )
    blocks = {name: Blocks((symbols[name], last[name])) for name in last}
    return i, ar, RowArithmetic((i, None)), symbols | blocks


def decompressed(ar: RowArithmetic, z: Any) -> Blocks:
    """D z = (z, -sum z), the zero-sum row of which z is the beginning."""
    return Blocks((z, -ar.sum(z)))


def chart(ar: RowArithmetic, y: Any) -> Blocks:
    """Q y, for y of length n: a zero-sum row of length d = n + 1.

    Q is the Householder reflection that exchanges the last unit row with -1/sqrt(d), restricted
    to the rows that end in 0: (y - c sum y, -sum y / sqrt(d)) with c = (1 - 1/sqrt(d)) / n.
    """
    total, root = ar.sum(y), ar.sqrt(ar.length(y) + 1)
    return Blocks((y - (1 - 1 / root) / ar.length(y) * total, -total / root))


def chart_transposed(ar: RowArithmetic, x: Blocks) -> Any:
    """Q^T x, for x of length n + 1, with Q as in `chart`."""
    head, last = x.parts
    root = ar.sqrt(ar.length(head) + 1)
    return head - (1 - 1 / root) / ar.length(head) * ar.sum(head) - last / root


@theorem(
    statement=r"DE\,Px = Px,\quad \mathbf 1^\top Dz = 0,\quad PDz = Dz,\qquad"
    r" D = \begin{pmatrix} I\\ -\mathbf 1^\top\end{pmatrix},\ E = (I\ 0)",
    hypotheses=(WIDTH,),
    citation=f"{JIANG} (lossless compression of zero-mean rows)",
    used_in=("CRMS_NORM_IS_RMS_NORM_IN_ITS_CHART",),
)
def COMPRESSION_IS_LOSSLESS(s: Statement) -> None:
    """Dropping the last element of a zero-sum row, and putting -sum back, loses nothing."""
    i, ar, wide, symbols = wide_row(s)
    c = centred(wide, symbols["x"])
    kept = c.parts[0]
    s.equal(
        "the dropped element is minus the sum of the others",
        ("-sum of the first d-1 of Px", -ar.sum(kept)),
        ("add and take away the last", c.parts[1] - (ar.sum(kept) + c.parts[1])),
        ("Px sums to 0: the last of Px", c.parts[1]),
    )
    of_each_block(
        s,
        "decompress what was kept",
        wide,
        ("D(E(Px))", decompressed(ar, kept)),
        ("it sums to 0", centred(wide, decompressed(ar, kept))),
        ("Px", c),
    )
    (z,) = s.arrays("z", i)
    of_each_block(
        s,
        "every z is kept from a zero-sum row",
        wide,
        ("P(Dz)", centred(wide, decompressed(ar, z))),
        ("Dz sums to 0", decompressed(ar, z)),
    )


@theorem(
    statement=r"D^\top D = I + \mathbf 1\mathbf 1^\top,\quad"
    r" \|z\|^2 \le \|Dz\|^2 \le d\,\|z\|^2, \text{ both attained}",
    hypotheses=(WIDTH, "the condition number of D is therefore sqrt(d)"),
    citation=OURS,
    used_in=("the choice of a chart for storing and for training",),
)
def COMPRESSION_CONDITION_NUMBER(s: Statement) -> None:
    """Decompressing stretches constant rows sqrt(d) times as much as zero-sum ones."""
    i = s.index()
    z, y = s.arrays("z y", i)
    c, last = s.numbers("c last")
    ar, wide = RowArithmetic((i,)), RowArithmetic((i, None))
    n, row_z = ar.length(z), decompressed(ar, z)
    squares, stretched = ar.sum(z * z), wide.sum(row_z * row_z)
    s.equal(
        "the adjoint of D",
        ("<Dz, (y, t)>", wide.sum(row_z * Blocks((y, last)))),
        ("<z, y - t>", ar.sum(z * (y - last))),
    )
    head, end = row_z.parts
    s.equal("D^T D", ("D^T(Dz)", head - end), ("z + 1 sum z", z + ar.sum(z)), free=[i])
    s.equal(
        "the squared length of Dz",
        ("|Dz|^2", stretched),
        ("<z, D^T D z>", ar.sum(z * (z + ar.sum(z)))),
        ("|z|^2 + (sum z)^2", squares + ar.sum(z) * ar.sum(z)),
    )
    s.at_least(
        "no row is shortened",
        ("|Dz|^2 - |z|^2", stretched - squares),
        ("the square of the dropped element", end * end),
    )
    spread = centred(ar, z)
    s.at_least(
        "no row is stretched more than sqrt(d) times",
        ("d |z|^2 - |Dz|^2", (n + 1) * squares - stretched),
        ("n |z|^2 - (sum z)^2", n * squares - ar.sum(z) * ar.sum(z)),
        ("n |Pz|^2", n * ar.sum(spread * spread)),
    )
    flat, level = decompressed(ar, c), decompressed(ar, spread)
    s.equal(
        "zero-sum rows keep their length, constant ones are stretched sqrt(d) times",
        ("|D(Pz)|^2 + |D(c 1)|^2", wide.sum(level * level) + wide.sum(flat * flat)),
        ("|Pz|^2 + d |c 1|^2", ar.sum(spread * spread) + (n + 1) * ar.sum(c * c)),
    )


@theorem(
    statement=r"\mathrm{CRMS}(z) = E\,\mathrm{RMS}_d(Dz),\quad"
    r" \mathrm{CRMS}(E\,Px) = E\,\mathrm{LN}_d(x)",
    hypotheses=(WIDTH, "the dropped element has a weight and a bias of its own, never read"),
    citation=f"{JIANG}, eq. 5",
    used_in=("PRE_LN_IS_PRE_RMS_NORM", "the conversion of models"),
)
def CRMS_NORM_IS_RMS_NORM_IN_ITS_CHART(s: Statement) -> None:
    """CRMSNorm is RMSNorm of the decompressed row, read off all elements but the dropped one."""
    i, ar, wide, symbols = wide_row(s)
    (z,) = s.arrays("z", i)
    weight, bias, eps, row_z = *(symbols[k] for k in ("weight", "bias", "eps")), decompressed(ar, z)
    s.equal(
        "the mean square of the decompressed row",
        ("mean((Dz)^2)", mean(wide, row_z * row_z)),
        (
            "(sum z^2 + (sum z)^2) / d",
            (ar.sum(z * z) + ar.sum(z) * ar.sum(z)) / (ar.length(z) + 1),
        ),
    )
    s.equal(
        "CRMSNorm is the beginning of RMSNorm",
        ("CRMSNorm(z)", crms_norm(ar, z, weight.parts[0], bias.parts[0], eps)),
        ("RMSNorm(Dz)", rms_norm(wide, row_z, weight, bias, eps).parts[0]),
        free=[i],
    )
    s.equal(
        "before the affine part, the dropped element is decompressed like any other",
        ("-sum CRMSNorm(z)", -ar.sum(crms_norm(ar, z, 1, 0, eps))),
        ("RMSNorm(Dz), the last", rms_norm(wide, row_z, 1, 0, eps).parts[1]),
    )
    kept = centred(wide, symbols["x"]).parts[0]
    s.equal(
        "CRMSNorm of what is kept of Px is the beginning of LayerNorm",
        ("CRMSNorm(E(Px))", crms_norm(ar, kept, weight.parts[0], bias.parts[0], eps)),
        ("D(E(Px)) = Px", rms_norm(wide, decompressed(ar, kept), weight, bias, eps).parts[0]),
        ("LayerNorm(x)", layer_norm(wide, symbols["x"], weight, bias, eps).parts[0]),
        free=[i],
    )


@theorem(
    statement=r"E_{\hat k}\,\mathrm{RMS}_d(D_{\hat k}z) = \mathrm{CRMS}(z)"
    r" \text{ whichever coordinate } k \text{ is dropped}",
    hypotheses=(
        "the dropped coordinate stands after n >= 1 and before m >= 1 others, or at the front",
        "at the end: CRMS_NORM_IS_RMS_NORM_IN_ITS_CHART",
    ),
    citation=OURS,
    used_in=("the choice of the coordinate to drop, for accuracy",),
)
def ANY_COORDINATE_MAY_BE_DROPPED(s: Statement) -> None:
    """CRMSNorm is RMSNorm of the row with -sum z put in at any place, since it sees only sums."""
    i, ar, symbols = row(s)
    s.dimension("m")
    j = s.index("m")
    names = ("x", "weight", "bias")
    right = dict(zip(names, s.arrays("y weight_right bias_right", j), strict=True))
    short, full = RowArithmetic((i, j)), RowArithmetic((i, None, j))
    z, weight, bias = (Blocks((symbols[name], right[name])) for name in names)
    eps, dropped = symbols["eps"], -short.sum(z)
    inside = _with_middle(z, dropped)
    s.equal(
        "the row with -sum z in the middle sums to 0 and has the mean square of Dz",
        ("mean square less mean", mean(full, inside * inside) - mean(full, inside)),
        ("sum z - sum z = 0", mean(full, inside * inside)),
        (
            "(sum z^2 + (sum z)^2) / d",
            (short.sum(z * z) + dropped * dropped) / (short.length(z) + 1),
        ),
    )
    normed = rms_norm(full, inside, _with_middle(weight, lift(1)), _with_middle(bias, lift(0)), eps)
    of_each_block(
        s,
        "dropped in the middle",
        short,
        ("CRMSNorm(z)", crms_norm(short, z, weight, bias, eps)),
        ("RMSNorm, without the dropped element", Blocks((normed.parts[0], normed.parts[2]))),
    )
    x, weight, bias = (symbols[name] for name in names)
    front = RowArithmetic((None, i))
    put_back = Blocks((-ar.sum(x), x))
    weights, biases = Blocks((lift(1), weight)), Blocks((lift(0), bias))
    s.equal(
        "dropped at the front",
        ("CRMSNorm(z)", crms_norm(ar, x, weight, bias, eps)),
        ("RMSNorm, without the first", rms_norm(front, put_back, weights, biases, eps).parts[1]),
        free=[i],
    )


def _with_middle(z: Blocks, value: Any) -> Blocks:
    """The row with a number between its two blocks."""
    return Blocks((z.parts[0], value, z.parts[1]))


@theorem(
    statement=r"Q^\top Q = I_{d-1},\quad QQ^\top = P,\quad \mathbf 1^\top Q = 0",
    hypotheses=(WIDTH, "Q is a Householder reflection without one column"),
    citation=f"{OURS}; the reflection is Householder's (1958)",
    used_in=("NARROW_RMS_NORM_IS_LAYER_NORM", "RMS_NORM_IS_LAYER_NORM_OF_WIDTH_PLUS_ONE"),
)
def THE_HOUSEHOLDER_CHART_IS_AN_ISOMETRY(s: Statement) -> None:
    """A chart of the zero-sum rows of length d by all rows of length d-1 that keeps lengths."""
    i, ar, wide, symbols = wide_row(s)
    y, u = s.arrays("y u", i)
    x, qy, qu = symbols["x"], chart(ar, y), chart(ar, u)
    s.equal(
        "Q^T is the transpose of Q",
        ("<Qy, x>", wide.sum(qy * x)),
        ("<y, Q^T x>", ar.sum(y * chart_transposed(ar, x))),
    )
    s.equal(
        "Q keeps scalar products",
        ("<Qy, Qu>", wide.sum(qy * qu)),
        ("<y, Q^T(Qu)>", ar.sum(y * chart_transposed(ar, qu))),
        ("<y, u>", ar.sum(y * u)),
    )
    s.equal(
        "Q^T Q = I",
        ("Q^T(Qy)", chart_transposed(ar, qy)),
        ("add the sum of Qy", y + wide.sum(qy)),
        ("Qy sums to 0: y", y),
        free=[i],
    )
    back = chart(ar, chart_transposed(ar, x))
    of_each_block(s, "Q Q^T = P", wide, ("Q(Q^T x)", back), ("Px", centred(wide, x)))


@theorem(
    statement=r"\mathrm{RMS}^{\mathrm{narrow}}_{d-1}(z;\gamma,\beta,\varepsilon)"
    r" = \mathrm{RMS}_{d-1}\big(z;\sqrt{\tfrac d{d-1}}\,\gamma,\beta,"
    r"\tfrac d{d-1}\varepsilon\big)",
    hypotheses=(WIDTH, "z has length n = d-1"),
    citation=f"{OURS}, after {JIANG}",
    used_in=("NARROW_RMS_NORM_IS_LAYER_NORM", "running the narrow norm on a stock RMSNorm kernel"),
)
def NARROW_RMS_NORM_IS_SCALED_RMS_NORM(s: Statement) -> None:
    """A sum of d-1 squares over d is a stock RMSNorm of width d-1 with another weight and eps."""
    i, ar, symbols = row(s)
    z, weight, bias, eps = (symbols[k] for k in ("x", "weight", "bias", "eps"))
    n = ar.length(z)
    stretch = (n + 1) / n
    s.equal(
        "the radicand",
        ("sum(z^2)/d + eps", ar.sum(z * z) / (n + 1) + eps),
        ("(n/d) (sum(z^2)/n + eps d/n)", (mean(ar, z * z) + eps * stretch) / stretch),
    )
    left, right = sides("NARROW_RMS_NORM_IS_SCALED_RMS_NORM", ar, symbols)
    s.equal(
        "NARROW_RMS_NORM_IS_SCALED_RMS_NORM",
        ("sum(z^2)/d under the root", left),
        (
            "take n/d out of the root",
            ar.sqrt(stretch) * rms_norm(ar, z, 1, 0, eps * stretch) * weight + bias,
        ),
        ("RMSNorm(z; sqrt(d/n) weight, bias, eps d/n)", right),
        free=[i],
    )


@theorem(
    statement=r"\mathrm{LN}_d\big(x;\tfrac{d-1}d\varepsilon\big) = \sqrt{\tfrac d{d-1}}\,Q\,"
    r"\mathrm{RMS}_{d-1}(Q^\top x;\varepsilon)",
    hypotheses=(WIDTH, "Q is the isometry of THE_HOUSEHOLDER_CHART_IS_AN_ISOMETRY"),
    citation=f"{OURS}, after {JIANG}",
    used_in=("PRE_LN_IS_PRE_RMS_NORM", "the conversion of models to a stock RMSNorm"),
)
def NARROW_RMS_NORM_IS_LAYER_NORM(s: Statement) -> None:
    """LayerNorm of width d is an ordinary RMSNorm of width d-1 between an isometry and back."""
    _, ar, wide, symbols = wide_row(s)
    weight, bias, eps, x = (symbols[k] for k in ("weight", "bias", "eps", "x"))
    n = ar.length(weight.parts[0])
    y = chart_transposed(ar, x)
    s.equal(
        "the variance in the chart",
        ("var x", variance(wide, x)),
        ("|Px|^2 = |Q^T x|^2", ar.sum(y * y) / (n + 1)),
    )
    of_each_block(
        s,
        "by the narrow norm, with the same eps",
        wide,
        ("LayerNorm(x)", layer_norm(wide, x, weight, bias, eps)),
        ("Q narrow(Q^T x)", chart(ar, narrow_rms_norm(ar, y, 1, 0, eps)) * weight + bias),
    )
    stock = chart(ar, rms_norm(ar, y, 1, 0, eps)) * ar.sqrt((n + 1) / n)
    of_each_block(
        s,
        "by a stock RMSNorm, with eps d/(d-1)",
        wide,
        ("LayerNorm(x; eps (d-1)/d)", layer_norm(wide, x, weight, bias, eps * n / (n + 1))),
        ("sqrt(d/(d-1)) Q RMSNorm(Q^T x; eps)", stock * weight + bias),
    )


@theorem(
    statement=r"\mathrm{RMS}_d\big(x;\tfrac{d+1}d\varepsilon\big) = \sqrt{\tfrac d{d+1}}\,Q^\top\,"
    r"\mathrm{LN}_{d+1}(Qx;\varepsilon)",
    hypotheses=("Q is the isometry from width d = n to the zero-sum rows of width d + 1",),
    citation=OURS,
    used_in=("the order of expressivity", "running RMSNorm models on LayerNorm kernels"),
)
def RMS_NORM_IS_LAYER_NORM_OF_WIDTH_PLUS_ONE(s: Statement) -> None:
    """RMSNorm of width d is LayerNorm of width d+1 between an isometry and its transpose."""
    i, ar, symbols = row(s)
    x, weight, bias, eps = (symbols[k] for k in ("x", "weight", "bias", "eps"))
    wide, n, qx = RowArithmetic((i, None)), ar.length(x), chart(ar, x)
    normed = layer_norm(wide, qx, 1, 0, eps)
    of_each_block(
        s,
        "LayerNorm does not centre Qx, which sums to 0",
        wide,
        ("LayerNorm(Qx)", normed),
        ("RMSNorm of width d+1", rms_norm(wide, qx, 1, 0, eps)),
        ("|Qx| = |x|: Q narrow(x)", chart(ar, narrow_rms_norm(ar, x, 1, 0, eps))),
    )
    s.equal(
        "RMSNorm as LayerNorm of one element more",
        ("RMSNorm(x; eps (d+1)/d)", rms_norm(ar, x, weight, bias, eps * (n + 1) / n)),
        (
            "sqrt(d/(d+1)) Q^T LayerNorm(Qx; eps)",
            ar.sqrt(n / (n + 1)) * chart_transposed(ar, normed) * weight + bias,
        ),
        free=[i],
    )


@theorem(
    statement=r"\mathrm{LN}_{2d}\big((x,-x);\varepsilon\big)"
    r" = \big(\mathrm{RMS}_d(x;\varepsilon),\,-\mathrm{RMS}_d(x;\varepsilon)\big)",
    hypotheses=("the same eps on both sides, and no factor",),
    citation=OURS,
    used_in=("running RMSNorm models on LayerNorm kernels without an isometry",),
)
def THE_DOUBLING_TRICK(s: Statement) -> None:
    """LayerNorm of a row followed by its negative is RMSNorm of the row, twice."""
    i, ar, symbols = row(s)
    x, weight, bias, eps = (symbols[k] for k in ("x", "weight", "bias", "eps"))
    weight_right, bias_right = s.arrays("weight_right bias_right", i)
    twice = RowArithmetic((i, i))
    pair = Blocks((x, -x))
    weights, biases = Blocks((weight, weight_right)), Blocks((bias, bias_right))
    s.equal(
        "the variance of the pair is the mean square of the row",
        ("var (x, -x)", mean(twice, centred(twice, pair) * centred(twice, pair))),
        ("(x, -x) sums to 0", mean(twice, pair * pair)),
        ("2 sum x^2 / (2 d)", mean(ar, x * x)),
    )
    halves = rms_norm(ar, x, weight, bias, eps), rms_norm(ar, -x, weight_right, bias_right, eps)
    of_each_block(
        s,
        "LayerNorm of the pair",
        twice,
        ("LayerNorm(x, -x)", layer_norm(twice, pair, weights, biases, eps)),
        ("RMSNorm(x) and RMSNorm(-x)", Blocks(halves)),
    )
