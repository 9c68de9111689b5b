"""Training: which ways of training a converted network follow the Pre-LN network step by step.

One linear writer A puts A a into a residual stream, a row x for each token, that is then read by
norms; a bias is one more column of A, whose activation is 1. The Pre-RMSNorm network may hold its
weights as P A computed from a free A (reparametrised) or hold and update centred weights (direct).
An optimiser is any function of weights, gradients and memory; nothing is known of it but that
equal arguments give equal values. Trajectories follow by induction over the steps.
"""

from __future__ import annotations

from typing import Any

from verify.norms.backward import layer_norm_backward, rms_norm_backward
from verify.norms.catalogue import JIANG
from verify.norms.forward import layer_norm, mean, rms_norm, rstd_eps_inside
from verify.symbolic.language import (
    Expression,
    Index,
    RowArithmetic,
    Statement,
    apply,
    array,
    derivative,
    total,
)
from verify.symbolic.theorem import theorem
from verify.symbolic.theorems.centring import OURS, centred, variance

ADAMW = "Loshchilov & Hutter 2019 (AdamW), arXiv:1711.05101"

WRITER = (
    "A is any writer; a bias is a column of A whose activation is 1, a token table a writer too",
    "every reader of the stream is a norm; exact arithmetic",
)
DIRECT = "training: direct updates of centred weights"


def stream(s: Statement) -> tuple[RowArithmetic, Index, Index, Index, Expression, Expression]:
    """The arithmetic of a row, indices of tokens, features and hidden features, x and a."""
    s.dimension("tokens")
    s.dimension("m")
    t, i, k = s.index("tokens"), s.index(), s.index("m")
    (x,), (a,) = s.arrays("x", t, i), s.arrays("a", t, k)
    return RowArithmetic((i,)), t, i, k, x, a


def writer_gradient(state: Any, t: Index, i: Index, k: Index) -> Expression:
    """sum_t g_t a_t^T, g the gradient by the centred stream: any function of all its tokens."""
    return apply("G", array(state, t, i), at=(i, k))


@theorem(
    statement=r"L_{\mathrm{LN}}(\theta) = L_{\mathrm{RMS}}(h(\theta)),\quad"
    r" \frac{L_{\mathrm{LN}}(\theta+s\Delta)-L_{\mathrm{LN}}(\theta)}s"
    r" = \frac{L_{\mathrm{RMS}}(h(\theta+s\Delta))-L_{\mathrm{RMS}}(h(\theta))}s,"
    r"\quad h(A,b)=(PA,Pb)",
    hypotheses=(
        "theta = (A, b); the loss is any function of all normalised tokens: of the centred stream",
        "gains, readers and later blocks are part of the loss",
        "the limit s -> 0 of the difference quotients is the derivative along Delta",
    ),
    citation=f"{JIANG}, eq. 4, for the conversion; as a statement about training: {OURS}",
    used_in=("EVERY_OPTIMISER_FOLLOWS_PRE_LN", "training a converted network from scratch"),
)
def THE_REPARAMETRISED_LOSS_IS_THE_PRE_LN_LOSS(s: Statement) -> None:
    """As functions of the free weights both losses are one function, so are their derivatives."""
    ar, t, i, k, x, a = stream(s)
    (A, dA), (b, db) = s.arrays("A dA", i, k), s.arrays("b db", i)
    (scale,), (eps,) = s.numbers("scale"), s.numbers("eps", positive=True)

    def pre_ln(A: Any, b: Any) -> Any:
        return x + total(k, A * a) + b

    def reparametrised(A: Any, b: Any) -> Any:
        return centred(ar, x) + total(k, centred(ar, A) * a) + centred(ar, b)

    y = layer_norm(ar, pre_ln(A, b), 1, 0, eps)
    y_rms = rms_norm(ar, reparametrised(A, b), 1, 0, eps)
    s.equal(
        "what the readers see",
        ("LN(x + A a + b)", y),
        ("RMS(P x + (P A) a + P b)", y_rms),
        free=[t, i],
    )

    def loss(state: Any) -> Any:
        return apply("loss", array(state, t, i))

    s.equal(
        "the loss, through the centred stream",
        ("L(P(x + A a + b))", loss(centred(ar, pre_ln(A, b)))),
        ("L(P x + (P A) a + P b)", loss(reparametrised(A, b))),
    )
    there = A + scale * dA, b + scale * db
    s.equal(
        "its difference quotients",
        (
            "Pre-LN",
            (loss(centred(ar, pre_ln(*there))) - loss(centred(ar, pre_ln(A, b)))) / scale,
        ),
        (
            "reparametrised",
            (loss(reparametrised(*there)) - loss(reparametrised(A, b))) / scale,
        ),
    )


