"""`verify truth`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verify.cli.base import UsageError, app, emit, environment, schema

if TYPE_CHECKING:
    from numpy.typing import NDArray


@app.command()
def truth(
    formula: Annotated[str, typer.Argument(help="rms_norm, layer_norm, ...")],
    format: Annotated[str, typer.Option("--format", help="Format of the output.")] = "float32",
    x: Annotated[
        Path | None, typer.Option("--x", help="Rows: .npy, or .npz with x, weight, bias, ...")
    ] = None,
    weight: Annotated[Path | None, typer.Option(help="Weight, as .npy.")] = None,
    bias: Annotated[Path | None, typer.Option(help="Bias, as .npy.")] = None,
    dy: Annotated[Path | None, typer.Option(help="The gradient of y, as .npy.")] = None,
    eps: Annotated[float, typer.Option(help="eps >= 0.")] = 1e-5,
    num_groups: Annotated[int | None, typer.Option(help="For group norms.")] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Two rows of our own.")] = False,
    save: Annotated[Path | None, typer.Option(help="Write the output there, as .npy.")] = None,
    json_to: Annotated[
        str | None, typer.Option("--json", help="Write it as JSON to FILE ('-': stdout).")
    ] = None,
) -> None:
    """Print the correctly rounded output of a formula, and how far a right kernel may be off."""
    from verify.formats import format_named
    from verify.norms import formula_named

    found, fmt = formula_named(formula), format_named(format)
    files = {"x": x, "weight": weight, "bias": bias, "dy": dy}
    arrays = _demo(found.id) if demo else _arrays(files)
    if demo and x is not None:
        raise UsageError("came both --demo and --x: expected one of them")
    names = {p.name for p in found.parameters}
    numbers = {n: eps for n in ("eps",) if n in names}
    _print_truth(found.id, fmt.name, {**arrays, **numbers}, num_groups, save, json_to)


def _demo(formula: str) -> dict[str, Any]:
    """Two rows: an easy one, and one with a large mean."""
    import numpy as np

    rows = np.array([[1, 2, 3, 4], [1000, 1001, 1002, 1003]], np.float32)
    given: dict[str, Any] = {"x": rows}
    if formula.endswith("_backward"):
        given["dy"] = np.ones_like(rows)
    return given


def _arrays(files: dict[str, Path | None]) -> dict[str, NDArray[Any]]:
    """The arrays in the files; an .npz given as x holds them all."""
    if files["x"] is None:
        raise UsageError("no rows: write --x FILE.npy, or --demo")
    arrays: dict[str, NDArray[Any]] = {}
    for name, path in files.items():
        if path is not None:
            arrays |= _loaded(name, path)
    if "x" not in arrays:
        raise UsageError(f"'{files['x']}' holds {', '.join(arrays)}: expected an array called x")
    return arrays


def _loaded(name: str, path: Path) -> dict[str, NDArray[Any]]:
    """One file; pickle stays off, since data must not be able to run code."""
    import zipfile

    import numpy as np

    try:
        content = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())[:100]
        reason = "it holds Python objects, or is of another kind" if "pickle" in reason else reason
        raise UsageError(
            f"cannot read '{path}' for {name} ({reason}): expected .npy or .npz without pickle; "
            "write it with numpy.save"
        ) from None
    if isinstance(content, np.ndarray):
        return {name: content}
    with content as archive:
        return {each: archive[each] for each in archive.files}


def _print_truth(
    formula: str,
    format: str,
    arguments: dict[str, Any],
    num_groups: int | None,
    save: Path | None,
    json_to: str | None,
) -> None:
    """The truth, and the bound of the strictest contract in that format, if there is one."""
    import numpy as np

    from verify.norms import formula_named
    from verify.numeric import reference

    given = dict(arguments)
    eps = given.pop("eps", None)
    result = reference(
        formula, given.pop("x"), eps=eps, format=format, num_groups=num_groups, **given
    )
    outputs = result if isinstance(result, tuple) else (result,)
    names = [o.name for o in formula_named(formula).outputs]
    contract, limits = _bounds(formula, format, arguments, num_groups, len(outputs))
    if save is not None:
        np.save(save, outputs[0])
    if json_to is not None:
        emit(_truth_json(formula, format, names, outputs, contract, limits), json_to)
        return
    for name, output, limit in zip(names, outputs, limits, strict=True):
        print(f"{name} ({format}, {output.shape}), correctly rounded:")
        print(np.array2string(np.asarray(output, np.float64), precision=9, threshold=64))
        if limit is not None:
            print(f"at most this far off in a kernel that keeps '{contract}':")
            print(np.array2string(limit, precision=3, threshold=64))


def _bounds(
    formula: str, format: str, arguments: dict[str, Any], num_groups: int | None, count: int
) -> tuple[str, list[Any]]:
    """The strictest contract's name and its bound for each output; None where there is none."""
    from verify.numeric import bound, contracts_for

    contract = next(iter(contracts_for(formula, format)), None)
    if contract is None:
        return "", [None] * count
    return contract.name or contract.describe(), list(bound(contract, arguments, num_groups))


def _truth_json(
    formula: str,
    format: str,
    names: Sequence[str],
    outputs: Sequence[Any],
    contract: str,
    limits: Sequence[Any],
) -> dict[str, Any]:
    import numpy as np

    return {
        "schema": schema(),
        "environment": environment(),
        "formula": formula,
        "format": format,
        "contract": contract,
        "outputs": {
            name: {
                "value": _plain(np.asarray(output, np.float64).tolist()),
                "bound": None if limit is None else _plain(limit.tolist()),
            }
            for name, output, limit in zip(names, outputs, limits, strict=True)
        },
    }


def _plain(value: Any) -> Any:
    """Nested lists with NaN and infinities as words."""
    from verify.finding import finite_or_text

    return [_plain(v) for v in value] if isinstance(value, list) else finite_or_text(value)
