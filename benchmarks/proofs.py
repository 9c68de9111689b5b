"""How long the proofs take: the prover alone, all checkers but Rocq, wrong siblings, networks.

Times are wall-clock seconds of one run. The peer is SymPy's `simplify`, given one identity at one
width (LayerNorm is RMSNorm of the centred row, d = 3), which the kernel proves for every width.

    python benchmarks/proofs.py [--quick] [--processes N] [--json FILE|-]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import sympy

from verify.symbolic.prove import judge_all, prove
from verify.symbolic.siblings import PER_THEOREM
from verify.symbolic.theorem import theorem_names

SCHEMA = 1
PACKAGES = ("sympy", "python-flint", "z3-solver", "numpy")
IDENTITY = "LAYER_NORM_IS_RMS_NORM_OF_CENTRED"
PEER_WIDTH = 3


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def simplified() -> None:
    """The peer: the same identity at one width, by `simplify`."""
    x = sympy.symbols(f"x:{PEER_WIDTH}", real=True)
    eps = sympy.Symbol("eps", positive=True)
    mean = sum(x) / PEER_WIDTH
    centred = [v - mean for v in x]
    variance = sum(v * v for v in x) / PEER_WIDTH - mean**2
    mean_square = sum(v * v for v in centred) / PEER_WIDTH
    for v in centred:
        difference = v / sympy.sqrt(variance + eps) - v / sympy.sqrt(mean_square + eps)
        assert sympy.simplify(difference) == 0


def all_theorems(processes: int, siblings: int) -> dict[str, Any]:
    """Every theorem by every checker but Rocq, which has proofs of its own."""
    start = time.perf_counter()
    judged = list(judge_all(theorem_names(), processes=processes, count=siblings))
    taken = time.perf_counter() - start
    assert all(each.is_whole for each in judged)
    by_judge: dict[str, float] = {}
    for each in judged:
        for judge, spent in each.seconds.items():
            by_judge[judge] = by_judge.get(judge, 0) + spent
    return {
        "seconds": taken,
        "by_judge": by_judge,
        "theorems": len(judged),
        "steps": sum(each.steps for each in judged),
        "siblings": sum(len(each.wrong) for each in judged),
    }


def network(*, quick: bool) -> dict[str, Any]:
    from verify.symbolic.network import Shape, compare, mutants

    shape = Shape(layers=2) if quick else Shape()
    start = time.perf_counter()
    result = compare(shape, seed=0)
    taken = time.perf_counter() - start
    assert result.agrees
    count = 10 if quick else 100
    return {
        "network_s": taken,
        "mutants_s": seconds(lambda: mutants(shape, count=count, seed=1)),
        "mutants": count,
        "layers": shape.layers,
    }


def environment() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "versions": {name: metadata.version(name) for name in PACKAGES},
    }


def measured(processes: int, *, quick: bool) -> dict[str, Any]:
    names = theorem_names()
    prover = seconds(lambda: [prove(name) for name in names])
    kernel = seconds(lambda: prove(IDENTITY))
    peer = seconds(simplified)
    checked = all_theorems(processes, 0)
    tried = all_theorems(processes, PER_THEOREM // 6 if quick else PER_THEOREM)
    return {
        "prover_s": prover,
        "all_checkers_s": checked["seconds"],
        "with_siblings_s": tried["seconds"],
        "by_judge_cpu_s": tried["by_judge"],
        "theorems": checked["theorems"],
        "steps": checked["steps"],
        "siblings": tried["siblings"],
        "simplify_at_d3_over_kernel_at_every_d": peer / kernel,
        **network(quick=quick),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the result there; - for stdout")
    parser.add_argument("--quick", action="store_true", help="fewer siblings, a smaller network")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    figures = measured(options.processes, quick=options.quick)
    result = {"schema": SCHEMA, "environment": environment(), **figures}
    lines = [f"{key:40}{value:12.2f}" for key, value in figures.items() if key != "by_judge_cpu_s"]
    print("\n".join(lines), file=sys.stderr if options.json == "-" else sys.stdout)
    if options.json == "-":
        print(json.dumps(result, indent=2))
    elif options.json:
        Path(options.json).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
