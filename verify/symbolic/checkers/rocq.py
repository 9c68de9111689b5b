"""The proofs in ``proofs/``: compiled by Rocq (Coq), and searched for assumptions.

These theorems were stated and proved by hand, for every dimension and over every real closed
field. They do not come from a certificate: each states in Rocq's language what a claim of some
certificate says, and `rocq_claims` says which. A theorem counts as closed when its file compiles
and Rocq's kernel finds no axiom under it; a claim counts as proved when every theorem that states
it is closed and the claim is the one that was read against them.
"""

from __future__ import annotations

import functools
import graphlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from verify.finding import Verdict
from verify.symbolic.checkers.answer import Answer, Certificate, CertificateError, Checker
from verify.symbolic.checkers.rocq_claims import CLAIMS
from verify.symbolic.checkers.rocq_theorems import FILES
from verify.symbolic.checkers.seals import SCHEMA, sealed

LIBRARY = "Normproof"  # the name that proofs/*.v give each other in `From Normproof Require`
CLOSED = "Closed under the global context"
SECONDS_PER_FILE = 120.0


def _certificates_of(theorem: str) -> tuple[str, ...]:
    """The certificates of which the theorem states a claim, or a part of one."""
    return tuple(
        name
        for name, claims in CLAIMS.items()
        if any(theorem in stated_by.split() for _, stated_by in claims.values())
    )


# theorem: (file, certificates that claim the same)
ROCQ_OF: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {name: (file, _certificates_of(name)) for file, names in FILES.items() for name in names}
)


@dataclass(frozen=True)
class RocqTheorem:
    """Where a theorem is proved, and the certificates that claim what it states."""

    file: str
    certificates: tuple[str, ...]


THEOREMS: Mapping[str, RocqTheorem] = MappingProxyType(
    {name: RocqTheorem(*where) for name, where in ROCQ_OF.items()}
)


@dataclass(frozen=True)
class Compiled:
    """Rocq's word about one theorem: ``closed`` if it is proved and rests on no axiom.

    ``message`` is what Rocq said, or why Rocq was not asked.
    """

    theorem: str
    closed: bool
    message: str


class RocqError(RuntimeError):
    """Rocq cannot be run, or the proofs cannot be read."""


# --- is it there -------------------------------------------------------------------------------


def proofs_folder() -> Path | None:
    """``proofs/`` beside the package, as in the repository; None in an installed wheel.

    One of our files is enough: that another is not there is a fault, which compiling shows.
    """
    folder = Path(__file__).resolve().parents[3] / "proofs"
    return folder if any((folder / file).is_file() for file in FILES) else None


@functools.cache
def missing() -> str:
    """Why the proofs cannot be compiled here; the empty string if they can."""
    if proofs_folder() is None:
        return "proofs/ is not part of an installed wheel: run from a checkout of the repository"
    if shutil.which("coqc") is None:
        return "coqc is not installed"
    with tempfile.TemporaryDirectory() as directory:
        probe = Path(directory) / "probe.v"
        probe.write_text("From mathcomp Require Import ssralg ssrnum.\n", encoding="utf-8")
        failure, _ = _coqc(probe)
    return f"coqc does not load mathcomp's algebra library: {failure}" if failure else ""


# --- reading the sources -----------------------------------------------------------------------

# Each leaves a statement unproved, or switches off a check of the kernel. Print Assumptions would
# show most of them too: this says where.
FORBIDDEN = re.compile(
    r"""\b(?: Admitted | admit | Admit\s+Obligations | give_up
      | Axioms? | Parameters? | Conjectures? | Primitive
      | bypass_check | Load | Declare\s+(?:ML\s+)?Module
      | Unset\s+(?:Guard|Positivity|Universe)\s+Checking )\b""",
    re.VERBOSE,
)
ASSUMPTION = re.compile(
    r"(?:\#\[[^\]]*\]\s*)?(?:(?:Local|Global|Polymorphic|Monomorphic)\s+)*"
    r"(?P<word>Variables?|Hypothes[ie]s|Context)\b"
)
SECTION = re.compile(r"(Section|Module|End)\s+(?:Type\s+)?(\w+)")
SENTENCE = re.compile(r".+?\.(?=\s|$)", re.DOTALL)
STATED = re.compile(r"^\s*(?:\w+\s+)?Theorem\s+(\w+)", re.MULTILINE)
REQUIRED = re.compile(rf"From\s+{LIBRARY}\s+Require(?:\s+(?:Import|Export))?\s+([\w\s]+)\.")


