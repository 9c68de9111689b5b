"""LaTeX of terms and claims says what the term says: it is parsed back, and evaluated.

The reader below knows the notation as a human does (a product ends a sum, \\, multiplies, a letter
before a parenthesis is a function) and shares no code with the writer. Values are taken modulo a
prime, with roots and functions replaced by arbitrary ones, so that equal means equal.
"""

from __future__ import annotations

import re
from hashlib import sha256
from itertools import product
from math import prod

import pytest

from verify.symbolic import latex, latex_terms
from verify.symbolic.latex import claim_latex, latex_of, show, theorem_html, written
from verify.symbolic.theorem import UnknownTheoremError, theorem_named, theorem_names
from verify.symbolic.trusted import Claim, OutsideLanguageError, Setting, Term, num

PRIME = 2**61 - 1
THEOREMS = [theorem_named(name) for name in theorem_names()]
CLAIMS = [(theorem, claim) for theorem in THEOREMS for claim in theorem.claims]


def add(a, b):
    return Term.make("add", a, b)


def mul(a, b):
    return Term.make("mul", a, b)


def div(a, b):
    return Term.make("div", a, b)


def sqrt(a):
    return Term.make("sqrt", a)


def sym(name):
    return Term.make("sym", data=name)


def at(name, *indices):
    return Term.make("at", data=(name, indices))


def total(dim, body):
    return Term.make("sum", body, data=dim)


def fun(name, *args, at=()):
    return Term.make("fun", *args, data=(name, at))


def minus(a, b):
    return add(a, mul(num(-1), b))


A, B, C, X, N = sym("a"), sym("b"), sym("c"), at("x", 0), Term.make("dim", data="n")
SUM = total("n", X)
MEAN = div(SUM, N)

EXPECTED = [
    (minus(A, B), (), "a - b"),
    (minus(A, add(B, C)), (), "a - (b + c)"),
    (mul(A, mul(num(-1), B)), (), r"a \cdot (-b)"),
    (mul(add(A, B), num(2)), (), r"(a + b) \cdot 2"),
    (mul(num(2), mul(A, A)), (), "2 a^{2}"),
    (mul(mul(A, B), mul(A, B)), (), r"(a\,b)^{2}"),
    (div(num(1), sqrt(add(A, sym("eps")))), (), r"\frac{1}{\sqrt{a + \varepsilon}}"),
    (mul(num("1/2"), sqrt(sqrt(A))), (), r"\tfrac{1}{2} \sqrt{\sqrt{a}}"),
    (MEAN, (), r"\frac{1}{n} \sum_{i=1}^{n} x_{i}"),
    (mul(div(num(1), N), SUM), (), r"\frac{1}{n} \cdot \sum_{i=1}^{n} x_{i}"),
    (mul(SUM, X), ("n",), r"\left(\sum_{j=1}^{n} x_{j}\right)\,x_{i}"),
    (mul(X, SUM), ("n",), r"x_{i}\,\sum_{j=1}^{n} x_{j}"),
    (mul(SUM, SUM), (), r"\left(\sum_{i=1}^{n} x_{i}\right)^{2}"),
    (total("n", add(X, A)), (), r"\sum_{i=1}^{n} (x_{i} + a)"),
    (add(SUM, A), (), r"\sum_{i=1}^{n} x_{i} + a"),
    (total("m", at("W", 1, 0)), ("n",), r"\sum_{k=1}^{m} W_{ik}"),
    (mul(at("weight", 0), at("bias_last", 0)), ("n",), r"\gamma_{i}\,\beta_{\mathrm{last},i}"),
    (mul(at("dy", 0), at("dy", 0)), ("n",), r"(\mathrm{d}y_{i})^{2}"),
    (mul(sym("beta1"), sym("x_2")), (), r"\beta_{1}\,x_{2}"),
    (mul(sym("gain"), add(A, B)), (), r"\mathrm{gain} \cdot (a + b)"),
    (add(sym("i"), SUM), (), r"i + \sum_{j=1}^{n} x_{j}"),
    (fun("tanh", A), (), r"\tanh(a)"),
    (fun("next_step", A), (), r"\operatorname{next}_{\mathrm{step}}(a)"),
    (fun("f'", div(A, B)), (), r"f'\left(\frac{a}{b}\right)"),
    (
        fun("f", Term.make("lam", at("x", 1, 0), data=("tokens", "n")), at=(1, 0)),
        ("tokens", "m"),
        r"f((x_{si})_{si})_{tk}",
    ),
    (
        Term.make("diff", mul(X, X), data=("x", "h")),
        ("n",),
        r"\mathrm{D}_{x;h}\left[x_{i}^{2}\right]",
    ),
]


