"""Folding: what a norm's affine part, and centring itself, become in the weights around it.

A *reader* is a linear map that reads a norm's output (query, key, value, MLP input, head), a
*writer* one whose output is added to the residual stream (attention output, MLP output). Centring
is P = I - (1/d) 1 1^T; P A centres the columns of a writer A[i, k], k being its input.
"""

from __future__ import annotations

from typing import Any

from verify.norms.catalogue import JIANG
from verify.norms.forward import crms_norm, layer_norm, mean, rms_norm
from verify.symbolic.language import Blocks, RowArithmetic, Statement, total
from verify.symbolic.theorem import theorem
from verify.symbolic.theorems.centring import FOLKLORE, OURS, centred


@theorem(
    statement=r"W(\gamma\odot z+\beta)+b = (W\,\mathrm{diag}\,\gamma)\,z + (b+W\beta),"
    r"\quad W\,\mathrm{LN}(x;\gamma,\beta)+b = W\,\mathrm{RMS}(Px;\gamma,\beta)+b",
    hypotheses=(
        "every consumer of the norm is linear, and each is folded",
        "a reader without a bias gets one, W beta, unless W beta = 0",
    ),
    citation=f"{FOLKLORE}; the fold of beta is what several converters forget",
    used_in=("PRE_RMS_NORM_IS_PRE_CRMS_NORM", "PRE_LN_IS_NARROW_PRE_RMS_NORM", "conversion"),
)
def AFFINE_FOLDS_INTO_THE_READER(s: Statement) -> None:
    """Gain and bias of a norm fold into its linear readers; LayerNorm to RMSNorm needs no fold."""
    s.dimension("m")
    i, k = s.index(), s.index("m")
    x, weight, bias = s.arrays("x weight bias", i)
    (W,), (b,), (eps,) = s.arrays("W", k, i), s.arrays("b", k), s.numbers("eps", positive=True)
    ar = RowArithmetic((i,))
    z, z_affine = layer_norm(ar, x, 1, 0, eps), layer_norm(ar, x, weight, bias, eps)
    folded, new_bias = total(i, W * weight * z), b + total(i, W * bias)
    s.equal(
        "the reader takes gain and bias",
        ("W LN(x; gamma, beta) + b", total(i, W * z_affine) + b),
        ("distribute W", total(i, W * (weight * z)) + total(i, W * bias) + b),
        ("(W diag gamma) z + (b + W beta)", folded + new_bias),
        free=[k],
    )
    s.equal(
        "the bias that a reader without one needs",
        ("W LN(x; gamma, beta)", total(i, W * z_affine)),
        ("(W diag gamma) z + W beta", folded + total(i, W * bias)),
        free=[k],
    )
    s.equal(
        "LayerNorm becomes RMSNorm with gain and bias in place",
        ("W LN(x; gamma, beta) + b", total(i, W * z_affine) + b),
        (
            "RMS(P x; gamma, beta)",
            total(i, W * rms_norm(ar, centred(ar, x), weight, bias, eps)) + b,
        ),
        free=[k],
    )
    s.differ(
        "without the new bias",
        total(i, W * z_affine),
        folded,
        free=[k],
        dims={"n": 2, "m": 1},
        values={"x": [1, -1], "weight": [2, 1], "bias": [1, 3], "W": [[1, 2]], "eps": 3},
        index=(0,),
    )


