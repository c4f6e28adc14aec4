"""How is an encoder exported? Folded into a plain network, read back by the other library, compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from echoless.config.checks import require_number, require_one_of
from echoless.errors import RunError
from echoless.exchange import to_hf, to_onnx, to_timm
from echoless.exchange.card import model_card, other_images
from echoless.exchange.exported import open_encoder
from echoless.exchange.plain import TOLERANCE, reference_tokens, relative_error, token_error
from echoless.exchange.target import Target, Unusable
from echoless.storage import new_folder
from echoless.storage.seal import write_sealed

TARGETS: dict[str, Target] = {"hf": to_hf.TARGET, "timm": to_timm.TARGET, "onnx": to_onnx.TARGET}


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how far it is from the original, by the other library's own computation."""

    out: Path
    to: str
    error: float  # of the tokens of an image, relative; the largest that was seen
    verified: bool  # whether the other library computed that error, or only we did
    how: str
    settings: dict[str, str]
    feature: str
    weights: str = "encoder"  # or which checkpoint, where the run has not ended
    images: str = ""  # of which images the features differ, because the other library prepares them in another way

    def __str__(self) -> str:
        chosen = "; ".join(f"{name} {value}" for name, value in self.settings.items())
        kind = [] if self.out.name == self.to else [self.to]
        what = ", ".join([*kind, *([] if self.weights == "encoder" else [self.weights])])
        wrote = f"wrote {self.out} ({what})" if what else f"wrote {self.out}"
        return f"{wrote}\n{self.how}\n{chosen}\n{self.feature}\n{self.images}"


def export_encoder(run: str | Path, to: str, out: str | Path, *, tolerance: float = TOLERANCE) -> ExportReport:
    """Write the encoder of a run, or an encoder folder, for another library: "hf", "timm" or "onnx".

    `out` must be new or empty; it appears whole, or not at all. The last block's output before any norm equals ours to
    a relative error of `tolerance`, measured by the other library where it is installed; else nothing is written.
    """
    require_one_of("to", to, tuple(TARGETS))
    require_number("tolerance", tolerance, 0, 1, ends="(]")
    out, target = Path(out), TARGETS[to]
    require_new(out)
    source = open_encoder(run)
    reference = reference_tokens(source.encoder)
    with new_folder(out) as temporary:
        written = target.write(temporary, source, reference)
        error, how, verified = written.error, "", False
        _refuse(error, tolerance, "after folding, computed by echoless")
        try:
            tokens, version = target.read_back(temporary, source, reference.images)
            error, verified = relative_error(tokens, reference.tokens), True
            _refuse(error, tolerance, f"as computed by {target.library} {version}")
            how = (
                f"Loaded back with {target.library} {version}: relative error of the last block's output {error:.1e} "
                f"(worst token {token_error(tokens, reference.tokens):.1e})."
            )
        except Unusable as reason:
            how = (
                f"{target.library} {reason}, so it was not loaded back; as computed by echoless, the relative error of "
                f"the last block's output is {error:.1e}."
            )
        card = model_card(source, target.library, written, how)
        write_sealed(temporary / "README.md", card.encode())
        require_new(out)  # somebody else may have filled it meanwhile
    images = other_images(source, written)
    return ExportReport(out, to, error, verified, how, written.settings, written.feature, source.origin, images)


def require_new(out: Path) -> None:
    """Refuse to write over anything."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise RunError(f"{out} exists and is not a folder; give --out a new or empty folder")
    if out.is_dir() and (names := sorted(path.name for path in out.iterdir())):
        raise RunError(f"{out} is not empty (it holds {', '.join(names[:3])}); give --out a new or empty folder")


def _refuse(error: float, tolerance: float, where: str) -> None:
    if not error <= tolerance:
        raise RunError(
            f"the export differs from the encoder by {error:.1e} ({where}); allowed: {tolerance:g}. Nothing was "
            "written. An encoder with little training is sensitive to the eps of its norms: --to onnx keeps each of "
            "them, and --tolerance accepts a larger error"
        )
