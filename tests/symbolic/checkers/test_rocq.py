"""Rocq: the proofs compile and rest on nothing, and what is wrong or unproved is seen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from verify.symbolic.checkers import rocq
from verify.symbolic.checkers.rocq import Compiled, RocqError, compile_proofs, forbidden

needs_rocq = pytest.mark.skipif(bool(rocq.missing()), reason=f"skipped: {rocq.missing()}")
PROOFS = rocq.proofs_folder() or Path()
HEADER = "From mathcomp Require Import ssreflect ssrbool ssrnat.\n"
TRUE_THEOREM = "Theorem two : 1 + 1 = 2.\nProof. by []. Qed.\n"
CHEATS = {
    "Axiom": "Axiom cheat : 1 + 1 = 3.\nTheorem three : 1 + 1 = 3.\nProof. exact: cheat. Qed.\n",
    "Admitted": "Theorem three : 1 + 1 = 3.\nAdmitted.\n",
    "Unset Guard Checking": """Unset Guard Checking.
Fixpoint cheat (n : nat) {struct n} : False := cheat n.
Set Guard Checking.
Theorem three : 1 + 1 = 3.
Proof. by case: (cheat 0). Qed.
""",
}
EXTENSIONALITY = """From Coq Require Import FunctionalExtensionality.
Theorem rows_are_equal (f g : nat -> nat) : (forall i, f i = g i) -> f = g.
Proof. exact: functional_extensionality. Qed.
"""


class Built(NamedTuple):
    workdir: Path
    answers: list[Compiled]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("proofs")
    return Built(workdir, compile_proofs(PROOFS, workdir))


@pytest.fixture
def compiled(tmp_path):
    def compiled(**files):
        folder, workdir = tmp_path / "sources", tmp_path / "work"
        folder.mkdir()
        workdir.mkdir()
        for name, text in files.items():
            (folder / f"{name}.v").write_text(text, encoding="utf-8")
        return {answer.theorem: answer for answer in compile_proofs(folder, workdir)}

    return compiled


# --- the proofs --------------------------------------------------------------------------------


@needs_rocq
def test_every_theorem_compiles_and_is_closed(built):
    assert [answer for answer in built.answers if not answer.closed] == []


@needs_rocq
def test_the_named_theorems_are_those_of_the_files(built):
    assert sorted(answer.theorem for answer in built.answers) == sorted(rocq.THEOREMS)
    for name, theorem in rocq.THEOREMS.items():
        code = rocq.code_of((PROOFS / theorem.file).read_text(encoding="utf-8"))
        assert name in rocq.STATED.findall(code)


@pytest.mark.skipif(not PROOFS.name, reason="skipped: no proofs/ folder beside the package")
def test_every_file_ends_by_printing_what_its_theorems_rest_on():
    for path in PROOFS.glob("*.v"):
        code = rocq.code_of(path.read_text(encoding="utf-8"))
        stated = rocq.STATED.findall(code)
        asked = f"Definition theorems_of_{path.stem} :=(@{',@'.join(stated)})."
        *_, definition, printed = (line for line in re.split(r"(?<=\.)\n", code) if line.strip())
        assert re.sub(r"\s*\n\s*|(?<=,)\s", "", definition).strip() == asked
        assert printed.strip() == f"Print Assumptions theorems_of_{path.stem}."


# --- wrong siblings ----------------------------------------------------------------------------
# A wrong statement or definition under the original proof scripts: Rocq must stop inside the proof
# of the theorem named, so the wrong text is understood and is not provable in the same way.


class Sibling(NamedTuple):
    file: str
    right: str
    wrong: str
    stops_in: str


SIBLINGS = {
    "constants are not kept": Sibling(
        "rows", "center x = 0 <->", "center x = x <->", "centring_kills_exactly_the_constants"
    ),
    "uncentred row": Sibling(
        "norms",
        "layer_norm eps w b x = rms_norm eps w b (center x)",
        "layer_norm eps w b x = rms_norm eps w b x",
        "layer_norm_is_rms_norm_of_centred",
    ),
    "RMSNorm is shift invariant": Sibling(
        "norms",
        "layer_norm eps w b (x + const c) = layer_norm eps w b x",
        "rms_norm eps w b (x + const c) = rms_norm eps w b x",
        "layer_norm_is_shift_invariant",
    ),
    "divisor d - 1": Sibling(
        "norms",
        "R := (\\sum_i (x i - mean x) ^+ 2) / n%:R",
        "R := (\\sum_i (x i - mean x) ^+ 2) / n.-1%:R",
        "variance_center",
    ),
    "mean added in one pass": Sibling(
        "norms",
        "variance x = mean_square x - mean x ^+ 2",
        "variance x = mean_square x + mean x ^+ 2",
        "variance_in_one_pass",
    ),
    "Chan's delta not squared": Sibling(
        "norms", "+ delta * delta * (n * share)", "+ delta * (n * share)", "chan_merge_is_union"
    ),
    "eps not scaled": Sibling(
        "norms",
        "rms_hat (c ^+ 2 * eps) (scale",
        "rms_hat (c * eps) (scale",
        "rms_norm_of_scaled_row",
    ),
    "CRMSNorm's divisor n": Sibling(
        "charts",
        "total z ^+ 2) / n.+1%:R + eps)]",
        "total z ^+ 2) / n%:R + eps)]",
        "crms_norm_is_rms_norm_in_a_chart",
    ),
    "narrow norm with the eps of the wide one": Sibling(
        "charts",
        "(widen (rms_hat (eps * ratio) (narrow x)))",
        "(widen (rms_hat eps (narrow x)))",
        "layer_norm_is_narrow_rms_norm",
    ),
    "no factor of 2 in the gradient": Sibling(
        "gradients",
        "f t = f 0 + t * L + t ^+ 2 * rho t)",
        "f t = f 0 + t * (2%:R * L) + t ^+ 2 * rho t)",
        "derivative_is_the_limit_of_quotients",
    ),
    "backward without the projection": Sibling(
        "gradients",
        "rstd eps x * (g i - rms_hat eps x i * mean (mul g (rms_hat eps x)))",
        "rstd eps x * (g i + rms_hat eps x i * mean (mul g (rms_hat eps x)))",
        "rms_backwardE",
    ),
    "derivative with rstd squared": Sibling(
        "gradients",
        "r * k - r ^+ 3 * B * a)",
        "r * k - r ^+ 2 * B * a)",
        "derivative_of_normalised",
    ),
    "writes not centred": Sibling(
        "networks",
        "final_stream rms P blocks (each P x) =",
        "final_stream rms id blocks (each P x) =",
        "converted_stream_is_the_centred_stream",
    ),
    "input not centred": Sibling(
        "networks",
        "network rms P head eps w b blocks (each P x) =",
        "network rms P head eps w b blocks x =",
        "pre_ln_network_is_pre_rms_network",
    ),
    "LayerScale after centring": Sibling(
        "networks",
        "center (mul s (apply A y + b)) =",
        "mul s (center (apply A y + b)) =",
        "layer_scale_is_folded_before_centring",
    ),
    "tied head's shift added": Sibling(
        "readers",
        "apply A x i - mean [ffun k => A i k] * total x",
        "apply A x i + mean [ffun k => A i k] * total x",
        "tied_head_shift",
    ),
    "RMSNorm's read-outs in a hyperplane": Sibling(
        "expressiveness",
        "forall eps x, dot u (apply A (layer_norm eps w b x) + c) = k",
        "forall eps x, dot u (apply A (rms_norm eps w b x) + c) = k",
        "layer_norm_read_outs_lie_in_a_hyperplane",
    ),
    "bound of sqrt d for LayerNorm": Sibling(
        "expressiveness",
        "x k = r /\\ Num.sqrt n.-1%:R <=",
        "x k = r /\\ Num.sqrt n%:R <=",
        "element_wise_layer_is_far_from_layer_norm",
    ),
}


def proof_lines(source, name):
    """The first and last line of a theorem's proof."""
    start = re.search(rf"^\s*(?:Theorem|Lemma) {name}\b", source, re.MULTILINE).start()
    proof = source.index("Proof.", start)
    return tuple(source.count("\n", 0, at) + 1 for at in (proof, source.index("Qed.", proof)))


