"""Training by one optimiser or another: what commutes with centring, and what does not.

See `training` for the setting. Each negative statement is refuted at a witness in exact numbers.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.norms.backward import layer_norm_backward, rms_norm_backward
from verify.norms.catalogue import JIANG
from verify.norms.forward import layer_norm, mean, rms_norm
from verify.symbolic.language import (
    Blocks,
    Expression,
    Index,
    RowArithmetic,
    Statement,
    apply,
    array,
    sqrt,
    total,
)
from verify.symbolic.theorem import theorem
from verify.symbolic.theorems.centring import OURS, centred
from verify.symbolic.theorems.charts import WIDTH, chart_transposed, decompressed
from verify.symbolic.theorems.training import DIRECT, WRITER

ADAM = "Kingma & Ba 2015 (Adam), arXiv:1412.6980"
ADAMW = "Loshchilov & Hutter 2019 (AdamW), arXiv:1711.05101"
LION = "Chen et al. 2023 (Lion), arXiv:2302.06675"
MUON = "Jordan et al. 2024 (Muon), kellerjordan.github.io/posts/muon"
CLIPPING = "Pascanu, Mikolov & Bengio 2013, arXiv:1211.5063, algorithm 1"


def orthogonalised(ar: RowArithmetic, M: Any, k: Index, m: Index) -> Expression:
    """M phi(M^T M), for M with hidden features k; m is summed over."""
    gram = ar.sum(M * M.at(k, m))
    return total(m, M.at(k, m) * apply("phi", array(gram, m, k), at=(m, k)))


@theorem(
    statement=r"M=PN \;\Rightarrow\; P\big(M\varphi(M^\top M)\big)=M\varphi(M^\top M),\qquad"
    r" P\big(N\varphi(N^\top N)\big)\neq PN\varphi(N^\top PN)",
    hypotheses=(
        "phi is any function of the Gram matrix: its inverse root gives the polar factor",
        "a polynomial phi gives the iteration of Newton and Schulz",
        "M is the memory of projected gradients, N that of the gradients as they are",
    ),
    citation=f"{MUON}; the statement: {OURS}",
    used_in=(DIRECT, "THE_ISOMETRIC_CHART_KEEPS_SGD_AND_MUON"),
)
def MUON_COMMUTES_WITH_CENTRING(s: Statement) -> None:
    """An orthogonalised update of projected gradients is zero-sum; recentring it is too late."""
    s.dimension("m")
    i, j, k, m = s.index(), s.index(), s.index("m"), s.index("m")
    (N, A), (u,), (eta,) = s.arrays("N A", i, k), s.arrays("u", i), s.numbers("eta")
    ar = RowArithmetic((i,))
    M = centred(ar, N)
    update, column = orthogonalised(ar, M, k, m), M.at(k, m)
    s.equal(
        "a step of Pre-LN, seen through P",
        ("P(A - eta M phi(M^T M))", centred(ar, A - eta * update)),
        ("the update sums to 0: P A - eta M phi(M^T M)", centred(ar, A) - eta * update),
        free=[i, k],
    )
    s.equal(
        "odd polynomials of M are of that form",
        ("(M M^T) M", total(j, total(m, column * column.at(i, j)) * M.at(i, j))),
        ("M (M^T M)", total(m, column * ar.sum(M * column))),
        free=[i, k],
    )
    s.differ(
        "the polar factor of a single unprojected column, recentred",
        centred(ar, u / sqrt(ar.sum(u * u))),
        centred(ar, u) / sqrt(ar.sum(centred(ar, u) * centred(ar, u))),
        free=[i],
        dims={"n": 4},
        values={"u": [7, 7, 1, 1]},
        index=(0,),
    )


def writer_and_gradient(s: Statement) -> tuple[RowArithmetic, Index, Index, Blocks, Blocks]:
    """The arithmetic of a narrow row, indices i and k, and A and G in blocks of n rows and one."""
    s.dimension("m")
    i, k = s.index(), s.index("m")
    (A, G), last = s.arrays("A G", i, k), s.arrays("A_last G_last", k)
    return RowArithmetic((i,)), i, k, Blocks((A, last[0])), Blocks((G, last[1]))


@theorem(
    statement=r"A'=Q^\top A,\ G'=Q^\top G \;\Rightarrow\; A'_{+}=Q^\top A_{+}"
    r" \text{ for SGD, momentum, decay, clipping by length and Muon}",
    hypotheses=(
        *WRITER,
        WIDTH,
        "Q is the chart of THE_HOUSEHOLDER_CHART_IS_AN_ISOMETRY",
        "in the chart the gradient is Q^T G (GRADIENTS_ARE_PULLED_BACK_THROUGH_CHARTS)",
        "clip is any factor that depends on the length of the whole gradient, phi as for Muon",
    ),
    citation=OURS,
    used_in=("training the narrow network directly",),
)
def THE_ISOMETRIC_CHART_KEEPS_SGD_AND_MUON(s: Statement) -> None:
    """In an isometric chart every update that commutes with rotations follows Pre-LN directly."""
    ar, i, k, A, G = writer_and_gradient(s)
    wide, m = RowArithmetic((i, None)), s.index("m")
    (M,), (M_last,) = s.arrays("M", i, k), s.arrays("M_last", k)
    eta, beta, decay, others = s.numbers("eta beta decay others")
    memory = Blocks((M, M_last))

    def q(row: Any) -> Any:
        return chart_transposed(ar, row)

    PG = centred(wide, G)
    s.equal(
        "SGD, momentum and decay",
        (
            "Q^T((1 - eta decay) A - eta (beta M + P G))",
            q(A * (1 - eta * decay) - (memory * beta + PG) * eta),
        ),
        (
            "(1 - eta decay) Q^T A - eta (beta Q^T M + Q^T G)",
            (1 - eta * decay) * q(A) - eta * (beta * q(memory) + q(G)),
        ),
        free=[i, k],
    )

    def clipped(inner: Any, gradient: Any) -> Any:
        return apply("clip", others + total(k, inner.sum(gradient * gradient)))

    s.equal(
        "clipping by the length of the whole gradient",
        ("Q^T(A - eta clip(|P G|^2) P G)", q(A - PG * (eta * clipped(wide, PG)))),
        ("Q^T A - eta clip(|Q^T G|^2) Q^T G", q(A) - eta * clipped(ar, q(G)) * q(G)),
        free=[i, k],
    )
    M_row, columns = PG, Blocks(tuple(part.at(k, m) for part in PG.parts))
    phi = apply("phi", array(wide.sum(M_row * columns), m, k), at=(m, k))
    update = Blocks(tuple(total(m, part * phi) for part in columns.parts))
    s.equal(
        "Muon",
        ("Q^T(A - eta P G phi(G^T P G))", q(A - update * eta)),
        ("Q^T A - eta Q^T G phi((Q^T G)^T Q^T G)", q(A) - eta * orthogonalised(ar, q(G), k, m)),
        free=[i, k],
    )


@theorem(
    statement=r"D(EPA-\eta D^\top G)=PA-\eta\,DD^\top PG\neq PA-\eta PG,"
    r"\quad D^\top D(Py+c\mathbf 1)=Py+d\,c\mathbf 1",
    hypotheses=(
        *WRITER,
        WIDTH,
        "D and E are those of COMPRESSION_IS_LOSSLESS; a step of SGD with rate eta",
        "in the chart the gradient is D^T G (GRADIENTS_ARE_PULLED_BACK_THROUGH_CHARTS)",
    ),
    citation=f"{OURS}, of the network of {JIANG}",
    used_in=("training a Pre-CRMSNorm network directly",),
)
def THE_CRMS_CHART_IS_A_PRECONDITIONER(s: Statement) -> None:
    """SGD on the weights of a Pre-CRMSNorm network is Pre-LN's, with D D^T on its gradient."""
    ar, i, k, A, G = writer_and_gradient(s)
    wide = RowArithmetic((i, None))
    (y,), (eta, c) = s.arrays("y", i), s.numbers("eta c")
    PA, PG = centred(wide, A), centred(wide, G)

    def d_transposed(row: Blocks) -> Any:
        return row.parts[0] - row.parts[1]

    kept = PA.parts[0] - eta * d_transposed(G)
    preconditioned = PA - decompressed(ar, d_transposed(PG)) * eta
    for part, indices in ((0, [i, k]), (1, [k])):
        s.equal(
            f"a step in the chart, decompressed: block {part + 1}",
            ("D(E P A - eta D^T G)", decompressed(ar, kept).parts[part]),
            ("P A - eta D D^T P G", preconditioned.parts[part]),
            free=indices,
        )
    level = y - mean(ar, y)
    s.equal(
        "zero-sum directions keep their rate, that of D 1 has d times as much",
        ("D^T D (Py + c 1)", d_transposed(decompressed(ar, level + c))),
        ("Py + d c 1", level + (ar.length(y) + 1) * c),
        free=[i],
    )
    s.differ(
        "a step of SGD in the chart",
        decompressed(ar, kept).parts[0],
        (PA - PG * eta).parts[0],
        free=[i, k],
        dims={"n": 2, "m": 1},
        values={"A": [[0], [0]], "A_last": [0], "G": [[3], [0]], "G_last": [0], "eta": 1},
        index=(0, 0),
    )


