"""`verify prove` and `verify check`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verify.cli.base import (
    COULD_NOT_RUN,
    USAGE,
    UsageError,
    app,
    check_writable,
    emit,
    make_folder,
    one_line,
    progress_bar,
    schema,
)

if TYPE_CHECKING:
    from rich.text import Text

    from verify.symbolic.checkers.recheck import Opinion
    from verify.symbolic.network import Caught, Comparison
    from verify.symbolic.prove import Judged


# How a verdict is shown in the table of theorems, and in which style.
SIGNS = {"proved": "✓", "skipped": "–", "refuted": "✗", "undecided": "?"}
STYLES = {"proved": "green", "skipped": "dim", "refuted": "bold red", "undecided": "magenta"}


@app.command()
def prove(
    names: Annotated[
        list[str] | None, typer.Argument(help="Theorems by NAME; all if none.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the theorems and stop.")] = False,
    network: Annotated[
        bool, typer.Option("--network", help="Compare whole networks exactly over finite fields.")
    ] = False,
    mutants: Annotated[
        int, typer.Option(min=0, help="With --network: wrong conversions to catch.")
    ] = 100,
    seed: Annotated[int, typer.Option(min=0, help="With --network: of weights and tokens.")] = 0,
    siblings: Annotated[
        int, typer.Option(min=0, help="Wrong statements to try everyone on, for each theorem.")
    ] = 12,
    rocq: Annotated[
        bool, typer.Option(help="Compile the hand-written proofs, where Rocq is installed.")
    ] = True,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the certificates.")] = Path(
        "out/certificates"
    ),
    json_to: Annotated[
        str | None, typer.Option("--json", help="Write the results there too ('-': stdout).")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes to use.")] = 2,
) -> None:
    """Prove theorems for every width, and have every proof checked by programs of other kinds."""
    check_writable(json_to)
    if network:
        _check_alone(names, list_=list_)
        raise typer.Exit(_network(mutants, seed, json_to))
    known = _known(names or [])
    if list_:
        _print_list(known, json_to)
        return
    make_folder(out)
    judged, by_hand = _judge(known, siblings, processes, rocq=rocq, quiet=json_to == "-")
    for each in judged:
        _write(each, out)
    if json_to is not None:
        emit(_json(judged, by_hand), json_to)
    if json_to != "-":
        from verify.report.summary import plural

        _print(judged, by_hand)
        count = plural(len(judged), "certificate")
        print(f"\nwritten: {count} in {out}; `verify check` checks one again")
    whole = all(each.is_whole for each in judged)
    doubted = any(opinion.doubts for opinion in by_hand.values())
    raise typer.Exit(0 if whole and not doubted else 1)


def _check_alone(names: Sequence[str] | None, *, list_: bool) -> None:
    if names or list_:
        raise UsageError("--network takes no theorems and no --list: write it alone")


def _known(names: Sequence[str]) -> list[str]:
    """The names of theorems, in full; each is known, or the near ones are named."""
    from verify.symbolic.theorem import theorem_named, theorem_names

    return list(dict.fromkeys(theorem_named(n).name for n in names)) or theorem_names()


def _print_list(names: Sequence[str], json_to: str | None) -> None:
    from verify.symbolic.theorem import theorem_named

    found = [theorem_named(name) for name in names]
    if json_to is not None:
        rows = [{"name": t.name, "summary": t.summary, "statement": t.statement} for t in found]
        emit({"schema": schema(), "theorems": rows}, json_to)
        return
    width = max(len(t.name) for t in found)
    for t in found:
        print(f"{t.name:{width}}  {t.summary}")


def _judge(
    names: Sequence[str], count: int, processes: int, *, rocq: bool, quiet: bool
) -> tuple[list[Judged], Mapping[str, Opinion]]:
    """Every theorem judged, while Rocq compiles the proofs that were written by hand."""
    from verify.symbolic.prove import judge_all, rocq_opinions

    judged = []
    with ThreadPoolExecutor(1) as beside, progress_bar(quiet=quiet) as advance:
        by_hand = beside.submit(rocq_opinions, names if rocq else [])
        for each in judge_all(names, processes=processes, count=count):
            judged.append(each)
            if advance is not None:
                advance(each.proof.theorem.name, len(judged), len(names))
        if advance is not None:
            advance("Rocq compiles proofs/", len(names), len(names))
        return judged, by_hand.result()


def _write(judged: Judged, out: Path) -> None:
    from verify.report import write_atomically

    text = json.dumps(judged.certificate, indent=None, separators=(",", ":"), allow_nan=False)
    write_atomically(out / f"{judged.proof.theorem.name}.json", text + "\n")


# --- what is printed -----------------------------------------------------------------------------


def _counts(judged: Judged) -> str:
    """Rejected of wrong siblings, and how many siblings are true."""
    caught = sum(not sibling.accepted_by for sibling in judged.wrong)
    true = len(judged.siblings) - len(judged.wrong)
    return f"{caught}/{len(judged.wrong)}" + (f" +{true} true" if true else "")


def _print(judged: Sequence[Judged], by_hand: Mapping[str, Opinion]) -> None:
    """The table theorem x checker x siblings, then what is not proved, with its step."""
    from rich.console import Console
    from rich.table import Table

    checkers = list(judged[0].opinions)
    table = Table(box=None, pad_edge=False)
    for heading in ("theorem", "kernel", *map(_short, checkers), "Rocq"):
        table.add_column(heading, no_wrap=True)
    for heading in ("rejected", "steps", "s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in judged:
        name = each.proof.theorem.name
        opinions = [each.proof, *map(each.opinions.get, checkers), by_hand.get(name)]
        cells = [_cell(opinion.verdict if opinion else "") for opinion in opinions]
        seconds = f"{sum(each.seconds.values()):.1f}"
        table.add_row(name, *cells, _counts(each), str(each.steps), seconds)
    # As wide as it needs to be, whatever the terminal: half a name or no column says nothing.
    Console(highlight=False, width=120).print(table)
    print("\n✓ proved, ? undecided, – skipped; rejected: of the wrong siblings, by every judge")
    for line in (*_doubts(judged, by_hand), *_true_siblings(judged), "", *_totals(judged, by_hand)):
        print(line)


def _short(checker: str) -> str:
    """A checker's name as a narrow heading: flint, GF, z3."""
    return checker.partition("(")[0].rpartition("-")[2]


