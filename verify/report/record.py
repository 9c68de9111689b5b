"""A report as JSON and back, and files that are written whole or not at all.

The keys, their units and the rule of the schema number are in docs/report.md.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from verify.finding import (
    SCHEMA,
    Finding,
    KernelRecord,
    Report,
    Series,
    Verdict,
    Witness,
    finite_or_text,
)

Json = Any  # None, bool, int, float, str, and lists and objects of them
Reader = Callable[[Json], Any]
Record = TypeVar("Record")


class ReportError(ValueError):
    """A report that cannot be written or read.

    The message is one line: what came, what was expected, what to write.
    """


# --------------------------------------------------------------------------------------- to JSON

FINDING_KEYS = (
    *("kernel", "check", "format", "verdict", "measured", "bound", "unit", "witness", "repro"),
    *("citation", "message", "why", "derivation", "inputs", "run_on"),
)
KERNEL_KEYS = ("name", "version", "formula", "contract", "run_on")
SERIES_KEYS = ("kernel", "format", "name", "x_label", "y_label", "x", "y", "bound")
WITNESS_KEYS = ("inputs", "index", "got", "expected", "note")

_KEYS: Mapping[type, tuple[str, ...]] = {
    Finding: FINDING_KEYS,
    KernelRecord: KERNEL_KEYS,
    Series: SERIES_KEYS,
    Witness: WITNESS_KEYS,
}


def to_json(report: Report) -> dict[str, Json]:
    """The report as an object of strict JSON: NaN and infinities are 'nan', 'inf' and '-inf'.

    Raises ReportError where a value has no place in JSON.
    """
    return {
        "schema": SCHEMA,
        "environment": _plain(report.environment, "environment"),
        "kernels": _plain(report.kernels, "kernels"),
        "findings": _plain(report.findings, "findings"),
        "series": _plain(report.series, "series"),
        "notes": _plain(report.notes, "notes"),
    }


def _plain(value: Any, where: str) -> Json:
    """The value in JSON's types; arrays and numbers of other packages are asked for theirs."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return finite_or_text(value)
    if type(value) in _KEYS:
        keys = _KEYS[type(value)]
        return {key: _plain(getattr(value, key), f"{where}.{key}") for key in keys}
    if isinstance(value, Mapping):
        return {str(key): _plain(each, f"{where}.{key}") for key, each in value.items()}
    if hasattr(value, "tolist"):
        return _plain(value.tolist(), where)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(each, f"{where}[{i}]") for i, each in enumerate(value)]
    raise ReportError(
        f"{where}: came a {type(value).__name__}, expected text, a number, or a list or mapping "
        "of them; write str(...) or float(...) of it"
    )


def dumps(report: Report) -> str:
    """The report as JSON text, one kernel, finding, series or note a line."""
    parts = (f"{_line(key)}: {_lines(value)}" for key, value in to_json(report).items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _lines(value: Json) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"  {_line(each)}" for each in value) + "\n]"
    return _line(value)


def _line(value: Json) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


# ------------------------------------------------------------------------------------- from JSON


def from_json(data: Json) -> Report:
    """The report that `to_json` wrote. Keys it does not know are left alone.

    Raises ReportError in one line where the schema is another one or a value is not what
    docs/report.md says.
    """
    _check_schema(data)
    return Report(
        environment=_at("environment", _mapping, data.get("environment")),
        kernels=_records(KernelRecord, _KERNEL, data, "kernels"),
        findings=_records(Finding, _FINDING, data, "findings"),
        series=_records(Series, _SERIES, data, "series"),
        notes=tuple(_text_at(f"notes[{i}]", n) for i, n in enumerate(_list_of(data, "notes"))),
    )


def _check_schema(data: Json) -> None:
    if not isinstance(data, Mapping):
        raise ReportError(
            f"a report came as {_short(data)}, expected an object with a key 'schema'; "
            "write one with `verify audit --json FILE`"
        )
    if "schema" not in data:
        raise ReportError(
            f"a report came without 'schema', expected {SCHEMA}; "
            "write one with `verify audit --json FILE`"
        )
    came = data["schema"]
    if type(came) is not int or came != SCHEMA:
        raise ReportError(
            f"a report came with schema {_short(came)}, expected {SCHEMA}; read it with the "
            "normproof that wrote it, or write it anew with `verify audit --json FILE`"
        )


class _WrongError(ValueError):
    """What was expected of one value."""


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise _WrongError("text")
    return value


def _number(value: Json) -> float:
    """A number, or the word for NaN or an infinity."""
    if isinstance(value, str) and value in {"nan", "inf", "-inf"}:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _WrongError("a number, 'nan', 'inf' or '-inf'")
    return value


def _number_or_none(value: Json) -> float | None:
    return None if value is None else _number(value)


def _numbers(value: Json) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise _WrongError("a list of numbers")
    return tuple(_number(each) for each in value)


def _nested(value: Json) -> Any:
    """A number, or nested lists of numbers."""
    return [_nested(each) for each in value] if isinstance(value, list) else _number(value)


def _mapping(value: Json) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise _WrongError("an object")
    return value


def _arguments(value: Json) -> dict[str, Any]:
    return {name: _nested(each) for name, each in _mapping(value).items()}


