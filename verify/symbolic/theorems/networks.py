"""Whole networks, by induction over their blocks.

A state is x[t, i], token t and feature i. A block adds A f(norm(x)) + b to it, where f is any
function of the normalised tokens together: attention in one block, an MLP in the next. Nothing is
known of f but that equal arguments give equal values. An induction has three claims, for a
relation between the states of two networks: it holds at the input (*base*), a block keeps it
(*step*), and related states give the same output (*read-out*). Every claim holds for all weights
and states, so the blocks may all differ, and the relation and the outputs follow by induction for
any number of them.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from verify.norms.catalogue import JIANG
from verify.norms.forward import crms_norm, layer_norm, mean, narrow_rms_norm, rms_norm
from verify.symbolic.language import (
    Blocks,
    Expression,
    Index,
    RowArithmetic,
    Statement,
    apply,
    array,
    total,
)
from verify.symbolic.theorem import theorem
from verify.symbolic.theorems.centring import OURS, centred
from verify.symbolic.theorems.charts import chart_transposed, decompressed

PRE_NORM = (
    "x_0 = e + S u + s; x_{l+1} = x_l + A f(norm(x_l)) + b; output W norm(x_L) + c",
    "f is any function of all normalised tokens together; weights differ from block to block",
    "dropout is off; nothing but a norm reads a state",
)
FOLDED = "the norms' gains and biases are folded first (AFFINE_FOLDS_INTO_THE_READER)"


def _sublayer(name: str, t: Index, i: Index, k: Index) -> Callable[[Any], Expression]:
    """The function whose value at token t and hidden feature k reads all normalised tokens."""
    return lambda normalised: apply(name, array(normalised, t, i), at=(t, k))


@theorem(
    statement=r"x'_0=Px_0,\ A'=PA,\ b'=Pb \;\Rightarrow\; x'_l=Px_l"
    r" \text{ and equal outputs, where } x'_{l+1}=x'_l+A'f(\mathrm{RMS}(x'_l))+b'",
    hypotheses=PRE_NORM,
    citation=f"{JIANG}, eq. 4",
    used_in=("conversion", "HIDDEN_STATES_DIFFER_BY_A_MULTIPLE_OF_ONES"),
)
def PRE_LN_IS_PRE_RMS_NORM(s: Statement) -> None:
    """A Pre-LN network is the Pre-RMSNorm network with centred input and centred writers."""
    for name in ("tokens", "m", "vocabulary"):
        s.dimension(name)
    t, i, k, v = s.index("tokens"), s.index(), s.index("m"), s.index("vocabulary")
    x, e = s.arrays("x e", t, i)
    weight, bias, b, stem_bias = s.arrays("weight bias b stem_bias", i)
    (u,), (A, S) = s.arrays("u", t, k), s.arrays("A S", i, k)
    (W,), (c,), (eps,) = s.arrays("W", v, i), s.arrays("c", v), s.numbers("eps", positive=True)
    ar, f = RowArithmetic((i,)), _sublayer("f", t, i, k)
    state = centred(ar, x)
    ln, rms = layer_norm(ar, x, weight, bias, eps), rms_norm(ar, state, weight, bias, eps)
    s.equal(
        "base",
        ("P(e + S u + s)", centred(ar, e + total(k, S * u) + stem_bias)),
        (
            "P e + (P S) u + P s",
            centred(ar, e) + total(k, centred(ar, S) * u) + centred(ar, stem_bias),
        ),
        free=[t, i],
    )

    def with_centred_writer(normalised: Any) -> Any:
        return state + total(k, centred(ar, A) * f(normalised)) + centred(ar, b)

    s.equal(
        "step",
        ("P(x + A f(LN(x)) + b)", centred(ar, x + total(k, A * f(ln)) + b)),
        ("P is linear", with_centred_writer(ln)),
        ("LN(x) = RMS(P x)", with_centred_writer(rms)),
        free=[t, i],
    )
    s.equal(
        "read-out",
        ("W LN(x) + c", total(i, W * ln) + c),
        ("W RMS(P x) + c", total(i, W * rms) + c),
        free=[t, v],
    )


@theorem(
    statement=r"x_l=(z_l,-\mathbf 1^\top z_l),\ W'=W_{:,<d}-W_{:,d}\mathbf 1^\top,\ A'=A_{<d,:}"
    r" \;\Rightarrow\; x_{l+1}=(z_{l+1},-\mathbf 1^\top z_{l+1}),"
    r"\ z_{l+1}=z_l+A'f(W'\mathrm{CRMS}(z_l)+c)+b'",
    hypotheses=(
        *PRE_NORM[1:],
        "input and writers are centred, as PRE_LN_IS_PRE_RMS_NORM leaves them; d = n + 1",
        "f reads the normalised tokens through its first linear maps W y + c",
        FOLDED,
    ),
    citation=f"{JIANG}, eq. 4 to 6",
    used_in=("conversion",),
)
def PRE_RMS_NORM_IS_PRE_CRMS_NORM(s: Statement) -> None:
    """A Pre-RMSNorm network on zero-sum states is a Pre-CRMSNorm network on d-1 of d features."""
    for name in ("tokens", "m", "hidden"):
        s.dimension(name)
    t, i, k, h = s.index("tokens"), s.index(), s.index("m"), s.index("hidden")
    (z, e), (last,) = s.arrays("z e", t, i), s.arrays("last", t)
    (A,), (b,), (eps,) = s.arrays("A", i, k), s.arrays("b", i), s.numbers("eps", positive=True)
    (W,), (column, c) = s.arrays("W", h, i), s.arrays("column c", h)
    row, narrow, f = RowArithmetic((i, None)), RowArithmetic((i,)), _sublayer("f", t, h, k)
    crms = crms_norm(narrow, z, 1, 0, eps)
    rms = rms_norm(row, decompressed(narrow, z), 1, 0, eps)
    seen = row.sum(Blocks((W, column)) * rms) + c
    seen_narrow = total(i, (W - column) * crms) + c
    recentred = centred(row, Blocks((e, last)))
    s.equal(
        "base",
        ("the last feature of a recentred input", recentred.parts[1]),
        ("less the sum of the others", -total(i, recentred.parts[0])),
        free=[t],
    )
    s.equal(
        "step",
        ("the first d-1 features", z + total(k, A * f(seen)) + b),
        ("the CRMSNorm block", z + total(k, A * f(seen_narrow)) + b),
        free=[t, i],
    )
    s.equal(
        "step, the feature dropped",
        (
            "the last feature, A and b being centred",
            -total(i, z) + total(k, -total(i, A) * f(seen)) - total(i, b),
        ),
        (
            "less the sum of the CRMSNorm block",
            -total(i, z + total(k, A * f(seen_narrow)) + b),
        ),
        free=[t],
    )
    s.equal(
        "read-out",
        ("W RMS(x) + c", seen),
        ("RMS(x) sums to 0", total(i, W * rms.parts[0]) - column * total(i, rms.parts[0]) + c),
        ("(W - column 1^T) CRMS(z) + c", seen_narrow),
        free=[t, h],
    )


@theorem(
    statement=r"Q^\top Q=I,\ QQ^\top=P,\ z_0=Q^\top x_0,\ A'=Q^\top A,\ b'=Q^\top b,\ W'=WQ"
    r" \;\Rightarrow\; z_l=Q^\top x_l \text{ and equal outputs, where }"
    r" z_{l+1}=z_l+A'f(W'\mathrm{NarrowRMS}(z_l)+c)+b'",
    hypotheses=(
        *PRE_NORM,
        "Q is the chart of THE_HOUSEHOLDER_CHART_IS_AN_ISOMETRY; d = n + 1",
        "f reads the normalised tokens through its first linear maps W y + c",
        FOLDED,
    ),
    citation=f"{OURS}, after {JIANG}, with an isometric chart",
    used_in=("conversion to a stock RMSNorm kernel",),
)
def PRE_LN_IS_NARROW_PRE_RMS_NORM(s: Statement) -> None:
    """A Pre-LN network of width d is a Pre-RMSNorm network of width d-1 in an isometric chart."""
    for name in ("tokens", "m", "hidden"):
        s.dimension(name)
    t, i, k, h = s.index("tokens"), s.index(), s.index("m"), s.index("hidden")
    (x,), (x_last,) = s.arrays("x", t, i), s.arrays("x_last", t)
    (A,), (A_last,), (b,) = s.arrays("A", i, k), s.arrays("A_last", k), s.arrays("b", i)
    (W,), (W_last, c) = s.arrays("W", h, i), s.arrays("W_last c", h)
    (u,), (b_last,) = s.arrays("u", t, k), s.numbers("b_last")
    (eps,) = s.numbers("eps", positive=True)
    row, narrow, f = RowArithmetic((i, None)), RowArithmetic((i,)), _sublayer("f", t, h, k)
    state = Blocks((x, x_last))
    writer, writer_bias, reader = Blocks((A, A_last)), Blocks((b, b_last)), Blocks((W, W_last))
    ln = layer_norm(row, state, 1, 0, eps)
    rms = narrow_rms_norm(narrow, chart_transposed(narrow, state), 1, 0, eps)
    seen = row.sum(reader * ln) + c
    seen_narrow = total(i, chart_transposed(narrow, reader) * rms) + c

    def block(argument: Any) -> Any:
        write = Blocks(tuple(total(k, part * argument) for part in writer.parts))
        return chart_transposed(narrow, state + write + writer_bias)

    def narrow_block(argument: Any) -> Any:
        write = total(k, chart_transposed(narrow, writer) * argument)
        return chart_transposed(narrow, state) + write + chart_transposed(narrow, writer_bias)

    s.equal(
        "base",
        ("Q^T(e + S u + s)", block(u)),
        ("Q^T e + (Q^T S) u + Q^T s", narrow_block(u)),
        free=[t, i],
    )
    s.equal(
        "step",
        ("Q^T(x + A f(W LN(x) + c) + b)", block(f(seen))),
        ("Q^T is linear", narrow_block(f(seen))),
        ("W LN(x) = (W Q) NarrowRMS(Q^T x)", narrow_block(f(seen_narrow))),
        free=[t, i],
    )
    s.equal(
        "read-out",
        ("W LN(x) + c", seen),
        ("(W Q) NarrowRMS(Q^T x) + c", seen_narrow),
        free=[t, h],
    )


@theorem(
    statement=r"x_l-x'_l=\mu(x_l)\mathbf 1 \;\Rightarrow\;"
    r" x_{l+1}-x'_{l+1}=\big(\mu(x_l)+\mu(A)f(\mathrm{LN}(x_l))+\mu(b)\big)\mathbf 1,"
    r"\quad \mathrm{LN}(x_l)=\mathrm{LN}(x'_l)",
    hypotheses=(
        *PRE_NORM[:2],
        "x' is the state of the Pre-RMSNorm network of PRE_LN_IS_PRE_RMS_NORM",
        "every consumer of a state is invariant under a shift by 1, as LayerNorm is",
    ),
    citation=OURS,
    used_in=("conversion: taps, early exits, probes", "RAW_READERS_SEE_THE_MEAN"),
)
def HIDDEN_STATES_DIFFER_BY_A_MULTIPLE_OF_ONES(s: Statement) -> None:
    """The converted network's states lack the mean of each token, which no LayerNorm can see."""
    for name in ("tokens", "m", "vocabulary"):
        s.dimension(name)
    t, i, k, v = s.index("tokens"), s.index(), s.index("m"), s.index("vocabulary")
    (x,), (shift,), (A,) = s.arrays("x", t, i), s.arrays("shift", t), s.arrays("A", i, k)
    weight, bias, b = s.arrays("weight bias b", i)
    (W,), (c,), (eps,) = s.arrays("W", v, i), s.arrays("c", v), s.numbers("eps", positive=True)
    ar, f = RowArithmetic((i,)), _sublayer("f", t, i, k)
    state = centred(ar, x)
    ln, rms = layer_norm(ar, x, weight, bias, eps), rms_norm(ar, state, weight, bias, eps)
    converted = state + total(k, centred(ar, A) * f(rms)) + centred(ar, b)
    s.equal(
        "after a block",
        ("x_{l+1} - x'_{l+1}", x + total(k, A * f(ln)) + b - converted),
        ("equal normalised tokens", mean(ar, x + total(k, A * f(rms)) + b)),
        (
            "(mean(x) + mean(A) f + mean(b)) 1",
            mean(ar, x) + total(k, mean(ar, A) * f(ln)) + mean(ar, b),
        ),
        free=[t, i],
    )
    s.equal(
        "no consumer behind LayerNorm sees a shift",
        ("W LN(x + shift 1) + c", total(i, W * layer_norm(ar, x + shift, weight, bias, eps)) + c),
        ("W LN(x) + c", total(i, W * ln) + c),
        free=[t, v],
    )
    s.equal(
        "no sublayer does",
        ("A f(LN(x + shift 1))", total(k, A * f(layer_norm(ar, x + shift, weight, bias, eps)))),
        ("A f(LN(x))", total(k, A * f(ln))),
        free=[t, i],
    )
    s.differ(
        "RMSNorm in its place would",
        total(i, W * rms_norm(ar, x + shift, weight, bias, eps)),
        total(i, W * rms_norm(ar, x, weight, bias, eps)),
        free=[t, v],
        dims={"tokens": 1, "n": 2, "vocabulary": 1},
        values={
            "x": [[1, -1]],
            "shift": [1],
            "weight": [1, 1],
            "bias": [0, 0],
            "W": [[1, 0]],
            "eps": Fraction(7, 9),
        },
        index=(0, 0),
    )


