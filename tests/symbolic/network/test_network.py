"""Whole networks over GF(p): the forms agree, and what is wrong is seen, in its block, by name."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verify.formula import Arithmetic, Value
from verify.norms.catalogue import FAULTS
from verify.norms.forward import rms_norm
from verify.symbolic.network import Caught, Comparison, Mutation, Shape, compare, mutants, mutation
from verify.symbolic.network.field import Field, FieldArithmetic, FieldArray
from verify.symbolic.network.forms import (
    CONVERTED,
    NARROW_RMS_NORM,
    PRE_CRMS_NORM,
    PRE_LN,
    PRE_RMS_NORM,
    Form,
    as_it_is,
    chart,
    chart_transposed,
    decompressed,
)
from verify.symbolic.network.model import Network, Weights, is_related
from verify.symbolic.network.mutation import (
    KINDS,
    Honest,
    first_broken,
    honest_run,
    tensor_at_fault,
    trial,
    writers,
)

SMALL = Shape(layers=2, width=12, ffn=10, tokens=4, heads=3, vocabulary=7)
SEED = 20260107


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    heads, tokens = draw(st.integers(1, 3)), draw(st.integers(2, 4))
    width = heads * draw(st.integers(-(-(tokens + 1) // heads), 8))
    ffn, layers = draw(st.integers(tokens, 20)), draw(st.integers(1, 3))
    return Shape(layers, width, ffn, tokens, heads, draw(st.integers(1, 9)))


# --- the forms agree -----------------------------------------------------------------------------


@given(shapes(), st.integers(0, 2**32))
def test_all_forms_are_one_function_and_their_hidden_states_are_not(shape, seed):
    found = compare(shape, seed)
    assert found.agrees
    assert [form.form for form in found.forms] == [form.name for form in CONVERTED]
    assert found.hidden_states == shape.tokens * (2 * shape.layers + 1)
    assert all(form.moved == found.hidden_states for form in found.forms)


def test_sqrt_of_the_width_decides_the_field_of_the_narrow_form():
    square = compare(replace(SMALL, width=16, heads=4), SEED)
    assert square.agrees
    assert {form.field for form in square.forms} == {"2^61-1"}
    other = compare(SMALL, SEED)  # 12 = 3 * 2^2
    assert [form.field for form in other.forms] == ["2^61-1", "2^61-1", "2^61-45"]


def test_many_layers_and_wide_rows_agree():
    assert compare(Shape(6, 96, 130, 8, 4, 50), SEED).agrees


def test_the_same_seed_gives_the_same_network_and_another_one_does_not():
    def logits(seed: int) -> FieldArray:
        network = Network(PRE_LN, Weights(SMALL, Field(), seed), {})
        return network.logits(network.embedded())

    assert logits(1).same(logits(1))
    assert not logits(1).same(logits(2))


# --- the network is one: every tensor counts, attention mixes tokens ------------------------------


def final_logits(weights: Weights) -> FieldArray:
    network = Network(PRE_LN, weights, {})
    stream = network.embedded()
    for block in weights.shape.blocks[1:]:
        stream = network.after(block, stream)
    return network.logits(stream)


class OneMore(Weights):
    """The same weights, but for the last element of one tensor."""

    changed = ""

    def tensor(self, name: str, *size: int) -> FieldArray:
        drawn = super().tensor(name, *size)
        if name == self.changed:
            drawn.words.flat[-1] = (int(drawn.words.flat[-1]) + 1) % self.field.prime
        return drawn


def tensor_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: dict[str, None] = {}
    drawn = Weights.tensor

    def recorded(self: Weights, name: str, *size: int) -> FieldArray:
        names[name] = None
        return drawn(self, name, *size)

    with monkeypatch.context() as patch:
        patch.setattr(Weights, "tensor", recorded)
        final_logits(Weights(SMALL, Field(), SEED))
    return list(names)


def test_every_tensor_changes_the_logits(monkeypatch):
    names = tensor_names(monkeypatch)
    assert len(names) == 3 + SMALL.layers * (2 + 8 + 2 + 4) + 4
    honest = final_logits(Weights(SMALL, Field(), SEED))
    for name in names:
        monkeypatch.setattr(OneMore, "changed", name)
        assert not final_logits(OneMore(SMALL, Field(), SEED)).same(honest), name


def test_a_token_is_seen_by_all_others_and_heads_matter(monkeypatch):
    network = Network(PRE_LN, Weights(SMALL, Field(), SEED), {})
    stream = network.embedded()
    moved = FieldArray(stream.field, stream.words.copy())
    moved.words[2, 5] ^= np.uint64(1)
    hidden = [network.hidden("layers.0.attention", s) for s in (stream, moved)]
    assert (hidden[0].words != hidden[1].words).any(axis=-1).all()
    one_head = Network(PRE_LN, Weights(replace(SMALL, heads=1), Field(), SEED), {})
    assert not one_head.hidden("layers.0.attention", stream).same(hidden[0])


def test_unknown_functions_are_functions():
    weights = Weights(SMALL, Field(), SEED)
    rng = np.random.default_rng(0)
    row = weights.field.draw(rng, 1, 4)
    assert weights.activation(row).same(weights.activation(row))
    assert len({*weights.activation(row).words.ravel().tolist()}) == 4
    scores = FieldArray(weights.field, np.broadcast_to(row.words, (3, 4, 4)))
    table = weights.attention_weights(scores)
    assert table[0].same(table[1])  # heads share the function, queries and keys do not
    assert len({*table.words.ravel().tolist()}) == 16
    other = Weights(SMALL, Field(), SEED + 1)
    assert not other.activation(row).same(weights.activation(row))


# --- planted defects -----------------------------------------------------------------------------


def only(form: Form, shape: Shape = SMALL) -> Comparison:
    return compare(shape, SEED, forms=(form,))


def uncentred_biases(form: Form) -> Form:
    """The form whose biases, which are one row, are written as Pre-LN writes them."""

    def write(ar: FieldArithmetic, rows: FieldArray) -> FieldArray:
        kept = rows[..., : form.write(ar, rows).shape[-1]]
        return kept if rows.shape[0] == 1 else form.write(ar, rows)

    return replace(form, write=write)


def with_norm(form: Form, change: Callable[..., Value]) -> Form:
    def norm(ar: Arithmetic, x: Value, weight: Value, bias: Value, eps: Value) -> Value:
        return change(form.norm, ar, x, weight, bias, eps)

    return replace(form, norm=norm)


def at_call(number: int, change: Callable[..., Value]) -> Callable[..., Value]:
    """The change at one call of the norm, counted from 0."""
    calls = itertools.count()

    def once(norm: Callable[..., Value], ar: Arithmetic, *arguments: Value) -> Value:
        return change(norm, ar, *arguments) if next(calls) == number else norm(ar, *arguments)

    return once


def other_eps(norm, ar, x, weight, bias, eps):
    return norm(ar, x, weight, bias, eps + ar.number(1))


def no_norm(norm, ar, x, weight, bias, eps):
    return x * weight + bias


def no_bias(norm, ar, x, weight, bias, eps):
    return norm(ar, x, weight, ar.number(0), eps)


def sign_at_one_token(norm, ar, x, weight, bias, eps):
    y = norm(ar, x, ar.number(1), ar.number(0), eps)
    signs = ar.field.array([[1]] * (y.shape[0] - 1) + [[-1]])
    return y * signs * weight + bias


def plain_chart(ar: FieldArithmetic, rows: FieldArray) -> FieldArray:
    """Q applied where Q^T belongs, cut to size: the isometry transposed."""
    return chart(ar, rows[..., :-1])[..., :-1]


@pytest.mark.parametrize("form", [PRE_RMS_NORM, PRE_CRMS_NORM], ids=lambda f: f.name)
def test_biases_left_uncentred_are_seen_in_the_first_block_that_has_one(form):
    (found,) = only(uncentred_biases(form)).forms
    assert not found.agrees
    assert not found.logits_agree
    assert found.broken == "layers.0.attention"


@pytest.mark.parametrize("form", CONVERTED, ids=lambda f: f.name)
@pytest.mark.parametrize("call", range(2 * SMALL.layers + 1))
@pytest.mark.parametrize("change", [other_eps, no_norm, sign_at_one_token])
def test_one_wrong_norm_is_seen_in_its_block(form, call, change):
    (found,) = only(with_norm(form, at_call(call, change))).forms
    assert not found.agrees
    block = [*SMALL.blocks[1:], "head"][call]
    where = found.undefined.partition(":")[0] if found.undefined else "head"
    assert (found.broken or where) == block


def test_a_radicand_without_a_root_is_told_apart_from_a_wrong_value():
    seen = set()
    for seed in range(12):
        form = with_norm(PRE_RMS_NORM, at_call(0, other_eps))
        (found,) = compare(replace(SMALL, tokens=2), seed, forms=(form,)).forms
        assert not found.agrees
        seen.add(found.broken is None)
        assert found.broken in {None, "layers.0.attention"}
        assert found.broken or "layers.0.attention: " in found.undefined
    assert seen == {True, False}


@pytest.mark.parametrize("fault", sorted(FAULTS))
@pytest.mark.parametrize("form", [PRE_LN, PRE_RMS_NORM], ids=lambda f: f.name)
def test_the_faults_of_the_catalogue_are_seen(form, fault):
    planted = replace(form, norm=lambda ar, *given: form.norm(ar, *given, **FAULTS[fault]))
    assert not only(planted).agrees


WRONG = {
    "nothing converted": replace(PRE_RMS_NORM, write=as_it_is),
    "the isometry transposed in the writers": replace(NARROW_RMS_NORM, write=plain_chart),
    "the isometry transposed in the readers": replace(
        NARROW_RMS_NORM, pull=lambda ar, w: plain_chart(ar, w.T).T
    ),
    "two charts mixed": replace(NARROW_RMS_NORM, pull=PRE_CRMS_NORM.pull),
    "last row of the readers dropped": replace(PRE_CRMS_NORM, pull=lambda ar, w: w[:-1]),
    "RMSNorm in the chart of CRMSNorm": replace(PRE_CRMS_NORM, norm=rms_norm),
    "RMSNorm of d-1 in the isometric chart": replace(NARROW_RMS_NORM, norm=rms_norm),
    "narrow norm in the chart of CRMSNorm": replace(PRE_CRMS_NORM, norm=NARROW_RMS_NORM.norm),
    "the bias of a norm forgotten": with_norm(PRE_RMS_NORM, no_bias),
    "gain kept where it should be folded": with_norm(
        PRE_CRMS_NORM, lambda n, ar, x, w, b, e: n(ar, x, ar.field.array([[2]]), b, e)
    ),
}


@pytest.mark.parametrize("defect", WRONG)
def test_wrong_conversions_are_seen(defect):
    (found,) = only(WRONG[defect]).forms
    assert not found.agrees
    assert not found.logits_agree


def test_a_wrong_form_does_not_hide_behind_right_ones():
    wrong = replace(PRE_RMS_NORM, write=as_it_is)
    found = compare(SMALL, SEED, forms=(PRE_RMS_NORM, wrong, PRE_CRMS_NORM))
    assert [form.agrees for form in found.forms] == [True, False, True]
    assert not found.agrees


def test_equal_logits_do_not_excuse_a_stream_that_is_not_related():
    """The stream doubled, and halved where it is read: one function, but not the form claimed."""
    doubled = replace(
        PRE_RMS_NORM,
        write=lambda ar, rows: PRE_RMS_NORM.write(ar, rows) * 2,
        norm=lambda ar, x, *rest: rms_norm(ar, x / ar.number(2), *rest),
    )
    (found,) = only(doubled).forms
    assert found.logits_agree
    assert found.broken == "embedding"
    assert not found.agrees


# --- the relation of the streams -----------------------------------------------------------------


def test_the_relation_is_a_multiple_of_the_ones_row_and_mean_zero():
    ar = FieldArithmetic(Field())
    pre_ln = ar.field.draw(np.random.default_rng(1), 3, 6)
    honest = PRE_RMS_NORM.write(ar, pre_ln)
    assert is_related(ar, PRE_RMS_NORM, pre_ln, honest)
    assert is_related(ar, PRE_RMS_NORM, pre_ln + 5, honest)
    assert not is_related(ar, PRE_RMS_NORM, pre_ln, honest + 5)  # its mean is not 0
    assert not is_related(ar, PRE_RMS_NORM, pre_ln, honest * 2)
    off = FieldArray(ar.field, honest.words.copy())
    off.words[1, [2, 3]] = off.words[1, [3, 2]]  # the mean is still 0
    assert not is_related(ar, PRE_RMS_NORM, pre_ln, off)


@pytest.mark.parametrize("form", CONVERTED, ids=lambda f: f.name)
def test_writing_and_expanding_is_centring(form):
    ar = FieldArithmetic(Field())
    rows = ar.field.draw(np.random.default_rng(1), 3, 16)
    expanded = form.expand(ar, form.write(ar, rows))
    assert expanded.same(PRE_RMS_NORM.write(ar, rows))


def test_the_chart_is_orthonormal_and_that_of_crms_norm_is_not():
    ar = FieldArithmetic(Field())
    identity = ar.field.array(np.eye(15, dtype=int).tolist())
    assert chart_transposed(ar, chart(ar, identity)).same(identity)
    for expand, is_orthonormal in ((chart, True), (decompressed, False)):
        rows = expand(ar, identity)
        assert (rows @ rows.T).same(identity) is is_orthonormal
        assert not ar.sum(rows).words.any()


# --- mutants -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def honest() -> Honest:
    return honest_run(SMALL, SEED)


def test_a_hundred_mutants_are_caught_and_named():
    found = mutants(SMALL, 100, SEED)
    assert len(found) == 100
    assert all(mutant.is_caught for mutant in found)
    assert len({mutant.mutation.tensor for mutant in found}) == len(writers(SMALL))
    assert {mutant.mutation.kind for mutant in found} == {*KINDS}


@settings(max_examples=2 * settings.default.max_examples)
@given(shapes(), st.integers(0, 2**32))
def test_mutants_of_any_shape_are_caught_and_named(shape, seed):
    assert all(mutant.is_caught for mutant in mutants(shape, 3, seed))


def test_every_writer_is_caught_in_every_way(honest):
    assert len(writers(SMALL)) == 2 + 4 * SMALL.layers
    for name, kind in itertools.product(writers(SMALL), KINDS):
        for row in range(honest.network.weights.rows(name)):
            assert trial(honest, Mutation(name, kind, row, column=3)).named == name, (kind, row)


@pytest.mark.parametrize("shift", [0, Field().prime])
def test_a_mutant_that_changes_nothing_is_not_caught(honest, shift):
    for name in writers(SMALL):
        found = trial(honest, Mutation(name, "entry", 0, 5, shift))
        assert found.named is None
        assert not found.is_caught


def test_weights_that_are_centred_already_leave_nothing_to_catch(honest):
    class Centred(Weights):
        def writer(self, name: str) -> FieldArray:
            return PRE_RMS_NORM.write(FieldArithmetic(self.field), super().writer(name))

    network = Network(PRE_RMS_NORM, Centred(SMALL, Field(), SEED), honest.network.eps)
    unchanged = Honest(network, honest.steps)
    assert [trial(unchanged, Mutation(n, "tensor")).named for n in writers(SMALL)] == [None] * 10


def test_the_name_is_read_off_the_streams_and_not_off_the_plan(honest):
    """What is planted in one tensor under another one's name is named by where it is."""
    for planted in writers(SMALL):
        mutation = Mutation(planted, "row")
        mutant = honest.with_changes({planted: mutation.apply(honest.network)})
        named = tensor_at_fault(honest, *first_broken(honest, mutant))
        wrong_plan = next(name for name in writers(SMALL) if name != planted)
        assert named == planted
        assert not Caught(replace(mutation, tensor=wrong_plan), named).is_caught


