"""What converts without loss beside the plain block: the parts of real architectures that are fine.

Centring acts on features. It passes through whatever acts on tokens alone, and through every sum;
what acts on features one by one is in `verify.symbolic.theorems.limits`.
"""

from __future__ import annotations

from verify.norms.catalogue import HENRY, JIANG
from verify.norms.forward import layer_norm, mean, rms_norm
from verify.symbolic.language import Expression, RowArithmetic, Statement, apply, array, total
from verify.symbolic.theorem import theorem
from verify.symbolic.theorems.centring import OURS, centred


@theorem(
    statement=r"P\big(c\,E^\top o_t+p_t+\tau\big) = c\,(EP)^\top o_t+Pp_t+P\tau",
    hypotheses=(
        "o picks a token's row of the table E, p_t is its position, tau a type or class embedding",
        "c is a scale (sqrt(d) in some models); no norm with gain or bias stands in between",
    ),
    citation=f"{JIANG}: recentring is additive",
    used_in=("PRE_LN_IS_PRE_RMS_NORM, base", "conversion"),
)
def EMBEDDINGS_ARE_RECENTRED_SEPARATELY(s: Statement) -> None:
    """Token, position and type tables are recentred each on its own, and all of them must be."""
    s.dimension("tokens")
    s.dimension("vocabulary")
    t, i, v = s.index("tokens"), s.index(), s.index("vocabulary")
    (E,), (o,), (position,) = s.arrays("E", v, i), s.arrays("o", t, v), s.arrays("position", t, i)
    (kind,), (scale,), ar = s.arrays("kind", i), s.numbers("scale"), RowArithmetic((i,))
    x = scale * total(v, o * E) + position + kind
    recentred_tokens = scale * total(v, o * centred(ar, E))
    s.equal(
        "each table on its own",
        ("P(c E^T o + p + tau)", centred(ar, x)),
        (
            "c (E P)^T o + P p + P tau",
            recentred_tokens + centred(ar, position) + centred(ar, kind),
        ),
        free=[t, i],
    )
    s.equal(
        "with the token table alone the input keeps",
        ("1^T(c (E P)^T o + p + tau)/d", mean(ar, recentred_tokens + position + kind)),
        ("mean(p) + mean(tau)", mean(ar, position) + mean(ar, kind)),
        free=[t],
    )
    s.differ(
        "the token table alone",
        centred(ar, x),
        recentred_tokens + position + kind,
        free=[t, i],
        dims={"tokens": 1, "n": 2, "vocabulary": 1},
        values={"E": [[1, 3]], "o": [[1]], "position": [[1, 0]], "kind": [0, 0], "scale": 1},
        index=(0, 0),
    )


@theorem(
    statement=r"P\big(x+A f(\mathrm{LN}_1(x))+B g(\mathrm{LN}_2(x))+b\big)"
    r" = Px+(PA)f(\mathrm{RMS}_1(Px))+(PB)g(\mathrm{RMS}_2(Px))+Pb",
    hypotheses=(
        "attention f and MLP g read one state, each through a norm of its own or through the same",
        "the induction is that of PRE_LN_IS_PRE_RMS_NORM",
    ),
    citation=OURS,
    used_in=("conversion of GPT-J, GPT-NeoX, Falcon and Phi",),
)
def PARALLEL_RESIDUAL(s: Statement) -> None:
    """A block whose attention and MLP read the same state converts like two blocks in a row."""
    s.dimension("tokens")
    s.dimension("m")
    t, i, k = s.index("tokens"), s.index(), s.index("m")
    (x,), (A, B) = s.arrays("x", t, i), s.arrays("A B", i, k)
    gain_f, bias_f, gain_g, bias_g, b = s.arrays("gain_f bias_f gain_g bias_g b", i)
    (eps,), ar = s.numbers("eps", positive=True), RowArithmetic((i,))
    affine = {"f": (gain_f, bias_f, eps), "g": (gain_g, bias_g, eps)}
    state = centred(ar, x)

    def sublayer(name: str, normalised: Expression) -> Expression:
        return apply(name, array(normalised, t, i), at=(t, k))

    f, g = (sublayer(name, layer_norm(ar, x, *affine[name])) for name in "fg")
    f_rms, g_rms = (sublayer(name, rms_norm(ar, state, *affine[name])) for name in "fg")
    s.equal(
        "step",
        ("P(x + A f(LN(x)) + B g(LN(x)) + b)", centred(ar, x + total(k, A * f + B * g) + b)),
        (
            "P is linear",
            state + total(k, centred(ar, A) * f + centred(ar, B) * g) + centred(ar, b),
        ),
        (
            "LN(x) = RMS(P x), twice",
            state + total(k, centred(ar, A) * f_rms + centred(ar, B) * g_rms) + centred(ar, b),
        ),
        free=[t, i],
    )


