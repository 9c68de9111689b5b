"""The report as JSON and back, and files that are written whole or not at all."""

from __future__ import annotations

import json
import math
import os
import stat
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.sample import sample
from verify.finding import SCHEMA, Finding, KernelRecord, Report, Series, Verdict, Witness
from verify.report import record
from verify.report.record import (
    ReportError,
    dumps,
    from_json,
    loads,
    read_json,
    to_json,
    write_atomically,
    write_json,
)

TEXT = st.text(max_size=20)
ANY_TEXT = st.text(st.characters(), max_size=20)  # lone surrogates included
FLOATS = st.floats()
NESTED = st.recursive(FLOATS, lambda inner: st.lists(inner, max_size=3), max_leaves=8)
WITNESSES = st.builds(
    Witness,
    inputs=st.dictionaries(TEXT, NESTED, max_size=3),
    index=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    got=FLOATS,
    expected=FLOATS,
    note=ANY_TEXT,
)
FINDINGS = st.builds(
    Finding,
    kernel=TEXT,
    check=TEXT,
    format=TEXT,
    verdict=st.sampled_from(Verdict),
    message=ANY_TEXT,
    measured=st.none() | FLOATS,
    bound=st.none() | FLOATS,
    unit=TEXT,
    witness=st.none() | WITNESSES,
    repro=ANY_TEXT,
    citation=TEXT,
    why=TEXT,
    derivation=TEXT,
    inputs=TEXT,
    run_on=TEXT,
)
POINTS = st.lists(FLOATS, max_size=4).map(tuple)
SERIES = st.builds(Series, *[TEXT] * 5, x=POINTS, y=POINTS, bound=POINTS)
KERNELS = st.builds(KernelRecord, *[TEXT] * 5)
ENVIRONMENTS = st.dictionaries(
    TEXT,
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | TEXT,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)
REPORTS = st.builds(
    Report,
    environment=ENVIRONMENTS,
    kernels=st.lists(KERNELS, max_size=3).map(tuple),
    findings=st.lists(FINDINGS, max_size=4).map(tuple),
    series=st.lists(SERIES, max_size=2).map(tuple),
    notes=st.lists(ANY_TEXT, max_size=3).map(tuple),
)


def strict(text: str) -> object:
    """JSON read by a reader that knows no NaN."""

    def refuse(word: str) -> object:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


@given(REPORTS)
def test_a_report_survives_json(report):
    again = loads(dumps(report))
    # NaN is not equal to itself, so the two are compared as they are told.
    assert repr(again) == repr(report)


@given(REPORTS)
def test_the_text_is_strict_json_and_says_the_same(report):
    assert strict(dumps(report)) == json.loads(json.dumps(to_json(report), allow_nan=False))


