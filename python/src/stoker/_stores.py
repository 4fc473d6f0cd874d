"""How stores are reached: storage_options=, origins= and fetch=, in the form of the Spec.

No keyword takes a key, a token or a password, because Specs, states and pickles are saved and shown. Credentials come
from the environment, as for the store's own tools.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from . import _notice
from ._arguments import truth
from ._cache import amount
from ._errors import Problems, whole
from ._numbers import scalar
from ._shown import plain, shown

_TEXTS = ("endpoint_url", "region", "profile", "token_env", "fresh")
_FRESH = "give 'always' (the index is compared with a listing at every opening) or 'never' (it is trusted)"
_FLAGS = ("anonymous", "requester_pays")
KEYS = ("endpoint_url", "region", "profile", "anonymous", "requester_pays", "token_env", "fresh")

# fsspec's names for the same keys.
_FSSPEC = {"anon": "anonymous", "endpoint": "endpoint_url", "region_name": "region"}
# Keys of fsspec's file systems that stoker ignores, each with the reason.
_MOOT = {
    "project": "the bucket determines the project",
    "account_name": "it is part of the name: az://container/path with AZURE_STORAGE_ACCOUNT_NAME set, or "
    "abfss://container@account.dfs.core.windows.net/path",
    **dict.fromkeys(
        (
            "asynchronous",
            "block_size",
            "blocksize",
            "cache_type",
            "config_kwargs",
            "consistency",
            "default_block_size",
            "default_cache_type",
            "default_fill_cache",
            "listings_expiry_time",
            "loop",
            "max_concurrency",
            "skip_instance_cache",
            "use_listings_cache",
            "use_ssl",
            "version_aware",
        ),
        "the engine has its own way of reading; DataLoader(fetch=...) sets how much is requested at once",
    ),
}

# The variables to set instead of a secret key, by a part of the key's name: as in the engine.
_TOKENS = (
    "HF_TOKEN, AWS_SESSION_TOKEN, GOOGLE_APPLICATION_CREDENTIALS (the name of a file), or a variable of your own, "
    "named by token_env"
)
_NETRC = ".netrc (or the file that NETRC names)"
_VARIABLES = (
    (("accountkey", "storagekey", "azurekey"), "AZURE_STORAGE_KEY"),
    (("connectionstring", "connstr"), "AZURE_STORAGE_CONNECTION_STRING"),
    (("clientsecret",), "AZURE_CLIENT_SECRET"),
    (("sastoken", "sharedaccess"), "AZURE_STORAGE_SAS_TOKEN"),
    (("sessiontoken", "securitytoken"), "AWS_SESSION_TOKEN"),
    (("secret",), "AWS_SECRET_ACCESS_KEY"),
    (("credential", "serviceaccount"), "GOOGLE_APPLICATION_CREDENTIALS"),
    (("hftoken", "huggingfacetoken"), "HF_TOKEN"),
    (("token", "bearer", "authorization"), _TOKENS),
    (("password", "passwd", "passphrase", "username", "login"), _NETRC),
    (("signature",), "AZURE_STORAGE_SAS_TOKEN"),
    (("key",), "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AZURE_STORAGE_KEY"),
)
_WHOLE = {
    "tokenenv": None,
    **dict.fromkeys(("sas", "sig"), "AZURE_STORAGE_SAS_TOKEN"),
    **dict.fromkeys(("auth", "pass", "pwd", "user"), _NETRC),
    **dict.fromkeys(("cred", "creds"), "GOOGLE_APPLICATION_CREDENTIALS"),
}
# A vendor says where the stores of some schemes find credentials: in variables that begin with the first. The second is
# named for a secret that has no such variable. As in the engine.
_OWN = "a variable of your own that holds a token, named by token_env"
_AWS = ("AWS_", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (for temporary keys, AWS_SESSION_TOKEN too)")
_GOOGLE = ("GOOGLE_", f"GOOGLE_APPLICATION_CREDENTIALS (the name of a file), or {_OWN}")
_AZURE = ("AZURE_", f"AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, or {_OWN}")
_HUB = ("HF_", "HF_TOKEN, or a variable of your own, named by token_env")
_WEB = (_NETRC, f"{_NETRC}, or into a variable of your own, named by token_env,")
_VENDORS = {
    "s3": _AWS,
    **dict.fromkeys(("gs", "gcs"), _GOOGLE),
    **dict.fromkeys(("az", "azure", "abfs", "abfss"), _AZURE),
    "hf": _HUB,
    **dict.fromkeys(("http", "https"), _WEB),
}


def secret(key: str, names: Iterable[str] = ()) -> str | None:
    """What to do instead of giving a key that holds a secret; None: the key holds none. If all names in stores are of
    one vendor, only its variables are named."""
    if (found := _variable(key)) is None:
        return None
    schemes = (re.match(r"@?([A-Za-z][A-Za-z0-9+.-]*)://", name) for name in names)
    vendors = {_VENDORS[scheme[1].lower()] for scheme in schemes if scheme and scheme[1].lower() in _VENDORS}
    if len(vendors) == 1:
        of = vendors.pop()
        if of is _WEB or not found.startswith(of[0]) or ", " in found:
            found = of[1]
    return f"write it into {found}" if found.startswith(".netrc") else f"set {found}"


def _variable(key: str) -> str | None:
    """Where the secret of a key belongs, whatever the store."""
    word = plain(key)
    if word in _WHOLE:
        return _WHOLE[word]
    return next((instead for parts, instead in _VARIABLES if any(part in word for part in parts)), None)


def read_storage(given: Any, problems: Problems, names: Any = ()) -> dict[str, Any] | None:
    """``storage_options`` as ``dataset.storage`` of a Spec. It may use the names of s3fs, gcsfs and adlfs. ``names``
    are the paths of the dataset."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        problems.add(
            f"storage_options is of type {type(given).__name__}", "give a dict, such as {'endpoint_url': 'http://...'}"
        )
        return None
    found: dict[str, Any] = {}
    listed = [names] if isinstance(names, (str, bytes)) or not isinstance(names, Iterable) else names
    _take(given, found, problems, [name for name in listed if isinstance(name, str)])
    problem = _wrong(found)
    if problem is not None:
        problems.add(*problem)
    return {key: value for key, value in found.items() if value not in (None, False)} or None