def test_the_first_of_two_faults_is_named(honest):
    for first, second in itertools.pairwise(writers(SMALL)[1::2]):
        changed = {name: Mutation(name, "tensor").apply(honest.network) for name in (second, first)}
        block, _ = first_broken(honest, honest.with_changes(changed))
        assert first.startswith(block) or (first, block) == ("positions", "embedding")


def test_a_run_without_shortcuts_breaks_in_the_same_block(honest):
    for name, kind in itertools.product(writers(SMALL), KINDS):
        mutant = honest.with_changes({name: Mutation(name, kind, 0, 2).apply(honest.network)})
        block, *later = SMALL.blocks
        stream = mutant.embedded()
        while honest.is_related(block, stream):
            block = later.pop(0)
            stream = mutant.after(block, stream)
        found, after = first_broken(honest, mutant)
        assert found == block
        assert after.same(stream)


def test_a_relation_that_always_holds_catches_no_mutant(monkeypatch):
    monkeypatch.setattr(mutation, "is_related", lambda *_: True)
    assert not any(mutant.is_caught for mutant in mutants(SMALL, 5, SEED))


# --- what is asked and what is told --------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"layers": 0}, r"layers=0: expected an int >= 1"),
        ({"width": 12.0}, r"width=12.0: expected an int >= 1"),
        ({"vocabulary": True}, r"vocabulary=True: expected an int >= 1"),
        ({"heads": 5}, r"width=768, heads=5: expected a width that heads divides"),
        ({"tokens": 1}, r"tokens=1: expected at least 2"),
        ({"tokens": 768}, r"width=768, .*tokens=768: expected fewer tokens"),
        ({"ffn": 7}, r"ffn=7, tokens=8: expected fewer tokens"),
    ],
)
def test_shapes_that_make_no_network_are_refused_in_one_line(sizes, message):
    with pytest.raises(ValueError, match=message) as refusal:
        Shape(**sizes)
    assert "\n" not in str(refusal.value)


