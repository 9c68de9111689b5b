"""`verify prove` and `verify check`: what they print, write and refuse."""

from __future__ import annotations

import json

import pytest

from tests.test_cli import refused, verify
from verify.symbolic.checkers.seals import sealed
from verify.symbolic.theorem import theorem_names

ONE = "LAYER_NORM_IS_RMS_NORM_OF_CENTRED"
TRUE_SIBLING = "RMS_NORM_IS_ZERO_HOMOGENEOUS"


def test_the_theorems_are_listed_in_order_with_what_they_say(tmp_path):
    done = verify(tmp_path, "prove", "--list")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == theorem_names()
    assert lines[0].endswith("LayerNorm is RMSNorm of the centred row, with the same eps and the "
                             "same affine part.")  # fmt: skip
    assert not list(tmp_path.iterdir())
    listed = json.loads(verify(tmp_path, "prove", ONE, "--list", "--json", "-").stdout)
    assert [theorem["name"] for theorem in listed["theorems"]] == [ONE]


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    """A run on two theorems, and its folder."""
    folder = tmp_path_factory.mktemp("proved")
    done = verify(
        folder, "prove", ONE.lower(), TRUE_SIBLING, ONE, "--no-rocq", "--json", "all.json"
    )
    assert done.returncode == 0, done.stderr
    return done, folder


def test_a_proof_prints_each_judge_and_writes_a_certificate(proved):
    done, folder = proved
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["theorem", "kernel", "flint", "GF", "z3", "Rocq", "rejected",
                                "steps", "s"]  # fmt: skip
    assert lines[1].split()[:6] == [ONE, "✓", "✓", "✓", "✓", "12/12"]
    assert "true after all" in done.stdout
    assert f"  {TRUE_SIBLING}: " in done.stdout
    assert "2 theorems" in done.stdout
    written = sorted(path.name for path in (folder / "out" / "certificates").iterdir())
    assert written == [f"{ONE}.json", f"{TRUE_SIBLING}.json"]


def test_the_results_as_json(proved):
    _, folder = proved
    content = json.loads((folder / "all.json").read_text())
    first, second = content["theorems"]
    assert (first["name"], first["verdict"], first["rejected"]) == (ONE, "proved", [])
    assert {judge: said["verdict"] for judge, said in first["checkers"].items()} == {
        "python-flint": "proved", "GF(2^61-1)": "proved", "z3": "proved"
    }  # fmt: skip
    assert first["siblings"] == {"wrong": 12, "rejected": 12, "accepted": [], "true": []}
    true = dict(second["siblings"]["true"])
    assert any("doubled" in name for name in true)
    assert all(true.values())
    assert second["siblings"]["wrong"] == second["siblings"]["rejected"] >= 10
    assert content["totals"]["kernel"]["proved"] == 2


def test_a_certificate_is_checked_alone(proved):
    _, folder = proved
    done = verify(folder, "check", f"out/certificates/{ONE}.json", "--json", "checked.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{ONE}: 2 claims, every step as it was sealed\n")
    assert done.stdout.count(" proved ") == 3
    (said,) = json.loads((folder / "checked.json").read_text())["certificates"].values()
    assert {each["verdict"] for each in said.values()} == {"proved"}


# --- bad input -----------------------------------------------------------------------------------


def test_an_unknown_theorem_lists_the_near_ones(tmp_path):
    line = refused(tmp_path, "prove", "LAYER_NORM_IS_RMS_NORM")
    assert line.startswith("unknown theorem 'LAYER_NORM_IS_RMS_NORM': expected one of ")
    assert ONE in line
    assert "`verify prove --list` prints" in refused(tmp_path, "prove", "12345")
    assert not list(tmp_path.iterdir())


def test_a_tampered_certificate_is_refused_with_the_step_named(proved, tmp_path):
    _, folder = proved
    content = json.loads((folder / "out" / "certificates" / f"{ONE}.json").read_text())
    steps = content["claims"][1]["steps"]
    steps[1][0] = "another step"
    (tmp_path / "bad.json").write_text(json.dumps(content))
    line = refused(tmp_path, "check", "bad.json")
    assert line.startswith("'bad.json' was changed after it was sealed: step 'another step'")


def test_a_bad_file_is_told_and_the_others_are_checked(proved, tmp_path):
    _, folder = proved
    good = str(folder / "out" / "certificates" / f"{ONE}.json")
    (tmp_path / "bad.json").write_text("{}")
    done = verify(tmp_path, "check", "bad.json", "none.json", good)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 2
    assert "'bad.json' is no certificate of schema 1" in done.stderr
    assert "cannot open 'none.json'" in done.stderr
    assert done.stdout.startswith(f"{ONE}: ")


def test_what_proved_means_is_not_said_beside_another_verdict(proved, tmp_path):
    _, folder = proved
    content = json.loads((folder / "out" / "certificates" / f"{ONE}.json").read_text())
    content["terms"].append(["add", *[content["claims"][1]["steps"][-1][1]] * 2])
    content["claims"][1]["steps"][-1][1] = len(content["terms"]) - 1
    (tmp_path / "false.json").write_text(json.dumps(sealed(content)))
    done = verify(tmp_path, "check", "false.json")
    assert done.returncode == 1
    assert "  python-flint refuted\n" in done.stdout
    assert "is the zero polynomial" not in done.stdout


def test_files_that_are_not_there_or_cannot_be_written(tmp_path):
    assert "cannot open 'none.json'" in refused(tmp_path, "check", "none.json")
    assert "expected a file in a folder" in refused(tmp_path, "prove", ONE, "--json", "no/where")
    (tmp_path / "taken").write_text("a file")
    assert "cannot write into 'taken'" in refused(tmp_path, "prove", ONE, "-o", "taken")


def test_a_network_is_asked_for_alone(tmp_path):
    assert "write it alone" in refused(tmp_path, "prove", ONE, "--network")
