"""Speed and memory of the correctly rounded truth, as ratios measured in one run.

d = 4096, 512 rows, float32 in, weight and bias given. The compared calls are interleaved and the
least time of each is taken. NumPy's formula in float64 is the plain one; mpmath (with gmpy2) takes
one fused dot product for each row and rounds every element once.

    python benchmarks/truth.py [--quick] [--json FILE|-]
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import mpmath
import numpy as np

from verify.formats import FORMATS, round_to
from verify.numeric import reference
from verify.numeric.mp import fraction

SCHEMA = 1
D, ROWS, EPS = 4096, 512, 1e-5
FORMATS_OUT = ("float32", "bfloat16")
PACKAGES = ("numpy", "numba", "mpmath", "gmpy2", "python-flint", "ml_dtypes")
Call = Callable[[], Any]

# --- what the truth is compared with --------------------------------------------------------------


def numpy_rms_norm(x: Any, w: Any, b: Any) -> Any:
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w + b


def numpy_layer_norm(x: Any, w: Any, b: Any) -> Any:
    x = x.astype(np.float64)
    c = x - x.mean(-1, keepdims=True)
    return c / np.sqrt((c * c).mean(-1, keepdims=True) + EPS) * w + b


def numpy_rms_norm_backward(x: Any, w: Any, dy: Any) -> tuple[Any, ...]:
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    rstd = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + EPS)
    hat, g = x * rstd, dy * w
    dx = rstd * (g - hat * (g * hat).mean(-1, keepdims=True))
    return dx, (dy * hat).sum(0), dy.sum(0)


def numpy_layer_norm_backward(x: Any, w: Any, dy: Any) -> tuple[Any, ...]:
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    c = x - x.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt((c * c).mean(-1, keepdims=True) + EPS)
    hat, g = c * rstd, dy * w
    dx = rstd * (g - g.mean(-1, keepdims=True) - hat * (g * hat).mean(-1, keepdims=True))
    return dx, (dy * hat).sum(0), dy.sum(0)


def mpmath_norm(name: str, row: Any, w: Any, b: Any, fmt: str) -> list[float]:
    """One row, correctly rounded: 106 bits, one dot product, one rounding for each element."""
    with mpmath.workprec(106):
        x, weight, bias = ([mpmath.mpf(float(v)) for v in values] for values in (row, w, b))
        if name == "layer_norm":
            mu = mpmath.fsum(x) / len(x)
            x = [v - mu for v in x]
        rstd = 1 / mpmath.sqrt(mpmath.fdot(x, x) / len(x) + EPS)
        y = [v * rstd * g + h for v, g, h in zip(x, weight, bias, strict=True)]
        if fmt == "float32":
            with mpmath.workprec(24):
                return [float(+v) for v in y]
        return [round_to(FORMATS[fmt], fraction(v)) for v in y]


FORWARD = {"rms_norm": numpy_rms_norm, "layer_norm": numpy_layer_norm}
BACKWARD = {
    "rms_norm_backward": numpy_rms_norm_backward,
    "layer_norm_backward": numpy_layer_norm_backward,
}

# --- measuring ------------------------------------------------------------------------------------


def seconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def interleaved(calls: list[Call], rounds: int) -> list[float]:
    """The least time of each call, measured A B A B after one warm-up."""
    for call in calls:
        call()
    taken = [[seconds(call) for call in calls] for _ in range(rounds)]
    return np.min(taken, axis=0).tolist()


def forward(rounds: int, mp_rows: int) -> dict[str, dict[str, float]]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, D), dtype=np.float32)
    w, b = rng.standard_normal((2, D), dtype=np.float32)
    over_numpy, over_mpmath = {}, {}
    for name, plain in FORWARD.items():
        truths = [lambda n=name, f=fmt: reference(n, x, w, b, EPS, f) for fmt in FORMATS_OUT]
        plain_time, *times = interleaved([lambda p=plain: p(x, w, b), *truths], rounds)
        for fmt, taken in zip(FORMATS_OUT, times, strict=True):
            rows = x[:mp_rows]
            slow = seconds(lambda n=name, f=fmt, r=rows: [mpmath_norm(n, v, w, b, f) for v in r])
            over_numpy[f"{name}/{fmt}"] = taken / plain_time
            over_mpmath[f"{name}/{fmt}"] = slow / mp_rows * ROWS / taken
    return {"time_over_numpy_float64": over_numpy, "mpmath_over_time": over_mpmath}


def gradients(rounds: int) -> dict[str, float]:
    """dx, dweight and dbias together; the slower of the two output formats."""
    rng = np.random.default_rng(1)
    x, dy = rng.standard_normal((2, ROWS, D), dtype=np.float32)
    w = rng.standard_normal(D, dtype=np.float32)
    ratios = {}
    for name, plain in BACKWARD.items():
        truths = [
            lambda n=name, f=fmt: reference(n, x, w, None, EPS, f, dy=dy) for fmt in FORMATS_OUT
        ]
        plain_time, *times = interleaved([lambda p=plain: p(x, w, dy), *truths], rounds)
        ratios[name] = max(times) / plain_time
    return ratios


MEMORY = """
import sys, tracemalloc
import numpy as np
from verify.numeric import reference