@theorem(
    statement=r"A'=PA,\ A'_{+}=A'-\eta G \;\Rightarrow\; A'_{+}=PA_{+}-\eta\,\mathbf 1\mu(G),"
    r"\quad \mathrm{RMS}(Px+A'_{+}a)\neq\mathrm{LN}(x+A_{+}a)",
    hypotheses=(*WRITER, "Pre-LN steps by A_+ = A - eta P G (PRE_LN_GRADIENTS_ARE_PROJECTED)"),
    citation=OURS,
    used_in=(DIRECT, "RMS_NORM_IS_NOT_SHIFT_INVARIANT"),
)
def UNPROJECTED_SGD_LEAVES_PRE_LN(s: Statement) -> None:
    """A step with the gradient as it is differs by a mean, which RMSNorm sees at the next step."""
    s.dimension("m")
    i, k = s.index(), s.index("m")
    (A, G), (a,), (x, dy) = s.arrays("A G", i, k), s.arrays("a", k), s.arrays("x dy", i)
    (eta,), (eps,), ar = s.numbers("eta"), s.numbers("eps", positive=True), RowArithmetic((i,))
    s.equal(
        "the weights after a step",
        (
            "P(A - eta P G) - eta 1 mean G",
            centred(ar, A - eta * centred(ar, G)) - eta * mean(ar, G),
        ),
        ("P A - eta G", centred(ar, A) - eta * G),
        free=[i, k],
    )
    energy = total(k, a * a)
    s.equal(
        "the mean of the stream after a step, for the token that made it",
        (
            "mean of P x + (P A - eta g a^T) a",
            mean(ar, centred(ar, x) + total(k, (centred(ar, A) - eta * dy * a) * a)),
        ),
        ("-eta mean(g) |a|^2", -eta * mean(ar, dy) * energy),
    )

    def step(backward: Any, weights: Any, row: Any) -> Any:
        """The row after a step, at the token that made it."""
        gradient = backward(ar, row + total(k, weights * a), 1, eps, dy)[0]
        return row + total(k, weights * a) - eta * gradient * energy

    values = {"x": [2, -2], "A": [[0], [0]], "a": [1], "dy": [-4, -4], "eta": 3, "eps": 5}
    s.differ(
        "the outputs after a step from the same centred weights",
        rms_norm(ar, step(rms_norm_backward, centred(ar, A), centred(ar, x)), 1, 0, eps),
        layer_norm(ar, step(layer_norm_backward, A, x), 1, 0, eps),
        free=[i],
        dims={"n": 2, "m": 1},
        values=values,
        index=(0,),
    )
    s.differ(
        "from weights that are not centred, the outputs before any step",
        rms_norm(ar, x + total(k, A * a), 1, 0, eps),
        layer_norm(ar, x + total(k, A * a), 1, 0, eps),
        free=[i],
        dims={"n": 2, "m": 1},
        values=values | {"x": [0, 0], "A": [[3], [1]], "eps": Fraction(5, 4)},
        index=(0,),
    )