@theorem(
    statement=r"x_d=-\sum_{i<d}x_i \;\Rightarrow\; (Wx+b)_k"
    r" = \sum_{i<d}(W_{ki}-W_{kd})\,x_i+b_k",
    hypotheses=("the row sums to 0: x = (z, -sum z), d = n + 1", "no gain between norm and reader"),
    citation=f"{JIANG}, eq. 6",
    used_in=("PRE_RMS_NORM_IS_PRE_CRMS_NORM", "conversion"),
)
def READER_ON_ZERO_SUM_ROWS(s: Statement) -> None:
    """On zero-sum rows a reader loses its last column: it is subtracted from all the others."""
    s.dimension("m")
    i, k = s.index(), s.index("m")
    (z,), (W,), (last, b) = s.arrays("z", i), s.arrays("W", k, i), s.arrays("last b", k)
    (shift,), (eps,) = s.numbers("shift"), s.numbers("eps", positive=True)
    row, narrow = RowArithmetic((i, None)), RowArithmetic((i,))
    x, reader = Blocks((z, -total(i, z))), Blocks((W, last))
    s.equal(
        "subtract the last column",
        ("W x + b", row.sum(reader * x) + b),
        ("x_d = -sum x_i", total(i, W * z) + last * -total(i, z) + b),
        ("(W - last 1^T) z + b", total(i, (W - last) * z) + b),
        free=[k],
    )
    s.equal(
        "any multiple of 1^T may be added to a reader",
        ("(W + shift 1^T) x + b", row.sum((reader + shift) * x) + b),
        ("shift 1^T x = 0", row.sum(reader * x) + shift * row.sum(x) + b),
        ("W x + b", row.sum(reader * x) + b),
        free=[k],
    )
    normed = rms_norm(row, x, 1, 0, eps)
    s.equal(
        "a reader behind the norm",
        ("W RMS(x) + b", row.sum(reader * normed) + b),
        ("(W - last 1^T) CRMS(z) + b", total(i, (W - last) * crms_norm(narrow, z, 1, 0, eps)) + b),
        free=[k],
    )


@theorem(
    statement=r"y=Ax+b \;\Rightarrow\; y=\hat Ax+\hat b+\mu(y)\mathbf 1,"
    r"\quad \hat A=PA,\ \hat b=b-\mu(b)\mathbf 1",
    hypotheses=("the mean is over the outputs of A, never over its inputs",),
    citation=f"{JIANG}, lemma 3.1",
    used_in=("PRE_LN_IS_PRE_RMS_NORM", "conversion"),
)
def CENTRED_WRITER(s: Statement) -> None:
    """Centring a writer's columns and bias centres its output; only the output's mean is lost."""
    s.dimension("m")
    i, k = s.index(), s.index("m")
    (A,), (b,), (x,) = s.arrays("A", i, k), s.arrays("b", i), s.arrays("x", k)
    ar = RowArithmetic((i,))
    y = total(k, A * x) + b
    without_mean = total(k, centred(ar, A) * x) + centred(ar, b)
    s.equal(
        "lemma 3.1",
        ("(P A) x + P b + mean(y) 1", without_mean + mean(ar, y)),
        ("P is linear", centred(ar, y) + mean(ar, y)),
        ("y = A x + b", y),
        free=[i],
    )
    s.equal(
        "the centred writer writes the centred output",
        ("(P A) x + P b", without_mean),
        ("y - mean(y) 1", y - mean(ar, y)),
        free=[i],
    )
    s.equal(
        "which sums to 0",
        ("1^T((P A) x + P b)", ar.sum(without_mean)),
        ("1^T y - d mean(y)", ar.sum(y) - ar.length(y) * mean(ar, y)),
        ("0", 0),
    )
    over_inputs = RowArithmetic((k,))
    s.differ(
        "a mean over the inputs does not centre the output",
        ar.sum(total(k, centred(over_inputs, A) * x)),
        ar.sum(total(k, centred(ar, A) * x)),
        dims={"n": 2, "m": 2},
        values={"A": [[1, 2], [3, 7]], "x": [1, 0]},
    )