def code_of(source: str) -> str:
    """The source with comments (which nest) and strings blanked, and every line where it was."""
    depth, quoted, kept = 0, False, []
    for piece in re.split(r'(\(\*(?!\))|\*\)|")', source):
        if piece == '"':
            quoted = not quoted
        elif piece == "(*" and not quoted:
            depth += 1
        elif piece == "*)" and not quoted and depth:
            depth -= 1
        elif not quoted and not depth:
            kept.append(piece)
            continue
        kept.append(re.sub(r"\S", " ", piece))
    return "".join(kept)


def forbidden(source: str) -> list[str]:
    """What leaves something unproved in this source, such as "line 3: Admitted", in order."""
    code = code_of(source)
    found = [(m.start(), " ".join(m.group().split())) for m in FORBIDDEN.finditer(code)]
    found += _assumptions_outside_sections(code)
    return [f"line {code.count(chr(10), 0, at) + 1}: {what}" for at, what in sorted(found)]


def _assumptions_outside_sections(code: str) -> Iterable[tuple[int, str]]:
    """A Variable is an axiom unless a Section closes over it."""
    open_blocks: list[tuple[str, str]] = []
    for sentence in SENTENCE.finditer(code):
        text = sentence.group().strip()
        at = sentence.end() - len(sentence.group().lstrip())
        if block := SECTION.match(text):
            kind, name = block.groups()
            if kind != "End":
                open_blocks.append((kind, name))
            elif open_blocks and open_blocks[-1][1] == name:
                open_blocks.pop()
        elif (word := ASSUMPTION.match(text)) and not any(k == "Section" for k, _ in open_blocks):
            yield at, f"{word['word']} outside a Section"


def _in_dependency_order(sources: Mapping[str, str]) -> list[str]:
    needed = {name: _required_by(source) & set(sources) for name, source in sources.items()}
    try:
        return list(graphlib.TopologicalSorter(needed).static_order())
    except graphlib.CycleError as cycle:
        raise RocqError(f"files that need each other: {' -> '.join(cycle.args[1])}") from None


def _required_by(source: str) -> set[str]:
    return {f"{name}.v" for m in REQUIRED.finditer(code_of(source)) for name in m[1].split()}


# --- running Rocq ------------------------------------------------------------------------------


def compile_proofs(
    folder: Path, workdir: Path, seconds_per_file: float = SECONDS_PER_FILE
) -> list[Compiled]:
    """Rocq's word about every ``Theorem`` in ``folder/*.v``, which are copied to ``workdir``.

    A file that leaves something unproved is not compiled, nor is one that needs a failed file.

    Raises
    ------
    RocqError
        If coqc is not installed, or the folder has no .v file, or files need each other in a ring.
    """
    sources = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.v"))}
    if not sources:
        raise RocqError(f"{folder} has no .v file")
    failures: dict[str, str] = {}
    not_asked: list[Compiled] = []
    to_ask: list[str] = []
    for name in _in_dependency_order(sources):
        stated = STATED.findall(code_of(sources[name]))
        if failure := _failure(workdir / name, sources[name], failures, seconds_per_file):
            failures[name] = failure
            not_asked += [Compiled(theorem, closed=False, message=failure) for theorem in stated]
        else:
            to_ask += [f"{name.removesuffix('.v')}.{theorem}" for theorem in stated]
    return not_asked + _assumptions(workdir, to_ask, seconds_per_file)


def _failure(path: Path, source: str, failures: Mapping[str, str], seconds: float) -> str:
    """Why the file cannot be built upon; the empty string once it is compiled at ``path``."""
    if failed := sorted(_required_by(source) & failures.keys()):
        return f"needs {failed[0]}, which failed"
    if faults := forbidden(source):
        return f"{path.name} is refused: {'; '.join(faults)}"
    path.write_text(source, encoding="utf-8")
    return _coqc(path, seconds)[0]


def _coqc(path: Path, seconds: float = SECONDS_PER_FILE) -> tuple[str, str]:
    """What went wrong ("" if nothing), and what coqc printed."""
    coqc = shutil.which("coqc")
    if coqc is None:
        raise RocqError("coqc is not installed")
    quiet = ("-w", "-notation-overridden,-ambiguous-paths")
    command = (coqc, "-q", "-Q", ".", LIBRARY, *quiet, path.name)
    elsewhere = {k: v for k, v in os.environ.items() if k not in {"COQPATH", "ROCQPATH"}}
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command,
            cwd=path.parent,
            env=elsewhere,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{path.name}: no end after {seconds:g} s", ""
    said = " ".join(done.stderr.split())
    failure = said[:400] or f"exit code {done.returncode}"
    return failure if done.returncode else "", done.stdout


