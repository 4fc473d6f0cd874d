"""`stoker pack --tokenize` gives the tokens that tiktoken gives. tiktoken fetches its vocabularies when they are
used, so here it has the tables of stoker, which a Go test holds to the checksums that tiktoken publishes."""

from __future__ import annotations

import base64
import json
import random
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forms import ALL, mostly
from needs import needs

import stoker

TABLES = Path(__file__).resolve().parents[2] / "internal" / "tool" / "pack" / "token" / "tables"

# As tiktoken_ext.openai_public has them.
GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
CL100K = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"""
    r"""|\s+(?!\S)|\s"""
)
O200K = "|".join(
    [
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ]
)
VOCABULARIES = {"gpt2": (GPT2, 50256), "cl100k_base": (CL100K, 100257), "o200k_base": (O200K, 199999)}


def table(name: str) -> dict[bytes, int]:
    """The tokens and their ranks: 256 of one byte, then six rows of bytes, of which every column is the ranks of the
    two tokens that one is joined of."""
    pyarrow = needs("pyarrow")
    raw = pyarrow.CompressedInputStream(pyarrow.OSFile(str(TABLES / f"{name}.zst")), "zstd").read()
    tokens = [bytes([one]) for one in raw[:256]]
    n, left_over = divmod(len(raw) - 256, 6)
    assert left_over == 0
    rows = [raw[256 + n * row : 256 + n * (row + 1)] for row in range(6)]
    for column in zip(*rows, strict=True):
        left, right = int.from_bytes(bytes(column[:3]), "big"), int.from_bytes(bytes(column[3:]), "big")
        tokens.append(tokens[left] + tokens[right])
    ranks = {token: rank for rank, token in enumerate(tokens)}
    assert len(ranks) == len(tokens)
    return ranks


def texts(n: int) -> list[str]:
    """Random texts of what the patterns tell apart. Characters are of Unicode 3.2, so that all sides know them."""
    rng = random.Random(16)
    old = unicodedata.ucd_3_2_0
    no = ("Cn", "Cs", "Co")  # nor U+FEFF, which stoker removes from the beginning of a text
    known = [chr(c) for c in range(0x80, 0x30000) if c != 0xFEFF and old.category(chr(c)) not in no]
    kinds: dict[str, list[str]] = {}
    for c in known:
        kinds.setdefault(unicodedata.category(c), []).append(c)
    words = (
        "the token Of HTTPServer naïve don't WE'LL it's I'D they're 'S ' '' 'l 'r 'x snake_case x=[1] //// ---".split()
    )
    blanks = [*" \t\n\r\v\f\u0085\u00a0\u2003\u2028\u3000", "  ", "\n\n", "\r\n", "\n   ", "   \n "]
    draws: list[Callable[[], str]] = [
        lambda: rng.choice(words),
        lambda: "".join(rng.choices(blanks, k=rng.choice((1, 1, 2, 5)))),
        lambda: " ",
        lambda: "".join(rng.choices("0123456789", k=rng.randint(1, 9))),
        lambda: rng.choice(kinds[rng.choice(list(kinds))]),
        lambda: "".join(rng.choice(kinds[k]) for k in rng.choices(("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc"), k=4)),
        lambda: "".join(rng.choices(known, k=3)),
        lambda: "".join(chr(rng.randrange(0x4E00, 0x9FA6)) for _ in range(rng.randint(1, 6))),
        lambda: rng.choice(("🙂", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "e\u0301", "\u0301A", "ǅ", "ʰ", "½²٣")),
        lambda: "'" + rng.choice(("s", "T", "re", "VE", "m", "lL", "D", "\u017f", "lx", "")),
        lambda: "".join(chr(rng.randrange(0x21, 0x7F)) for _ in range(rng.randint(1, 8))),
    ]
    return ["".join(rng.choice(draws)() for _ in range(rng.randint(1, 12))) for _ in range(n)]


def packed(tmp_path: Path, cases: list[str], vocabulary: str, end: int) -> list[list[int]]:
    """The tokens of every text, by stoker."""
    source = tmp_path / "texts.jsonl"
    source.write_text("".join(json.dumps({"text": t}) + "\n" for t in cases))
    stoker.pack(source, tmp_path / "out", tokenize=vocabulary)
    width = np.uint16 if end < 1 << 16 else np.uint32
    flat = np.concatenate([np.fromfile(f, width) for f in sorted((tmp_path / "out").glob("*.bin"))])
    ends = np.flatnonzero(flat == end)
    return [list(map(int, d[:-1])) for d in np.split(flat, ends + 1)[:-1]]


@pytest.mark.parametrize("name", mostly(VOCABULARIES, "gpt2", "cl100k_base"))
def test_random_texts(name: str, tmp_path: Path) -> None:
    tiktoken = needs("tiktoken")
    pattern, end = VOCABULARIES[name]
    encoding: Any = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=table(name), special_tokens={})
    cases = [
        *texts(10_000 if ALL else 2000),
        "a" * 5000,
        "ab" * 3000,
        " " * 700 + "x",
        "\n" * 300,
        "\u017f" * 200,
        "日本" * 500,
    ]
    got = packed(tmp_path, cases, name, end)
    assert len(got) == len(cases)
    wrong = [(t, g, w) for t, g in zip(cases, got, strict=True) if g != (w := encoding.encode_ordinary(t))]
    assert not wrong, f"{len(wrong)} of {len(cases)} differ, such as {wrong[:3]}"


def test_file_of_tiktoken(tmp_path: Path) -> None:
    """A vocabulary of the user's own, of 600 tokens, with gpt2's pattern."""
    tiktoken = needs("tiktoken")
    ranks = dict(list(table("gpt2").items())[:600])
    file = tmp_path / "gpt2-small.tiktoken"
    file.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % r for t, r in ranks.items()))
    encoding: Any = tiktoken.Encoding("small", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={})
    cases = texts(500)
    got = packed(tmp_path, cases, str(file), 600)
    assert got == [encoding.encode_ordinary(t) for t in cases]
