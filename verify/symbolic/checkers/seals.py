"""Seals: a hash of each step of a certificate, so that a change is refused with the step named.

A seal covers a step's name, its whole term and the claim around it; the digest covers everything.
A seal does not say who made a certificate, only that nothing in it was changed afterwards: that a
step is true is what the checkers are for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

SCHEMA = 1

_BINARY = ("add", "mul", "div")


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with a seal on each step, and a digest of everything."""
    content = {key: value for key, value in content.items() if key != "digest"}
    hashes = _hashes(content["terms"])
    claims = [dict(claim) | {"seals": _seals(claim, hashes)} for claim in content["claims"]]
    whole: dict[str, Any] = json.loads(json.dumps(dict(content) | {"claims": claims}))
    return whole | {"digest": _hash(whole)}


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return sha256(text.encode()).hexdigest()


def _hashes(rows: Sequence[Sequence[Any]]) -> list[str]:
    """The hash of each row's whole term: its own content and the hashes of its children."""
    hashes: list[str] = []
    for row in rows:
        hashes.append(_hash([row[0], *_children_hashed(row, hashes)]))
    return hashes


def _children_hashed(row: Sequence[Any], hashes: Sequence[str]) -> list[Any]:
    op, rest = row[0], list(row[1:])
    if op in (*_BINARY, "sqrt"):
        return [hashes[k] for k in rest]
    if op in ("sum", "lam"):
        return [rest[0], hashes[rest[1]]]
    if op == "diff":
        return [hashes[rest[0]], *rest[1:]]
    if op == "fun":
        return [*rest[:2], [hashes[k] for k in rest[2]]]
    return rest


def steps_of(claim: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The (name, row) pairs of a claim; those of a *differ* are called left and right."""
    if claim["kind"] == "differ":
        return [("left", claim["left"]), ("right", claim["right"])]
    return [(name, row) for name, row in claim["steps"]]


def _seals(claim: Mapping[str, Any], hashes: Sequence[str]) -> list[str]:
    context = [claim["kind"], claim["name"], claim["free"], claim.get("witness")]
    return [_hash([*context, name, hashes[row]]) for name, row in steps_of(claim)]


def broken_seals(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(claim, step) for each step that is not as it was sealed; ("", "") for the words around."""
    hashes = _hashes(content["terms"])
    broken = []
    for claim in content["claims"]:
        seals, given = _seals(claim, hashes), list(claim.get("seals", []))
        given += [""] * (len(seals) - len(given))
        names = [name for name, _ in steps_of(claim)]
        pairs = zip(names, seals, given, strict=False)
        broken += [(claim["name"], name) for name, seal, old in pairs if seal != old]
    rest = {key: value for key, value in content.items() if key != "digest"}
    if not broken and _hash(rest) != content.get("digest"):
        broken.append(("", ""))
    return broken