@given(report=REPORTS)
def test_a_report_survives_a_file(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "findings.json"
    write_json(report, path)
    assert repr(read_json(path)) == repr(report)


def test_the_sample_survives():
    assert repr(loads(dumps(sample()))) == repr(sample())


def test_the_words_for_what_json_has_not():
    finding = Finding("k", "c", "f", Verdict.HOLDS, "m", measured=math.nan, bound=-math.inf)
    encoded = to_json(Report({}, (), (finding,)))["findings"][0]
    assert (encoded["measured"], encoded["bound"]) == ("nan", "-inf")


@pytest.mark.parametrize("kind", record._KEYS, ids=lambda kind: kind.__name__)
def test_every_field_of_a_record_is_written(kind):
    assert set(record._KEYS[kind]) == {field.name for field in fields(kind)}


def test_the_keys_of_the_document():
    data = to_json(sample())
    assert list(data) == ["schema", "environment", "kernels", "findings", "series", "notes"]
    assert data["schema"] == SCHEMA
    assert list(data["kernels"][0]) == ["name", "version", "formula", "contract", "run_on"]
    assert list(data["findings"][0])[:10] == [
        *("kernel", "check", "format", "verdict", "measured", "bound", "unit", "witness", "repro"),
        "citation",
    ]


def test_one_finding_a_line():
    lines = dumps(sample()).splitlines()
    assert sum(line.startswith('  {"kernel"') for line in lines) == len(sample().findings) + len(
        sample().series
    )


def test_arrays_and_numbers_of_numpy_are_written_as_lists_and_numbers():
    inputs = {"x": np.array([[1.5, np.inf]], dtype=np.float32), "eps": np.float32(0.5)}
    witness = Witness(inputs, (np.int64(0), 1), np.float32(2.0), np.float64("nan"))
    finding = Finding("k", "c", "f", Verdict.HOLDS, "m", np.float32(0.25), witness=witness)
    encoded = strict(dumps(Report({}, (), (finding,))))["findings"][0]
    assert encoded["measured"] == 0.25
    assert encoded["witness"] == {
        "inputs": {"x": [[1.5, "inf"]], "eps": 0.5},
        "index": [0, 1],
        "got": 2.0,
        "expected": "nan",
        "note": "",
    }


def test_what_has_no_place_in_json_is_named():
    with pytest.raises(ReportError) as error:
        to_json(Report({"cpu": {"flags": object()}}, (), ()))
    assert str(error.value) == (
        "environment.cpu.flags: came a object, expected text, a number, or a list or mapping of "
        "them; write str(...) or float(...) of it"
    )


# ------------------------------------------------------------------------------ what is no report


def changed(path: str, value: object) -> object:
    """The sample as JSON, with one value replaced."""
    data = to_json(sample())
    *way, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    place = data
    for step in way:
        place = place[step]
    place[last] = value
    return data


VERDICTS = "holds, violated, hazard, skipped, expected, proved, refuted, undecided"
ANOTHER = (
    "expected 1; read it with the normproof that wrote it, or write it anew with "
    "`verify audit --json FILE`"
)
REMEDY = "write one with `verify audit --json FILE`"
WORDING = [
    ([], f"a report came as [], expected an object with a key 'schema'; {REMEDY}"),
    ({}, f"a report came without 'schema', expected 1; {REMEDY}"),
    ({"schema": 2}, f"a report came with schema 2, {ANOTHER}"),
    ({"schema": True}, f"a report came with schema true, {ANOTHER}"),
    ({"schema": 1}, "environment: came null, expected an object"),
    (changed("findings", 3), "findings: came 3, expected a list"),
    (changed("notes/0", 3), "notes[0]: came 3, expected text"),
    (changed("kernels/1", "x"), 'kernels[1]: came "x", expected an object'),
    (
        changed("findings/0/verdict", "fine"),
        f'findings[0].verdict: came "fine", expected one of {VERDICTS}',
    ),
    (
        changed("findings/0/verdict", []),
        f"findings[0].verdict: came [], expected one of {VERDICTS}",
    ),
    (
        changed("findings/2/measured", "big"),
        "findings[2].measured: came \"big\", expected a number, 'nan', 'inf' or '-inf'",
    ),
    (
        changed("findings/0/bound", True),
        "findings[0].bound: came true, expected a number, 'nan', 'inf' or '-inf'",
    ),
    (changed("series/0/x", 1.0), "series[0].x: came 1.0, expected a list of numbers"),
    (
        changed("findings/0", {"kernel": "k"}),
        "findings[0]: check, format, verdict, message missing, expected as in docs/report.md",
    ),
    (
        changed("findings/0/witness/index", ["a"]),
        'findings[0].witness.index: came ["a"], expected a list of integers',
    ),
]


@pytest.mark.parametrize(("data", "message"), WORDING, ids=[w[1][:40] for w in WORDING])
def test_what_is_wrong_is_said_in_one_line(data, message):
    with pytest.raises(ReportError) as error:
        from_json(data)
    assert str(error.value) == message


def test_an_unknown_key_is_left_alone():
    assert repr(from_json(changed("findings/0/new", 1))) == repr(sample())
    assert repr(from_json(changed("new", 1))) == repr(sample())


def test_a_key_with_a_default_may_be_absent():
    data = to_json(sample())
    del data["findings"][0]["citation"], data["series"]
    again = from_json(data)
    assert again.findings[0] == replace(sample().findings[0], citation="")
    assert again.series == ()


@pytest.mark.parametrize("text", ["", "{", '{"schema": NaN}', "[" * 100_000])
def test_what_is_no_json_is_said_in_one_line(text, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ReportError, match=r"x\.json' is (not JSON|nested too deep)") as error:
        read_json(path)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ReportError) as error:
        read_json(tmp_path / "x.json")
    assert str(error.value) == (
        f"cannot read '{tmp_path / 'x.json'}' (No such file or directory), expected a report in "
        f"JSON; {REMEDY}"
    )