@needs_rocq
@pytest.mark.parametrize("name", SIBLINGS)
def test_a_wrong_sibling_does_not_compile(built, name):
    sibling = SIBLINGS[name]
    source = (PROOFS / f"{sibling.file}.v").read_text(encoding="utf-8")
    assert source.count(sibling.right) == 1
    wrong = built.workdir / f"wrong_{sibling.file}.v"
    wrong.write_text(source.replace(sibling.right, sibling.wrong), encoding="utf-8")
    failure, _ = rocq._coqc(wrong)
    first, last = proof_lines(wrong.read_text(encoding="utf-8"), sibling.stops_in)
    assert first <= int(re.search(r"line (\d+)", failure)[1]) <= last


# --- planted defects ---------------------------------------------------------------------------


@needs_rocq
def test_a_true_theorem_is_closed_and_a_wrong_one_is_not(compiled):
    answers = compiled(
        right=HEADER + TRUE_THEOREM,
        wrong=HEADER + TRUE_THEOREM.replace("= 2", "= 3").replace("two", "three"),
    )
    assert answers["two"] == Compiled("two", True, rocq.CLOSED)
    assert not answers["three"].closed
    assert "line 3" in answers["three"].message


@needs_rocq
def test_an_axiom_of_a_library_shows_under_its_theorem_alone(compiled):
    answers = compiled(mixed=HEADER + EXTENSIONALITY + TRUE_THEOREM)
    assert not answers["rows_are_equal"].closed
    assert "functional_extensionality_dep" in answers["rows_are_equal"].message
    assert answers["two"].closed


