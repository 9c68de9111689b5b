"""A script that shows a violation with NumPy and the kernel's own package alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.audit.case import Case
from verify.audit.elimination import Violation
from verify.audit.subject import Subject
from verify.kernels.third_party.user_callable import ROLES

Array = NDArray[Any]
LARGEST = 4096  # elements that are written out

TORCH = {
    "rms_norm": "x.shape[-1:], w, eps",
    "layer_norm": "x.shape[-1:], w, b, eps",
    "group_norm": "groups, w, b, eps",
}


def script(subject: Subject, v: Violation, method: str = "forward") -> str:
    """At most 25 lines; exits with 1 while the kernel gives the wrong value, 0 once it is right."""
    if v.case.x.size > LARGEST:
        return ""
    lines = [
        f'"""{subject.kernel.name} in {subject.format}: {v.case.name}."""',
        "import sys",
        "import numpy as np",
        *(_torch(subject, v, method) if _is_torch(subject) else _numpy(subject, v)),
        f"low, high = {_number(v.low)}, {_number(v.high)}  # what a right kernel may give",
        'print(f"got {got!r}, allowed {low!r} to {high!r}")',
        "sys.exit(0 if low <= got <= high else 1)",
    ]
    return "\n".join(lines) + "\n"


def _is_torch(subject: Subject) -> bool:
    return ".torch_" in subject.kernel.adapter or subject.detail.get("array") == "torch"


def _number(value: float) -> str:
    return repr(float(value)) if np.isfinite(value) else f'float("{float(value)}")'


def _values(array: Array) -> str:
    return repr(np.asarray(array, np.float64).tolist()).replace("nan", 'float("nan")')


def _torch(subject: Subject, v: Violation, method: str) -> list[str]:
    case = v.case
    lines = ["import torch", *_import(subject)]
    for short, name in (("x", "x"), ("w", "weight"), ("b", "bias"), ("dy", "dy")):
        lines += _tensor(case, short, name)
    lines.append(f"eps, groups = {case.eps!r}, {case.num_groups!r}")
    if method == "backward":
        lines.append("leaves = [t for t in (x, w, b) if t is not None]")
        lines.append("for t in leaves: t.requires_grad_()")
    lines.append(f"y = {_torch_call(subject)}")
    if method == "backward":
        which = ("x", "w", "b")[v.output]
        lines.append("grads = torch.autograd.grad(y, leaves, dy)")
        lines.append(f"y = next(g for t, g in zip(leaves, grads) if t is {which})")
    lines.append(f"got = float(y[{', '.join(map(str, v.index))}])")
    return lines


def _tensor(case: Case, short: str, name: str) -> list[str]:
    array = case.arrays.get(name)
    if array is None:
        return [f"{short} = None"]
    is_last = name == "x" and case.layout == "channels_last"
    values = _values(array.transpose(0, 2, 3, 1) if is_last else array)
    made = f"{short} = torch.tensor({values}, dtype=torch.{array.dtype.name})"
    made += ".permute(0, 3, 1, 2)  # channels_last" if is_last else ""
    if name == "x" and case.layout == "strided":
        made += "\nx = torch.stack([x, x], -1).flatten(-2)[..., ::2]"
    return made.split("\n")


def _import(subject: Subject) -> list[str]:
    """Lines that bind ``norm``, for a kernel of the user's own, and its parameters' names."""
    arguments = subject.kernel.arguments
    if "target" not in arguments:
        return []
    place, _, name = arguments["target"].rpartition(":")
    module = place.rpartition("/")[2].removesuffix(".py")
    roles = {role: names for role, names in ROLES.items() if role != "num_groups"}
    return [
        f"sys.path.insert(0, {arguments['folder']!r})",
        "import importlib, inspect",
        f"norm = importlib.import_module({module!r})",
        f"for part in {name.split('.')!r}: norm = getattr(norm, part)",
        f"roles = {roles!r}",
        "role_of = {n: r for r, names in roles.items() for n in names}",
    ]


BY_NAME = (
    "norm(**{p: given[role_of[p]] for p in inspect.signature(norm).parameters if p in role_of})"
)


def _torch_call(subject: Subject) -> str:
    name = subject.kernel.arguments.get("norm", "")
    if "target" in subject.kernel.arguments:
        given = '{"x": x, "weight": w, "bias": b, "eps": eps}'
        return BY_NAME.replace("given", f"({given})")
    function = f"torch.nn.functional.{name}"
    if "compile" in subject.kernel.name:
        function = f"torch.compile({function}, dynamic=True)"
    return f"{function}(x, {TORCH[name]})"


def _numpy(subject: Subject, v: Violation) -> list[str]:
    lines = ["import ml_dtypes  # NumPy's bfloat16"] if subject.format == "bfloat16" else []
    lines += _import(subject)
    for short, name in (("x", "x"), ("w", "weight"), ("b", "bias")):
        array = v.case.arrays.get(name)
        text = "None" if array is None else f"np.array({_values(array)}, {array.dtype.name!r})"
        lines.append(f"{short} = {text}")
    lines.append(f"eps = {v.case.eps!r}")
    if "target" in subject.kernel.arguments:
        lines.append('given = {"x": x, "weight": w, "bias": b, "eps": eps}')
        lines.append(f"y = {BY_NAME}")
    else:
        module, _, _ = subject.kernel.adapter.partition(":")
        norm = subject.kernel.arguments["norm"]
        lines.append(f"from {module} import {norm}")
        lines.append(f"y = {norm}(x, w, b, eps)")
    lines.append(f"got = float(y[{', '.join(map(str, v.index))}])")
    return lines