@pytest.mark.parametrize(("term", "free", "expected"), EXPECTED, ids=[e[2] for e in EXPECTED])
def test_a_term_is_written_as_in_a_paper(term, free, expected):
    assert latex_of(term, free) == expected


def test_an_index_without_a_binder_is_refused_in_one_line():
    with pytest.raises(OutsideLanguageError, match=r"index 0 under 0 binders: expected .*`free`"):
        latex_of(X)


def test_a_clash_of_names_is_resolved():
    """weight is gamma, unless there is a gamma too."""
    assert latex_of(add(sym("gamma"), sym("weight"))) == r"\gamma + \mathrm{weight}"
    assert latex_of(add(sym("f"), fun("f", A))) == r"\mathrm{f} + f(a)"
    assert latex_of(add(sym("n"), N)) == r"\mathrm{n} + n"


# --- reading back ----------------------------------------------------------------------------

NAME = r"(\\mathrm\{d\}[a-z]|\\(?:math(?:rm|sf|tt)|operatorname)\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z])"
TOKEN = re.compile(
    rf"\\(?:frac|tfrac|sqrt|sum|left|right|cdot)(?![A-Za-z])|\\,|\\mathrm\{{D\}}|{NAME}|\d+|."
)


def hashed(*parts):
    return int.from_bytes(sha256(repr(parts).encode()).digest()[:7], "big")


def inverse(value):
    return pow(value, PRIME - 2, PRIME)