def _take(given: Mapping[Any, Any], found: dict[str, Any], problems: Problems, names: Sequence[str]) -> None:
    for key, value in given.items():
        name = _FSSPEC.get(key, key)
        if name == "client_kwargs" and isinstance(value, Mapping):
            _take(value, found, problems, names)
        elif key == "token" and value in ("anon", None):  # gcsfs: anonymous, or as the environment says
            found["anonymous"] = found.get("anonymous", False) or value == "anon"
        elif key == "token" and value in ("cloud", "google_default", "cache", "browser"):
            _notice.say(f"storage_options['token'] is ignored: {value!r} is found as Google's own tools find it")
        elif name in _TEXTS:
            if value is not None and not isinstance(value, str):  # the value may be a secret
                hint = _FRESH if name == "fresh" else "give text"
                problems.add(f"storage_options has {key!r} of type {type(value).__name__}", hint)
            else:
                found[name] = value
        elif name in _FLAGS:
            flag = scalar(value)
            if flag is not None and not isinstance(flag, bool):
                problems.add(f"storage_options has {key!r} of type {type(value).__name__}", "give True or False")
            else:
                found[name] = bool(flag)
        elif isinstance(key, str) and (instead := secret(key, names)) is not None:
            if value is not None:
                problems.add(
                    f"storage_options has {key!r}: datasets are saved and shown, so they hold no keys, tokens or "
                    "passwords",
                    f"remove it, and {instead} where the program runs",
                )
        elif key in _MOOT:
            _notice.say(f"storage_options[{key!r}] is ignored: {_MOOT[key]}")
        else:
            problems.add(f"storage_options has an unknown key {key!r}", _known(key, KEYS, *_FSSPEC, "client_kwargs"))


def _known(key: Any, keys: Sequence[str], *also: str) -> str:
    """What to say of an unknown key: the nearest known one, and all of them. Those of ``also`` are accepted too."""
    near = difflib.get_close_matches(key.lower(), [*keys, *also], 1) if isinstance(key, str) else []
    known = f"keys are {', '.join(keys)}"
    return f"did you mean {near[0]!r}? The {known}" if near else f"the {known}"


