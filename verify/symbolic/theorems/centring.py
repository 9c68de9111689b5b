"""Centring, LayerNorm and RMSNorm: what the mean does, and the algorithms for the variance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from verify.norms.catalogue import BA, CHAN, GEMMA, JIANG, ZHANG
from verify.norms.forward import (
    chan_merge,
    layer_norm_one_pass,
    mean,
    rms_norm,
    rstd_eps_inside,
)
from verify.norms.identities import IDENTITIES
from verify.symbolic.language import Blocks, Expression, Index, RowArithmetic, Statement
from verify.symbolic.theorem import theorem

OURS = "proved here"
FOLKLORE = "folklore"


def row(s: Statement, *names: str) -> tuple[Index, RowArithmetic, dict[str, Any]]:
    """An index, the arithmetic of a row over it, and its symbols by name.

    They are x, weight, bias and eps, as the bodies call them, and the numbers ``names``.
    """
    i = s.index()
    symbols = dict(zip(("x", "weight", "bias"), s.arrays("x weight bias", i), strict=True))
    symbols |= zip(names, s.numbers(" ".join(names)), strict=True)
    (symbols["eps"],) = s.numbers("eps", positive=True)
    return i, RowArithmetic((i,)), symbols


def sides(id: str, ar: RowArithmetic, symbols: Mapping[str, Any]) -> tuple[Any, Any]:
    """Both sides of an identity of `verify.norms.identities`, at the symbols of its parameters."""
    identity = IDENTITIES[id]
    arguments = [symbols[parameter.name] for parameter in identity.parameters]
    return identity.left(ar, *arguments), identity.right(ar, *arguments)


def centred(ar: RowArithmetic, x: Any) -> Any:
    """P x, the row less its mean."""
    return x - mean(ar, x)


def variance(ar: RowArithmetic, x: Any) -> Any:
    """The mean square of the centred row, in two passes."""
    return mean(ar, centred(ar, x) * centred(ar, x))


def of_each_block(s: Statement, name: str, ar: RowArithmetic, *steps: tuple[str, Any]) -> None:
    """Claims that rows in blocks are equal, block by block."""
    for number, index in enumerate(ar.indices):
        chain = [(label, value.parts[number]) for label, value in steps]
        s.equal(f"{name}: block {number + 1}", *chain, free=[index] if index else [])


@theorem(
    statement=r"\mathrm{LN}(x;\gamma,\beta,\varepsilon)_i"
    r" = \mathrm{RMS}(Px;\gamma,\beta,\varepsilon)_i,\quad P = I - \tfrac1d\mathbf 1\mathbf 1^\top",
    hypotheses=("the same eps on both sides", "var(x) + eps > 0"),
    citation=f"{JIANG}, eq. 1 and 2",
    used_in=("PRE_LN_IS_PRE_RMS_NORM", "the conversion of models"),
)
def LAYER_NORM_IS_RMS_NORM_OF_CENTRED(s: Statement) -> None:
    """LayerNorm is RMSNorm of the centred row, with the same eps and the same affine part."""
    i, ar, symbols = row(s)
    x = symbols["x"]
    s.equal(
        "the variance is the mean square of the centred row",
        ("mean((x - mean x)^2)", variance(ar, x)),
        ("expand the square under the sum", mean(ar, x * x) - mean(ar, x) * mean(ar, x)),
    )
    left, right = sides("LAYER_NORM_IS_RMS_NORM_OF_CENTRED", ar, symbols)
    s.equal(
        "LAYER_NORM_IS_RMS_NORM_OF_CENTRED",
        ("LayerNorm(x), its variance as mean(x^2) - mean(x)^2", layer_norm_one_pass(ar, **symbols)),
        ("LayerNorm(x)", left),
        ("RMSNorm(x - mean x)", right),
        free=[i],
    )


@theorem(
    statement=r"P^2 = P = P^\top,\quad P\mathbf 1 = 0,\quad \mathbf 1^\top P x = 0,\quad"
    r" \|x\|^2 = \|Px\|^2 + d\,\mathrm{mean}(x)^2",
    citation=FOLKLORE,
    used_in=("LAYER_NORM_IS_SHIFT_INVARIANT", "COMPRESSION_IS_LOSSLESS", "centring of weights"),
)
def CENTRING_IS_A_PROJECTION(s: Statement) -> None:
    """Subtracting the mean is the orthogonal projection onto the rows whose sum is 0."""
    i = s.index()
    x, u = s.arrays("x u", i)
    (c,) = s.numbers("c")
    ar = RowArithmetic((i,))
    once, mu = centred(ar, x), mean(ar, x)
    s.equal(
        "a centred row sums to 0, and the mean is what was taken away",
        ("d mean", ar.length(x) * mu),
        ("sum of Px is 0", ar.sum(once) + ar.sum(mu)),
        ("Px + mean = x, under the sum", ar.sum(x)),
    )
    s.equal(
        "it is idempotent",
        ("P(Px)", centred(ar, once)),
        ("the mean of Px is 0", once),
        free=[i],
    )
    s.equal(
        "it is symmetric",
        ("<u, Px>", ar.sum(u * once)),
        ("a constant times Px sums to 0", ar.sum(centred(ar, u) * once)),
        ("<Pu, x>", ar.sum(centred(ar, u) * x)),
    )
    s.equal(
        "it kills constants and keeps the rest",
        ("P(Px + c)", centred(ar, once + c)),
        ("the mean of Px + c is c", (once + c) - c),
        ("Px", once),
        free=[i],
    )
    s.equal(
        "Pythagoras",
        ("|x|^2", ar.sum(x * x)),
        ("|Px|^2 + d mean^2", ar.sum(once * once) + ar.length(x) * mu * mu),
    )


@theorem(
    statement=r"\mathrm{LN}(x - t\mathbf 1) = \mathrm{LN}(x)",
    hypotheses=("t is any number, another one for each row",),
    citation=f"{BA}, and table 1 (re-centring)",
    used_in=("PRE_LN_IS_PRE_RMS_NORM", "the laws that `verify audit` tries"),
)
def LAYER_NORM_IS_SHIFT_INVARIANT(s: Statement) -> None:
    """LayerNorm does not see a number that is added to all elements of a row."""
    i, ar, symbols = row(s, "shift")
    x, shift, eps = symbols["x"], symbols["shift"], symbols["eps"]
    left, right = sides("LAYER_NORM_IS_SHIFT_INVARIANT", ar, symbols)
    s.equal(
        "the centred row does not see the shift",
        ("P(x - t)", centred(ar, x - shift)),
        ("mean(x - t) = mean x - t", (x - shift) - (mean(ar, x) - shift)),
        ("Px", centred(ar, x)),
        free=[i],
    )
    rstd = rstd_eps_inside(ar, variance(ar, x - shift), eps)
    s.equal(
        "LAYER_NORM_IS_SHIFT_INVARIANT",
        ("LayerNorm(x - t)", left),
        ("P(x - t) = Px", centred(ar, x) * rstd * symbols["weight"] + symbols["bias"]),
        ("var(x - t) = var x: LayerNorm(x)", right),
        free=[i],
    )


@theorem(
    statement=r"\mathrm{mean}\big((x+t)^2\big) = \mathrm{var}(x) + (\mathrm{mean}(x)+t)^2,\quad"
    r" \exists x,t:\ \mathrm{RMS}(x+t\mathbf 1)\ne\mathrm{RMS}(x)",
    citation=f"{ZHANG}, table 1 (no re-centring); the formula is {OURS}",
    used_in=("PRE_LN_IS_PRE_RMS_NORM", "what is not folded by centring weights"),
)
def RMS_NORM_IS_NOT_SHIFT_INVARIANT(s: Statement) -> None:
    """A shift of the row changes what RMSNorm divides by, exactly by the change of mean^2."""
    i, ar, symbols = row(s, "shift")
    x, shift, eps = symbols["x"], symbols["shift"], symbols["eps"]
    weight, bias = symbols["weight"], symbols["bias"]
    moved = mean(ar, x) + shift
    square = variance(ar, x) + moved * moved
    s.equal(
        "the mean square of a shifted row",
        ("mean((x + t)^2)", mean(ar, (x + shift) * (x + shift))),
        ("x + t = Px + (mean + t)", mean(ar, (centred(ar, x) + moved) * (centred(ar, x) + moved))),
        ("Px sums to 0: var + (mean + t)^2", square),
    )
    s.equal(
        "RMSNorm of a shifted row",
        ("RMSNorm(x + t)", rms_norm(ar, x + shift, weight, bias, eps)),
        (
            "its mean square is var + (mean + t)^2",
            (x + shift) * rstd_eps_inside(ar, square, eps) * weight + bias,
        ),
        free=[i],
    )
    values = {"x": [1, -1], "weight": [1, 1], "bias": [0, 0], "shift": 4, "eps": 8}
    s.differ(
        "RMSNorm sees a shift",
        rms_norm(ar, x + shift, weight, bias, eps),
        rms_norm(ar, x, weight, bias, eps),
        free=[i],
        dims={"n": 2},
        values=values,
        index=(0,),
    )


@theorem(
    statement=r"\tfrac1d\textstyle\sum_i (x_i-\bar x)^2 = \tfrac1d\sum_i x_i^2 - \bar x^2",
    hypotheses=(
        "exact arithmetic: in floating point the difference cancels once |mean| >> spread",
    ),
    citation=CHAN,
    used_in=("kernels that read a row once", "the conditioning bounds of LayerNorm"),
)
def ONE_PASS_VARIANCE_IS_TWO_PASS(s: Statement) -> None:
    """The mean of squares less the squared mean is the variance, so one pass over x is enough."""
    i, ar, symbols = row(s)
    x = symbols["x"]
    mu = mean(ar, x)
    s.equal(
        "the variance in one pass",
        ("mean(x^2) - mean(x)^2", mean(ar, x * x) - mu * mu),
        ("the mean of 2 x mean(x) is 2 mean(x)^2", mean(ar, x * x - 2 * x * mu + mu * mu)),
        ("complete the square: mean((x - mean x)^2)", variance(ar, x)),
    )
    left, right = sides("ONE_PASS_IS_TWO_PASS", ar, symbols)
    s.equal("ONE_PASS_IS_TWO_PASS", ("in one pass", left), ("LayerNorm(x)", right), free=[i])


@theorem(
    statement=r"\mathrm{var}(x) = \mathrm{mean}\big((x-t)^2\big) - \mathrm{mean}(x-t)^2",
    hypotheses=("t is any number; near the values of the row nothing cancels",),
    citation=CHAN,
    used_in=("kernels that read a row once, with its first element as t",),
)
def SHIFTED_ONE_PASS_IS_TWO_PASS(s: Statement) -> None:
    """The one-pass variance may be taken over x - t for any number t."""
    i, ar, symbols = row(s, "shift")
    x, shift = symbols["x"], symbols["shift"]
    moved = mean(ar, x - shift)
    s.equal(
        "the variance in one pass over x - t",
        ("mean((x - t)^2) - mean(x - t)^2", mean(ar, (x - shift) * (x - shift)) - moved * moved),
        ("one pass is two passes", variance(ar, x - shift)),
        ("P(x - t) = Px", variance(ar, x)),
    )
    left, right = sides("SHIFTED_IS_TWO_PASS", ar, symbols)
    s.equal("SHIFTED_IS_TWO_PASS", ("over x - t", left), ("LayerNorm(x)", right), free=[i])


@theorem(
    statement=r"x_i\,a_i + (\beta_i - \bar x\,a_i) = \mathrm{LN}(x)_i,\quad"
    r" a_i = \gamma_i/\sqrt{\mathrm{var}(x)+\varepsilon}",
    hypotheses=("gradients are those of one row; gradients of rows add up",),
    citation=FOLKLORE,
    used_in=("CPU kernels that use one multiply-add for each element, forward and backward",),
)
def FOLDED_SHIFT_IS_TWO_PASS(s: Statement) -> None:
    """The mean may be subtracted after scaling, as part of the bias, and so in the gradient."""
    i, ar, symbols = row(s)
    x, bias = symbols["x"], symbols["bias"]
    scale = rstd_eps_inside(ar, variance(ar, x), symbols["eps"]) * symbols["weight"]
    left, right = sides("FOLDED_SHIFT_IS_TWO_PASS", ar, symbols)
    s.equal(
        "FOLDED_SHIFT_IS_TWO_PASS",
        ("x a + (bias - mean a)", left),
        ("collect a", centred(ar, x) * scale + bias),
        ("LayerNorm(x)", right),
        free=[i],
    )
    (symbols["dy"],) = s.arrays("dy", i)
    (dx, *parameters), (dx_right, *parameters_right) = sides(
        "FOLDED_BACKWARD_IS_BACKWARD", ar, symbols
    )
    s.equal(
        "FOLDED_BACKWARD_IS_BACKWARD: dx",
        ("rstd g + b x + c", dx),
        ("LayerNorm's dx", dx_right),
        free=[i],
    )
    # The weight does not occur in either, so that it keeps the two gradients apart.
    both, both_right = (v[0] + symbols["weight"] * v[1] for v in (parameters, parameters_right))
    s.equal(
        "FOLDED_BACKWARD_IS_BACKWARD: dweight + weight dbias",
        ("folded", both),
        ("LayerNorm's", both_right),
        free=[i],
    )


def _statistics(ar: RowArithmetic, leaves: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """What a fold of elements with `chan_merge` should give: count, mean, squared deviations."""
    _, x, _ = leaves
    return ar.length(x), mean(ar, x), ar.sum(centred(ar, x) * centred(ar, x))


@theorem(
    statement=r"(n,\mu,M)\oplus(m,\nu,N) = \big(n+m,\ \mu+\tfrac{m\delta}{n+m},\ "
    r"M+N+\tfrac{nm\,\delta^2}{n+m}\big),\quad \delta=\nu-\mu",
    hypotheses=(
        "any tree of merges: a leaf and a union are the two cases of an induction on the tree",
    ),
    citation=f"{CHAN}; the induction is {OURS}",
    used_in=("Welford and tree reductions in kernels", "the truth for folds"),
)
def WELFORD_IS_TWO_PASS(s: Statement) -> None:
    """Merging counts, means and squared deviations, in any order, gives LayerNorm's statistics."""
    i, ar, symbols = row(s)
    s.dimension("m")
    j = s.index("m")
    (y,) = s.arrays("y", j)
    x = symbols["x"]
    (a,) = s.numbers("a")
    one = RowArithmetic((None,))
    s.equal(
        "a leaf: all three statistics of one element, weighed by powers of eps to keep them apart",
        ("count, mean and deviations of a", _packed(_statistics(one, (1, a, 0)), symbols["eps"])),
        ("1, a and 0", _packed((1, a, 0), symbols["eps"])),
    )
    parts = (*_statistics(ar, (1, x, 0)), *_statistics(RowArithmetic((j,)), (1, y, 0)))
    merged, both = chan_merge(*parts), Blocks((x, y))
    whole = _statistics(RowArithmetic((i, j)), (1, both, 0))
    n, mu, m2, m, nu, m2_right = parts
    delta = nu - mu
    s.equal("a merge: the count", ("merged", merged[0]), ("of the union", whole[0]))
    s.equal(
        "a merge: the mean",
        ("merged", merged[1]),
        ("weigh each mean by its count", (n * mu + m * nu) / (n + m)),
        ("of the union", whole[1]),
    )
    left_far, right_far = mu - whole[1], nu - whole[1]
    s.equal(
        "a merge: the squared deviations",
        ("merged", merged[2]),
        ("n m delta^2 / (n + m)", m2 + m2_right + n * m * delta * delta / (n + m)),
        (
            "about the common mean",
            m2 + n * left_far * left_far + m2_right + m * right_far * right_far,
        ),
        ("of the union", whole[2]),
    )
    folded = replace(ar, states={"chan_merge": _statistics})
    left, right = sides("WELFORD_IS_TWO_PASS", folded, symbols)
    s.equal("WELFORD_IS_TWO_PASS", ("by merging", left), ("LayerNorm(x)", right), free=[i])