class Reader:
    """Reads a formula as a function of the values of its letters."""

    def __init__(self, text, where, sizes):
        tokens = [m[0] for m in TOKEN.finditer(text) if m[0] not in (" ", r"\left", r"\right")]
        self.tokens, self.where, self.sizes = (
            ["*" if t in (r"\,", r"\cdot") else t for t in tokens],
            where,
            sizes,
        )
        self.meaning = self.sum()
        assert not self.tokens, f"left over: {self.tokens}"

    def peek(self):
        return self.tokens[0] if self.tokens else ""

    def take(self, *expected):
        sign = self.tokens.pop(0)
        assert not expected or sign in expected, f"{sign} for {expected}, then {self.tokens}"
        return sign

    def group(self):
        """What stands in braces, as text."""
        self.take("{")
        text, depth = "", 1
        while depth:
            sign = self.take()
            depth += {"{": 1, "}": -1}.get(sign, 0)
            text += sign if depth else ""
        return text

    def braced(self, rule):
        self.take("{")
        value = rule()
        self.take("}")
        return value

    def sum(self):
        signs, parts = [1], []
        if self.peek() == "-":
            signs = [-1] if self.take() else []
        parts.append(self.product())
        while self.peek() in ("+", "-"):
            signs.append(1 if self.take() == "+" else -1)
            parts.append(self.product())
        return lambda env: sum(s * p(env) for s, p in zip(signs, parts, strict=True)) % PRIME

    def product(self):
        parts = [self.power()]
        while self.peek() not in ("", "+", "-", ")", "}", ",", "]"):
            if self.peek() == "*":
                self.take()
            parts.append(self.power())
        return lambda env: prod(p(env) for p in parts) % PRIME

    def power(self):
        base = self.atom()
        if self.peek() != "^":
            return base
        self.take()
        exponent = int(self.group())
        return lambda env: pow(base(env), exponent, PRIME)

    def atom(self):
        sign = self.take()
        if sign.isdigit():
            return lambda env: int(sign)
        if sign in (r"\frac", r"\tfrac"):
            above, below = self.braced(self.sum), self.braced(self.sum)
            return lambda env: above(env) * inverse(below(env)) % PRIME
        if sign == r"\sqrt":
            inside = self.braced(self.sum)
            return lambda env: hashed("sqrt", inside(env))
        if sign == r"\sum":
            return self.total()
        if sign == "(":
            return self.array()
        if sign == r"\mathrm{D}":
            self.take("_")
            marks, inside = self.group().split(";"), (self.take("["), self.sum(), self.take("]"))[1]
            return lambda env: hashed("diff", *marks, inside(env))
        return self.named(sign)

    def total(self):
        self.take("_")
        letter = self.group().removesuffix("=1")
        self.take("^")
        size, body = self.sizes[self.group()], self.product()
        return lambda env: sum(body(env | {letter: k}) for k in range(size)) % PRIME

    def array(self):
        body = self.sum()
        self.take(")")
        if self.peek() != "_":
            return body
        self.take()
        letters = split_letters(self.group())

        def value(env):
            ranges = [range(self.sizes[self.sizes["letters"][c[0]]]) for c in letters]
            places = product(*ranges)
            return hashed("array", [body(env | dict(zip(letters, k, strict=True))) for k in places])

        return value

    def named(self, head):
        assert re.fullmatch(NAME, head), f"{head}, then {self.tokens}"
        parts = (self.take("_"), self.group())[1].split(",") if self.peek() == "_" else []
        last = parts[-1] if parts else ""
        letters = split_letters(parts.pop()) if re.fullmatch(r"([a-z]'*)+", last) else []
        name = ",".join((head, *parts))
        while self.peek() == "'":
            name += self.take()
        if self.peek() == "(":
            assert not letters, f"a function {name} with indices {letters}"
            return self.applied(name)
        if name in self.sizes:
            return lambda env: self.sizes[name]
        if name in self.where:
            own, formula = self.where[name]
            return lambda env: Reader(formula, self.where, self.sizes).meaning(
                {a: env[b] for a, b in zip(own, letters, strict=True)}
            )
        return lambda env: hashed(name, [env[c] for c in letters])

    def applied(self, head):
        self.take("(")
        arguments = [self.sum()]
        while self.peek() == ",":
            self.take()
            arguments.append(self.sum())
        self.take(")")
        letters = split_letters((self.take("_"), self.group())[1]) if self.peek() == "_" else []
        return lambda env: hashed(
            "fun", head, [a(env) for a in arguments], [env[c] for c in letters]
        )


def split_letters(text):
    return re.findall(r"[a-z]'*", text)


def value_of(t, names, sizes, index=()):
    """The value that `Reader` should find."""

    def name(kind, key):
        head, below = names.of[kind, key]
        return ",".join((head, *below))

    def inner(a, *more):
        return value_of(a, names, sizes, (*index, *more))

    places = [index[-1 - k] for k in (t.data[1] if t.op in ("at", "fun") else ())]
    if t.op == "num":
        return t.data.numerator * inverse(t.data.denominator) % PRIME
    if t.op == "dim":
        return sizes[name("dim", t.data)]
    if t.op in ("sym", "at"):
        return hashed(name("sym", t.data if t.op == "sym" else t.data[0]), places)
    if t.op == "sum":
        size = sizes[name("dim", t.data)]
        return sum(inner(t.args[0], k) for k in range(size)) % PRIME
    if t.op == "lam":
        ranges = [range(sizes[name("dim", dim)]) for dim in t.data]
        return hashed("array", [inner(t.args[0], *k) for k in product(*ranges)])
    args = [inner(a) for a in t.args]
    if t.op == "fun":
        plain = t.data[0].rstrip("'")
        return hashed("fun", name("fun", plain) + t.data[0][len(plain) :], args, places)
    if t.op == "diff":
        return hashed("diff", *(name("sym", s) for s in t.data), args[0])
    if t.op == "sqrt":
        return hashed("sqrt", args[0])
    a, b = args
    return {"add": a + b, "mul": a * b, "div": a * inverse(b)}[t.op] % PRIME