@theorem(
    statement=r"\nabla_{\!A}L_{\mathrm{LN}} = P\,\nabla_{\!A'}L_{\mathrm{RMS}},\quad"
    r" \mathbf 1^\top\nabla_{\!A}L_{\mathrm{LN}} = 0,\quad"
    r" \mu\big(\nabla_{\!x}L_{\mathrm{RMS}}\big) = r\,\mu(\gamma\odot\delta),\quad A'=PA",
    hypotheses=(
        *WRITER,
        "of one token; gradients of tokens add up",
        "delta is the gradient of the loss by the normalised row, the same in both networks",
        "r = 1 / sqrt(mean(x^2) + eps) at the centred state",
    ),
    citation=OURS,
    used_in=("LINEAR_OPTIMISERS_COMMUTE_WITH_CENTRING", DIRECT),
)
def PRE_LN_GRADIENTS_ARE_PROJECTED(s: Statement) -> None:
    """The gradient of a Pre-LN writer is the Pre-RMSNorm writer's, less its mean over channels."""
    s.dimension("m")
    i, k = s.index(), s.index("m")
    (A, dA), (a,), (x, dy, weight) = s.arrays("A dA", i, k), s.arrays("a", k), s.arrays("x dy w", i)
    (eps,), ar = s.numbers("eps", positive=True), RowArithmetic((i,))
    state = x + total(k, A * a)
    held = centred(ar, x) + total(k, centred(ar, A) * a)
    dx = layer_norm_backward(ar, state, weight, eps, dy)[0]
    dx_rms = rms_norm_backward(ar, held, weight, eps, dy)[0]
    s.equal(
        "the gradient by the stream",
        ("LayerNorm's at x + A a", dx),
        ("P times RMSNorm's at P x + (P A) a", centred(ar, dx_rms)),
        free=[i],
    )
    s.equal(
        "the gradient by A",
        (
            "the derivative of <delta, LN(x + A a)> along dA",
            derivative(ar.sum(dy * layer_norm(ar, state, weight, 0, eps)), "A", "dA"),
        ),
        ("<P g a^T, dA>, g = RMSNorm's", total(i, total(k, centred(ar, dx_rms) * a * dA))),
    )
    rstd = rstd_eps_inside(ar, variance(ar, state), eps)
    s.equal(
        "what the projection takes away",
        ("mean of RMSNorm's gradient", mean(ar, dx_rms)),
        ("the normalised row sums to 0", rstd * mean(ar, dy * weight)),
        ("RMSNorm's gradient less LayerNorm's, at any element", dx_rms - dx),
        free=[i],
    )
    s.equal(
        "the Pre-LN gradient has no mean, whatever the weights",
        ("mean of A less a step of it", mean(ar, A - dx * a)),
        ("mean of A", mean(ar, A)),
        free=[k],
    )


@theorem(
    statement=r"\theta_{s+1} = U(\theta_s,\nabla L_{\mathrm{LN}}(\theta_s),m_s),\quad"
    r" \theta'_{s+1} = U(\theta'_s,\nabla(L_{\mathrm{RMS}}\circ h)(\theta'_s),m'_s)"
    r" \;\Rightarrow\; \theta'_s=\theta_s,\ m'_s=m_s",
    hypotheses=(
        "both runs start from the same weights and memory, and see the same tokens",
        "U is any function of weights, gradient and memory: Adam, Muon, with clipping, decay, ...",
        "the gradient by A is P G, G = sum over tokens of g a^T a function of the centred stream",
    ),
    citation=OURS,
    used_in=("training a converted network with the optimiser of the original",),
)
def EVERY_OPTIMISER_FOLLOWS_PRE_LN(s: Statement) -> None:
    """Trained through A -> P A, a Pre-RMSNorm network follows Pre-LN under every optimiser."""
    ar, t, i, k, x, a = stream(s)
    (A, memory), (weight, bias) = s.arrays("A memory", i, k), s.arrays("weight bias", i)
    (eps,) = s.numbers("eps", positive=True)
    state = x + total(k, A * a)
    held = centred(ar, x) + total(k, centred(ar, A) * a)
    s.equal(
        "base: equal weights, equal outputs",
        ("LN(x + A a)", layer_norm(ar, state, weight, bias, eps)),
        ("RMS(P x + (P A) a)", rms_norm(ar, held, weight, bias, eps)),
        free=[t, i],
    )
    gradient, gradient_held = (
        centred(ar, writer_gradient(centred_state, t, i, k))
        for centred_state in (centred(ar, state), held)
    )
    s.equal(
        "step: the gradients",
        ("Pre-LN", gradient),
        ("P G", gradient_held),
        free=[i, k],
    )
    for what in ("weights", "memory"):
        after, after_held = (
            apply(what, array(A, i, k), array(G, i, k), array(memory, i, k), at=(i, k))
            for G in (gradient, gradient_held)
        )
        s.equal(
            f"step: the next {what}",
            ("Pre-LN", after),
            ("reparametrised", after_held),
            free=[i, k],
        )