@needs_rocq
@pytest.mark.parametrize("cheat", CHEATS)
def test_a_planted_assumption_is_refused_with_its_line(compiled, cheat):
    (answer,) = compiled(cheat=HEADER + CHEATS[cheat]).values()
    assert not answer.closed
    assert re.match(rf"cheat\.v is refused: line \d: {cheat}", answer.message)


@needs_rocq
@pytest.mark.parametrize("cheat", CHEATS)
def test_rocq_sees_what_the_scan_of_the_source_would_not(monkeypatch, compiled, cheat):
    monkeypatch.setattr(rocq, "forbidden", lambda _source: [])
    answers = compiled(cheat=HEADER + CHEATS[cheat] + TRUE_THEOREM)
    assert not answers["three"].closed
    assert answers["three"].message.startswith("Axioms:")
    assert answers["two"].closed


@needs_rocq
@pytest.mark.parametrize("end", ["Admitted", "Abort"])
def test_a_theorem_without_a_proof_is_not_closed(compiled, end):
    answers = compiled(unproved=HEADER + f"Theorem three : 1 + 1 = 3.\n{end}.\n")
    assert not answers["three"].closed


@needs_rocq
def test_a_file_that_needs_a_failed_one_is_not_compiled(compiled):
    user = "From Normproof Require Import base.\n" + TRUE_THEOREM
    answers = compiled(a_user=HEADER + user, base=HEADER + "Theorem no : 1 = 2.\nAdmitted.\n")
    assert answers["no"].message == "base.v is refused: line 3: Admitted"
    assert answers["two"] == Compiled("two", False, "needs base.v, which failed")


@needs_rocq
def test_files_are_compiled_in_the_order_of_their_needs(compiled):
    user = (
        "From Normproof Require Import base.\nTheorem again : 1 + 1 = 2.\nProof. exact: two. Qed.\n"
    )
    answers = compiled(a_user=HEADER + user, base=HEADER + TRUE_THEOREM)
    assert answers["again"].closed


