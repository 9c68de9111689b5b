"""The page: self-contained, well-formed, escaped, the same every time, and never killed."""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
import subprocess
import sys
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given

from tests.report.sample import CANCELLATION, REPRO, sample
from tests.report.test_record import REPORTS
from verify.finding import Finding, Report, Series, Verdict, Witness
from verify.report import render_page, write_page

VOID = {"meta", "input", "br", "link", "img", "hr"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)


class Page(HTMLParser):
    """Tags in balance, what each loads, its ids, headings and text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.headings: list[int] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.tags.append((tag, named))
        self.ids += [named["id"]] if "id" in named else []
        self.headings += [int(tag[1])] if re.fullmatch("h[1-6]", tag) else []
        keys = ("src", "srcset", "href", "xlink:href", "action", "data", "poster")
        self.loads += [value or "" for key, value in attrs if key in keys]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data if self.open and self.open[-1] not in {"script", "style"} else ""

    def count(self, tag: str, kind: str = "") -> int:
        classes = [(named.get("class") or "").split() for name, named in self.tags if name == tag]
        return len(classes) if not kind else sum(kind in each for each in classes)


@pytest.fixture(scope="module")
def html() -> str:
    return render_page(sample())


@pytest.fixture(scope="module")
def page(html) -> Page:
    return Page(html)


def with_finding(finding: Finding) -> Page:
    return Page(render_page(Report({}, (), (finding,))))


def test_nothing_is_loaded_from_anywhere(html, page):
    assert page.loads
    assert all(address.startswith("#") for address in page.loads)
    assert "url(" not in html
    assert "@import" not in html
    assert "//" not in re.sub(r"</?[a-z]|<!--", "", html).replace("xmlns", "")
    assert page.count("link") == page.count("img") == page.count("iframe") == 0


def test_a_policy_forbids_what_is_not_there(page):
    policies = [named for _, named in page.tags if named.get("http-equiv")]
    assert policies[0]["content"].startswith("default-src 'none'")


def test_ids_are_unique_and_links_lead_somewhere(page):
    assert len(set(page.ids)) == len(page.ids)
    assert {address.removeprefix("#") for address in page.loads} <= set(page.ids)
    referred = [n["aria-labelledby"] for _, n in page.tags if "aria-labelledby" in n]
    assert set(referred) <= set(page.ids)


def test_headings_descend_by_one(page):
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(page.headings))


def test_tables_have_captions_and_pictures_have_words(page):
    assert page.count("table") == page.count("caption")
    pictures = [named for tag, named in page.tags if tag == "svg"]
    assert len(pictures) == 12
    assert all(named["role"] == "img" and "points" in named["aria-label"] for named in pictures)


def test_everything_that_was_found_is_on_the_page(page):
    report = sample()
    assert page.count("details", "finding") == len(report.findings)
    for finding in report.findings:
        for text in (finding.message, finding.why, finding.derivation, finding.citation):
            assert text in page.text
    for note in report.notes:
        assert note in page.text
    assert "avx2, avx512f, fma" in page.text
    assert "31,416 ulp, bound 7.5 ulp: 4,189 times the bound" in page.text
    assert REPRO in page.text


def test_the_bad_ones_are_open_and_no_others(page):
    findings = [n for tag, n in page.tags if tag == "details" and "finding" in (n["class"] or "")]
    shown = [named["data-verdict"] for named in findings if "open" in named]
    assert sorted(shown) == ["hazard"] * 2 + ["violated"] * 3


def test_real_activations_stand_apart(page):
    assert page.count("section", "real") == 15
    assert "real activation whisper tiny.en encoder 2" in re.sub(r"\s+", " ", page.text)


def test_a_kernel_s_findings_are_all_there_when_its_record_is_not():
    page = with_finding(Finding("torch.compile(x)", "all", "float32", Verdict.SKIPPED, "reason"))
    assert "torch.compile(x)" in page.text
    assert "reason" in page.text


@pytest.mark.parametrize(
    "field", ["kernel", "check", "format", "message", "unit", "repro", "why", "inputs", "citation"]
)
def test_markup_is_escaped(field):
    evil = "<script>alert(1)</script>\"'&amp;<b onclick=x>"
    changed = {"measured": 1.0, field: evil}
    html = render_page(Report({evil: evil}, (), (replace(CANCELLATION, **changed),), notes=(evil,)))
    page = Page(html)
    assert page.count("script") == 1
    assert not [named for _, named in page.tags if "onclick" in named]
    assert "<script>alert" not in html
    assert evil in page.text


def test_markup_in_a_plot_is_escaped():
    evil = '"><script>alert(1)</script>'
    series = Series(evil, evil, evil, evil, evil, (1, 2), (1, 2))
    page = Page(render_page(Report({}, (), (Finding(evil, *"cf", Verdict.HOLDS, "m"),), (series,))))
    assert page.count("script") == 1
    assert page.count("svg") == 1


@given(REPORTS)
def test_any_report_gives_a_page(report):
    Page(render_page(report))


def test_the_same_report_gives_the_same_bytes(html):
    assert render_page(sample()) == html
    script = (
        "import sys, hashlib; from tests.report.sample import sample; "
        "from verify.report import render_page; "
        "sys.stdout.write(hashlib.sha256(render_page(sample()).encode()).hexdigest())"
    )
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root
    )
    assert run.stdout == hashlib.sha256(html.encode()).hexdigest()


# ----------------------------------------------------------------------------- what cannot be shown


def test_a_plot_that_fails_is_a_box_on_the_page():
    good = sample()
    broken = Series("torch.rms_norm", "float32", "planted", "d", "ulp", (1.0,), (1.0, 2.0))
    page = Page(render_page(replace(good, series=(*good.series, broken))))
    assert page.count("div", "broken") == 1
    assert "Could not show the plot “planted”." in page.text
    assert "ValueError: float32 has 1 x and 2 y, expected as many of each" in page.text
    assert page.count("svg") == 12


def test_a_plotter_that_fails_costs_the_plots_alone(monkeypatch):
    def fail(_: object) -> None:
        raise ZeroDivisionError("<planted>")

    monkeypatch.setattr("verify.report.plots.figure", fail)
    page = Page(render_page(sample()))
    assert page.count("div", "broken") == 12
    assert page.count("details", "finding") == len(sample().findings)
    assert "ZeroDivisionError: <planted>" in page.text


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("planted")


@pytest.mark.parametrize(
    "change",
    [
        {"message": Unprintable()},
        {"measured": "large"},
        {"verdict": "fine"},
        {"witness": Witness({"x": ["a"]}, (0,), 1.0, 2.0)},
        {"witness": Witness({"x": [1.0]}, (0,), None, 2.0)},
    ],
    ids=["message", "measured", "verdict", "witness", "got"],
)
def test_a_finding_that_fails_is_a_box_on_the_page(change):
    good = sample()
    findings = (replace(good.findings[-1], **change), *good.findings)
    page = Page(render_page(replace(good, findings=findings)))
    assert page.count("div", "broken") >= 1
    assert CANCELLATION.message in page.text


def test_an_environment_that_fails_is_a_box_on_the_page():
    page = Page(render_page(replace(sample(), environment={"x": Unprintable()})))
    assert "Could not show the environment. RuntimeError: planted" in page.text
    assert page.count("details", "finding") == len(sample().findings)


def test_a_wide_witness_says_how_much_it_leaves_out():
    witness = Witness({"x": [[1.0] * 20] * 30}, (0, 3), 1.0, 2.0)
    page = with_finding(replace(CANCELLATION, witness=witness))
    assert "and 12 more" in page.text
    assert "and 14 more rows" in page.text
    assert page.count("td", "hit") == 1


# ------------------------------------------------------------------------------------- in a browser


def pixels(png: bytes) -> set[bytes]:
    """The colours in a PNG of 8 bits a channel whose rows are not interlaced."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert depth == 8
    assert kind in {2, 6}
    data, place = b"", 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        if png[place + 4 : place + 8] == b"IDAT":
            data += png[place + 8 : place + 8 + length]
        place += 12 + length
    rows, size = zlib.decompress(data), width * {2: 3, 6: 4}[kind] + 1
    assert len(rows) == height * size
    return {rows[i * size : (i + 1) * size] for i in range(height)}


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH")
def test_a_browser_draws_the_page(tmp_path):
    write_page(sample(), tmp_path / "report.html")
    flags = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
        *("--disable-background-networking", f"--user-data-dir={tmp_path / 'profile'}"),
        *("--window-size=800,1200", f"--screenshot={tmp_path / 'page.png'}"),
    ]
    address = (tmp_path / "report.html").as_uri()
    subprocess.run([CHROMIUM, *flags, address], check=True, capture_output=True, timeout=120)
    assert len(pixels((tmp_path / "page.png").read_bytes())) > 100, "the picture is blank"