@theorem(
    statement=r"E_v^\top y = (E_v-m_v\mathbf 1)^\top y + m_v\,\mathbf 1^\top y,"
    r"\quad y=\gamma\odot z+\beta;\qquad \gamma\text{ constant} \Leftrightarrow"
    r" \mathbf 1^\top y=\mathbf 1^\top\beta\text{ for all }x",
    hypotheses=(
        "one table E is token embedding and head; m_v is the mean of its row v",
        "the final norm is LayerNorm: z sums to 0",
    ),
    citation=OURS,
    used_in=("conversion: when the head must be untied",),
)
def TIED_HEAD(s: Statement) -> None:
    """A head tied to a centred table loses m_v 1^T y: a bias repairs it iff gamma is constant."""
    s.dimension("vocabulary")
    v, i = s.index("vocabulary"), s.index()
    (E,) = s.arrays("E", v, i)
    x, other, weight, bias = s.arrays("x other weight bias", i)
    (gain,), (eps,) = s.numbers("gain"), s.numbers("eps", positive=True)
    ar = RowArithmetic((i,))

    def lost(y: Any) -> Any:
        return total(i, E * y) - total(i, centred(ar, E) * y)

    y = layer_norm(ar, x, weight, bias, eps)
    s.equal(
        "what the tied head loses",
        ("E_v y - (E_v - m_v 1) y", lost(y)),
        ("m_v 1^T y", mean(ar, E) * ar.sum(y)),
        (
            "m_v 1^T (gamma z + beta)",
            mean(ar, E) * (ar.sum(weight * layer_norm(ar, x, 1, 0, eps)) + ar.sum(bias)),
        ),
        free=[v],
    )
    flat, uneven = layer_norm(ar, x, gain, bias, eps), centred(ar, weight)
    s.equal(
        "a constant gain keeps the head tied, with a bias for each token",
        ("E_v y", total(i, E * flat)),
        (
            "(E_v - m_v 1) y + m_v 1^T y",
            total(i, centred(ar, E) * flat) + mean(ar, E) * ar.sum(flat),
        ),
        ("1^T z = 0", total(i, centred(ar, E) * flat) + mean(ar, E) * ar.sum(bias)),
        free=[v],
    )
    # A bias would have to be one number for all states. The states gamma and -gamma say otherwise:
    # each term of the last sum is a square over a root, 0 only where gamma is its mean.
    s.equal(
        "no other gain does",
        (
            "the loss in the state gamma less that in -gamma",
            lost(layer_norm(ar, weight, weight, bias, eps))
            - lost(layer_norm(ar, -weight, weight, bias, eps)),
        ),
        (
            "LayerNorm is odd",
            2 * mean(ar, E) * ar.sum(weight * layer_norm(ar, weight, 1, 0, eps)),
        ),
        (
            "2 m_v <P gamma, RMS(P gamma)>",
            2 * mean(ar, E) * ar.sum(uneven * rms_norm(ar, uneven, 1, 0, eps)),
        ),
        free=[v],
    )
    s.differ(
        "a gain that no bias repairs",
        lost(y),
        lost(layer_norm(ar, other, weight, bias, eps)),
        free=[v],
        dims={"n": 2, "vocabulary": 1},
        values={
            "E": [[1, 2]],
            "x": [1, -1],
            "other": [-1, 1],
            "weight": [1, 3],
            "bias": [1, 1],
            "eps": 3,
        },
        index=(0,),
    )


@theorem(
    statement=r"P\,(s\odot(Ay+b)) = (P\,\mathrm{diag}(s)\,A)\,y + P(s\odot b)"
    r" \;\neq\; s\odot\big((PA)y+Pb\big)",
    hypotheses=("s is a parameter, one number for each channel (LayerScale)",),
    citation=f"{OURS}; {JIANG}, section 4.1, on LayerScale: true in this order only",
    used_in=("conversion", "CHANNEL_GATES_DO_NOT_FOLD"),
)
def LAYER_SCALE_BEFORE_CENTRING(s: Statement) -> None:
    """A scale for each channel is folded into the writer before that is centred, not after."""
    s.dimension("m")
    i, k = s.index(), s.index("m")
    (A,), (y,) = s.arrays("A", i, k), s.arrays("y", k)
    scale, b = s.arrays("scale b", i)
    ar = RowArithmetic((i,))
    write = total(k, A * y) + b
    scaled_after = scale * (total(k, centred(ar, A) * y) + centred(ar, b))
    s.equal(
        "scale first, then centre",
        ("P(s * (A y + b))", centred(ar, scale * write)),
        ("the scale into the weights", centred(ar, total(k, scale * A * y) + scale * b)),
        ("(P diag(s) A) y + P(s b)", total(k, centred(ar, scale * A) * y) + centred(ar, scale * b)),
        free=[i],
    )
    s.equal(
        "the other order is off by",
        ("s * P(A y + b) - P(s * (A y + b))", scaled_after - centred(ar, scale * write)),
        ("mean(s w) - s mean(w), w = A y + b", mean(ar, scale * write) - scale * mean(ar, write)),
        free=[i],
    )
    s.differ(
        "centre first, then scale",
        centred(ar, scale * write),
        scaled_after,
        free=[i],
        dims={"n": 2, "m": 1},
        values={"A": [[1], [2]], "y": [1], "scale": [1, 2], "b": [0, 1]},
        index=(0,),
    )


