"""What does the package index show? The README, and the addresses of the project, if there are any.

hatchling calls `update` at every build. Images and links of the README are relative, which an index cannot follow.
With ECHOLESS_URL in the environment, the address of the repository, they become absolute. Without it, images are left
out and links become plain text, so that nothing is broken.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAPER = "https://arxiv.org/abs/2404.10947"
IMAGE = re.compile(r"^!\[([^\]]*)\]\((?!https?:)([^)]+)\)\n(?:\n\([^\n]*\)\n)?", re.M)  # with the caption below it
# How to install it: in the repository -> on an index, whose reader has the name and not the files.
INSTALL = {
    "In the folder of this file, with": "With",
    "pip install '.[": "pip install 'echoless[",
    "There is no release on a package index yet: use a copy of this repository, or of its source archive.\n\n": "",
}
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")


class PackageIndexMetadata(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        address = os.environ.get("ECHOLESS_URL", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": described(text, address)}
        metadata["urls"] = addresses(address)


def described(text: str, address: str) -> str:
    """The README for an index that has no other file of the repository."""
    for here, there in INSTALL.items():
        text = text.replace(here, there)
    if address:
        text = re.sub(r"(!\[[^\]]*\])\((?!https?:)([^)]+)\)", rf"\1({address}/raw/main/\2)", text)
        return LINK.sub(rf"[\1]({address}/blob/main/\2)", text)
    return LINK.sub(r"\1", IMAGE.sub("", text))


def addresses(address: str) -> dict[str, str]:
    ours = {"Repository": address, "Changelog": f"{address}/blob/main/CHANGELOG.md", "Issues": f"{address}/issues"}
    return (ours if address else {}) | {"Paper": PAPER}
