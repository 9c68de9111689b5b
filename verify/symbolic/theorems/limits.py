"""What weights cannot absorb: where a conversion must keep a mean, or be refused.

Each theorem refutes the tempting conversion at an exact witness, and states what is right: the
exact difference, or the explicit P x = x - mean(x) that has to stay in the network.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from verify.norms.catalogue import JIANG
from verify.norms.forward import layer_norm, mean, rms_norm
from verify.symbolic.language import Blocks, RowArithmetic, Statement, apply, array, sqrt, total
from verify.symbolic.theorem import theorem
from verify.symbolic.theorems.centring import OURS, centred, variance

REFUSED = "conversion: explicit mean, or refused"


@theorem(
    statement=r"P\big(x+g\odot(Af+b)\big) = Px+P\big(g\odot(Af+b)\big)"
    r" \;\neq\; Px+g\odot\big((PA)f+Pb\big)",
    hypotheses=(
        "g has a value for each channel and depends on the data: adaLN-Zero, output gates",
        "g and f are any functions of the normalised tokens",
    ),
    citation=OURS,
    used_in=("conversion of DiT, SD3 and RWKV: explicit mean, or refused",),
)
def CHANNEL_GATES_DO_NOT_FOLD(s: Statement) -> None:
    """A gate on each channel of a write gives back the mean that a centred writer had removed."""
    s.dimension("tokens")
    s.dimension("m")
    t, i, k = s.index("tokens"), s.index(), s.index("m")
    (x, g), (y,), (A,) = s.arrays("x g", t, i), s.arrays("y", t, k), s.arrays("A", i, k)
    weight, bias, b = s.arrays("weight bias b", i)
    (eps,), ar = s.numbers("eps", positive=True), RowArithmetic((i,))
    state = centred(ar, x)
    tokens = layer_norm(ar, x, weight, bias, eps), rms_norm(ar, state, weight, bias, eps)
    (gate, f), (gate_rms, f_rms) = (
        (apply("g", array(z, t, i), at=(t, i)), apply("f", array(z, t, i), at=(t, k)))
        for z in tokens
    )
    s.equal(
        "with the mean kept explicit",
        ("P(x + g * (A f + b))", centred(ar, x + gate * (total(k, A * f) + b))),
        ("P x + P(g * (A f + b))", state + centred(ar, gate * (total(k, A * f) + b))),
        ("LN(x) = RMS(P x)", state + centred(ar, gate_rms * (total(k, A * f_rms) + b))),
        free=[t, i],
    )
    write = total(k, A * y) + b
    folded = g * (total(k, centred(ar, A) * y) + centred(ar, b))
    s.equal(
        "the mean of a gated, centred write",
        ("mean(g * ((P A) y + P b))", mean(ar, folded)),
        ("mean(g P w), w = A y + b", mean(ar, g * centred(ar, write))),
        ("mean(g w) - mean(g) mean(w)", mean(ar, g * write) - mean(ar, g) * mean(ar, write)),
        free=[t],
    )
    s.differ(
        "a centred writer behind a gate",
        centred(ar, x + g * write),
        state + folded,
        free=[t, i],
        dims={"tokens": 1, "n": 2, "m": 1},
        values={"x": [[3, 1]], "g": [[1, 2]], "y": [[1]], "A": [[1], [2]], "b": [0, 1]},
        index=(0, 0),
    )


@theorem(
    statement=r"\mu(\gamma\odot z+\beta) = \tfrac1d\gamma^\top z+\mu(\beta),\qquad"
    r" \mathrm{LN}(y+w)=\mathrm{RMS}\big(y-\mu(y)\mathbf 1+Pw\big),\ y=\gamma\odot z+\beta",
    hypotheses=(
        "z is a normalised row, y what a norm with gain and bias leaves in the stream",
        "the mean costs one dot product for each token, what the conversion was to save",
    ),
    citation=f"{JIANG}, appendix B; the formula of the mean: {OURS}",
    used_in=(
        "conversion of BERT, OPT-350m, Swin-v2 and Gemma-2 blocks: explicit mean, or refused",
    ),
)
def POST_LN_WITH_AFFINE(s: Statement) -> None:
    """Behind a norm with gain and bias the stream has a mean that depends on the token."""
    i = s.index()
    x, u, weight, bias, w = s.arrays("x u weight bias w", i)
    (gain,), (eps,), ar = s.numbers("gain"), s.numbers("eps", positive=True), RowArithmetic((i,))
    z = layer_norm(ar, x, 1, 0, eps)
    s.equal(
        "the mean that a norm leaves",
        ("mean(LN(x; gamma, beta))", mean(ar, layer_norm(ar, x, weight, bias, eps))),
        ("z sums to 0", mean(ar, centred(ar, weight) * z) + mean(ar, bias)),
        ("<gamma, LN(x)>/d + mean(beta)", ar.sum(weight * z) / ar.length(z) + mean(ar, bias)),
    )
    s.equal(
        "a constant gain leaves a constant mean",
        ("mean(LN(x; gain, beta))", mean(ar, layer_norm(ar, x, gain, bias, eps))),
        ("mean(beta)", mean(ar, bias)),
    )
    # Any normalised row is a zero-sum row: z is written P u here.
    flat = centred(ar, u)
    y = weight * flat + bias
    left = mean(ar, weight * flat) + mean(ar, bias)
    s.equal(
        "with the mean kept explicit",
        ("LN(y + w)", layer_norm(ar, y + w, 1, 0, eps)),
        ("RMS(y - mean(y) 1 + P w)", rms_norm(ar, y - left + centred(ar, w), 1, 0, eps)),
        free=[i],
    )
    s.equal(
        "without gain and bias it is free",
        ("LN(z + w)", layer_norm(ar, flat + w, weight, bias, eps)),
        ("RMS(z + P w)", rms_norm(ar, flat + centred(ar, w), weight, bias, eps)),
        free=[i],
    )
    s.differ(
        "as if it were free",
        layer_norm(ar, y + w, 1, 0, eps),
        rms_norm(ar, y + centred(ar, w), 1, 0, eps),
        free=[i],
        dims={"n": 2},
        values={
            "u": [1, -1],
            "weight": [4, 2],
            "bias": [0, 0],
            "w": [0, 0],
            "eps": Fraction(135, 49),
        },
        index=(0,),
    )


@theorem(
    statement=r"\mathrm{LN}(\varphi(Su+s)) = \mathrm{RMS}\big(P\varphi(Su+s)\big),"
    r"\qquad P\varphi(Su+s) \neq \varphi(PSu+Ps)",
    hypotheses=("phi acts on each element: GELU, ReLU, a square", "no linear map follows phi"),
    citation=OURS,
    used_in=("conversion of convolutional stems (Whisper, wav2vec2): explicit mean, or refused",),
)
def NON_LINEAR_STEMS_DO_NOT_FOLD(s: Statement) -> None:
    """A stem that ends in a non-linearity cannot be recentred through the weights before it."""
    s.dimension("m")
    i, k = s.index(), s.index("m")
    (S,), (u,) = s.arrays("S", i, k), s.arrays("u", k)
    shift, weight, bias, position = s.arrays("shift weight bias position", i)
    (eps,), ar = s.numbers("eps", positive=True), RowArithmetic((i,))
    h = total(k, S * u) + shift
    h_centred = total(k, centred(ar, S) * u) + centred(ar, shift)
    value = apply("phi", h)
    explicit = centred(ar, value) + centred(ar, position)
    s.equal(
        "with the mean kept explicit",
        ("LN(phi(S u + s) + p)", layer_norm(ar, value + position, weight, bias, eps)),
        ("RMS(P phi(S u + s) + P p)", rms_norm(ar, explicit, weight, bias, eps)),
        free=[i],
    )
    s.equal(
        "for a square the mean that is left",
        ("mean(((P S) u + P s)^2)", mean(ar, h_centred * h_centred)),
        ("the variance of h = S u + s", mean(ar, h * h) - mean(ar, h) * mean(ar, h)),
    )

    def square(a: Any) -> Any:
        return a * a

    def relu(a: Any) -> Any:
        return (a + sqrt(a * a)) / 2

    for name, function in (("a square", square), ("ReLU", relu)):
        s.differ(
            f"the stem centred before {name}",
            centred(ar, function(h)),
            function(h_centred),
            free=[i],
            dims={"n": 2, "m": 1},
            values={"S": [[3], [-1]], "u": [1], "shift": [0, 0]},
            index=(1,),
        )


@theorem(
    statement=r"x_0=\mathrm{LN}(E_v;\gamma,\beta) \;\Rightarrow\;"
    r" E'_v = Px_0 = \gamma\odot z-\tfrac1d\gamma^\top z\,\mathbf 1+P\beta,"
    r"\quad z=\mathrm{RMS}(PE_v)",
    hypotheses=(
        "the norm stands right behind the token table: its output is a function of the token",
        "the converted table holds that output, centred",
    ),
    citation=OURS,
    used_in=("conversion of BLOOM: the table is baked", REFUSED),
)
def EMBEDDING_NORM_IS_BAKED(s: Statement) -> None:
    """LayerNorm behind a token table is baked into it; behind token + position it cannot be."""
    i = s.index()
    e, position, weight, bias = s.arrays("e position weight bias", i)
    (eps,), ar = s.numbers("eps", positive=True), RowArithmetic((i,))
    z = rms_norm(ar, centred(ar, e), 1, 0, eps)
    baked = centred(ar, layer_norm(ar, e, weight, bias, eps))
    s.equal(
        "the baked row",
        ("P LN(E_v; gamma, beta)", baked),
        ("P(gamma z + beta)", centred(ar, weight * z) + centred(ar, bias)),
        (
            "gamma z - <gamma, z>/d 1 + P beta",
            weight * z - ar.sum(weight * z) / ar.length(z) + centred(ar, bias),
        ),
        free=[i],
    )
    unbaked = rms_norm(ar, centred(ar, e), weight, centred(ar, bias), eps)
    s.equal(
        "a centred table and a centred beta leave",
        ("RMS(P E_v; gamma, P beta) - P LN(E_v; gamma, beta)", unbaked - baked),
        ("<gamma, z>/d", mean(ar, weight * z)),
        free=[i],
    )
    s.differ(
        "a centred table and a centred beta",
        baked,
        unbaked,
        free=[i],
        dims={"n": 2},
        values={"e": [1, -1], "weight": [2, 1], "bias": [0, 1], "eps": 3},
        index=(0,),
    )
    # Were LN(e + p) a table of tokens and one of positions, a(e) + b(p), then taking e for a row
    # of zeros would add the same behind every p: behind p = 0, where LN(0) = 0, it adds LN(e).
    s.differ(
        "tokens and positions, added before the norm",
        layer_norm(ar, e + position, 1, 0, eps) - layer_norm(ar, position, 1, 0, eps),
        layer_norm(ar, e, 1, 0, eps),
        free=[i],
        dims={"n": 2},
        values={"e": [-5, 5], "position": [-5, 5], "eps": 96},
        index=(0,),
    )


@theorem(
    statement=r"Rx = R\,Px+\mu(x)\,R\mathbf 1, \qquad (RP)\,x = R\,Px",
    hypotheses=(
        "R is a linear map that reads the stream with no norm in between: taps, probes, long skips",
    ),
    citation=OURS,
    used_in=("conversion of U-ViT and of taps on hidden states: explicit mean, or refused",),
)
def RAW_READERS_SEE_THE_MEAN(s: Statement) -> None:
    """A reader of the raw stream loses mean(x) R 1 in the conversion, unless its rows sum to 0."""
    s.dimension("m")
    i, k = s.index(), s.index("m")
    (R,), (x,), (c,) = s.arrays("R", k, i), s.arrays("x", i), s.arrays("c", k)
    ar = RowArithmetic((i,))
    state = centred(ar, x)
    s.equal(
        "what is lost",
        ("R P x + c + mean(x) R 1", ar.sum(R * state) + c + mean(ar, x) * ar.sum(R)),
        ("R is linear", ar.sum(R * (state + mean(ar, x))) + c),
        ("P x + mean(x) 1 = x: R x + c", ar.sum(R * x) + c),
        free=[k],
    )
    s.equal(
        "a reader whose rows sum to 0 loses nothing",
        ("(R P) x + c", ar.sum(centred(ar, R) * x) + c),
        ("(R P) P x + c", ar.sum(centred(ar, R) * state) + c),
        ("R P x + c", ar.sum(R * state) + c),
        free=[k],
    )
    s.differ(
        "a raw reader",
        ar.sum(R * x) + c,
        ar.sum(R * state) + c,
        free=[k],
        dims={"n": 2, "m": 1},
        values={"R": [[1, 2]], "x": [1, 3], "c": [0]},
        index=(0,),
    )


@theorem(
    statement=r"\mathrm{var}(x,y) = \tfrac{n\,\mathrm{var}(x)+m\,\mathrm{var}(y)}{n+m}"
    r"+\tfrac{nm}{(n+m)^2}\big(\mu(x)-\mu(y)\big)^2",
    hypotheses=("x of n and y of m elements are two streams, each with a mean of its own",),
    citation=f"{OURS}; the variance is that of two merged samples",
    used_in=("conversion of patch merging (Swin) and of concatenated skips", REFUSED),
)
def NORM_OF_A_CONCATENATION(s: Statement) -> None:
    """LayerNorm of a concatenation sees the difference of the two means, which centring removes."""
    s.dimension("m")
    i, j = s.index(), s.index("m")
    (x, weight, bias), (y, weight_y, bias_y) = s.arrays("x g b", i), s.arrays("y g_y b_y", j)
    (shift, shift_y), (eps,) = s.numbers("shift shift_y"), s.numbers("eps", positive=True)
    left, right, both = RowArithmetic((i,)), RowArithmetic((j,)), RowArithmetic((i, j))
    n, m, row = left.length(x), right.length(y), Blocks((x, y))
    affine = Blocks((weight, weight_y)), Blocks((bias, bias_y)), eps
    between = mean(left, x) - mean(right, y)
    s.equal(
        "the variance",
        ("var (x, y)", variance(both, row)),
        (
            "within the parts, and between their means",
            (n * variance(left, x) + m * variance(right, y)) / (n + m)
            + n * m / ((n + m) * (n + m)) * (between * between),
        ),
    )
    moved = row + Blocks((shift, shift_y))
    s.equal(
        "the mean, when the two parts are shifted",
        ("mean (x + s 1, y + s' 1)", mean(both, moved)),
        (
            "weighted by their lengths",
            (n * (mean(left, x) + shift) + m * (mean(right, y) + shift_y)) / (n + m),
        ),
    )
    same = layer_norm(both, row + shift, *affine).parts[0]
    s.equal(
        "one shift of both parts, and one mean over both, are right",
        ("LN((x, y) + s 1)", same),
        ("RMS((x, y) - mean (x, y) 1)", rms_norm(both, centred(both, row), *affine).parts[0]),
        free=[i],
    )
    apart = Blocks((centred(left, x), centred(right, y)))
    s.differ(
        "each part centred by itself",
        layer_norm(both, row, *affine).parts[0],
        rms_norm(both, apart, *affine).parts[0],
        free=[i],
        dims={"n": 2, "m": 1},
        values={
            "x": [3, -1],
            "y": [-2],
            "g": [1, 1],
            "b": [0, 0],
            "g_y": [1],
            "b_y": [0],
            "eps": Fraction(19, 48),
        },
        index=(0,),
    )


@theorem(
    statement=r"P\sum_uK_{tu}\odot x_u = P\sum_uK_{tu}\odot Px_u+\sum_u\mu(x_u)\,PK_{tu}",
    hypotheses=(
        "K has a value for each channel: a depthwise convolution or a scale on the stream itself",
        "with one value for all channels: TOKEN_MIXING_COMMUTES_WITH_CENTRING",
    ),
    citation=OURS,
    used_in=("conversion of ConvNeXt and CoAtNet: explicit mean, or refused",),
)
def CHANNEL_SCALES_ON_THE_STREAM(s: Statement) -> None:
    """A depthwise map of the stream turns the mean that was removed into more than a mean."""
    s.dimension("tokens")
    t, u, i = s.index("tokens"), s.index("tokens"), s.index()
    (K,), (x,), (weight, bias) = s.arrays("K", t, u, i), s.arrays("x", u, i), s.arrays("g b", i)
    (eps,), ar = s.numbers("eps", positive=True), RowArithmetic((i,))
    state, mixture = centred(ar, x), total(u, K * x)
    without_means = centred(ar, total(u, K * state))
    lost = total(u, mean(ar, x) * centred(ar, K))
    s.equal(
        "what is lost",
        ("P sum_u K_tu * P x_u + sum_u mean(x_u) P K_tu", without_means + lost),
        ("a mixture is linear", centred(ar, total(u, K * (state + mean(ar, x))))),
        ("P x + mean(x) 1 = x", centred(ar, mixture)),
        free=[t, i],
    )
    s.equal(
        "a norm behind it, with the means kept explicit",
        ("RMS(P sum_u K_tu * P x_u + lost)", rms_norm(ar, without_means + lost, weight, bias, eps)),
        ("LN(sum_u K_tu * x_u)", layer_norm(ar, mixture, weight, bias, eps)),
        free=[t, i],
    )
    s.differ(
        "the means dropped",
        layer_norm(ar, mixture, weight, bias, eps),
        rms_norm(ar, without_means, weight, bias, eps),
        free=[t, i],
        dims={"tokens": 1, "n": 2},
        values={
            "K": [[[1, 2]]],
            "x": [[3, 1]],
            "g": [1, 1],
            "b": [0, 0],
            "eps": Fraction(45, 16),
        },
        index=(0, 0),
    )