@needs_rocq
def test_a_proof_that_does_not_end_is_not_closed(tmp_path):
    (tmp_path / "slow.v").write_text(HEADER + TRUE_THEOREM, encoding="utf-8")
    workdir = tmp_path / "work"
    workdir.mkdir()
    (answer,) = compile_proofs(tmp_path, workdir, seconds_per_file=0.01)
    assert answer == Compiled("two", False, "slow.v: no end after 0.01 s")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("Theorem t : False.\nAdmitted.", ["line 2: Admitted"]),
        ("Proof. admit. Qed.", ["line 1: admit"]),
        ("Proof. give_up. Qed.", ["line 1: give_up"]),
        ("Admit  Obligations.", ["line 1: Admit Obligations"]),
        ("Local Axiom a : False.", ["line 1: Axiom"]),
        ("Parameters (a b : nat).", ["line 1: Parameters"]),
        ("Unset  Guard\nChecking.", ["line 1: Unset Guard Checking"]),
        ("#[bypass_check(guard)] Fixpoint f x := f x.", ["line 1: bypass_check"]),
        ("\nHypothesis h : False.", ["line 2: Hypothesis outside a Section"]),
        ("Local Variables x y : nat.", ["line 1: Variables outside a Section"]),
        ("Section S.\nEnd S.\nContext (x : nat).", ["line 3: Context outside a Section"]),
        ("Module M.\nVariable x : nat.\nEnd M.", ["line 2: Variable outside a Section"]),
        ("Section S.\nVariable x : nat.\nHypothesis h : x = 1.\nEnd S.", []),
        ("(* Admitted (* nested *) Axiom *) Check nat.", []),
        ('(* a quoted "*)" Admitted *) Check nat.', []),
        ('Check "Admitted"%string.', []),
        ("(* over *) Admitted. (* again *)", ["line 1: Admitted"]),
        ("Lemma admit_nothing : True. Proof. by []. Qed.", []),
    ],
)
def test_what_leaves_something_unproved_is_found(source, found):
    assert forbidden(source) == found


def test_files_that_need_each_other_are_refused(tmp_path):
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.v").write_text(f"From Normproof Require Import {other}.\n")
    with pytest.raises(RocqError, match="files that need each other"):
        compile_proofs(tmp_path, tmp_path)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(RocqError, match=r"has no \.v file"):
        compile_proofs(tmp_path, tmp_path)


# --- what is not there is skipped, never passed --------------------------------------------------


@pytest.fixture
def forgetful(monkeypatch):
    """`missing` as it answers afresh."""
    monkeypatch.setattr(rocq, "missing", rocq.missing.__wrapped__)
    return monkeypatch


def test_without_coqc_there_is_a_reason_and_no_answer(forgetful):
    forgetful.setattr(rocq, "proofs_folder", Path)
    forgetful.setattr(rocq.shutil, "which", lambda _: None)
    assert rocq.missing() == "coqc is not installed"
    with pytest.raises(RocqError, match="coqc is not installed"):
        rocq.check_proofs()


def test_an_installed_wheel_has_no_proofs_folder(forgetful, tmp_path):
    (tmp_path / "proofs").mkdir()  # of another package
    (tmp_path / "proofs" / "theirs.v").write_text(HEADER + TRUE_THEOREM, encoding="utf-8")
    forgetful.setattr(rocq, "__file__", str(tmp_path / "verify/symbolic/checkers/rocq.py"))
    assert rocq.missing() == (
        "proofs/ is not part of an installed wheel: run from a checkout of the repository"
    )
    with pytest.raises(RocqError, match="not part of an installed wheel"):
        rocq.check_proofs()


def test_one_of_our_files_is_a_proofs_folder(monkeypatch, tmp_path):
    (tmp_path / "proofs").mkdir()
    (tmp_path / "proofs" / "rows.v").touch()
    monkeypatch.setattr(rocq, "__file__", str(tmp_path / "verify/symbolic/checkers/rocq.py"))
    assert rocq.proofs_folder() == tmp_path / "proofs"


@needs_rocq
def test_a_coqc_without_mathcomp_has_a_reason(forgetful):
    forgetful.setattr(rocq, "_coqc", lambda _path: ("Cannot find a physical path", ""))
    assert rocq.missing() == (
        "coqc does not load mathcomp's algebra library: Cannot find a physical path"
    )


@needs_rocq
def test_a_theorem_that_no_file_states_is_reported(forgetful, tmp_path):
    (tmp_path / "few.v").write_text(HEADER + TRUE_THEOREM, encoding="utf-8")
    forgetful.setattr(rocq, "proofs_folder", lambda: tmp_path)
    answers = {answer.theorem: answer for answer in rocq.check_proofs()}
    assert answers["two"].closed
    absent = answers["centring_is_idempotent"]
    assert absent == Compiled("centring_is_idempotent", False, "rows.v does not state it")