@theorem(
    statement=r"A=A'+\mathbf 1a^\top,\ b=b'+\beta\mathbf 1,"
    r"\ x=x'+\kappa\mathbf 1,\ W=W'+w\mathbf 1^\top"
    r" \;\Rightarrow\; \text{the outputs of Pre-LN } (x,A,b,W)"
    r" \text{ are those of Pre-RMSNorm } (Px',PA',Pb',W')",
    hypotheses=(
        *PRE_NORM,
        "a, beta, kappa and w are arbitrary",
        "the final norm has no gain or bias",
    ),
    citation=f"{JIANG}, appendix C",
    used_in=("conversion, in reverse", "training: what no gradient sees"),
)
def PRE_RMS_NORM_IS_PRE_LN_FOR_ANY_MEANS(s: Statement) -> None:
    """In reverse any mean may be written: all such Pre-LN networks are one Pre-RMSNorm network."""
    for name in ("tokens", "m", "vocabulary"):
        s.dimension(name)
    t, i, k, v = s.index("tokens"), s.index(), s.index("m"), s.index("vocabulary")
    (x,), (kappa,), (A,) = s.arrays("x", t, i), s.arrays("kappa", t), s.arrays("A", i, k)
    (b,), (a,), (W,) = s.arrays("b", i), s.arrays("a", k), s.arrays("W", v, i)
    (c, w), (beta,), (eps,) = s.arrays("c w", v), s.numbers("beta"), s.numbers("eps", positive=True)
    ar, f = RowArithmetic((i,)), _sublayer("f", t, i, k)
    ln, rms = layer_norm(ar, x + kappa, 1, 0, eps), rms_norm(ar, centred(ar, x), 1, 0, eps)
    s.equal(
        "base",
        ("P(x' + kappa 1)", centred(ar, x + kappa)),
        ("P x'", centred(ar, x)),
        free=[t, i],
    )
    s.equal(
        "step",
        (
            "P(x + (A' + 1 a^T) f(LN(x)) + b' + beta 1), x = x' + kappa 1",
            centred(ar, x + kappa + total(k, (A + a) * f(ln)) + b + beta),
        ),
        ("P 1 = 0", centred(ar, x + total(k, A * f(ln)) + b)),
        (
            "P x' + (P A') f(RMS(P x')) + P b'",
            centred(ar, x) + total(k, centred(ar, A) * f(rms)) + centred(ar, b),
        ),
        free=[t, i],
    )
    s.equal(
        "read-out",
        ("(W' + w 1^T) LN(x' + kappa 1) + c", total(i, (W + w) * ln) + c),
        ("1^T LN(x) = 0", total(i, W * ln) + c),
        ("W' RMS(P x') + c", total(i, W * rms) + c),
        free=[t, v],
    )
