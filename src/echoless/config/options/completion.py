"""Which arguments does `completion` take?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class CompletionOptions:
    """Print a script with which a shell completes verbs, options and values.

    bash: echoless completion bash > ~/.local/share/bash-completion/completions/echoless.
    zsh: echoless completion zsh > a file _echoless in a folder of $fpath.
    fish: echoless completion fish > ~/.config/fish/completions/echoless.fish.
    """

    EXAMPLES = (
        "echoless completion bash > ~/.local/share/bash-completion/completions/echoless",
        "echoless completion fish > ~/.config/fish/completions/echoless.fish",
    )

    shell: Literal["bash", "zsh", "fish"]
    """bash, zsh or fish."""