@theorem(
    statement=r"\sum_t M_{st}\,Px_t = P\sum_t M_{st}\,x_t",
    hypotheses=(
        "M is any matrix over tokens: pooling, merging, shifts, windows",
        "or a function of the normalised tokens: attention, with rotary or linear positions",
    ),
    citation=OURS,
    used_in=("conversion", "CHANNEL_SCALES_ON_THE_STREAM"),
)
def TOKEN_MIXING_COMMUTES_WITH_CENTRING(s: Statement) -> None:
    """Any mixture of tokens that treats all features alike commutes with centring."""
    s.dimension("tokens")
    t, u, i = s.index("tokens"), s.index("tokens"), s.index()
    (x,), (M,) = s.arrays("x", u, i), s.arrays("M", t, u)
    weight, bias = s.arrays("weight bias", i)
    (eps,), ar = s.numbers("eps", positive=True), RowArithmetic((i,))
    state = centred(ar, x)
    s.equal(
        "a fixed mixture",
        ("sum_u M_tu P x_u", total(u, M * state)),
        ("P sum_u M_tu x_u", centred(ar, total(u, M * x))),
        free=[t, i],
    )
    mixture = total(u, M * x)
    s.equal(
        "a norm behind it",
        ("LN(sum_u M_tu x_u)", layer_norm(ar, mixture, weight, bias, eps)),
        ("RMS(P sum_u M_tu x_u)", rms_norm(ar, centred(ar, mixture), weight, bias, eps)),
        ("RMS(sum_u M_tu P x_u)", rms_norm(ar, total(u, M * state), weight, bias, eps)),
        free=[t, i],
    )
    ln, rms = layer_norm(ar, x, weight, bias, eps), rms_norm(ar, state, weight, bias, eps)
    over_ln, over_rms = (apply("attention", array(y, u, i), at=(t, u)) for y in (ln, rms))
    s.equal(
        "a mixture that the tokens choose",
        ("P(x_t + sum_u M(LN(x))_tu x_u)", centred(ar, x.at(u, t) + total(u, over_ln * x))),
        ("P x_t + sum_u M(RMS(P x))_tu P x_u", state.at(u, t) + total(u, over_rms * state)),
        free=[t, i],
    )


@theorem(
    statement=r"P\Big(a_tx_t+\sum_e r_{te}(A_ey_{te}+b_e)\Big)"
    r" = a_tPx_t+\sum_e r_{te}\big((PA_e)y_{te}+Pb_e\big)",
    hypotheses=(
        "a_t (residual gates, hyper-connections) and r_te (routing) are numbers for each token",
        "they may be functions of the normalised tokens",
        "every expert is centred, its bias included",
    ),
    citation=OURS,
    used_in=("conversion of mixtures of experts", "CHANNEL_GATES_DO_NOT_FOLD"),
)
def SCALAR_GATES_AND_ROUTING(s: Statement) -> None:
    """Gates and routing weights that are one number for each token commute with centring."""
    for name in ("tokens", "m", "experts"):
        s.dimension(name)
    t, i, k, e = s.index("tokens"), s.index(), s.index("m"), s.index("experts")
    (x,), (y,), (A,) = s.arrays("x", t, i), s.arrays("y", t, e, k), s.arrays("A", e, i, k)
    (b,), (gate,), (route,) = s.arrays("b", e, i), s.arrays("gate", t), s.arrays("route", t, e)
    weight, bias = s.arrays("weight bias", i)
    (eps,), ar = s.numbers("eps", positive=True), RowArithmetic((i,))
    state, centred_experts = centred(ar, x), total(k, centred(ar, A) * y) + centred(ar, b)
    s.equal(
        "routed experts",
        (
            "P(a x + sum_e r_e (A_e y_e + b_e))",
            centred(ar, gate * x + total(e, route * (total(k, A * y) + b))),
        ),
        (
            "a P x + sum_e r_e ((P A_e) y_e + P b_e)",
            gate * state + total(e, route * centred_experts),
        ),
        free=[t, i],
    )
    ln, rms = layer_norm(ar, x, weight, bias, eps), rms_norm(ar, state, weight, bias, eps)
    by_ln, by_rms = (apply("router", array(z, t, i), at=(t, e)) for z in (ln, rms))
    s.equal(
        "a router that reads the normalised tokens",
        (
            "P(x + sum_e r(LN(x))_e (A_e y_e + b_e))",
            centred(ar, x + total(e, by_ln * (total(k, A * y) + b))),
        ),
        (
            "P x + sum_e r(RMS(P x))_e ((P A_e) y_e + P b_e)",
            state + total(e, by_rms * centred_experts),
        ),
        free=[t, i],
    )
    s.equal(
        "an expert whose bias is left uncentred adds",
        (
            "a mean of its own",
            mean(ar, total(e, route * (total(k, centred(ar, A) * y) + b))),
        ),
        ("sum_e r_e mean(b_e)", total(e, route * mean(ar, b))),
        free=[t],
    )