def _packed(state: tuple[Any, Any, Any], weight: Expression) -> Any:
    """Three quantities that do not mention ``weight``, as one: equal if and only if all are."""
    return state[0] + weight * state[1] + weight * weight * state[2]


@theorem(
    statement=r"(1+\gamma)\odot\mathrm{RMS}(x) = \mathrm{RMS}(x;\,1+\gamma)",
    citation=GEMMA,
    used_in=("conversion between Gemma's weights and those of Llama",),
)
def GEMMA_RMS_NORM_IS_RMS_NORM_OF_ONE_PLUS_WEIGHT(s: Statement) -> None:
    """Gemma's RMSNorm stores its weight as the distance from 1; over the reals that is all."""
    i, ar, symbols = row(s)
    x, weight, eps = symbols["x"], symbols["weight"], symbols["eps"]
    plain = rms_norm(ar, x, 1, 0, eps)
    left, right = sides("GEMMA_RMS_NORM_IS_RMS_NORM_OF_ONE_PLUS_WEIGHT", ar, symbols)
    s.equal(
        "GEMMA_RMS_NORM_IS_RMS_NORM_OF_ONE_PLUS_WEIGHT",
        ("Gemma's RMSNorm(x; w)", left),
        ("the row and w times the row", plain + weight * plain),
        ("RMSNorm(x; 1 + w)", right),
        free=[i],
    )
