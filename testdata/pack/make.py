"""Writes tokens.json, bpe.model and unigram.model: what tiktoken and sentencepiece make of some texts.

    npm pack js-tiktoken && tar xzf js-tiktoken-*.tgz
    python testdata/pack/make.py package/dist/ranks

needs tiktoken and sentencepiece. The vocabularies come out of js-tiktoken, since
tiktoken itself fetches them when they are used.
"""

import base64
import io
import json
import pathlib
import random
import sys

import sentencepiece
import tiktoken

HERE = pathlib.Path(__file__).resolve().parent

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  leading and   many    blanks  ",
    "It's they'RE we'll I'D 'S'T",
    "1234567 12 3.14159 ½ ² ٣٤",
    "line\nline\r\n\n  indented\n\n\n\tend\n",
    "Ünïcödé naïve façade ﬁne Ａｂｃ １２",
    "日本語のテキスト。漢字かな交じり文",
    "Привет, мир! Ещё раз",
    "مرحبا بالعالم",
    "🙂👩‍👩‍👧‍👦🇩🇪 emoji",
    "x = {'a': [1, 2], 'b': None}  # comment //// ---- ====",
    "<|endoftext|> is text here, <s> and </s> too",
    "camelCaseHTTPServer snake_case SCREAMING_CASE",
    "a\u00a0b\u2003c\u200bd\u0085e",
    "é decomposed e\u0301 and \u1100\u1161",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "The quick brown fox jumps over the lazy dog. " * 3,
    "<sep>one<sep> two",
]


def gpt(ranks, name):
    text = (ranks / f"{name}.js").read_text()
    data = json.loads(text[text.index("{") : text.rindex("}") + 1])
    table = {}
    for line in data["bpe_ranks"].splitlines():
        _, offset, *tokens = line.split(" ")
        table.update({base64.b64decode(t): int(offset) + i for i, t in enumerate(tokens)})
    return tiktoken.Encoding(name, pat_str=data["pat_str"], mergeable_ranks=table, special_tokens=data["special_tokens"])


def corpus():
    rng = random.Random(0)
    words = " ".join(t for t in TEXTS if "日" not in t).split()
    return [" ".join(rng.choices(words, k=12)) for _ in range(400)] + TEXTS[2:17]


def model(name, kind, **more):
    rules = HERE / "rules.tsv"  # ligatures and wide letters, as code points
    rules.write_text("FB01\t66 69\nFF21\t41\nFF11\t31\n65 301\tE9\n2003\t20\n")
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=out, model_type=kind, hard_vocab_limit=False, minloglevel=2,
        user_defined_symbols=["<sep>"], normalization_rule_tsv=str(rules), **more,
    )
    rules.unlink()
    (HERE / f"{name}.model").write_bytes(out.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


def main():
    ranks = pathlib.Path(sys.argv[1])
    gold = {"texts": TEXTS}
    for name in ("gpt2", "cl100k_base", "o200k_base"):
        e = gpt(ranks, name)
        gold[name] = [e.encode_ordinary(t) for t in TEXTS]
    for name, kind, more in (
        ("bpe", "bpe", {"vocab_size": 500, "byte_fallback": True}),
        ("unigram", "unigram", {"vocab_size": 400, "treat_whitespace_as_suffix": False}),
        ("suffix", "unigram", {"vocab_size": 200, "treat_whitespace_as_suffix": True, "remove_extra_whitespaces": False}),
    ):
        m = model(name, kind, **more)
        gold[name] = [m.encode(t) for t in TEXTS]
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v, ensure_ascii=True)}" for k, v in gold.items())
    (HERE / "tokens.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
