"""What is an address of data that is elsewhere, and what of it may be written down? Everything but its secrets.

`s3://BUCKET/train-*.parquet`, `https://HOST/shards-{000..012}.tar`, `hf://datasets/USER/NAME/data/*.parquet`: whatever
fsspec opens. Credentials belong into the configuration of fsspec or into the environment; where an address holds some
all the same (a password before the host, a token behind the question mark), no log and no record repeats them.
"""

from __future__ import annotations

import re

_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(?:://|::)")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://[^\s'\"<>]+")
_USER = re.compile(r"(?<=://)[^/@\s]*@")
_PASSWORD = re.compile(r"(?<=://)[^/@:\s]*:[^/@\s]*@")
_QUERY = re.compile(r"[?#][^?#]*=.*")  # a question mark without a value behind it is a pattern


def is_remote(data: object) -> bool:
    """Whether it is an address, and no path of this machine."""
    return _REMOTE.match(str(data)) is not None


def has_secrets(data: object) -> bool:
    return without_secrets(str(data)) != str(data)


def without_secrets(text: str) -> str:
    """The text with every address in it reduced to what anybody may see."""
    return _ADDRESS.sub(lambda found: _reduced(found[0]), text)


def _reduced(address: str) -> str:
    """Before the host of a web address stands a user; elsewhere it may be a part of the name (CONTAINER@ACCOUNT)."""
    web = address.lower().startswith(("http", "ftp", "sftp", "ssh"))
    return _QUERY.sub("", (_USER if web else _PASSWORD).sub("", address))
