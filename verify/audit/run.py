"""`audit`: every check on every kernel in every format, whatever the kernels do."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from verify.audit import accuracy, gradients, identify, laws, memory, special
from verify.audit.check import CHECKS, Check
from verify.audit.sandbox import Failure, Loaded, Sandbox
from verify.audit.subject import KernelFailed, Subject
from verify.finding import Finding, KernelRecord, Report, Series, Verdict
from verify.kernels.kernel import Kernel, KernelError
from verify.norms import FORMULAS
from verify.numeric import contracts_for
from verify.numeric.activations import Activation, available_activations

# Importing a module registers its checks; this is the order in which they run.
THEMES = (identify, accuracy, laws, special, gradients, memory)
FIRST = "shape and format"  # without it nothing else can be told
LAST = "inputs unmodified"  # told from all the calls before it

QUICK_FORMATS = ("float32", "bfloat16")
SLOW_S = 60.0  # patience from which a kernel is one that compiles each kind of input anew
AUDITED = ("float64", "float32", "bfloat16", "float16")

# Called with the names of kernel, format and check, and how many checks are done, of how many.
Progress = Callable[[str, str, str, int, int], None]


@dataclass(eq=False)
class Audit:
    """What an audit has found so far."""

    quick: bool
    claim: str
    activations: Sequence[Activation]
    checks: Sequence[Check]
    progress: Progress | None
    total: int
    done: int = 0
    findings: list[Finding] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    kernels: list[KernelRecord] = field(default_factory=list)
    could_not_run: list[str] = field(default_factory=list)

    def step(self, kernel: str, format: str, check: str, by: int = 1) -> None:
        """Say what is being done."""
        if self.progress is not None:
            self.progress(kernel, format, check, self.done, self.total)
        self.done += by


def audit(
    kernels: Sequence[Kernel],
    *,
    quick: bool = False,
    formats: Sequence[str] | None = None,
    claim: str = "",
    threads: int = 1,
    checks: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> tuple[Report, list[str]]:
    """Audit kernels; the report, and the names of those that could not be run at all.

    ``formats``: those to audit (None: all that a kernel takes; with ``quick`` float32 and
    bfloat16). ``claim``: a part of the name of the contract that the kernels promise to keep.
    ``checks``: the ids of those to run (None: all); the first, "shape and format", always runs.
    A crash, a hang or a refusal is a finding. Raises KernelError for a kernel that takes none of
    the formats asked for.
    """
    activations, missing = available_activations()
    chosen = [
        (kernel, formats_of(kernel, formats, quick=_quickly(kernel, formats, quick=quick)))
        for kernel in kernels
    ]
    to_run = [c for c in _ordered() if checks is None or c.id in (FIRST, *checks)]
    total = sum(len(found) * len(to_run) for _, found in chosen)
    state = Audit(quick, claim, activations, to_run, progress, total)
    for kernel, found in chosen:
        state.quick = _quickly(kernel, formats, quick=quick)
        _kernel(state, kernel, found, threads)
    notes = [f"real activations missing: {reason}" for reason in missing]
    notes += _hurried(kernels, formats) if not quick else []
    notes += [_real_note(activations)] if activations else []
    report = Report(environment(), state.kernels, state.findings, tuple(state.series), tuple(notes))
    return report, state.could_not_run


def formats_of(kernel: Kernel, asked: Sequence[str] | None, *, quick: bool) -> list[str]:
    """The formats to audit a kernel in; raises KernelError if none is left."""
    wanted = asked or (QUICK_FORMATS if quick else AUDITED)
    found = [f for f in kernel.formats if f in wanted]
    if not found:
        raise KernelError(
            f"kernel '{kernel.name}' takes {', '.join(kernel.formats)}: expected one of them, came "
            f"{', '.join(wanted)}; write --format {kernel.formats[0]}"
        )
    return found


def _quickly(kernel: Kernel, asked: Sequence[str] | None, *, quick: bool) -> bool:
    """Whether to try fewer inputs: on compiled kernels too, unless formats are asked for."""
    return quick or (not asked and kernel.patience_s > SLOW_S)


def _hurried(kernels: Sequence[Kernel], asked: Sequence[str] | None) -> list[str]:
    names = [kernel.name for kernel in kernels if _quickly(kernel, asked, quick=False)]
    if not names:
        return []
    remedy = "write --format float32 --format bfloat16 --format float16 --format float64 for all"
    return [f"fewer inputs, two formats, since each is compiled anew: {', '.join(names)}; {remedy}"]


def _real_note(activations: Sequence[Activation]) -> str:
    sources = dict.fromkeys(a.source for a in activations)
    return f"real activations of {', '.join(sources)}, {len(activations)} norms in all"


def _kernel(state: Audit, kernel: Kernel, formats: Sequence[str], threads: int) -> None:
    """All formats of one kernel, in one child process for as long as that lives."""
    with Sandbox(kernel, threads=threads) as sandbox:
        state.step(kernel.name, "", "import", 0)
        loaded = sandbox.load()
        if isinstance(loaded, Failure):
            _could_not_run(state, kernel, loaded.message, len(formats))
            return
        told = [_format(state, kernel, sandbox, loaded, f) for f in formats]
    contracts = "; ".join(f"{f}: {name}" for f, name in zip(formats, told, strict=True) if name)
    if not any(told):
        state.could_not_run.append(kernel.name)
    state.kernels.append(_record(kernel, contracts))


def _record(kernel: Kernel, contract: str) -> KernelRecord:
    version = f"{kernel.package.rpartition('/')[2]} {kernel.version}".strip()
    return KernelRecord(kernel.name, version, kernel.formula, contract, kernel.run_on)


def _could_not_run(state: Audit, kernel: Kernel, reason: str, formats: int) -> None:
    state.could_not_run.append(kernel.name)
    state.kernels.append(_record(kernel, ""))
    state.findings.append(Finding(kernel.name, "import", "", Verdict.SKIPPED, reason))
    state.step(kernel.name, "", "could not be imported", formats * len(state.checks))


def _format(state: Audit, kernel: Kernel, sandbox: Sandbox, loaded: Loaded, format: str) -> str:
    """Every check in one format; the contract that was identified, "" if it takes no such input."""
    subject = Subject(
        kernel,
        sandbox,
        format,
        parameters=loaded.parameters,
        has_backward=loaded.has_backward,
        quick=state.quick,
        claim=state.claim,
        activations=state.activations,
        detail=dict(loaded.detail),
    )
    first = Verdict.SKIPPED
    for about in state.checks:
        state.step(kernel.name, format, about.title)
        if not _applies(about, subject) or (about.id != FIRST and first is not Verdict.HOLDS):
            continue
        found = list(_guarded(about, subject))
        state.findings += found
        first = found[0].verdict if about.id == FIRST else first
    state.series += subject.series
    if first is not Verdict.HOLDS:
        return "" if first is Verdict.SKIPPED else "none"
    return subject.pool.best.name if subject.pool.best is not None else "none"


def _ordered() -> Iterator[Check]:
    yield from (c for c in CHECKS.values() if c.id != LAST)
    yield CHECKS[LAST]


def _applies(about: Check, subject: Subject) -> bool:
    if about.centred and not subject.is_centred:
        return False
    if not about.backward:
        return True
    return (
        subject.has_backward
        and f"{subject.formula.id}_backward" in FORMULAS
        and bool(contracts_for(f"{subject.formula.id}_backward", subject.format))
    )


def _guarded(about: Check, subject: Subject) -> Iterator[Finding]:
    """A check's findings; the kernel's end, whatever it is, is one too."""
    if subject.is_given_up:
        reason = "given up: the kernel crashed or hung too often in this format"
        yield about.finding(subject, Verdict.SKIPPED, reason)
        return
    try:
        yield from about.function(subject, about)
    except KernelFailed as end:
        yield _failed(about, subject, end)


def _failed(about: Check, subject: Subject, end: KernelFailed) -> Finding:
    kind, message = end.failure.kind, end.failure.message
    if kind == "exception":
        words = f"the kernel refuses '{end.case.name}': {message}"
        return about.finding(subject, Verdict.SKIPPED, words, inputs=end.case.inputs)
    words = f"{kind} on '{end.case.name}': {message}"
    return about.finding(subject, Verdict.VIOLATED, words, inputs=end.case.inputs)


# --- where it ran ---------------------------------------------------------------------------------


def environment() -> dict[str, Any]:
    """Versions, processor, date and commit: what a reader needs to repeat the audit."""
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "system": f"{platform.system()} {platform.machine()}",
        "cpu_flags": _cpu_flags(),
        "card": None,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "command": " ".join(Path(a).name if i == 0 else a for i, a in enumerate(sys.argv)),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in ("normproof", "numpy", "ml_dtypes", "numba", "torch"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _cpu_flags() -> str:
    """The instruction sets that change how kernels round and in which order they add."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "").split()
    telling = ("avx", "fma", "amx", "sse4", "f16c")
    return " ".join(sorted(f for f in flags if f.startswith(telling)))


def _commit() -> str | None:
    """The commit of a checkout, None for an installed package."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