def misread(claim, setting):
    """The steps that do not say what their terms say."""
    names = latex_terms.Names.made([t for _, t in claim.steps], setting)
    sizes = {
        name.with_indices(): 2 + n % 2
        for n, (key, name) in enumerate(names.of.items())
        if key[0] == "dim"
    }
    sizes["letters"] = {
        c: names.of["dim", dim].with_indices() for dim, cs in names.letters.items() for c in cs
    }
    text = written(claim, setting)
    where = {}
    for name, formula in text.where:
        (head, below), letters = re.fullmatch(r"([^_]+)(?:_\{(.*)\})?", name).groups(), []
        parts = (below or "").split(",") if below else []
        if parts and not parts[-1].isdigit():
            letters = split_letters(parts.pop())
        where[",".join((head, *parts))] = letters, formula
    index = [n % 2 for n in range(len(claim.free))]
    letters = [c for _, c in latex_terms.Writer(names).under((), claim.free)]
    env, wrong = dict(zip(letters, index, strict=True)), []
    for (step, t), (_, formula, _) in zip(claim.steps, text.steps, strict=False):
        try:
            read = Reader(formula, where, sizes).meaning(env)
        except (AssertionError, KeyError, IndexError, ValueError) as error:
            read = repr(error)
        if read != value_of(t, names, sizes, tuple(index)):
            wrong.append((step, formula, read))
    return wrong


@pytest.mark.parametrize("theorem", THEOREMS, ids=theorem_names())
def test_what_is_written_is_what_is_proved(theorem):
    assert [misread(c, theorem.setting) for c in theorem.claims] == [[] for _ in theorem.claims]


@pytest.fixture
def no_parentheses(monkeypatch):
    monkeypatch.setattr(latex_terms, "_parenthesised", lambda text: text)


def some_claim_is_misread():
    return any(misread(claim, theorem.setting) for theorem, claim in CLAIMS)


def test_lost_parentheses_are_read_otherwise(no_parentheses):
    assert some_claim_is_misread()


def test_a_fraction_upside_down_is_read_otherwise(monkeypatch):
    right = latex_terms.Writer.quotient
    monkeypatch.setattr(
        latex_terms.Writer,
        "quotient",
        lambda self, t, scope: right(self, div(*t.args[::-1]), scope),
    )
    assert some_claim_is_misread()


def test_a_letter_for_another_index_is_read_otherwise(monkeypatch):
    right = latex_terms._letters
    monkeypatch.setattr(latex_terms, "_letters", lambda indices, scope: right(indices[::-1], scope))
    assert some_claim_is_misread()


def test_a_part_named_without_its_indices_is_read_otherwise(monkeypatch):
    right = latex_terms.Writer.name

    def bare(self, t, scope):
        name = right(self, t, scope)
        return name and re.sub(r",?[a-z]+(?=}$)", "", name)

    monkeypatch.setattr(latex_terms.Writer, "name", bare)
    assert some_claim_is_misread()


# --- different terms are written differently ---------------------------------------------------


