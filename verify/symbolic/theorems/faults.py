"""The wrong norms found in the field: each is another function, and by exactly how much."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.norms.catalogue import FAULTS
from verify.norms.forward import crms_norm, layer_norm, length_minus_one, mean, rms_norm
from verify.symbolic.language import Blocks, RowArithmetic, Statement
from verify.symbolic.theorem import theorem
from verify.symbolic.theorems.centring import OURS, centred, of_each_block, row
from verify.symbolic.theorems.charts import WIDTH, decompressed


@theorem(
    statement=r"\frac1{\mathrm{LN}^{(k)}_i(x)^2} - \frac1{\mathrm{LN}_i(x)^2}"
    r" = \frac{\|Px\|^2}{(Px)_i^2}\cdot\frac{d-k}{k\,d}",
    hypotheses=("k > 0 stands in the place of d; the row is not constant",),
    citation=OURS,
    used_in=("the fault 'divisor d-1 instead of d'", "CRMS_DIVISOR_IS_FORCED"),
)
def VARIANCE_DIVISOR_IS_FORCED(s: Statement) -> None:
    """A LayerNorm that divides the squares by k is LayerNorm for k = d only, whatever the row."""
    i, ar, symbols = row(s)
    x, eps = symbols["x"], symbols["eps"]
    (k,) = s.numbers("k", positive=True)
    c = centred(ar, x)
    y, y_k = layer_norm(ar, x, 1, 0, eps), layer_norm(ar, x, 1, 0, eps, divisor=lambda *_: k)
    squares, d = ar.sum(c * c), ar.length(x)
    s.equal(
        "the gap of the inverse squares is 0 if and only if k = d",
        ("1/y_k^2 - 1/y^2", 1 / (y_k * y_k) - 1 / (y * y)),
        (
            "y^2 = c^2 / (variance + eps)",
            ((squares / k + eps) - (squares / d + eps)) / (c * c),
        ),
        ("over a common divisor", squares * (d - k) / (k * d * c * c)),
        free=[i],
    )
    # A row of n + 1 elements, so that the root of d - 1 = n is the root of a positive number.
    (t,) = s.numbers("t")
    wide, one_more = RowArithmetic((i, None)), Blocks((x, t))
    n = ar.length(x)
    unbiased = FAULTS["divisor d-1 instead of d"]
    left = layer_norm(wide, one_more, 1, 0, eps, **unbiased)
    stretch = wide.sqrt(n / (n + 1))
    right = layer_norm(wide, one_more, 1, 0, eps * n / (n + 1))
    names = ("divided by d-1", left), ("sqrt((d-1)/d) LayerNorm(x; eps (d-1)/d)", stretch * right)
    of_each_block(s, "the unbiased variance", wide, *names)
    s.differ(
        "the unbiased variance is another function",
        layer_norm(ar, x, 1, 0, eps, **unbiased),
        y,
        free=[i],
        dims={"n": 2},
        values={"x": [1, -1], "eps": Fraction(7, 9)},
        index=(0,),
    )


@theorem(
    statement=r"\frac1{\mathrm{CRMS}^{(k)}_i(z)^2} - \frac1{\mathrm{CRMS}_i(z)^2}"
    r" = \frac{\|Dz\|^2}{z_i^2}\cdot\frac{d-k}{k\,d}",
    hypotheses=(WIDTH, "k > 0 stands in the place of d; z is not 0"),
    citation=OURS,
    used_in=("kernels of CRMSNorm that divide by the length of z",),
)
def CRMS_DIVISOR_IS_FORCED(s: Statement) -> None:
    """CRMSNorm divides by the length d of the row that z stands for, not by d-1 or d+1."""
    i = s.index()
    (z,) = s.arrays("z", i)
    eps, k = s.numbers("eps k", positive=True)
    ar, wide = RowArithmetic((i,)), RowArithmetic((i, None))
    row_z, d, y = decompressed(ar, z), ar.length(z) + 1, crms_norm(ar, z, 1, 0, eps)

    def divided_by(divisor: Any) -> Any:
        return rms_norm(wide, row_z, 1, 0, eps, divisor=divisor).parts[0]

    y_k, squares = divided_by(lambda *_: k), wide.sum(row_z * row_z)
    s.equal(
        "the gap of the inverse squares is 0 if and only if k = d",
        ("1/y_k^2 - 1/y^2", 1 / (y_k * y_k) - 1 / (y * y)),
        ("y^2 = z^2 / (mean square + eps)", (squares / k - squares / d) / (z * z)),
        ("over a common divisor", squares * (d - k) / (k * d * z * z)),
        free=[i],
    )
    one: dict[str, Any] = {"free": [i], "dims": {"n": 1}, "index": (0,)}
    values = {"z": [1], "eps": Fraction(7, 9)}
    s.differ("the divisor d-1", divided_by(length_minus_one), y, values=values, **one)
    values = {"z": [1], "eps": Fraction(25, 144)}
    longer = divided_by(lambda arithmetic, x: arithmetic.length(x) + 1)
    s.differ("the divisor d+1", longer, y, values=values, **one)


@theorem(
    statement=r"\frac{x}{\mathrm{rms}(x)+\varepsilon} = \mathrm{RMS}\big(x;\,"
    r"\varepsilon(\varepsilon + 2\,\mathrm{rms}(x))\big)",
    hypotheses=(
        "x = r u / rms(u) stands for every row of root mean square r > 0, and q for r + eps",
        "what eps would have to be inside, q^2 - r^2, depends on the row",
    ),
    citation=OURS,
    used_in=("the faults 'eps outside the square root' and 'no eps'",),
)
def EPS_OUTSIDE_THE_ROOT_IS_ANOTHER_NORM(s: Statement) -> None:
    """With eps outside the root a norm acts as if eps depended on the row, so no eps repairs it."""
    i, ar, symbols = row(s, "shift")
    x, eps, weight, bias = (symbols[name] for name in ("x", "eps", "weight", "bias"))
    r, q = s.numbers("r q", positive=True)
    outside, without = FAULTS["eps outside the square root"], FAULTS["no eps"]
    scaled, fitted = rms_norm(ar, x, r, 0, 0), (q - r) * ((q - r) + 2 * r)
    s.equal(
        "the row has root mean square r",
        ("mean(x^2)", mean(ar, scaled * scaled)),
        ("x = r u / rms(u)", r * r * mean(ar, x * x) / mean(ar, x * x)),
        ("r^2", r * r),
    )
    s.equal(
        "RMSNorm",
        ("eps = q - r outside", rms_norm(ar, scaled, weight, bias, q - r, **outside)),
        ("r + (q - r) = q", scaled / q * weight + bias),
        ("r^2 + eps (eps + 2 r) = q^2", rms_norm(ar, scaled, weight, bias, fitted)),
        free=[i],
    )
    # Every row of n + 1 elements: a zero-sum direction (x, -sum x) of length r, and its mean.
    wide = RowArithmetic((i, None))
    level = rms_norm(wide, Blocks((x, -ar.sum(x))), r, 0, 0) + symbols["shift"]
    wrong = layer_norm(wide, level, 1, 0, q - r, **outside)
    right = layer_norm(wide, level, 1, 0, fitted)
    s.equal(
        "LayerNorm",
        ("eps = q - r outside", wrong.parts[0] * weight + bias),
        ("eps (eps + 2 r) inside", right.parts[0] * weight + bias),
        free=[i],
    )
    witness: dict[str, Any] = {"dims": {"n": 2}, "index": (1,), "free": [i]}
    plain = {"weight": [1, 1], "bias": [0, 0]}
    inside = rms_norm(ar, x, weight, bias, eps)
    values = plain | {"x": [1, 7], "eps": 144}
    misplaced = rms_norm(ar, x, weight, bias, eps, **outside)
    s.differ("outside is not inside", misplaced, inside, values=values, **witness)
    values = plain | {"x": [1, 7], "r": Fraction(23, 2), "q": Fraction(25, 2)}
    misplaced = rms_norm(ar, x, weight, bias, q - r, **outside)
    other = rms_norm(ar, x, weight, bias, fitted)
    s.differ("an eps that fits another row", misplaced, other, values=values, **witness)
    values = plain | {"x": [1, -1], "eps": Fraction(9, 16)}
    lost, kept = (layer_norm(ar, x, weight, bias, eps, **f) for f in (without, {}))
    s.differ("LayerNorm without eps", lost, kept, values=values, **witness)