def _assumptions(workdir: Path, theorems: list[str], seconds: float) -> list[Compiled]:
    """What theorems of compiled files, named "file.theorem", rest on.

    They are asked about together, because one walk through the library then serves them all: if
    the tuple of them rests on nothing, so does each. If it does not, each half is asked.
    """
    if not theorems:
        return []
    said = _printed_assumptions(workdir, theorems, seconds)
    if said == CLOSED or len(theorems) == 1:
        names = (theorem.partition(".")[2] for theorem in theorems)
        return [Compiled(name, closed=said == CLOSED, message=said) for name in names]
    half = len(theorems) // 2
    first, second = theorems[:half], theorems[half:]
    return _assumptions(workdir, first, seconds) + _assumptions(workdir, second, seconds)


def _printed_assumptions(workdir: Path, theorems: list[str], seconds: float) -> str:
    files = " ".join(dict.fromkeys(theorem.partition(".")[0] for theorem in theorems))
    names = ", ".join(f"@{LIBRARY}.{theorem}" for theorem in theorems)
    query = workdir / "assumptions_asked.v"
    query.write_text(
        f"From {LIBRARY} Require {files}.\n"
        f"Definition asked := ({names}).\nPrint Assumptions asked.\n",
        encoding="utf-8",
    )
    failure, printed = _coqc(query, seconds)
    return failure or " ".join(printed.split())


def check_proofs() -> list[Compiled]:
    """`compile_proofs` for ``proofs/``, and a word about every theorem that it should have stated.

    Compiled once in a process; the answers are kept.

    Raises
    ------
    RocqError
        If `missing` says why Rocq cannot be asked: skipped then, never passed.
    """
    folder = proofs_folder()
    if (reason := missing()) or folder is None:
        raise RocqError(reason)
    return list(_checked(folder))


@functools.cache
def _checked(folder: Path) -> tuple[Compiled, ...]:
    with tempfile.TemporaryDirectory() as directory:
        answers = compile_proofs(folder, Path(directory))
    unstated = sorted(THEOREMS.keys() - {answer.theorem for answer in answers})
    return *answers, *(
        Compiled(name, closed=False, message=f"{THEOREMS[name].file} does not state it")
        for name in unstated
    )


# --- certificates ------------------------------------------------------------------------------


def check(certificate: Certificate) -> list[Answer]:
    """An answer for each claim, in order: proved where `rocq_claims` has closed theorems for it.

    Raises
    ------
    CertificateError
        in one line, for what is no certificate.
    RocqError
        if a claim has theorems and `missing` says why Rocq cannot be asked.
    """
    given = fingerprints(certificate)
    known = CLAIMS.get(certificate["name"], {})
    return [
        _answer(claim["name"], fingerprint, known)
        for claim, fingerprint in zip(certificate["claims"], given, strict=True)
    ]


def _answer(claim: str, given: str, known: Mapping[str, tuple[str, str]]) -> Answer:
    fingerprint, stated_by = known.get(claim, ("", ""))
    if not stated_by:
        return Answer(claim, "", Verdict.UNDECIDED, "no hand-written proof")
    theorems = stated_by.split()
    names = ", ".join(theorems)
    if given != fingerprint:
        reason = f"not the claim that was read against {names}: its fingerprint is {given}"
        return Answer(claim, names, Verdict.UNDECIDED, reason)
    said = {word.theorem: word for word in check_proofs()}
    open_ = [f"{name}: {said[name].message}" for name in theorems if not said[name].closed]
    if open_:
        return Answer(claim, names, Verdict.UNDECIDED, "; ".join(open_))
    return Answer(claim, names, Verdict.PROVED, "compiled, and closed under the global context")


def fingerprints(certificate: Certificate) -> list[str]:
    """A hash of each claim's two ends and of what is declared, from the terms: not from the seals.

    Raises
    ------
    CertificateError
        in one line, for what is no certificate.
    """
    try:
        if certificate["schema"] != SCHEMA:
            raise CertificateError(
                f"no certificate of schema {SCHEMA}: found {certificate['schema']!r}"
            )
        declared = [certificate[key] for key in ("name", "dims", "symbols", "positive")]
        claims = sealed(certificate)["claims"]
        return [_hash([*declared, claim["seals"][0], claim["seals"][-1]]) for claim in claims]
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        if isinstance(error, CertificateError):
            raise
        raise CertificateError(f"a certificate that is not whole: {error!r}") from error


def _hash(value: object) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


CHECKER = Checker(
    name="Rocq",
    check=check,
    missing=missing,
    states=(
        "the theorems of proofs/ named as the step are proved for every dimension and over every "
        "real closed field, and rest on no axiom, by Rocq's kernel; that they say what the claim "
        "says was read by a person"
    ),
)
