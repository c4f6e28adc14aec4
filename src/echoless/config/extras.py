"""By which command is an extra installed? With the torch that is here: pip may replace it by another build."""

from __future__ import annotations


def install_command(extra: str) -> str:
    """`pip install 'echoless[timm]' 'torch==2.13.0+cpu'`: torchvision, for one, asks for the newest torch."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and seldom needed

    try:
        return f"pip install 'echoless[{extra}]' 'torch=={version('torch')}'"
    except PackageNotFoundError:
        return f"pip install 'echoless[{extra}]'"