def test_seeds_counts_and_kinds_are_checked():
    with pytest.raises(ValueError, match=r"seed=-1: expected an int >= 0"):
        compare(SMALL, -1)
    with pytest.raises(ValueError, match=r"count=0: expected an int >= 1"):
        mutants(SMALL, 0, SEED)
    with pytest.raises(ValueError, match=r"kind='column': expected one of tensor, row, entry"):
        Mutation("embedding", "column")


def test_progress_counts_every_step():
    steps: list[tuple[int, int, str]] = []
    compare(SMALL, SEED, lambda *step: steps.append(step))
    forms = 5  # Pre-LN runs over both fields
    assert [done for done, _, _ in steps] == list(range(1, forms * (2 * SMALL.layers + 2) + 1))
    assert {total for _, total, _ in steps} == {len(steps)}
    assert steps[-1][2] == "narrow RMSNorm, head"
    steps.clear()
    mutants(SMALL, 3, SEED, lambda *step: steps.append(step))
    assert [(done, total) for done, total, _ in steps] == [(i, 8) for i in range(1, 9)]


def test_results_are_plain_values():
    told = json.loads(json.dumps(compare(SMALL, SEED).to_json()))
    assert told["agrees"] is True
    assert told["shape"]["width"] == 12
    assert [form["agrees"] for form in told["forms"]] == [True] * 3
    assert set(told["pre_ln_seconds"]) == {"2^61-1", "2^61-45"}
    (mutant,) = mutants(SMALL, 1, SEED)
    told = json.loads(json.dumps(mutant.to_json()))
    assert told["is_caught"] is True
    assert told["named"] == told["tensor"]


def test_the_probability_of_failure_is_below_one_in_a_hundred_million():
    found = compare(SMALL, SEED)
    t, used = 4, 2 * 2 * 4 * (10 + 3 * 4)
    assert 2**found.log2_failure == pytest.approx(3 * 8 * (t * t + 6) * (used + t) / 2**59)
    assert compare(SMALL, SEED, forms=(PRE_RMS_NORM,)).log2_failure < found.log2_failure