def _wrong(found: Mapping[str, Any]) -> tuple[str, str] | None:
    """What is wrong with the values. Those that may be secret are not repeated."""
    if (variable := found.get("token_env")) and (
        not re.fullmatch(r"[A-Z_][A-Z0-9_]*", variable)
        or re.fullmatch(r"(AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}|(?=.*[0-9])[A-Z0-9]{24,}", variable)
    ):
        return (
            "storage_options has a 'token_env' that is not the name of an environment variable (capitals, digits, _)",
            "give the name, not the token: set a variable, such as MY_TOKEN, to the token, and give 'token_env': "
            "'MY_TOKEN'",
        )
    if (address := found.get("endpoint_url")) and shown(address) != address:
        return (
            "storage_options has an 'endpoint_url' with a user name, a password or a signature",
            "leave them out, and put them into .netrc or the store's environment variables",
        )
    if found.get("fresh") not in (None, "always", "never"):
        return f"storage_options has 'fresh': {found['fresh']!r}", _FRESH
    return None


def read_origins(given: Any, problems: Problems) -> list[str] | None:
    """Prefixes of what a manifest or a list may name elsewhere."""
    if given is None:
        return None
    listed = [given] if isinstance(given, (str, os.PathLike)) else given
    if not isinstance(listed, Iterable) or isinstance(listed, (bytes, Mapping)):
        problems.add(f"origins is of type {type(given).__name__}", "give prefixes, such as ['s3://bucket/folder/']")
        return None
    found = []
    for one in listed:
        if not isinstance(one, (str, os.PathLike)) or not os.fspath(one):
            problems.add(f"origins has {one!r:.40}", "give prefixes, such as 's3://bucket/folder/'")
        else:
            found.append(os.fsdecode(os.fspath(one)))
    return found or None


_FETCH = ("ahead", "connections", "bandwidth", "hedge", "deadline")


def read_fetch(given: Any, problems: Problems) -> dict[str, Any] | None:
    """``fetch=`` of a loader, as the part of the Spec."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        problems.add(f"fetch is of type {type(given).__name__}", "give a dict, such as {'connections': 32}")
        return None
    found: dict[str, Any] = {}
    for key, value in given.items():
        value = scalar(value)
        if key not in _FETCH:
            problems.add(f"fetch has an unknown key {key!r}", _known(key, _FETCH))
        elif value is None:
            continue
        elif key == "ahead" and amount(value) is None:
            problems.add(f"fetch has ahead {value!r}", "give an amount like '1GiB', a number of bytes, or 'auto'")
        elif key == "connections" and not (value == "auto" or whole(value) and 1 <= value <= 4096):
            problems.add(f"fetch has connections {value!r}", "give a number from 1 to 4096, or 'auto'")
        elif key == "bandwidth" and not (value == "none" or (amount(_rate(value)) or 0) > 0):
            problems.add(f"fetch has bandwidth {value!r}", "give bytes per second, text such as '100MB', or 'none'")
        elif key == "hedge":
            found[key] = truth("hedge of fetch", value, problems)
        elif key == "deadline" and not (isinstance(value, str) or _seconds(value)):
            hint = "give a number of seconds above 0, such as 90, or text such as '10m'; at most '24h'"
            problems.add(f"fetch has deadline {value!r}", hint)
        else:
            found[key] = value
    return found or None


# The fetch= of the loader that is being made, for what it opens to learn its fields.
_fetching: ContextVar[dict[str, Any] | None] = ContextVar("fetching", default=None)


@contextmanager
def fetching(fetch: dict[str, Any] | None) -> Iterator[None]:
    """Specs without fetch= use this one while the context lasts."""
    token = _fetching.set(fetch)
    try:
        yield
    finally:
        _fetching.reset(token)


def fetched(spec: dict[str, Any]) -> dict[str, Any]:
    """The Spec as it is opened."""
    fetch = _fetching.get()
    return spec if fetch is None or "fetch" in spec else {**spec, "fetch": fetch}


def _rate(value: Any) -> Any:
    return value.strip().lower().removesuffix("/s") if isinstance(value, str) else value


def _seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 24 * 3600
