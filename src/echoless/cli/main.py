"""What can be typed? `echoless VERB ...`; parsing and printing only. `--help` loads no torch."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence

from echoless.config.checks import nearest
from echoless.errors import EcholessError

# Verb -> (module in echoless.cli, what it does). A verb's module is imported when it is called.
VERBS = {
    "demo": ("demo", "the main job in minutes, on images drawn on the spot"),
    "pretrain": ("pretrain", "pretrain a masked autoencoder on any folder of images"),
    "evaluate": ("evaluate", "measure frozen features, with intervals and protocols"),
    "finetune": ("finetune", "train the whole network on labels, from a pretrained encoder"),
    "embed": ("embed", "one feature vector per image, as parquet or npy"),
    "report": ("report", "one page about one run, or several compared"),
    "serve": ("serve", "the same page live while runs train, and a gallery of all of them"),
    "sample": ("sample", "images from a diffusion run: PNGs, a grid, samples.npz"),
    "export": ("export", "an encoder for transformers, timm or onnxruntime, with none of our code"),
    "import": ("import_", "a checkpoint of others, for --init, evaluate and embed"),
    "inspect": ("inspect", "the shortcuts of any transformers, timm, diffusers or torchvision model"),
    "sweep": ("sweep", "a grid of runs, or an experiment of the papers, compared over seeds"),
    "conditioning": ("conditioning", "how well the blocks of a ViT pass differences on, with and without shortcuts"),
    "recipes": ("recipes", "the named settings, what they cost and what was seen"),
    "doctor": ("doctor", "what this machine can do, and what is missing"),
}

USAGE = "usage: echoless VERB [options]        echoless VERB --help explains a verb"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 well, 1 some runs of a sweep failed, 2 bad input, 3 not finite, 75 stopped and to be
    requeued, 130 interrupted.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    verb, rest = arguments[0], arguments[1:]
    if verb in ("-V", "--version"):
        from echoless import __version__

        print(f"echoless {__version__}")
        return 0
    if verb not in VERBS:
        print(f"echoless: verb is {verb!r}; allowed: {', '.join(VERBS)}{nearest(verb, VERBS)}", file=sys.stderr)
        return 2
    run: Callable[[Sequence[str]], int] = importlib.import_module(f"echoless.cli.{VERBS[verb][0]}").run
    try:
        return run(rest)
    except EcholessError as error:
        print(f"echoless {verb}: {error}", file=sys.stderr)
        return error.exit_code
    except SystemExit as end:  # tyro's, after --help or a value it cannot read
        return int(end.code or 0)
    except BrokenPipeError:  # `echoless ... | head`
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print(f"echoless {verb}: interrupted", file=sys.stderr)
        return 130


def _overview() -> str:
    lines = ["echoless: fade the identity shortcuts of a network, and measure what its features gain", "", USAGE, ""]
    return "\n".join(lines + [f"  {verb:12}  {about}" for verb, (_, about) in VERBS.items()])