def _cell(verdict: str) -> Text:
    from rich.text import Text

    return Text(SIGNS.get(str(verdict), ""), style=STYLES.get(str(verdict), ""))


def _doubts(judged: Sequence[Judged], by_hand: Mapping[str, Opinion]) -> Iterable[str]:
    """What was not proved, or was wrongly accepted: one line for each."""
    for each in judged:
        name = each.proof.theorem.name
        for claim, step, reason in each.proof.rejected:
            yield f"\n{name}, kernel: claim '{claim}', step '{step}': {reason}"
        for judge, opinion in (*each.opinions.items(), ("Rocq", by_hand.get(name))):
            for claim, step, reason in opinion.doubts if opinion else ():
                yield f"\n{name}, {judge}: claim '{claim}', step '{step}': {reason}"
        for sibling in each.wrong:
            for judge in sibling.accepted_by:
                yield f"\n{name}, {judge} accepted a wrong statement: {sibling.name}"
    skipped = {
        judge: opinion.reason
        for each in judged
        for judge, opinion in (*each.opinions.items(), *(("Rocq", o) for o in by_hand.values()))
        if str(opinion.verdict) == "skipped"
    }
    yield from (f"\nskipped, and counted as nothing: {j}: {why}" for j, why in skipped.items())


def _true_siblings(judged: Sequence[Judged]) -> Iterable[str]:
    true = [(each, s) for each in judged for s in each.siblings if s.reason]
    if true:
        yield "\nsiblings that are true after all:"
    for each, sibling in true:
        yield f"  {each.proof.theorem.name}: {sibling.name}: {sibling.reason}"


