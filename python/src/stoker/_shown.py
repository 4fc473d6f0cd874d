"""Names as they may be shown and stored: without the signatures and tokens in the queries of URLs, and without users
and passwords before hosts. ``internal/base/errs/shown.go`` says why and how; ``testdata/shown.json`` tests both.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote_plus

_PARAMETER = re.compile(r"([?&;#]|\\u0026)([A-Za-z0-9_.%~-]+)=([^&;#\s\"'<>\\]*)")
# The beginning of a URL that has lost a slash, as a pathlib.Path writes it. While it is cleaned, _MARK is where it was.
_LOST = re.compile(r"(?i)(^|[^A-Za-z0-9+.-])(s3|gs|gcs|az|azure|abfss?|https?|hf):/([^/])")
_MARK = "\0"
_END = re.compile(r"[/?# \t\r\n\"'<>]")
_SPACE = re.compile(r"[ \t\r\n\"'<>]")
_LINE = re.compile(r"[\t\r\n\"'<>]")
_PARTS = (
    "token",
    "signature",
    "password",
    "secret",
    "credential",
    "apikey",
    "accesskey",
    "accountkey",
    "subscriptionkey",
)
_NAMES = frozenset("sig jwt auth authorization passwd pwd hdnts hdnea googleaccessid keypairid".split())
_BESIDE_SIG = frozenset("sv ss srt sr se st sp spr sip si sdd skoid sktid skt ske sks skv saoid suoid scid ses".split())
_BESIDE_SIGNATURE = frozenset(("expires", "policy", "ossexpires"))


def shown(name: str) -> str:
    """A name as it may be shown and stored: without signatures and tokens in its query, without user and password."""
    lost = _LOST.search(name)
    is_lost = lost is not None and lost[1] in ("", "/") and ":/" not in name[: lost.start(2)]
    return shown_text(name) if is_lost or re.match(r"@?[A-Za-z][A-Za-z0-9+.-]*://", name) else name


def shown_text(text: str) -> str:
    """A text with names in it, without their secrets."""
    marked = _LOST.sub(rf"\1\2{_MARK}://\3", text) if ":/" in text else text
    if "://" not in marked and "AccountKey=" not in text:
        return text
    return _without_queries(_without_users(marked)).replace(f"{_MARK}://", ":/")


def shown_all(names: Any) -> Any:
    """The same for one name, or each of a list."""
    return shown(names) if isinstance(names, str) else [shown(name) for name in names]


def plain(name: str) -> str:
    """A word in small letters and digits."""
    return re.sub("[^a-z0-9]", "", re.sub("[A-Z]", lambda letter: letter.group().lower(), name))


def _without_users(text: str) -> str:
    out = ""
    while True:
        before, slashes, text = text.partition("://")
        out += before + slashes
        if not slashes:
            return out
        scheme = before.lower().removesuffix(_MARK)
        end = _END.search(text)
        host = text[: end.start()] if end else text
        user, at, _ = host.rpartition("@")
        if at:
            owner = scheme.endswith("github")
            if ":" in user and not owner or scheme.endswith(("http", "https")):
                text = text[len(user) + 1 :]
            continue
        _, colon, port = host.partition(":")
        if not colon or not port.strip("0123456789") or host.startswith("["):
            continue
        space = _SPACE.search(text)  # a password may have a slash that should have been escaped
        word = text[: space.start()] if space else text
        if "@" in word:
            text = text[word.rindex("@") + 1 :]
            continue
        line = _LINE.search(text)  # or a space
        word = text[: line.start()] if line else text
        if "@" in word:
            text = text[word.index("@") + 1 :]


def _without_queries(text: str) -> str:
    found = list(_PARAMETER.finditer(text))
    out, at = "", 0
    while found:
        n = 1  # parameters that follow one another: one query
        while n < len(found) and found[n].start() == found[n - 1].end() and found[n].group(1) != "?":
            n += 1
        query, found = found[:n], found[n:]
        names = [plain(unquote_plus(one.group(2))) for one in query]
        out += text[at : query[0].start()]
        first = query[0].group(1)
        for i, one in enumerate(query):
            if not _secret(names[i], names):
                out += first + text[one.start(2) : one.end()]
                first = query[i + 1].group(1) if i + 1 < n else "&"
            else:
                value = one.group(3)
                out += value[len(value.rstrip(",.:)]}")) :]
        at = query[-1].end()
    return out + text[at:]


def _secret(name: str, names: list[str]) -> bool:
    if name.startswith(("xamz", "xgoog", "xoss")) or name in _NAMES:
        return True
    if name.startswith("q") and "qsignature" in names:
        return True
    if name in _BESIDE_SIG:
        return "sig" in names
    if name in _BESIDE_SIGNATURE:
        return any("signature" in one for one in names)
    return any(part in name for part in _PARTS)