# ------------------------------------------------------------------------------ whole or not at all


@pytest.fixture
def old(tmp_path) -> Path:
    path = tmp_path / "findings.json"
    path.write_bytes(b"\x00an older report\r\n")
    return path


def assert_untouched(old: Path) -> None:
    assert old.read_bytes() == b"\x00an older report\r\n"
    assert list(old.parent.iterdir()) == [old], "a temporary file was left behind"


def test_a_serialiser_that_raises_leaves_the_old_file(old, monkeypatch):
    def fail(*_: object, **__: object) -> str:
        raise RuntimeError("planted")

    monkeypatch.setattr(record.json, "dumps", fail)
    with pytest.raises(RuntimeError, match="planted"):
        write_json(sample(), old)
    assert_untouched(old)


def test_a_report_that_has_no_json_leaves_the_old_file(old):
    with pytest.raises(ReportError):
        write_json(Report({"a": object()}, (), ()), old)
    assert_untouched(old)


@pytest.mark.parametrize("name", ["replace", "fsync"])
def test_a_system_call_that_fails_leaves_the_old_file(old, name, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(record.os, name, fail)
    with pytest.raises(ReportError, match="No space left on device"):
        write_json(sample(), old)
    assert_untouched(old)


def test_an_interrupt_leaves_the_old_file(old, monkeypatch):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(record.os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_json(sample(), old)
    assert_untouched(old)


def test_a_file_is_replaced_with_its_mode_kept(old):
    old.chmod(0o640)
    write_atomically(old, "κ\n")
    assert old.read_bytes() == "κ\n".encode()
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert list(old.parent.iterdir()) == [old]


def test_a_new_file_has_the_mode_that_the_system_gives(tmp_path):
    (tmp_path / "plain").write_text("")
    write_atomically(tmp_path / "new", "")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_stays_and_its_target_is_replaced(old):
    link = old.with_name("link.json")
    link.symlink_to(old)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert old.read_text() == "new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_device_is_written_to_and_never_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        write_atomically(pipe, "text")
        assert reader.communicate()[0] == b"text"
    assert pipe.is_fifo()


EXPECTED = "expected a file in a directory that exists and may be written to"


def test_a_directory_that_is_not_there(tmp_path):
    path = tmp_path / "none" / "x.json"
    with pytest.raises(ReportError) as error:
        write_json(sample(), path)
    assert str(error.value) == (
        f"cannot write '{path}' (No such file or directory), {EXPECTED}; "
        f"write `mkdir -p {path.parent}` first, or another path"
    )


def test_a_path_that_is_a_directory(tmp_path):
    with pytest.raises(ReportError) as error:
        write_json(sample(), tmp_path)
    assert str(error.value) == (
        f"cannot write '{tmp_path}' (Is a directory), {EXPECTED}; "
        f"write the name of a file, '{tmp_path / 'findings.json'}'"
    )


def test_a_path_below_a_file(old):
    path = old / "x.json"
    with pytest.raises(ReportError) as error:
        write_json(sample(), path)
    assert str(error.value) == (
        f"cannot write '{path}' (Not a directory), {EXPECTED}; write another path"
    )


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write to every directory"
)
def test_a_directory_that_may_not_be_written_to(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ReportError, match=r"Permission denied.*; write another path$"):
        write_json(sample(), tmp_path / "x.json")


def test_a_directory_that_refuses(old, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ReportError) as error:
        write_json(sample(), old)
    monkeypatch.undo()
    assert str(error.value) == (
        f"cannot write '{old}' (Permission denied), {EXPECTED}; write another path"
    )
    assert_untouched(old)


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
def test_a_name_that_no_file_can_have(path):
    with pytest.raises(ReportError, match="cannot write") as error:
        write_atomically(path, "")
    assert "\n" not in str(error.value)


def test_records_need_the_standard_library_alone():
    script = (
        "import sys; before = set(sys.modules); import verify.report, verify.report.record; "
        "new = {m.partition('.')[0] for m in set(sys.modules) - before}; "
        "print(sorted(new - set(sys.stdlib_module_names) - {'verify'}))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
