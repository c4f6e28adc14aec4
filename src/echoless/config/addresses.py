"""Which DATA is an address, and what of it may be written down? Everything but its secrets.

`s3://BUCKET/train-*.parquet`, `https://HOST/shards-{000..012}.tar`, `hf://datasets/USER/NAME/data/*.parquet`: whatever
fsspec opens. Credentials belong into the configuration of fsspec or into the environment. Where an address holds some
all the same (a password before the host, a token behind the question mark), no log and no record repeats them.
"""

from __future__ import annotations

import re

_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]+"
_REMOTE = re.compile(rf"{_SCHEME}(?:://|::)")
_LOCAL = re.compile(r"(?:file|local)://", re.IGNORECASE)
# A Path has one slash where an address has two.
_ADDRESS = re.compile(rf"({_SCHEME}:/{{1,2}})([^\s'\"<>]+)")
_WEB = re.compile(r"(?:https?|s?ftp|ssh|webdavs?|dav):", re.IGNORECASE)
_USER = re.compile(r"[^/?#\s]*@")
_PASSWORD = re.compile(r"[^/@:\s]*:[^/\s]*@")
# A password with a slash: behind the colon is no port.
_ODD_PASSWORD = re.compile(r"[^/@:\s]*:(?!\d+(?:/|$))[^@\s]*@")
_WEB_QUERY = re.compile(r"[?#].*")
_QUERY = re.compile(r"[?#][^?#]*=.*")  # elsewhere, a question mark without a value behind it is a pattern


def is_remote(data: object) -> bool:
    """Whether it is an address, and no path of this machine."""
    text = str(data)
    return _REMOTE.match(text) is not None and _LOCAL.match(text) is None


def local_path(data: str) -> str:
    """`/photos` for `file:///photos`; every other path is itself."""
    return _LOCAL.sub("", data, count=1)


def is_pattern(address: str) -> bool:
    """Whether it stands for several files: in a web address, a question mark begins a query."""
    return bool(set("*[") & set(address)) or ("?" in address and "=" not in address and not _WEB.match(address))


def has_secrets(data: object) -> bool:
    return without_secrets(str(data)) != str(data)


def without_secrets(text: str) -> str:
    """The text with every address in it reduced to what anybody may see."""
    if (whole := re.fullmatch(rf"({_SCHEME}:/{{1,2}})(\S+)", text)) is not None:  # its quotes are its own
        return _reduced(*whole.groups())
    return _ADDRESS.sub(lambda found: _reduced(*found.groups()), text)


def _reduced(scheme: str, rest: str) -> str:
    """Before the host of a web address stands a user; elsewhere it may be a part of the name (CONTAINER@ACCOUNT)."""
    outer, chained, inner = rest.partition("::")
    if chained:
        return f"{_reduced(scheme, outer)}::{without_secrets(inner)}"
    web = _WEB.match(scheme) is not None
    secret = (_USER if web else _PASSWORD).match(rest) or _ODD_PASSWORD.match(rest)
    shown = rest[secret.end() :] if secret else rest
    return scheme + (_WEB_QUERY if web else _QUERY).sub("", shown)
