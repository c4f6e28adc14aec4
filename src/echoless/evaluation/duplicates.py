"""Which images are copies of each other? Coarse thumbnails propose candidates, finer ones decide; no encoder is needed.

Candidates are the nearest neighbours of every image by thumbnails of 8 x 8, averaged with their mirror image: those of
a mirrored copy are the same. Two images are near-duplicates if their thumbnails of 16 x 16 agree, one of them mirrored
where that fits better; agreement is the correlation of their values, 1 for equal ones.

The threshold is chosen on the set itself, because X-rays are more alike than holiday photographs: some images are
altered as copies usually are, and compared with their originals; others are compared with their candidates.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from echoless.config.counts import joined
from echoless.data.cache import gathered_on_disk, in_parallel
from echoless.data.resizing import Fit
from echoless.errors import DataError
from echoless.evaluation.extract import Report
from echoless.evaluation.originals import Corners, Originals
from echoless.measures import duplicate_groups, separating_threshold
from echoless.randomness import generator_for
from echoless.reports.pictures import as_rgb

SIDE = 16
AT_ONCE = 64  # images in memory
CALIBRATED_ON = 200  # images
FOUND = 0.5  # share of the altered copies of each kind: below it, the threshold misses most near-duplicates
NEARLY_ALL = 0.95  # of the copies, or of the images in groups
USUAL = 0.95  # the threshold of most sets of photographs: tried where none can be chosen, or left to the user
_KEPT = Fit("cover", (4 * SIDE, 4 * SIDE))  # what is decoded of a larger image


def _re_encoded(image: Image.Image) -> Image.Image:
    data = io.BytesIO()
    image.save(data, "JPEG", quality=50)
    return Image.open(data).convert("RGB")


def _cropped(image: Image.Image) -> Image.Image:
    """Two hundredths of each side are cut off."""
    x, y = (max(1, round(0.01 * side)) for side in image.size)
    return image.crop((x, y, image.width - x, image.height - y))


def _mirrored(image: Image.Image) -> Image.Image:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


ALTERATIONS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "JPEG of quality 50": _re_encoded,
    "cropped by 2 %": _cropped,
    "mirrored": _mirrored,
}


@dataclass(frozen=True)
class Duplicates:
    """Groups of rows, the largest first; agreement of each row with its best partner; how the threshold was chosen.

    reached: for each alteration, the share of copies at or above the threshold; `others`: that of other images.
    """

    groups: list[list[int]]
    agreement_N: Tensor
    threshold: float
    reached: dict[str, float] = field(default_factory=dict)
    others: float | None = None
    calibrated_on: int = 0

    def __str__(self) -> str:
        if not self.calibrated_on:
            return f"threshold {self.threshold:.4g}, as given"
        shares = ", ".join(f"{100 * share:.1f} % ({name})" for name, share in self.reached.items())
        return (
            f"threshold {self.threshold:.4g}, chosen with altered copies of {self.calibrated_on} images of the set. "
            f"Altered copies that it finds: {shares}. Of the images as they are, {100 * (self.others or 0):.1f} % have "
            "another one that reaches it: true copies, and false ones"
        )

    @property
    def doubt(self) -> str:
        """A sentence where the chosen threshold misses most copies of some kind; else nothing."""
        missed = joined([f"those {name}" for name, share in self.reached.items() if share < FOUND])
        if not missed:
            return ""
        return (
            "many images here are nearly alike, so that most near-duplicates were NOT found: of altered copies, "
            f"{missed} mostly stay below {self.threshold:.4g}; to find them, with look-alikes, give "
            f"--threshold {USUAL:g}"
        )


def find_duplicates(
    signatures_NS: np.ndarray,
    candidates_NK: Tensor,
    originals: Originals,
    paths: Sequence[str],
    corners: Corners | None = None,
    *,
    threshold: float | None = None,
) -> Duplicates:
    """`candidates_NK`: for each row the rows that may be copies of it. Rows whose image is gone are in no group."""
    agreement_NK = agreements(signatures_NS, candidates_NK)
    reached: dict[str, float] = {}
    others, calibrated = None, 0
    if threshold is None:
        drawn, copies = _copies(originals, paths, corners, _drawn(signatures_NS), signatures_NS)
        threshold = _chosen(copies, drawn, agreement_NK, candidates_NK)
        reached = {name: _share(values, threshold) for name, values in copies.items()}
        others, calibrated = _share(agreement_NK[drawn].amax(dim=1), threshold), len(drawn)
    groups = duplicate_groups(agreement_NK, candidates_NK, threshold)
    return Duplicates(groups, agreement_NK.amax(dim=1), threshold, reached, others, calibrated)


def _chosen(copies: dict[str, Tensor], drawn: Tensor, agreement_NK: Tensor, candidates_NK: Tensor) -> float:
    """The threshold that tells altered copies of some images (`drawn`) from the most similar other images.

    Neighbouring frames of a film are near-duplicates that nobody made. Where they stand for the others, nothing is told
    apart. Then the threshold is what nearly all copies of every kind reach, or the usual one, if the groups stay the
    same below it: films lie apart from each other. Images that are all a little alike soon make one large group.
    """
    every, nearest = torch.cat(list(copies.values())), agreement_NK[drawn].amax(dim=1)
    threshold = separating_threshold(every, nearest)
    missed = min(_share(values, threshold) for values in copies.values()) < FOUND
    if not missed and _share(every, threshold) - _share(nearest, threshold) >= FOUND:
        return threshold
    reached_by_all = min(float(values.quantile(1 - NEARLY_ALL)) for values in copies.values())
    stable = (each for each in (reached_by_all, USUAL) if _falls_apart(agreement_NK, candidates_NK, each))
    return next(stable, threshold)


def _falls_apart(agreement_NK: Tensor, candidates_NK: Tensor, threshold: float) -> bool:
    """Whether a threshold twice as far from 1 gives the same groups, none of more than half of the images."""
    groups, wider = (duplicate_groups(agreement_NK, candidates_NK, each) for each in (threshold, 2 * threshold - 1))
    same = sum(map(len, set(map(tuple, groups)) & set(map(tuple, wider))))
    largest = max(map(len, wider), default=0)
    return 2 * largest <= len(agreement_NK) and same >= NEARLY_ALL * sum(map(len, groups))


def _share(values: Tensor, threshold: float) -> float:
    return float((values >= threshold).float().mean())


def agreements(signatures_NS: np.ndarray, candidates_NK: Tensor) -> Tensor:
    """(N, K): of every row with its candidates, as they are or mirrored, whichever fits better."""
    found = []
    for start in range(0, len(candidates_NK), 1024):
        rows_BK = candidates_NK[start : start + 1024]
        own_BS, theirs_BKS = (_unit(signatures_NS[rows]) for rows in (slice(start, start + 1024), rows_BK.numpy()))
        both = [torch.einsum("bs,bks->bk", each, theirs_BKS) for each in (own_BS, mirrored(own_BS))]
        found.append(torch.maximum(*both).clamp(max=1.0))  # rounding may end above it
    return torch.cat(found)


def _unit(signatures: np.ndarray) -> Tensor:
    """Of unit length, which half precision does not keep: equal images agree by 1. Zeros stay zeros."""
    return torch.nn.functional.normalize(torch.from_numpy(signatures.astype(np.float32)), dim=-1)


def coarse(signatures_NS: np.ndarray) -> np.ndarray:
    """(N, 96): by halves of the resolution and averaged with the mirror image, of which the left half says all."""
    found = gathered_on_disk()
    for start in range(0, len(signatures_NS), AT_ONCE):
        thumbnails_BCHW = signatures_NS[start : start + AT_ONCE].astype(np.float32).reshape(-1, 3, SIDE, SIDE)
        halves_BCHW = thumbnails_BCHW.reshape(-1, 3, SIDE // 2, 2, SIDE // 2, 2).mean(axis=(3, 5))
        even_BCHW = halves_BCHW + halves_BCHW[..., ::-1]
        found.add(even_BCHW[..., : SIDE // 4].reshape(-1))
    return found.array().view(np.float32).reshape(len(signatures_NS), -1)


def mirrored(signatures_NS: Tensor) -> Tensor:
    return signatures_NS.unflatten(1, (3, SIDE, SIDE)).flip(3).flatten(1)


def signature(image: Image.Image) -> np.ndarray:
    """(S,): the values of a thumbnail, without their mean, of unit length; zeros for an image of one colour."""
    values = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX), np.float32).transpose(2, 0, 1).ravel()
    centred = values - values.mean()
    length = float(np.linalg.norm(centred))
    return (centred / length if length > 1e-3 else 0 * centred).astype(np.float16)


def signatures_of(
    originals: Originals, paths: Sequence[str], corners: Corners | None, report: Report | None = None
) -> np.ndarray:
    """(N, S) of all images, mapped from a file where they are many; zeros for one that is gone."""
    if originals.unopened:
        raise DataError(f"{originals.unopened}, or --by features --threshold S to compare vectors alone")
    found, missing = gathered_on_disk(), 0
    pixels = originals.pixels(paths, corners, _KEPT)
    made = in_parallel(lambda image: None if image is None else signature(as_rgb(image)), pixels, 2)
    gone = np.zeros(3 * SIDE * SIDE, np.float16)
    for start in range(0, len(paths), AT_ONCE):
        values = list(islice(made, AT_ONCE))
        missing += sum(each is None for each in values)
        found.add(np.concatenate([gone if each is None else each for each in values]))
        if report is not None:
            report(start + len(values), len(paths))
    if missing == len(paths):
        raise DataError(
            f"the images are not at {originals.root or 'a place that the table names'} any more, so that no pair can "
            "be confirmed; give --root PLACE, or --by features --threshold S to compare their vectors alone"
        )
    return found.array().view(np.float16).reshape(len(paths), -1)


def _drawn(signatures_NS: np.ndarray) -> Tensor:
    """Rows that are altered: of those that have an image, in their order, in which tiles of one file are neighbours."""
    present = torch.from_numpy(np.flatnonzero(signatures_NS[:, :8].any(axis=1)))
    if not len(present):
        raise DataError("every image has one colour; their copies cannot be told apart")
    return present[torch.randperm(len(present), generator=generator_for(0, "subset", 0))[:CALIBRATED_ON].sort().values]


def _copies(
    originals: Originals,
    paths: Sequence[str],
    corners: Corners | None,
    drawn: Tensor,
    signatures_NS: np.ndarray,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The rows whose image could be opened and, for each alteration, how far the altered ones agree with them."""
    opened: list[int] = []
    rows = drawn.tolist()
    places = None if corners is None else [corners[row] for row in rows]
    found: dict[str, list[float]] = {name: [] for name in ALTERATIONS}
    for row, pixels in zip(rows, originals.pixels([paths[row] for row in rows], places)):
        if pixels is None:
            continue
        opened.append(row)
        image, own_1S = as_rgb(pixels), _unit(signatures_NS[row : row + 1])
        for name, alter in ALTERATIONS.items():
            copy_S = _unit(signature(alter(image)))
            found[name].append(float(max((own_1S @ copy_S).max(), (mirrored(own_1S) @ copy_S).max())))
    return torch.tensor(opened), {name: torch.tensor(values) for name, values in found.items()}