def canonical(t, scope=()):
    """The term up to associativity, and up to the sign of a number behind -1."""
    if t.op == "add":
        return ("add", *chain_of(t, "add", scope))
    if t.op == "mul":
        return ("mul", *signed(chain_of(t, "mul", scope)))
    dims = {"sum": lambda: (t.data,), "lam": lambda: t.data}.get(t.op, tuple)()
    inner = scope
    for dim in dims:
        inner = (*inner, (dim, sum(dim == outer for outer, _ in inner)))
    data = t.data
    if t.op in ("at", "fun"):
        data = (data[0], tuple(scope[-1 - k] for k in data[1]))
    return (t.op, data, *(canonical(a, inner) for a in t.args))


def chain_of(t, op, scope):
    if t.op != op:
        return [canonical(t, scope)]
    return [part for a in t.args for part in chain_of(a, op, scope)]


def signed(factors):
    done = []
    for factor in reversed(factors):
        if factor == ("num", -1) and done and done[0][0] == "num" and done[0][1] > 0:
            done[0] = ("num", -done[0][1])
        else:
            done.insert(0, factor)
    return done if len(done) > 1 else ["number", *done]


def clashes(pairs, writer):
    """Pairs of different terms that are written alike."""
    first, found = {}, []
    for t, scope in pairs:
        text, meaning = (
            writer.write(t, scope),
            canonical(
                t,
                tuple(
                    (dim, [d for d, _ in scope[:n]].count(dim)) for n, (dim, _) in enumerate(scope)
                ),
            ),
        )
        meaning = meaning[2] if meaning[:2] == ("mul", "number") else meaning
        if first.setdefault(text, meaning) != meaning:
            found.append((text, meaning, first[text]))
    return found


def parts_in_scope(t, scope, writer, seen):
    if (t, scope) not in seen:
        seen.add((t, scope))
        dims = {"sum": lambda: (t.data,), "lam": lambda: t.data}.get(t.op, tuple)()
        for a in t.args:
            parts_in_scope(a, writer.under(scope, dims), writer, seen)
    return seen


def clashes_in(claim, setting):
    writer = latex_terms.Writer(latex_terms.Names.made([t for _, t in claim.steps], setting))
    seen = set()
    for _, t in claim.steps:
        parts_in_scope(t, writer.under((), claim.free), writer, seen)
    return clashes(seen, writer)


@pytest.mark.parametrize("theorem", THEOREMS, ids=theorem_names())
def test_two_terms_of_a_claim_are_written_differently(theorem):
    assert [clashes_in(c, theorem.setting) for c in theorem.claims] == [[] for _ in theorem.claims]


def small_terms():
    """All terms of up to three operations, two of them side by side, over four leaves."""
    leaves = [A, X, num(2), num(-1)]
    one = [*leaves, *(op(a, b) for op in (add, mul, div) for a in leaves for b in leaves)]
    one += [op(a) for a in leaves for op in (sqrt, lambda a: total("n", a), lambda a: fun("f", a))]
    two = [op(a, b) for op in (add, mul, div) for a in one for b in one]
    return [*two, *(op(a) for a in two[::7] for op in (sqrt, lambda a: total("n", a)))]


def clashes_of_small_terms():
    terms = small_terms()
    writer = latex_terms.Writer(latex_terms.Names.made(terms, Setting({"n": 1}, {"x": ("n",)})))
    return clashes([(t, writer.under((), ("n",))) for t in terms], writer)


def test_small_terms_are_written_differently():
    assert clashes_of_small_terms() == []


def test_lost_parentheses_make_small_terms_alike(no_parentheses):
    assert len(clashes_of_small_terms()) > 100
    assert any(clashes_in(claim, theorem.setting) for theorem, claim in CLAIMS)


# --- claims and theorems -----------------------------------------------------------------------


def formulas(claim, setting):
    text = written(claim, setting)
    return [f for _, f, _ in text.steps] + [f for _, f in text.where]