@theorem(
    statement=r"A'=PA,\ M'=PM \;\Rightarrow\; A'_{+}=PA_{+},\ M'_{+}=PM_{+},\qquad"
    r" M_{+}=\beta M+PG,\ A_{+}=(1-\eta\lambda)A-\eta M_{+}",
    hypotheses=(
        *WRITER,
        "G = sum over tokens of g a^T, g the gradient by the centred stream, the same in both",
        "the memory of unprojected gradients is M + 1 c^T: off by a multiple of ones",
        "SGD is beta = 0; eta, lambda and beta may differ from step to step, not between channels",
    ),
    citation=OURS,
    used_in=(DIRECT, "UNPROJECTED_SGD_LEAVES_PRE_LN"),
)
def LINEAR_OPTIMISERS_COMMUTE_WITH_CENTRING(s: Statement) -> None:
    """SGD, momentum and decay on centred weights follow Pre-LN, if each step is recentred."""
    ar, t, i, k, x, a = stream(s)
    (A, M, G), (c,) = s.arrays("A M G", i, k), s.arrays("c", k)
    eta, beta, decay = s.numbers("eta beta decay")
    moved, held = beta * M + centred(ar, G), centred(ar, A)
    updated = (1 - eta * decay) * A - eta * moved
    s.equal(
        "base: the centred stream",
        ("P(x + A a)", centred(ar, x + total(k, A * a))),
        ("P x + (P A) a", centred(ar, x) + total(k, centred(ar, A) * a)),
        free=[t, i],
    )
    s.equal(
        "step: the memory",
        ("P(beta M + P G)", centred(ar, moved)),
        ("beta P M + P G", beta * centred(ar, M) + centred(ar, G)),
        (
            "P(beta (M + 1 c^T) + G), fed with gradients as they are",
            centred(ar, beta * (M + c) + G),
        ),
        free=[i, k],
    )
    s.equal(
        "step: the weights, from projected gradients",
        ("P((1 - eta decay) A - eta M+)", centred(ar, updated)),
        (
            "(1 - eta decay) P A - eta (beta P M + P G)",
            (1 - eta * decay) * held - eta * (beta * centred(ar, M) + centred(ar, G)),
        ),
        free=[i, k],
    )
    s.equal(
        "step: the weights, from unprojected gradients, recentred",
        ("P((1 - eta decay) A - eta M+)", centred(ar, updated)),
        (
            "P((1 - eta decay) P A - eta (beta (M + 1 c^T) + G))",
            centred(ar, (1 - eta * decay) * held - eta * (beta * (M + c) + G)),
        ),
        free=[i, k],
    )
    s.equal(
        "Pre-LN itself: means of a column change by decay and old memory alone",
        ("mean of the next weights", mean(ar, updated)),
        (
            "(1 - eta decay) mean A - eta beta mean M",
            (1 - eta * decay) * mean(ar, A) - eta * beta * mean(ar, M),
        ),
        free=[k],
    )


@theorem(
    statement=r"A'=PA,\ m'=m \;\Rightarrow\;"
    r" P\big((1-\eta\lambda)A-\eta U(PG,m)\big)=(1-\eta\lambda)A'-\eta P\,U(PG',m'),"
    r"\quad m_{+}=m'_{+}",
    hypotheses=(
        *WRITER,
        "U is any function of gradient and memory, not of the weights; decay is decoupled (AdamW)",
        "the direct run projects its gradient before the optimiser and the update after it",
        "the base is that of LINEAR_OPTIMISERS_COMMUTE_WITH_CENTRING",
    ),
    citation=f"{OURS}; decoupled decay: {ADAMW}",
    used_in=(DIRECT, "ELEMENT_WISE_OPTIMISERS_DO_NOT_COMMUTE_WITH_CENTRING"),
)
def PROJECTING_GRADIENT_AND_UPDATE_FOLLOWS_PRE_LN(s: Statement) -> None:
    """With both projections direct training follows Pre-LN, whatever the optimiser's update."""
    ar, t, i, k, x, a = stream(s)
    A, memory = s.arrays("A memory", i, k)
    eta, decay = s.numbers("eta decay")

    def result(what: str, state: Any) -> Any:
        projected = centred(ar, writer_gradient(state, t, i, k))
        return apply(what, array(projected, i, k), array(memory, i, k), at=(i, k))

    state = centred(ar, x + total(k, A * a))
    held = centred(ar, x) + total(k, centred(ar, A) * a)
    s.equal(
        "step: the weights",
        (
            "P((1 - eta decay) A - eta U)",
            centred(ar, (1 - eta * decay) * A - eta * result("U", state)),
        ),
        (
            "(1 - eta decay) P A - eta P U'",
            (1 - eta * decay) * centred(ar, A) - eta * centred(ar, result("U", held)),
        ),
        free=[i, k],
    )
    s.equal(
        "step: the memory",
        ("of Pre-LN", result("next_memory", state)),
        ("of the direct run", result("next_memory", held)),
        free=[i, k],
    )