def _totals(judged: Sequence[Judged], by_hand: Mapping[str, Opinion]) -> Iterable[str]:
    """How many theorems each judge proved, and how many wrong siblings each rejected."""
    from verify.report.summary import plural

    claims = sum(len(each.proof.theorem.claims) for each in judged)
    steps = sum(each.steps for each in judged)
    yield ", ".join(map(plural, (len(judged), claims, steps), ("theorem", "claim", "step")))
    for judge, tally in _tallies(judged, by_hand).items():
        wrong = f"; rejected {tally['rejected']} of {tally['given']}" if tally["given"] else ""
        yield f"  {judge:12} proved {tally['proved']}{wrong and wrong + ' wrong siblings'}"


def _tallies(judged: Sequence[Judged], by_hand: Mapping[str, Opinion]) -> dict[str, dict[str, int]]:
    judges: dict[str, Callable[[Judged], Any]] = {"kernel": lambda each: each.proof}
    for checker in judged[0].opinions:
        judges[checker] = lambda each, c=checker: each.opinions[c]  # type: ignore[misc]
    tallies = {}
    for judge, of in judges.items():
        given = [s.verdicts[judge] for e in judged for s in e.wrong if judge in s.verdicts]
        proved = sum(str(of(each).verdict) == "proved" for each in judged)
        rejected = sum(str(v) != "proved" for v in given)
        tallies[judge] = {"proved": proved, "given": len(given), "rejected": rejected}
    if by_hand:
        proved = sum(str(o.verdict) == "proved" for o in by_hand.values())
        tallies["Rocq"] = {"proved": proved, "given": 0, "rejected": 0}
    return tallies


def _json(judged: Sequence[Judged], by_hand: Mapping[str, Opinion]) -> dict[str, Any]:
    return {
        "schema": schema(),
        "theorems": [_theorem_json(each, by_hand) for each in judged],
        "totals": _tallies(judged, by_hand),
    }


def _theorem_json(each: Judged, by_hand: Mapping[str, Opinion]) -> dict[str, Any]:
    theorem = each.proof.theorem
    opinions = dict(each.opinions)
    opinions |= {"Rocq": by_hand[theorem.name]} if theorem.name in by_hand else {}
    return {
        "name": theorem.name,
        "verdict": str(each.proof.verdict),
        "summary": theorem.summary,
        "statement": theorem.statement,
        "citation": theorem.citation,
        "claims": len(theorem.claims),
        "steps": each.steps,
        "rejected": [list(row) for row in each.proof.rejected],
        "checkers": {judge: _opinion_json(opinion) for judge, opinion in opinions.items()},
        "siblings": {
            "wrong": len(each.wrong),
            "rejected": sum(not s.accepted_by for s in each.wrong),
            "accepted": [[s.name, s.accepted_by] for s in each.wrong if s.accepted_by],
            "true": [[s.name, s.reason] for s in each.siblings if s.reason],
        },
        "seconds": {judge: round(s, 4) for judge, s in each.seconds.items()},
    }


def _opinion_json(opinion: Opinion) -> dict[str, Any]:
    doubts = [list(doubt) for doubt in opinion.doubts]
    return {"verdict": str(opinion.verdict), "reason": opinion.reason, "doubts": doubts}


# --- whole networks ------------------------------------------------------------------------------


def _network(count: int, seed: int, json_to: str | None) -> int:
    """One transformer in four forms, compared exactly; then wrong conversions, each to be named."""
    from verify.symbolic.network import Shape, compare, mutants

    shape = Shape()
    with progress_bar(quiet=json_to == "-") as advance:

        def tell(done: int, total: int, label: str) -> None:
            if advance is not None:
                advance(label, done, total)

        found = compare(shape, seed, tell)
        caught = mutants(shape, count, seed + 1, tell) if count else []
    if json_to is not None:
        trials = [each.to_json() for each in caught]
        emit({"schema": schema(), "comparison": found.to_json(), "mutants": trials}, json_to)
    if json_to != "-":
        _print_network(found, caught)
    return 0 if found.agrees and all(each.is_caught for each in caught) else 1