@theorem(
    statement=r"P\big(x+m\odot(Ay+b)\big) = Px+P\big(m\odot(Ay+b)\big)"
    r" \;\neq\; Px+P\big(m\odot((PA)y+Pb)\big)",
    hypotheses=(
        "m is the mask of dropout, divided by the keep rate, one number for each channel",
        "stochastic depth has one number for each token: the writer is centred as usual",
    ),
    citation=f"{OURS}; {JIANG}, section 4.1, recentres",
    used_in=("conversion of networks in training mode", "CHANNEL_GATES_DO_NOT_FOLD"),
)
def DROPOUT_BEFORE_CENTRING(s: Statement) -> None:
    """With dropout on the write the writer stays as it is, and the masked write is recentred."""
    s.dimension("m")
    i, k = s.index(), s.index("m")
    (A,), (y,) = s.arrays("A", i, k), s.arrays("y", k)
    x, mask, b = s.arrays("x mask b", i)
    (keep,), ar = s.numbers("keep"), RowArithmetic((i,))
    write, recentred = total(k, A * y) + b, total(k, centred(ar, A) * y) + centred(ar, b)
    right, wrong = (centred(ar, x) + centred(ar, mask * w) for w in (write, recentred))
    s.equal(
        "recentre what the mask leaves",
        ("P(x + m * (A y + b))", centred(ar, x + mask * write)),
        ("P x + P(m * (A y + b))", right),
        free=[i],
    )
    s.equal(
        "with a centred writer the result is off by",
        ("P(m w) - P(m P w), w = A y + b", right - wrong),
        ("P(m mean(w) 1)", centred(ar, mask * mean(ar, write))),
        ("mean(w) (m - mean m)", mean(ar, write) * (mask - mean(ar, mask))),
        free=[i],
    )
    s.equal(
        "stochastic depth",
        ("P(x + keep (A y + b))", centred(ar, x + keep * write)),
        ("P x + keep ((P A) y + P b)", centred(ar, x) + keep * recentred),
        free=[i],
    )
    s.differ(
        "a centred writer under a mask",
        centred(ar, x + mask * write),
        wrong,
        free=[i],
        dims={"n": 2, "m": 1},
        values={"A": [[1], [2]], "y": [1], "b": [1, 1], "x": [1, 5], "mask": [2, 0]},
        index=(0,),
    )


@theorem(
    statement=r"\big(P(m\odot w)\big)_i - m_iw_i = -\tfrac1d\sum_{j<d}(m_j-m_d)\,w_j,"
    r"\quad w_d=-\sum_{j<d}w_j",
    hypotheses=("d = n + 1; the mask of the CRMSNorm network has d - 1 elements",),
    citation=f"{OURS}; {JIANG}, section 4.1, calls it compatible: as another function",
    used_in=("conversion of networks in training mode",),
)
def DROPOUT_IN_THE_CRMS_CHART(s: Statement) -> None:
    """Dropout on the d-1 elements of a Pre-CRMSNorm network is not dropout on the d of Pre-LN."""
    i = s.index()
    w, mask = s.arrays("w mask", i)
    (last,) = s.numbers("last")
    row = RowArithmetic((i, None))
    full, full_mask = Blocks((w, -total(i, w))), Blocks((mask, last))
    pre_ln = centred(row, full_mask * full)
    s.equal(
        "the elements that are stored are off by",
        ("P(m w)_i - m_i w_i", pre_ln.parts[0] - mask * w),
        ("-mean(m w)", -mean(row, full_mask * full)),
        ("-(1/d) sum_j (m_j - m_d) w_j", -total(i, (mask - last) * w) / row.length(w)),
        free=[i],
    )
    s.equal(
        "the element that is implied is off by",
        ("P(m w)_d + sum_j m_j w_j", pre_ln.parts[1] + total(i, mask * w)),
        (
            "n/d sum_j (m_j - m_d) w_j",
            total(i, (mask - last) * w) * total(i, 1) / row.length(w),
        ),
    )
    s.differ(
        "the two networks drop differently",
        pre_ln.parts[0],
        mask * w,
        free=[i],
        dims={"n": 2},
        values={"w": [1, 3], "mask": [2, 0], "last": 2},
        index=(0,),
    )