def unbalanced(text):
    """What is opened and not closed, or the other way round."""
    open_, pairs = [], {"}": "{", ")": "(", "]": "[", r"\right)": r"\left(", r"\right]": r"\left["}
    for sign in re.findall(r"\\(?:left|right)[(\[)\]]|\\.|[{}()\[\]]", text):
        if sign in pairs.values():
            open_.append(sign)
        elif sign in pairs and (not open_ or open_.pop() != pairs[sign]):
            return sign
    return open_


def plain_words(text):
    """Words in italics: a name of Python that was not written as one letter."""
    upright = r"\\(?:mathrm|mathsf|operatorname|text)\{[^{}]*\}|\\[A-Za-z]+|[a-z]'*(?=[^{}]*\})"
    return re.findall(r"[A-Za-z]{2,}", re.sub(upright, " ", text))


def names_left(texts, names):
    """Names of more than one letter that stand in italics, below the line too."""
    upright = r"\\(?:mathrm|mathsf|operatorname)\{[^{}]*\}|\\[A-Za-z]+"
    words = set(re.findall(r"[A-Za-z]+", re.sub(upright, " ", " ".join(texts))))
    return words & {name for name in names if len(name) > 1}


@pytest.mark.parametrize("theorem", THEOREMS, ids=theorem_names())
def test_braces_are_balanced_and_no_name_of_python_is_left(theorem):
    for claim in theorem.claims:
        for formula in formulas(claim, theorem.setting):
            assert not unbalanced(formula)
            assert not plain_words(formula), formula
        block = claim_latex(claim, theorem.setting)
        assert block.count("{") == block.count("}")
        assert not re.search(r"[_^&%#$<>|~\\]", "".join(re.findall(r"\\text\{([^{}]*)\}", block)))
        assert not re.search(r"(?<!\\)[%#$~]|[^ -~\n]", block)
        names = {kind_name[1] for _, t in claim.steps for kind_name in latex_terms._uses(t)}
        assert not names_left(formulas(claim, theorem.setting), names)


def test_planted_names_and_braces_are_found():
    assert plain_words(r"weight_{i} + x_{ij}\,\mathrm{gain}") == ["weight"]
    assert names_left([r"x_{eps} + \mathrm{gain}"], {"x", "gain", "eps"}) == {"eps"}
    assert unbalanced(r"\frac{a}{b") == ["{"]
    assert unbalanced(r"\left(a)") == ")"


def test_no_step_is_too_long_to_read():
    longest = max(len(f) for theorem, claim in CLAIMS for f in formulas(claim, theorem.setting))
    assert longest <= 1500


def test_without_names_for_parts_a_step_is_too_long(monkeypatch):
    monkeypatch.setattr(latex, "_parts_to_name", lambda roots: [])
    assert max(len(f) for theorem, claim in CLAIMS for f in formulas(claim, theorem.setting)) > 1500


def test_a_tower_of_shared_parts_stays_short():
    """In full it has 3^40 leaves."""
    t = A
    for _ in range(40):
        t = add(mul(t, t), t)
    claim = Claim("equal", "tower", (), (("tower", t), ("again", t)))
    text = formulas(claim, Setting({}, {"a": ()}))
    assert max(map(len, text)) <= 1500
    assert len(text) < 60


def test_layer_norm_is_written_with_its_mean_and_rstd():
    theorem = theorem_named("TIED_HEAD")
    (claim,) = (c for c in theorem.claims if c.name == "what the tied head loses")
    text = written(claim, theorem.setting)
    assert dict(text.where)["r"] == (
        r"\frac{1}{\sqrt{\frac{1}{n} \sum_{i=1}^{n} (x_{i} - \mu_{1})^{2} + \varepsilon}}"
    )
    assert dict(text.where)[r"\mu_{2,v}"] == r"\frac{1}{n} \sum_{i=1}^{n} E_{vi}"
    assert text.scope == r"\text{for all } v \leq \mathrm{vocabulary}"


