"""Certificates: they say all of a theorem, name the step that was changed, and are safe to read."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from verify.symbolic.certificate import (
    DEEPEST_TERM,
    LONGEST_NUMBER,
    CertificateError,
    broken_seals,
    certificate,
    read,
    sealed,
    steps_of,
)
from verify.symbolic.language import Statement, apply, array, derivative, sqrt, total
from verify.symbolic.theorem import Theorem, theorem_named, theorem_names
from verify.symbolic.trusted import OutsideLanguageError, Term, num, rejections

NAMES = theorem_names()
AROUND = [("", "")]
OPERATIONS = ("num", "dim", "sym", "at", "sum", "add", "mul", "div", "sqrt", "fun", "lam", "diff")
WORDS = ("name", "statement", "hypotheses", "citation", "used_in")


def sample():
    """A theorem with every operation of the language and a claim of every kind."""
    s = Statement()
    m = s.dimension("m", 2)
    i, j, k = s.index(), s.index(), s.index("m")
    x, h = s.arrays("x h", i)
    (A,) = s.arrays("A", i, k)
    (eps,) = s.numbers("eps", positive=True)
    norm = sqrt(total(i, x * x) / 3 + eps)
    soft = apply("softmax", array(x.at(i, j), j), at=[i])
    s.equal("row", ("y", x / norm), ("again", x * norm / (norm * norm)), free=[i])
    s.equal("slope", ("dx", derivative(total(i, x * x), "x", "h")), ("2xh", 2 * total(i, x * h)))
    s.equal("values", ("f", soft * m), ("f m", m * soft), free=[i])
    s.at_least("square", ("0 <= x x", total(i, x * x)), ("x x", total(i, x * x)))
    values = {"A": [[1, 2], [Fraction(-3, 7), 4]], "x": [5, 6], "eps": Fraction(1, 9)}
    witness = {"dims": {"n": 2, "m": 2}, "values": values, "index": (1, 0)}
    s.differ("not", A * x / eps, A - x, free=[i, k], **witness)
    words = ("SAMPLE", "A sample.", r"x \neq y", ("one", "two"), "nobody", ("tests",))
    return Theorem(*words, s.setting, tuple(s.claims))


SAMPLE = sample()


def plain(content):
    return copy.deepcopy(content)


def as_read(content):
    """Each step with the claim around it, as `read` finds it: terms are made once, hence equal."""
    _, claims = read(content)
    return {
        (claim.name, step): (claim.kind, claim.free, str(claim.witness), term)
        for claim in claims
        for step, term in claim.steps
    }


def expected_breaks(old, new):
    """The steps that say something else, or are new; the words around if there are none."""
    before, after = as_read(old), as_read(new)
    broken = [key for key, what in after.items() if before.get(key) != what]
    return broken or ([] if old == new else AROUND)


# --- a certificate says all of its theorem -------------------------------------------------------


@pytest.mark.parametrize("theorem", [SAMPLE, *NAMES], ids=["SAMPLE", *NAMES])
def test_what_is_read_is_what_was_written(theorem):
    theorem = theorem_named(theorem) if isinstance(theorem, str) else theorem
    content = certificate(theorem)
    assert read(content) == (theorem.setting, list(theorem.claims))
    assert json.loads(json.dumps(content)) == content
    assert broken_seals(content) == []
    found = [content[key] for key in WORDS]
    own = [getattr(theorem, key) for key in WORDS]
    assert found == [list(words) if isinstance(words, tuple) else words for words in own]


def test_the_sample_has_everything():
    content = certificate(SAMPLE)
    operations = {row[0] for row in content["terms"]}
    assert operations == set(OPERATIONS)
    assert {claim["kind"] for claim in content["claims"]} == {"equal", "at_least", "differ"}
    assert not [r for claim in SAMPLE.claims for r in rejections(claim, SAMPLE.setting)]


def test_each_term_is_written_once_and_after_its_parts():
    for name in NAMES:
        rows = certificate(theorem_named(name))["terms"]
        texts = [json.dumps(row) for row in rows]
        assert len(set(texts)) == len(texts)


def test_sealing_twice_changes_nothing():
    content = certificate(SAMPLE)
    assert sealed(content) == content


def test_two_processes_write_the_same_bytes():
    code = (
        "import json; from verify.symbolic.certificate import certificate; "
        "from verify.symbolic.theorem import theorem_named, theorem_names; "
        "print(json.dumps([certificate(theorem_named(n)) for n in theorem_names()]))"
    )
    here = json.dumps([certificate(theorem_named(name)) for name in NAMES])
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        printed = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert printed.stdout == here + "\n"


# --- seals ---------------------------------------------------------------------------------------

THEOREMS = st.one_of(st.just(SAMPLE), st.sampled_from(NAMES).map(theorem_named))
CERTIFICATES = THEOREMS.map(certificate)


@given(content=CERTIFICATES, data=st.data())
def test_a_changed_digit_breaks_the_steps_that_have_it(content, data):
    changed = plain(content)
    numbers = [row for row in changed["terms"] if row[0] == "num"]
    assume(numbers)
    row = data.draw(st.sampled_from(numbers))
    place = data.draw(st.sampled_from([k for k, c in enumerate(row[1]) if c.isdigit()]))
    digit = data.draw(st.sampled_from(sorted(set("123456789") - {row[1][place]})))
    row[1] = row[1][:place] + digit + row[1][place + 1 :]
    assume(Fraction(row[1]) not in [Fraction(r[1]) for r in content["terms"] if r[0] == "num"])
    broken = broken_seals(changed)
    assert broken == expected_breaks(content, changed)
    assert AROUND[0] not in broken


@given(content=CERTIFICATES, data=st.data())
def test_a_step_that_points_elsewhere_is_named(content, data):
    changed = plain(content)
    claim = data.draw(st.sampled_from([c for c in changed["claims"] if "steps" in c]))
    step = data.draw(st.sampled_from(claim["steps"]))
    step[1] = data.draw(st.integers(0, len(changed["terms"]) - 1))
    assert broken_seals(changed) in ([[(claim["name"], step[0])]] if changed != content else [[]])


@given(content=CERTIFICATES, data=st.data())
def test_a_step_of_another_name_is_named(content, data):
    changed = plain(content)
    claim = data.draw(st.sampled_from([c for c in changed["claims"] if "steps" in c]))
    step = data.draw(st.sampled_from(claim["steps"]))
    step[0] += data.draw(st.text(min_size=1))
    assert broken_seals(changed) == [(claim["name"], step[0])]


@given(content=CERTIFICATES, data=st.data())
def test_a_claim_of_another_name_is_broken_in_every_step(content, data):
    changed = plain(content)
    claim = data.draw(st.sampled_from(changed["claims"]))
    claim["name"] += " and more"
    steps = [(claim["name"], step) for step, _ in steps_of(claim)]
    assert broken_seals(changed) == steps == expected_breaks(content, changed)


@given(content=CERTIFICATES, data=st.data())
def test_two_rows_that_change_places_break_what_stands_on_them(content, data):
    changed = plain(content)
    rows = changed["terms"]
    first = data.draw(st.integers(0, len(rows) - 2))
    second = data.draw(st.integers(first + 1, len(rows) - 1))
    rows[first], rows[second] = rows[second], rows[first]
    try:
        broken = expected_breaks(content, changed)
    except CertificateError:  # a row points forward now, or indices fit no longer
        return
    assert broken_seals(changed) == broken != []


@given(content=CERTIFICATES, data=st.data())
def test_claims_in_another_order_break_the_words_around(content, data):
    changed = plain(content)
    changed["claims"] = data.draw(st.permutations(changed["claims"]))
    assert broken_seals(changed) == ([] if changed == content else AROUND)


@given(content=CERTIFICATES, data=st.data())
def test_a_changed_word_breaks_the_words_around(content, data):
    changed = plain(content)
    key = data.draw(st.sampled_from([key for key in WORDS if changed[key]]))
    words = changed[key]
    if isinstance(words, list):
        place = data.draw(st.integers(0, len(words) - 1))
        words[place] += "!"
    else:
        changed[key] = words.replace(words[len(words) // 2], "Ω")
    assert broken_seals(changed) == AROUND


@pytest.mark.parametrize("what", ["dims", "symbols", "positive", "digest", "claims"])
def test_what_is_left_out_breaks_the_words_around(what):
    changed = certificate(SAMPLE)
    if isinstance(changed[what], dict):
        changed[what].popitem()
    else:
        changed[what] = changed[what][:-1]
    assert broken_seals(changed) == AROUND


@pytest.mark.parametrize(
    "change",
    [
        lambda claim: claim["witness"]["values"]["x"].__setitem__(0, "7"),
        lambda claim: claim["witness"]["dims"].update(n=3),
        lambda claim: claim.update(kind="equal", steps=[["left", 0], ["right", 1]]),
        lambda claim: claim["free"].reverse(),
        lambda claim: claim.update(seals=[]),
        lambda claim: claim.pop("seals"),
    ],
)
def test_a_changed_claim_is_broken_on_both_sides(change):
    changed = certificate(SAMPLE)
    change(changed["claims"][-1])
    assert broken_seals(changed) == [("not", "left"), ("not", "right")]


# --- reading what is no certificate --------------------------------------------------------------


def refused(content):
    """The one line with which a certificate is refused."""
    with pytest.raises(CertificateError) as caught:
        read(content)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert len(message) < 500
    return message


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


HOSTILE = [None, True, 0, -1, 2**31, 10**6000, 0.5, float("nan"), float("inf"), "", "n", "\n\n"]
HOSTILE += [
    [],
    {},
    [None],
    ["x", 0],
    [[]],
    {"a": 1},
    {"n": 1},
    nested(5000),
    "9" * 5000,
    "1e999999",
]


def test_nothing_else_is_a_certificate():
    for value in [*HOSTILE, b"", object(), (1,), 10**6000, {1: 2}, {"schema": True}]:
        assert "schema 1" in refused(value)
    for schema in (*HOSTILE, 1.0, 2, "1"):
        assert "schema 1" in refused(certificate(SAMPLE) | {"schema": schema})


def places(value, path=()):
    """Every path to a value inside JSON."""
    yield path
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield from places(inner, (*path, key))
    for key, inner in enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


def put(content, path, value):
    *inner, last = path
    for key in inner:
        content = content[key]
    content[last] = value


PLACES = [path for path in places(certificate(SAMPLE)) if path]


def is_one_line_or_fine(content):
    """Read it, and let the kernel judge what was read: nothing else may be raised."""
    try:
        setting, claims = read(content)
    except CertificateError as error:
        return "\n" not in str(error) and len(str(error)) < 500
    for claim in claims:
        try:
            rejections(claim, setting)
        except OutsideLanguageError:
            continue
    return True


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_value_anywhere_is_refused_in_one_line_or_harmless(value):
    for path in PLACES:
        content = certificate(SAMPLE)
        put(content, path, value)
        assert is_one_line_or_fine(content), path


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


@settings(max_examples=5 * settings.default.max_examples)
@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), JSON), min_size=1, max_size=3))
def test_random_values_anywhere_are_refused_in_one_line_or_harmless(changes):
    content = certificate(SAMPLE)
    for path, value in changes:
        try:
            put(content, path, value)
        except (KeyError, IndexError, TypeError):  # the place went with an earlier change
            continue
    assert is_one_line_or_fine(content)


@settings(max_examples=5 * settings.default.max_examples)
@given(content=CERTIFICATES, data=st.data())
def test_values_in_the_place_of_others_are_refused_in_one_line_or_harmless(content, data):
    paths = [path for path in places(content) if path]
    source, target = data.draw(st.sampled_from(paths)), data.draw(st.sampled_from(paths))
    value = content
    for key in source:
        value = value[key]
    changed = plain(content)
    put(changed, target, plain(value))
    assert is_one_line_or_fine(changed)


def test_a_missing_key_is_named():
    content = certificate(SAMPLE)
    for path in PLACES:
        if (
            isinstance(path[-1], str)
            and path[0] not in ("dims", "symbols")
            and "values" not in path
        ):
            changed = plain(content)
            *inner, last = path
            value = changed
            for key in inner:
                value = value[key]
            del value[last]
            if last not in ("digest", "seals"):
                words = {"schema": "schema 1", "kind": "its kind", "n": "'n'", "m": "'m'"}
                assert words.get(last, f"no key '{last}'") in refused(changed), path


def test_a_key_that_means_nothing_is_named():
    for path in [(), ("claims", 0), ("claims", -1), ("claims", -1, "witness")]:
        content = certificate(SAMPLE)
        put(content, (*path, "proof"), "trust me")
        assert "'proof'" in refused(content)


def test_two_claims_of_one_name_are_refused():
    content = certificate(SAMPLE)
    content["claims"].append(content["claims"][0])
    assert "'row', expected a name that is not empty and occurs once" in refused(content)
    content = certificate(SAMPLE)
    content["claims"][0]["steps"][1][0] = content["claims"][0]["steps"][0][0]
    assert "occurs once" in refused(content)


ROWS = [
    (["add", 0, "here"], "an integer from 0"),
    (["add", 0, -1], "an integer from 0"),
    (["add", 0, True], "True"),
    (["add", 0, 10**9], "an integer from 0"),
    (["add", 0], "'add'"),
    (["max", 0, 0], "'max', expected one of the language"),
    (["sqrt"], "'sqrt'"),
    ([], "type list"),
    (["num", 3], "a string p or p/q"),
    (["num", 0.5], "a string p or p/q"),
    (["num", "0.5"], "a string p or p/q"),
    (["num", "1/0"], "a string p or p/q"),
    (["num", "1e9"], "a string p or p/q"),
    (["num", "nan"], "a string p or p/q"),
    (["num", "٣"], "a string p or p/q"),
    (["num", "1\n"], "a string p or p/q"),
    (["num", "9" * (LONGEST_NUMBER + 1)], "a string p or p/q"),
    (["dim", "d"], "a declared name, one of n, m"),
    (["sym", "x"], "a declared name, one of eps"),
    (["sym", ["eps"]], "a declared name"),
    (["at", "y", [0]], "a declared name"),
    (["at", "x", [0, 0]], "1 of 'x'"),
    (["at", "x", [-1]], "an integer from 0"),
    (["at", "x", [None]], "None"),
    (["at", "x", "0"], "'at'"),
    (["sum", "d", 0], "a declared name"),
    (["lam", ["n", "d"], 0], "a declared name"),
    (["diff", 0, "x", "A"], "one of the shape of 'x'"),
    (["fun", 5, [], []], "'fun'"),
    (["fun", "f", [], [99]], "an integer from 0"),
]


@pytest.mark.parametrize(("row", "words"), ROWS, ids=[str(row)[:30] for row, _ in ROWS])
def test_a_row_outside_the_language_is_refused(row, words):
    content = certificate(SAMPLE)
    here = len(content["terms"])
    content["terms"].append([here if part == "here" else part for part in row])
    message = refused(content)
    assert f"row {here}" in message
    assert words in message


@pytest.mark.parametrize("row", ["sqrt", None, 0, {"op": "sqrt"}, nested(5000)])
def test_what_is_no_row_is_refused(row):
    content = certificate(SAMPLE)
    content["terms"].append(row)
    assert "expected one of the language" in refused(content)


def test_rows_that_point_forward_or_round_are_refused():
    for rows in ([["sqrt", 0]], [["sqrt", 1], ["sqrt", 0]], [["add", 1, 1], ["num", "1"]]):
        assert "row 0" in refused(certificate(SAMPLE) | {"terms": rows})


def test_indices_that_fit_no_binder_are_refused():
    rows = [["at", "A", [0, 1]], ["sum", "n", 0]]  # index 0 of A ranges over n, index 1 over m
    content = certificate(SAMPLE) | {"terms": rows}
    claim = {"kind": "equal", "name": "c", "free": ["m"], "steps": [["a", 1], ["b", 1]]}
    read(content | {"claims": [claim]})
    assert "an index bound by nothing" in refused(content | {"claims": [claim | {"free": []}]})
    assert "expected the same" in refused(content | {"claims": [claim | {"free": ["n"]}]})
    content["terms"] = [["at", "A", [0, 1]], ["sum", "m", 0]]
    assert "expected the same dimension" in refused(content | {"claims": [claim]})


@pytest.mark.parametrize("parts", [[0, 1], [1, 0]])
def test_an_element_of_a_function_fits_any_dimension_and_hides_none(parts):
    rows = [["at", "x", [0]], ["fun", "f", [0], []], ["mul", *parts], ["sum", "n", 2]]
    content = certificate(SAMPLE) | {"terms": rows}
    claim = {"kind": "equal", "name": "c", "free": [], "steps": [["a", 3], ["b", 3]]}
    read(content | {"claims": [claim]})
    rows[-1] = ["sum", "m", 2]
    assert "expected the same dimension" in refused(content | {"claims": [claim]})


def test_a_term_is_as_deep_as_the_kernel_can_go():
    content = certificate(SAMPLE)
    rows = [["sym", "eps"]] + [["sqrt", k] for k in range(DEEPEST_TERM - 1)]
    claim = {"kind": "equal", "name": "c", "free": [], "steps": [["a", 199], ["b", 199]]}
    content |= {"terms": rows, "claims": [claim]}
    assert is_one_line_or_fine(content)
    setting, (deep,) = read(content)
    assert rejections(deep, setting, capacity=DEEPEST_TERM + 1) == []
    rows.append(["sqrt", len(rows) - 1])
    assert f"at most {DEEPEST_TERM}" in refused(content)


WITNESSES = [
    ({"dims": {"n": 2}}, "no key 'm'"),
    ({"dims": {"n": 2, "m": 1}}, "an integer from 2"),
    ({"dims": {"n": 2, "m": 10**9}}, "an integer from 2 to 100"),
    ({"dims": {"n": 2, "m": 2, "d": 2}}, "a declared name"),
    ({"index": [1]}, "2 integers"),
    ({"index": [1, 2]}, "an integer from 0 to 1"),
    ({"index": "10"}, "a list"),
    ({"values": {}}, "no key 'A'"),
    ({"values": []}, "objects as dims and values"),
]


@pytest.mark.parametrize(("part", "words"), WITNESSES)
def test_a_witness_that_is_not_whole_is_refused(part, words):
    content = certificate(SAMPLE)
    content["claims"][-1]["witness"].update(part)
    assert words in refused(content)


@pytest.mark.parametrize("value", ["7", ["1", "2", "3"], [["1", "2"]], [1, 2], ["0.5", "1"], None])
def test_values_of_another_shape_or_type_are_refused(value):
    content = certificate(SAMPLE)
    content["claims"][-1]["witness"]["values"]["x"] = value
    assert "a witness, 'x'" in refused(content)


def test_reading_a_shared_term_twice_is_one_term():
    content = certificate(SAMPLE)
    _, claims = read(content)
    assert all(
        term is own
        for c, o in zip(claims, SAMPLE.claims, strict=True)
        for (_, term), (_, own) in zip(c.steps, o.steps, strict=True)
    )
    assert Term.make("num", data=Fraction(1)) is num(1)