def adam(ar: Any, gradient: Any, first: Any, second: Any, rates: Any) -> Any:
    """The update of Adam from old moments; rates = beta1, beta2, 1 - beta1^s, 1 - beta2^s, eps."""
    beta1, beta2, bias1, bias2, eps = rates
    first = beta1 * first + (1 - beta1) * gradient
    second = beta2 * second + (1 - beta2) * gradient * gradient
    return first / bias1 / (ar.sqrt(second / bias2) + eps)


def lion(ar: Any, gradient: Any, memory: Any, beta: Any) -> Any:
    """The update of Lion, the sign of beta m + (1 - beta) g, where that is not 0."""
    mixed = beta * memory + (1 - beta) * gradient
    return mixed / ar.sqrt(mixed * mixed)


@theorem(
    statement=r"\mu(G^2)=\mu\big((PG)^2\big)+\mu(G)^2,\quad P\,U(G)\neq P\,U(PG)\neq U(PG)"
    r"\ \text{ for Adam, AdamW and Lion}, \quad U'(Q^\top G)\neq Q^\top U(PG)",
    hypotheses=(
        "one column of a writer; the first step from zero moments, with Adam's bias corrections",
        "Pre-LN's step is U(PG), seen through P",
    ),
    citation=f"{ADAM}; {ADAMW}; {LION}; the statement: {OURS}",
    used_in=(DIRECT, "PROJECTING_GRADIENT_AND_UPDATE_FOLLOWS_PRE_LN"),
)
def ELEMENT_WISE_OPTIMISERS_DO_NOT_COMMUTE_WITH_CENTRING(s: Statement) -> None:
    """Squares and signs of elements see the chart: one projection alone does not follow Pre-LN."""
    i = s.index()
    G, A, m, v = s.arrays("G A m v", i)
    G_last, eta, decay = s.numbers("G_last eta decay")
    rates = s.numbers("beta1 beta2 bias1 bias2 eps", positive=True)
    ar = RowArithmetic((i,))
    PG, PA = centred(ar, G), centred(ar, A)

    def both(gradient: Any, first: Any = m, second: Any = v) -> Any:
        return adam(ar, gradient, first, second, rates)

    s.equal(
        "second moments, averaged over channels",
        ("mean(G^2)", mean(ar, G * G)),
        ("mean((P G)^2) + mean(G)^2", mean(ar, PG * PG) + mean(ar, G) * mean(ar, G)),
    )
    half = Fraction(1, 2)
    moments = {"beta1": half, "beta2": half, "bias1": half, "bias2": half, "eps": 1, "eta": 1}
    for name, direct, pre_ln, given in (
        ("Adam, recentred", centred(ar, both(G)), centred(ar, both(PG)), [3, 1, 1]),
        ("Adam, the gradient projected", both(PG), centred(ar, both(PG)), [3, 0, 0]),
        (
            "AdamW, the gradient projected",
            (1 - eta * decay) * PA - eta * both(PG),
            centred(ar, (1 - eta * decay) * A - eta * both(PG)),
            [3, 0, 0],
        ),
        (
            "Adam, decay added to the gradient, gradient and update projected",
            centred(ar, both(PG + decay * PA)),
            centred(ar, both(PG + decay * A)),
            [5, 2, 2],
        ),
        (
            "Lion, recentred",
            centred(ar, lion(ar, G, m, rates[0])),
            centred(ar, lion(ar, PG, m, rates[0])),
            [5, 2, 2],
        ),
        (
            "Lion, the gradient projected",
            lion(ar, PG, m, rates[0]),
            centred(ar, lion(ar, PG, m, rates[0])),
            [5, 2, 2],
        ),
    ):
        s.differ(
            name,
            direct,
            pre_ln,
            free=[i],
            dims={"n": 3},
            values=moments
            | {"G": given, "A": [1, 4, 7], "m": [0] * 3, "v": [0] * 3, "decay": half},
            index=(0,),
        )
    row = Blocks((G, G_last))
    PG = centred(RowArithmetic((i, None)), row)
    update = Blocks(tuple(both(part, 0, 0) for part in PG.parts))
    s.differ(
        "Adam in an isometric chart",
        both(chart_transposed(ar, row), 0, 0),
        chart_transposed(ar, update),
        free=[i],
        dims={"n": 3},
        values=moments | {"G": [5, 5, -7], "G_last": -3},
        index=(0,),
    )