def test_a_claim_is_an_aligned_block_with_named_steps():
    steps = (("|z|^2", mul(A, A)), ("<a, a>", mul(A, A)))
    setting = Setting({}, {"a": ()})
    block = claim_latex(Claim("at_least", "square", (), steps), setting)
    assert block.split("\n")[2:5] == [
        r"& a^{2} && \vert \text{z}\vert {}^{\text{2}} \\",
        r"={}& a^{2} && \langle \text{a, a}\rangle  \\",
        r"\geq{}& 0",
    ]
    witness = {"dims": {}, "values": {"a": "-1/2"}, "index": ()}
    block = claim_latex(
        Claim("differ", "no", (), (("left", A), ("right", num(0))), witness), setting
    )
    assert r"\ne{}& 0" in block
    assert r"\text{at } a = -\tfrac{1}{2}" in block


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("E_v y", r"\text{E}_{\text{v}}\text{ y}"),
        ("Q^T x - eps", r"\text{Q}{}^{\top}\text{ x - }\varepsilon "),
        ("a^_i < 2 & WHOLE_X", r"\text{a}\wedge \_\text{i }<\text{ 2 }\&\text{ WHOLE}\_\text{X}"),
    ],
)
def test_the_name_of_a_step_is_text_with_little_markup(name, expected):
    assert latex._label(name) == expected


def test_a_named_part_is_not_held_constant_by_a_derivative():
    """The name r stands in D[...], and depends on what D is taken by."""
    square = div(total("n", mul(X, X)), N)
    row = div(num(1), sqrt(add(square, sym("eps"))))
    norm = total("n", mul(mul(row, at("y", 0)), mul(add(X, A), at("z", 0))))
    t = Term.make("diff", mul(norm, add(norm, A)), data=("x", "h"))
    shapes = {"x": ("n",), "h": ("n",), "y": ("n",), "z": ("n",), "eps": (), "a": ()}
    claim = Claim("equal", "D", (), (("one", t), ("other", add(t, mul(row, add(row, row))))))
    block = claim_latex(claim, Setting({"n": 1}, shapes))
    assert r"\text{where, differentiated with the rest,}" in block
    assert not misread(claim, Setting({"n": 1}, shapes))


def test_a_theorem_is_shown_in_a_notebook():
    shown = show("layer_norm_is_rms_norm_of_centred")
    markdown = shown._repr_markdown_()
    assert markdown.count("$$") == 2 + 2 * len(shown.theorem.claims)
    assert markdown.startswith(r"**LAYER\_NORM\_IS\_RMS\_NORM\_OF\_CENTRED.**")
    for part in (shown.theorem.statement, "<details>", "</details>", r"\varepsilon > 0"):
        assert part in markdown
    assert shown.theorem.statement in shown._repr_latex_()
    with pytest.raises(UnknownTheoremError):
        show("no such theorem")


def test_words_do_not_become_markup():
    theorem = theorem_named("COMPRESSION_CONDITION_NUMBER")
    page = theorem_html(theorem)
    assert page.count("<details>") == page.count("</details>") == 1
    assert "&amp;" in page
    assert not re.search(r"&(?!amp;|lt;|gt;|quot;|#x27;)", page)


def test_the_longest_formulas_are_parsed_by_another_reader_of_latex():
    """Matplotlib knows no \\tfrac and no alignment; what stands in the cells is parsed."""
    reason = "matplotlib is not installed, and is no dependency"
    parser = pytest.importorskip("matplotlib.mathtext", reason=reason).MathTextParser("path")
    for theorem in THEOREMS:
        longest = max((f for c in theorem.claims for f in formulas(c, theorem.setting)), key=len)
        labels = [latex._label(name) for name, _ in theorem.claims[0].steps]
        for text in (longest, latex.setting_latex(theorem.setting), *labels):
            parser.parse(f"${text.replace('tfrac', 'frac')}$")
    with pytest.raises(ValueError, match="Expected"):
        parser.parse(r"$\frac{a}{$")