def _index(value: Json) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(each) is int for each in value):
        raise _WrongError("a list of integers")
    return tuple(value)


def _verdict(value: Json) -> Verdict:
    if value not in list(Verdict):
        raise _WrongError(f"one of {', '.join(Verdict)}")
    return Verdict(value)


def _witness(value: Json) -> Witness | None:
    return None if value is None else _record(Witness, _WITNESS, value, "")


_TEXTS: Mapping[str, Reader] = dict.fromkeys((*FINDING_KEYS, *KERNEL_KEYS, *SERIES_KEYS), _text)
_KERNEL: Mapping[str, Reader] = {key: _TEXTS[key] for key in KERNEL_KEYS}
_SERIES: Mapping[str, Reader] = {
    **{key: _TEXTS[key] for key in SERIES_KEYS},
    **dict.fromkeys(("x", "y", "bound"), _numbers),
}
_WITNESS: Mapping[str, Reader] = {
    "inputs": _arguments,
    "index": _index,
    "got": _number,
    "expected": _number,
    "note": _text,
}
_FINDING: Mapping[str, Reader] = {
    **{key: _TEXTS[key] for key in FINDING_KEYS},
    **dict.fromkeys(("measured", "bound"), _number_or_none),
    "verdict": _verdict,
    "witness": _witness,
}


def _records(
    kind: type[Record], readers: Mapping[str, Reader], data: Mapping[str, Json], key: str
) -> tuple[Record, ...]:
    each = enumerate(_list_of(data, key))
    return tuple(_record(kind, readers, value, f"{key}[{i}]") for i, value in each)


def _list_of(data: Mapping[str, Json], key: str) -> list[Json]:
    value = data.get(key, [])
    if not isinstance(value, list):
        raise ReportError(f"{key}: came {_short(value)}, expected a list")
    return value


def _record(kind: type[Record], readers: Mapping[str, Reader], value: Json, where: str) -> Record:
    """One record from its object; a key that has a default may be absent."""
    known = _at(where, _mapping, value)
    given = {
        key: _at(f"{where}.{key}", read, known[key])
        for key, read in readers.items()
        if key in known
    }
    try:
        return kind(**given)
    except TypeError:
        needed = [key for key in readers if key not in known and not hasattr(kind, key)]
        raise ReportError(
            f"{where}: {', '.join(needed)} missing, expected as in docs/report.md"
        ) from None


def _text_at(where: str, value: Json) -> str:
    text: str = _at(where, _text, value)
    return text


def _at(where: str, read: Reader, value: Json) -> Any:
    try:
        return read(value)
    except _WrongError as wrong:
        raise ReportError(f"{where}: came {_short(value)}, expected {wrong}") from None
    except ReportError as inner:
        raise ReportError(f"{where}{inner}") from None


def _short(value: Json) -> str:
    """The value in at most 60 characters of one line."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else f"{text[:57]}..."


def loads(text: str, source: str = "the report") -> Report:
    """The report in a JSON text; ``source`` names it in errors. Raises ReportError."""
    try:
        data = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ReportError(f"{source} is nested too deep to be a report") from None
    except ValueError as error:
        raise ReportError(
            f"{source} is not JSON ({error}), expected what `verify audit --json FILE` writes"
        ) from None
    try:
        return from_json(data)
    except ReportError as error:
        raise ReportError(f"{source}: {error}") from None


def _refuse(word: str) -> Json:
    raise ValueError(f"{word} is no JSON number")


def read_json(path: str | Path) -> Report:
    """The report in a file. Raises ReportError in one line."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ReportError(
            f"cannot read '{path}' ({_reason(error)}), expected a report in JSON; "
            "write one with `verify audit --json FILE`"
        ) from None
    return loads(text, f"'{path}'")


# ----------------------------------------------------------------------------------------- files


def write_json(report: Report, path: str | Path) -> None:
    """Write the report as JSON, whole or not at all. Raises ReportError in one line."""
    write_atomically(path, dumps(report))


def write_atomically(path: str | Path, text: str) -> None:
    r"""Write ``text`` to a file that is replaced as a whole: never is it half old and half new.

    A link is followed, a device (/dev/stdout) is written to. What UTF-8 cannot encode is written
    as its escape, \udc80, which JSON reads back. Raises ReportError in one line.
    """
    data = text.encode("utf-8", "backslashreplace")
    try:
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise IsADirectoryError(21, "Is a directory")
        if target.exists() and not target.is_file():
            target.write_bytes(data)
        else:
            _replace(target, data)
    except (OSError, ValueError) as error:
        raise ReportError(
            f"cannot write '{path}' ({_reason(error)}), expected a file in a directory that exists "
            f"and may be written to; {_remedy(Path(path))}"
        ) from None


def _replace(target: Path, data: bytes) -> None:
    beside = target.with_name(f".{target.name[:80]}.{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            beside.chmod(target.stat().st_mode & 0o7777)
        os.replace(beside, target)  # noqa: PTH105 - the name of the system call, planted in tests
    finally:
        beside.unlink(missing_ok=True)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _remedy(path: Path) -> str:
    try:
        if path.is_dir():
            return f"write the name of a file, '{path / 'findings.json'}'"
        if not path.parent.exists():
            return f"write `mkdir -p {path.parent}` first, or another path"
    except (OSError, ValueError):
        pass
    return "write another path"