@theorem(
    statement=r"\|G\|^2=\|PG\|^2+d\textstyle\sum_k\mu(G_k)^2,\quad"
    r" P\,\mathrm{clip}(G)\neq\mathrm{clip}(PG)",
    hypotheses=("clip(G) = G min(1, c/|G|), |G| the length of the whole gradient",),
    citation=f"{CLIPPING}; the statement: {OURS}",
    used_in=(DIRECT, "THE_ISOMETRIC_CHART_KEEPS_SGD_AND_MUON"),
)
def CLIPPING_SEES_THE_MEAN_OF_A_GRADIENT(s: Statement) -> None:
    """Clipping by length takes more from a gradient that still has its mean."""
    s.dimension("m")
    i, k = s.index(), s.index("m")
    (G, A), (c,), (decay,) = (
        s.arrays("G A", i, k),
        s.numbers("c", positive=True),
        s.numbers("decay"),
    )
    ar = RowArithmetic((i,))
    PG, mu = centred(ar, G), mean(ar, G)

    def squared(gradient: Any) -> Any:
        return total(k, ar.sum(gradient * gradient))

    def clipped(gradient: Any) -> Any:
        """min(a, b) = (a + b - |a - b|) / 2."""
        ratio = c / sqrt(squared(gradient))
        return gradient * (1 + ratio - sqrt((1 - ratio) * (1 - ratio))) / 2

    s.equal(
        "the length of a column",
        ("|G_k|^2", ar.sum(G * G)),
        ("|P G_k|^2 + d mean(G_k)^2", ar.sum(PG * PG) + ar.length(G) * mu * mu),
        free=[k],
    )
    s.at_least(
        "the length of the gradient",
        ("|G|^2 - |P G|^2", squared(G) - squared(PG)),
        ("d sum_k mean(G_k)^2", total(k, ar.length(G) * (mu * mu))),
    )
    values = {"G": [[7], [7], [1], [1]], "A": [[4], [4], [4], [4]], "decay": 1}
    for name, left, right, bound in (
        ("both are clipped", centred(ar, clipped(G)), clipped(PG), 5),
        ("only the gradient with its mean is clipped", centred(ar, clipped(G)), clipped(PG), 8),
        (
            "a projected gradient, but the decay of weights that have a mean under the clip",
            centred(ar, clipped(PG + decay * A)),
            clipped(PG + decay * centred(ar, A)),
            5,
        ),
    ):
        s.differ(
            name,
            left,
            right,
            free=[i, k],
            dims={"n": 4, "m": 1},
            values=values | {"c": bound},
            index=(0, 0),
        )
