"""A realistic report, for tests and for the eye.

python -m tests.report.sample out    # out/findings.json, out/report.html, and the scorecard
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from verify.finding import Finding, KernelRecord, Report, Series, Verdict, Witness
from verify.report import print_report, write_json, write_page

KERNELS = (
    KernelRecord(
        "torch.rms_norm", "2.13.0", "rms_norm", "weight in float32, one cast at the end", "cpu"
    ),
    KernelRecord(
        "torch.layer_norm",
        "2.13.0",
        "layer_norm",
        "two-pass or Welford statistics in float32, one cast at the end",
        "cpu",
    ),
    KernelRecord(
        "torch.group_norm[channels_last]",
        "2.13.0",
        "group_norm",
        "one-pass variance E[x²] - E[x]² in float32, tree of height 8, one cast at the end",
        "cpu",
    ),
    KernelRecord("numpy.layer_norm", "2.3.5", "layer_norm", "two-pass, pairwise sums", "cpu"),
    KernelRecord("mine.fast_norm:forward", "", "rms_norm", "not identified", "cpu"),
)
REAL = ("glassllm block 3", "whisper tiny.en encoder 2", "smollm2 layer 12 residual")
FORMATS = {"float32": 24, "bfloat16": 8, "float16": 11}
LAWS = (
    *("shift", "scale", "sign", "permutation", "constant row", "nan and infinity", "d = 1"),
    *("strides", "inputs unmodified", "row alone and in a batch", "run to run"),
)
WHY = {
    "accuracy": "A kernel that rounds where its contract says cannot err by more than this bound.",
    "signed bias": "Errors of one sign add up over layers, where errors of both signs cancel.",
}
REPRO = '''"""torch.group_norm[channels_last]: accuracy, float32."""
import numpy as np
import torch

x = np.array([1000.0, 1000.25, 999.75, 1000.5], dtype=np.float32)
t = torch.from_numpy(x.reshape(1, 1, 2, 2)).to(memory_format=torch.channels_last)
y = torch.nn.functional.group_norm(t, num_groups=1, eps=1e-5).numpy().ravel()
print("got", y[1], "expected", 0.44720554)
'''


def accuracy(kernel: KernelRecord, name: str, inputs: str, measured: float) -> Finding:
    return Finding(
        kernel=kernel.name,
        check="accuracy",
        format=name,
        verdict=Verdict.HOLDS,
        message="Every output is within the bound that its contract allows.",
        measured=measured,
        bound=1.0 if name != "float32" else 7.5,
        unit="ulp",
        why=WHY["accuracy"],
        derivation="(d/2 + 4) u for the sum, u each for the root, the product and the cast",
        citation="Higham 2002, section 3.1",
        inputs=inputs,
    )


def law(kernel: KernelRecord, check: str, name: str) -> Finding:
    return Finding(
        kernel=kernel.name,
        check=check,
        format=name,
        verdict=Verdict.HOLDS,
        message=f"{check}: equal bit for bit on 64 rows.",
        measured=0.0,
        bound=0.0,
        unit="ulp",
        why="A law of the formula that needs no reference to be seen broken.",
    )


CANCELLATION = Finding(
    kernel="torch.group_norm[channels_last]",
    check="accuracy",
    format="float32",
    verdict=Verdict.VIOLATED,
    message="Off by 31,416 ulp at mean 1e3, where the bound of its contract allows 7.5.",
    measured=31416.0,
    bound=7.5,
    unit="ulp",
    witness=Witness(
        {"x": [1000.0, 1000.25, 999.75, 1000.5], "eps": 1e-5},
        (1,),
        0.44921875,
        0.447205544,
        "kappa = 3.6e3: the squares agree in their first 22 bits",
    ),
    repro=REPRO,
    citation="Chan, Golub & LeVeque 1983",
    why=WHY["accuracy"],
    derivation="2 (d/2 + 4) u + kappa u, with kappa = |mean| / sqrt(var + eps)",
)


def special() -> Iterator[Finding]:
    yield CANCELLATION
    for inputs in REAL[1:]:
        yield Finding(
            kernel="torch.group_norm[channels_last]",
            check="accuracy",
            format="float32",
            verdict=Verdict.VIOLATED,
            message="Off by 212 ulp on the channel that carries the outlier 614.",
            measured=212.3,
            bound=7.5,
            unit="ulp",
            inputs=inputs,
            citation="Chan, Golub & LeVeque 1983",
        )
    yield Finding(
        kernel="torch.group_norm[channels_last]",
        check="statistics",
        format="float32",
        verdict=Verdict.HAZARD,
        message="Keeps a one-pass contract, whose variance is negative on legitimate rows.",
        measured=-0.0625,
        bound=0.0,
        witness=Witness(
            {"x": [[4096.0, 4096.5], [4096.25, 4096.75]], "weight": [1.0, 1.0]},
            (0, 1),
            math.nan,
            0.447213595,
        ),
        why="A kernel may keep its contract and still be wrong where the contract is.",
    )
    yield Finding(
        kernel="torch.layer_norm",
        check="constant row",
        format="bfloat16",
        verdict=Verdict.HAZARD,
        message="A constant row of 3 with bias 3 gives 3.015625: <the bias is rounded twice>.",
        measured=1.0,
        bound=0.5,
        unit="ulp",
        witness=Witness({"x": [3.0, 3.0], "bias": [3.0, 3.0], "eps": 1e-5}, (0,), 3.015625, 3.0),
        repro=REPRO,
    )
    yield Finding(
        kernel="torch.layer_norm",
        check="nan and infinity",
        format="float32",
        verdict=Verdict.EXPECTED,
        message="Rows of 1e30 give NaN: the square overflows, as the contract in float32 says.",
    )
    yield from skipped()


def skipped() -> Iterator[Finding]:
    for kernel in ("torch.compile(rms_norm)", "torch.compile(layer_norm)"):
        yield Finding(
            kernel=kernel,
            check="all",
            format="float32",
            verdict=Verdict.SKIPPED,
            message="no C++ compiler (g++ or clang++) on PATH",
        )
    for name in FORMATS:
        yield Finding(
            kernel="mine.fast_norm:forward",
            check="gradients",
            format=name,
            verdict=Verdict.SKIPPED,
            message="the kernel has no backward pass",
        )


def findings() -> Iterator[Finding]:
    yield from special()
    chance = random.Random(7)
    for kernel in KERNELS:
        for name in FORMATS:
            yield accuracy(kernel, name, "synthetic", chance.uniform(0.2, 0.98))
            yield from (accuracy(kernel, name, real, chance.uniform(0.2, 0.9)) for real in REAL)
            yield from (law(kernel, check, name) for check in LAWS)


def series() -> Iterator[Series]:
    chance = random.Random(11)
    for kernel in KERNELS[:4]:
        one_pass = "channels_last" in kernel.name
        for name, p in FORMATS.items():
            yield from of_kernel(kernel.name, name, p, chance, one_pass=one_pass)


def of_kernel(
    kernel: str, name: str, p: int, chance: random.Random, *, one_pass: bool
) -> Iterator[Series]:
    scale = 1.0 if p == 24 else 0.5
    kappa = [10 ** (i / 10) for i in range(61)]
    power = 2 if one_pass and p == 24 else 1
    growth = [max(scale, scale * (k / 30) ** power) for k in kappa]
    d = [float(2**i + j) for i in range(1, 17) for j in (-1, 0, 1)]
    yield Series(
        *(kernel, name, "error against kappa", "kappa", "error (ulp)"),
        x=tuple(kappa),
        y=tuple(g * chance.uniform(0.1, 0.9) for g in growth),
        bound=tuple(max(scale, scale * k / 30) * 1.2 for k in kappa),
    )
    yield Series(
        *(kernel, name, "error against d", "d", "error (ulp)"),
        x=tuple(d),
        y=tuple(0.0 if n <= 2 else scale * chance.uniform(0.2, 0.6) * (1 + n**0.25) for n in d),
        bound=tuple(scale * (2 + n**0.5) for n in d),
    )
    yield Series(
        *(kernel, name, "signed bias", "d", "mean signed error (ulp)"),
        x=tuple(d),
        y=tuple(chance.gauss(0, 0.02) for _ in d),
        bound=tuple(0.1 for _ in d),
    )


def sample() -> Report:
    return Report(
        environment={
            "python": "3.13.5",
            "numpy": "2.3.5",
            "torch": "2.13.0",
            "cpu": {"model": "Example CPU", "flags": ["avx2", "avx512f", "fma"], "cores": 8},
            "card": None,
            "date": "2030-01-02T03:04:05+00:00",
            "commit": "0123456789abcdef",
        },
        kernels=KERNELS,
        findings=tuple(findings()),
        series=tuple(series()),
        notes=(
            "torch.compile was not audited: no C++ compiler (g++ or clang++) on PATH.",
            "The emulator of compiled code was not asked for; run it with --emulator.",
        ),
    )


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    report = sample()
    write_json(report, folder / "findings.json")
    write_page(report, folder / "report.html")
    print_report(report)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out"))