def _print_network(found: Comparison, caught: Sequence[Caught]) -> None:
    shape = found.shape
    print(
        f"{shape.layers} layers, d = {shape.width}, ffn = {shape.ffn}, {shape.heads} heads, "
        f"{shape.tokens} tokens; seed {found.seed}"
    )
    print("each form beside Pre-LN, block by block, over a finite field:")
    for form in found.forms:
        words = "equal logits" if form.agrees else f"broken after {form.broken or form.undefined}"
        states = f"{form.moved} of {found.hidden_states} hidden states moved along the ones row"
        print(f"  {form.form:14} {form.field:13} {words}, {states} ({form.seconds:.1f} s)")
    print(f"a wrong form would pass with probability at most 2^{found.log2_failure:.0f}")
    if caught:
        right = [each for each in caught if each.is_caught]
        print(f"{len(right)} of {len(caught)} wrong conversions caught, each by its tensor's name")
    for each in caught:
        if not each.is_caught:
            print(f"  missed: {each.mutation.tensor} ({each.mutation.kind}), named {each.named}")


# --- check ---------------------------------------------------------------------------------------


@app.command()
def check(
    certificates: Annotated[
        list[Path], typer.Argument(help="Certificates that `verify prove` wrote.")
    ],
    rocq: Annotated[
        bool, typer.Option(help="Compile the proofs in proofs/ too, where Rocq is installed.")
    ] = False,
    json_to: Annotated[
        str | None, typer.Option("--json", help="Write the results there ('-': stdout).")
    ] = None,
) -> None:
    """Check certificates again, each from its file alone: the prover is not even loaded."""
    from verify.symbolic.checkers.answer import CertificateError
    from verify.symbolic.checkers.recheck import checkers, load, opinion

    check_writable(json_to)
    judges = checkers(rocq=rocq)
    results: dict[str, dict[str, Opinion]] = {}
    refused = 0
    for path in certificates:
        try:
            content = load(path)
            opinions = {each.name: opinion(each, content) for each in judges}
        except (CertificateError, OSError) as error:  # the other files are checked all the same
            print(f"verify: {one_line(error)}", file=sys.stderr)
            refused = USAGE
            continue
        results[str(path)] = opinions
        if json_to != "-":
            _print_checked(content, opinions, {each.name: each.states for each in judges})
    if json_to is not None:
        plain = {
            path: {judge: _opinion_json(o) for judge, o in opinions.items()}
            for path, opinions in results.items()
        }
        emit({"schema": schema(), "certificates": plain}, json_to)
    raise typer.Exit(refused or max(map(_code, results.values())))


def _code(opinions: Mapping[str, Opinion]) -> int:
    """0 if someone proved it and nobody refuted it; 3 if nobody could be asked."""
    verdicts = {str(opinion.verdict) for opinion in opinions.values()}
    if verdicts == {"skipped"}:
        return COULD_NOT_RUN
    return 0 if "proved" in verdicts and "refuted" not in verdicts else 1


def _print_checked(
    content: Mapping[str, Any], opinions: Mapping[str, Opinion], states: Mapping[str, str]
) -> None:
    from verify.report.summary import plural

    claims = plural(len(content["claims"]), "claim")
    print(f"{content['name']}: {claims}, every step as it was sealed")
    for judge, opinion in opinions.items():
        meaning = states[judge] if str(opinion.verdict) == "proved" else ""
        print(f"  {judge:12} {opinion.verdict!s:9} {opinion.reason or meaning}".rstrip())
        for claim, step, why in opinion.doubts:
            print(f"  {'':12} claim '{claim}', step '{step}': {why}")