@theorem(
    statement=r"\mathrm{LN}(W_hy+b_h;\gamma,\beta)"
    r" = \mathrm{RMS}\big((PW_h)y+Pb_h;\gamma,\beta\big)\quad\text{for each head } h",
    hypotheses=(
        "the norm is over the features of one head; P is of the head's width",
        "nothing that mixes those features (rotary positions) stands between projection and norm",
    ),
    citation=f"{HENRY}; folded here",
    used_in=("conversion of models with LayerNorm on queries and keys",),
)
def HEADWISE_QK_NORM_FOLDS(s: Statement) -> None:
    """LayerNorm on a head's queries or keys becomes RMSNorm: its mean goes into the projection."""
    s.dimension("heads")
    s.dimension("m")
    h, i, j, k = s.index("heads"), s.index(), s.index(), s.index("m")
    (W,), (b,), (y,) = s.arrays("W", h, i, k), s.arrays("b", h, i), s.arrays("y", k)
    weight, bias = s.arrays("weight bias", i)
    (R,), (eps,), ar = s.arrays("R", j, i), s.numbers("eps", positive=True), RowArithmetic((i,))
    query, after = total(k, W * y) + b, RowArithmetic((j,))
    folded = total(k, centred(ar, W) * y) + centred(ar, b)
    s.equal(
        "head by head",
        ("LN(W_h y + b_h)", layer_norm(ar, query, weight, bias, eps)),
        ("RMS(P(W_h y + b_h))", rms_norm(ar, centred(ar, query), weight, bias, eps)),
        ("RMS((P W_h) y + P b_h)", rms_norm(ar, folded, weight, bias, eps)),
        free=[h, i],
    )
    rotated, rotated_folded = total(i, R * query), total(i, R * folded)
    centred_after = total(k, centred(after, total(i, R * W)) * y) + centred(after, total(i, R * b))
    s.equal(
        "with a rotation R before the norm, R comes first",
        ("LN(R (W_h y + b_h))", layer_norm(after, rotated, 1, 0, eps)),
        ("RMS(P R (W_h y + b_h))", rms_norm(after, centred(after, rotated), 1, 0, eps)),
        ("RMS((P R W_h) y + P R b_h)", rms_norm(after, centred_after, 1, 0, eps)),
        free=[h, j],
    )
    s.differ(
        "a projection centred before the rotation",
        layer_norm(after, rotated, 1, 0, eps),
        rms_norm(after, rotated_folded, 1, 0, eps),
        free=[h, j],
        dims={"heads": 1, "n": 2, "m": 1},
        values={
            "W": [[[1], [0]]],
            "b": [[0, 0]],
            "y": [1],
            "R": [[0, -1], [1, 0]],
            "eps": 2,
        },
        index=(0, 0),
    )


@theorem(
    statement=r"\mathrm{LN}\Big(\sum_tp_tx_t\Big) = \mathrm{RMS}\Big(\sum_tp_tPx_t\Big),"
    r"\quad h(\mathrm{LN}(x_1),\mathrm{LN}(x_2),\ldots) = h(\mathrm{RMS}(Px_1),\ldots)",
    hypotheses=(
        "p are weights over tokens: their mean, a class token, the last one",
        "h is any head that reads all normalised tokens",
    ),
    citation=OURS,
    used_in=("conversion of vision models, pooled before or after the final norm",),
)
def FINAL_NORM_AND_POOLING(s: Statement) -> None:
    """The final norm converts both before a pooling of tokens and after it: two functions."""
    for name in ("tokens", "classes"):
        s.dimension(name)
    t, i, c = s.index("tokens"), s.index(), s.index("classes")
    (x,), (p,), (W,) = s.arrays("x", t, i), s.arrays("p", t), s.arrays("W", c, i)
    weight, bias = s.arrays("weight bias", i)
    (eps,), ar = s.numbers("eps", positive=True), RowArithmetic((i,))
    pooled, pooled_state = total(t, p * x), total(t, p * centred(ar, x))
    s.equal(
        "pool, then normalise",
        ("W LN(sum_t p_t x_t)", total(i, W * layer_norm(ar, pooled, weight, bias, eps))),
        (
            "W RMS(P sum_t p_t x_t)",
            total(i, W * rms_norm(ar, centred(ar, pooled), weight, bias, eps)),
        ),
        (
            "W RMS(sum_t p_t P x_t)",
            total(i, W * rms_norm(ar, pooled_state, weight, bias, eps)),
        ),
        free=[c],
    )
    ln, rms = (
        norm(ar, state, weight, bias, eps)
        for norm, state in ((layer_norm, x), (rms_norm, centred(ar, x)))
    )
    s.equal(
        "normalise, then any head",
        ("h(LN(x))", apply("h", array(ln, t, i), at=(c,))),
        ("h(RMS(P x))", apply("h", array(rms, t, i), at=(c,))),
        free=[c],
    )
    s.differ(
        "the order of pooling and norm matters",
        layer_norm(ar, pooled, weight, bias, eps),
        total(t, p * ln),
        free=[i],
        dims={"tokens": 2, "n": 2},
        values={
            "x": [[3, -3], [0, 0]],
            "p": [1, 1],
            "weight": [1, 1],
            "bias": [0, 1],
            "eps": 16,
        },
        index=(1,),
    )