rng = np.random.default_rng(0)
n, w = int(sys.argv[1]), np.ones(4096, np.float32)
small = rng.standard_normal((8, 4096), dtype=np.float32)
reference("layer_norm", small, w, w, 1e-5, "float32")
x = rng.standard_normal((n, 4096), dtype=np.float32)
tracemalloc.start()  # NumPy reports its arrays to it; compiled code allocates nothing
y = reference("layer_norm", x, w, w, 1e-5, "float32")
print((tracemalloc.get_traced_memory()[1] - y.nbytes) / 2**20)
"""


def extra_memory_mb(rows: int) -> float:
    """Peak of what a call on many rows allocates beyond its output."""
    command = [sys.executable, "-c", MEMORY, str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def environment() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpu_flags": cpu_flags(),
        "card": None,
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "mpmath_backend": mpmath.libmp.BACKEND,
    }


def commit() -> str | None:
    command = ["git", "rev-parse", "--short", "HEAD"]
    root = Path(__file__).parent
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    return done.stdout.strip() or None


def cpu_flags() -> list[str]:
    """The vector extensions among the processor's flags; empty where no such list is."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    flags = next((line.split(":")[1].split() for line in lines if line.startswith("flags")), [])
    return sorted(f for f in flags if f.startswith(("avx", "fma", "sse4", "amx")))


def table(result: dict[str, Any]) -> str:
    lines = [f"{'d=4096, 512 rows, float32 in':34}{'x NumPy float64':>16}{'mpmath / truth':>16}"]
    for key, ratio in result["time_over_numpy_float64"].items():
        lines.append(f"{key:34}{ratio:16.2f}{result['mpmath_over_time'][key]:16,.0f}")
    lines += [f"{k:34}{v:16.2f}" for k, v in result["gradients_over_numpy_float64"].items()]
    lines.append(f"{'extra memory':34}{result['extra_memory_mb']:13.1f} MB")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the result there; - for stdout")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, fewer rows of mpmath")
    options = parser.parse_args()
    rounds, mp_rows, many = (5, 2, 8_192) if options.quick else (15, 4, 32_768)
    result = {
        "schema": SCHEMA,
        "environment": environment(),
        **forward(rounds, mp_rows),
        "gradients_over_numpy_float64": gradients(rounds),
        "extra_memory_mb": extra_memory_mb(many),
    }
    print(table(result), file=sys.stderr if options.json == "-" else sys.stdout)
    if options.json == "-":
        print(json.dumps(result, indent=2))
    elif options.json:
        Path(options.json).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
