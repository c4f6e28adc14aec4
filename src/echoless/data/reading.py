"""How does a verb read its images, and at what size are they kept?

With a progress line. A test set's classes are numbered as the training set's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from echoless.config import DataConfig
from echoless.config.counts import counted, first_few, listed
from echoless.config.training import Interpolation
from echoless.data import Images, open_images
from echoless.data.encoded import Reduction
from echoless.data.masks import LabelMaps, MaskClasses
from echoless.data.opening import LABELS_FILE, holds_files
from echoless.data.resizing import LARGE, Fit, Framing, Size
from echoless.errors import DataError
from echoless.runtime import ALONE, Progress, Share

MOST_LISTED = 20
LONGEST_NAME = 60  # characters of a class, in the line that names a few
# The option that names the labels of a set, or switches them off.
LABELS_OF = {"": "--labels", "--train": "--labels", "--test": "--test-labels", "--probe-data": "--probe-labels"}
_OLD_SIDE = 256  # short side at which earlier versions kept larger images


def natural_filter(images: Images) -> Interpolation:
    """The filter of random crops: bicubic for large images, as in the papers; bilinear for small ones."""
    return "bicubic" if min(images.typical_size) > LARGE else "bilinear"


def training_reduction(data: DataConfig, image_size: tuple[int, int]) -> Fit | None:
    """How larger images are made smaller for a run; None: not at all."""
    side = data.cache_side
    if side is None:
        return Fit("short", (_OLD_SIDE, _OLD_SIDE), "bilinear")
    if side == "original":
        return None
    if data.crop_scale is None and side == max(image_size):
        return Fit("adm", image_size)
    return Fit("cover", (side, side))


def settled_tiles(data: str | Path, given: int | None, trained: int | None) -> int | None:
    """The side of the tiles that an encoder is given: as asked (0: whole images), else as it was trained.

    Drawn images and arrays are never cut.
    """
    if given is not None:
        return given or None
    return trained if holds_files(data) else None


def stand_for_tiles(data: str | Path, given: int | None, trained: int | None) -> bool:
    """Whether each of these images, which are never cut, is taken for one of the tiles that an encoder knows."""
    return given is None and trained is not None and not holds_files(data)


def describe_tiles(data: str | Path, given: int | None, trained: int | None) -> list[str]:
    """A sentence where images are cut although nobody asked for it, or framed otherwise than in training."""
    if trained is None or given == trained or not holds_files(data):
        return []
    known = f"{trained} x {trained}"
    if given is None:
        return [f"tiles: {known}, as the run was trained; --tiles 0 takes whole images"]
    asked = f"{given} x {given}" if given else "none, whole images"
    return [f"tiles: {asked}; the run was trained on tiles of {known}, so it saw everything at another scale"]


def read_images(
    data: str,
    labels: str | None,
    channels: int | None = None,
    *,
    classes: str | None = None,
    require_labels: bool = True,
    reduction: Reduction = None,
    tiles: int | None = None,
    share: Share = ALONE,
    which: str | None = "",
    like: Images | None = None,
    needed: bool = False,
) -> Images:
    """`channels`: what every image is converted to; None: as most of them are. Bad images are listed and left out.
    which: the option that names them, where there are two sets; None: the log of a run lists bad images and classes.
    like: a set of which everything was said already. needed: whether nothing can be done without labels,
    so that ignoring them is no advice. The others: `open_images`."""
    speaks = share.index == 0
    heard = () if like is None else like.notes
    with Progress("reading images", 1, "images") as progress:

        def show(done: int, total: int) -> None:
            progress.total = total
            if speaks:
                progress.show(done)

        def say(text: str) -> None:
            if speaks and text not in heard:
                progress.say(text)

        given = Path(labels) if labels else None
        images = open_images(
            data,
            labels=given,
            channels=channels,
            classes=classes,
            require_labels=require_labels,
            reduction=reduction,
            tiles=tiles,
            progress=show,
            say=say,
            max_bad_fraction=1.0,
            share=share,
        )
        if speaks and which is not None:
            known = like is not None and like.fingerprint == images.fingerprint
            for line in (
                *([] if known else describe_bad(images)),
                *describe_classes(images, which, like, needed=needed),
            ):
                progress.say(line)
        return images


def describe_bad(images: Images, *, late: bool = False) -> list[str]:
    """One line for each of the first images that cannot be read, and the number of the others.

    late: those that turned out to be bad after the set was opened, which happens where there is no cache.
    """
    bad = [each for each in images.bad if not late or each.index not in images.excluded]
    lines = [f"unreadable image, left out: {each.path}: {each.reason}" for each in first_few(bad, MOST_LISTED)]
    rest = len(bad) - len(lines)
    return [*lines, f"and {rest} more"] if rest else lines


def describe_large(images: Images, framing: Framing, size: Size, which: str = "") -> list[str]:
    """A sentence where a set of small images holds large ones, of which evaluation sees another part.

    which: the option that names the images, where there are several sets.
    """
    large = len(images.larger_than(LARGE))
    if not large or min(images.typical_size) > LARGE or framing.every or framing.share == 1 or images.used_whole:
        return []
    many = f"{large} of {counted(images.usable, 'image')}{f' of {which}' if which else ''}"
    return [
        f"{many} {'is' if large == 1 else 'are'} large, with a shorter side of more than {LARGE} pixels: of those only "
        f"the centre is seen ({framing.describe(size)}), of the others all"
    ]


def describe_classes(images: Images, which: str = "", like: Images | None = None, *, needed: bool = False) -> list[str]:
    """Where the labels come from, how many there are and what guessing scores; or why there are none, if known.

    which: the option that names the images, where there are several sets. like: a set that was described already;
    where the classes are the same, they are not listed again. needed: without labels nothing can be done.
    """
    title = f"labels of {which}" if which else "labels"
    if images.labels is None or images.class_names is None:
        return [f"{title}: none; {images.label_note}"] if images.label_note else []
    known = images.known_labels
    if not len(known):
        return []
    counts = known.bincount()
    chance = f"always naming the largest is right in {100 * float(counts.max()) / len(known):.1f} %"
    joined, option = images.label_source == LABELS_FILE, LABELS_OF.get(which)
    off = f"; {option} none ignores them" if option and not joined and not needed else ""
    said = like is not None and _labelled_alike(images, like)
    lines = [] if said else [f"{title}: {_classes(images)}; {chance}{off}", *_typed_twice(title, _names(images))]
    return [*lines, f"{title}: {images.label_note}"] if images.label_note else lines


def _classes(images: Images) -> str:
    """How many there are, where they come from, and the names of a few."""
    present, labelled, readable = _names(images), len(images.known_labels), images.usable
    shown = [name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..." for name in present[:5]]
    names = listed(shown) + (", ..." if len(present) > 5 else "")
    joined = labelled < readable or images.label_source == LABELS_FILE
    of = f", on {labelled} of {counted(readable, 'image')}" if joined else ""
    source = images.label_file or images.label_source
    return f"{counted(len(present), 'class', 'classes')} from {source}{of} ({names})"


def _typed_twice(title: str, names: Sequence[str]) -> list[str]:
    """A sentence on classes that somebody meant as one, perhaps."""
    spellings: dict[str, list[str]] = {}
    for name in names:
        spellings.setdefault(name.casefold(), []).append(name)
    doubled = [several for several in spellings.values() if len(several) > 1]
    if not doubled:
        return []
    many = counted(sum(map(len, doubled)), "class", "classes")
    return [f"{title}: {many} differ only in upper and lower case, as {listed(doubled[0])}; they are not joined"]


def _labelled_alike(one: Images, other: Images) -> bool:
    """The same classes, on all images of both: a file of labels says on how many."""
    complete = all(each.labels is not None and bool((each.labels >= 0).all()) for each in (one, other))
    return complete and LABELS_FILE != one.label_source == other.label_source and _names(one) == _names(other)


def leave_out_unlabelled(images: Images, use: str = "measuring") -> str:
    """Before work that needs labels: a few labelled images of many are the set. Returns a sentence, if any."""
    if images.labels is None:
        return ""
    without = [index for index in (images.labels < 0).nonzero()[:, 0].tolist() if index not in images.excluded]
    if not without or len(without) == images.usable:
        return ""
    images.leave_out(without)
    none = "1 image has no label and is" if len(without) == 1 else f"{len(without)} images have no label and are"
    return f"{none} left out: {use} on the {images.usable} that have one"


def attach_masks(images: Images, folder: str, classes: str | None, ignored: int) -> None:
    """Label maps for these images; every image must have one."""
    if images.corners_N2 is not None:
        raise DataError(f"masks is {folder!r}, which belongs to whole images, and these are tiles; give --tiles 0")
    meaning = MaskClasses.plain(ignored) if classes is None else MaskClasses.read(classes)
    images.label_maps = LabelMaps(Path(folder), images.paths, meaning)


def align_classes(train: Images, test: Images) -> None:
    """Number the classes of the test set as the training set does, by name."""
    if train.class_names is None or test.class_names is None or train.labels is None or test.labels is None:
        return
    learned = set(_names(train))
    unseen = [name for name in _names(test) if name not in learned]
    if unseen:
        raise DataError(f"the test set has classes that the training set lacks: {listed(unseen[:10])}")
    number = [train.class_names.index(name) if name in train.class_names else -1 for name in test.class_names]
    test.labels = test.labels.new_tensor([number[label] if label >= 0 else -1 for label in test.labels.tolist()])
    test.class_names = train.class_names


def require_channels(images: Images, channels: int, what: str) -> None:
    """Before any work: the network of a recorded run takes one number of channels."""
    if images.shape.channels != channels:
        raise DataError(
            f"{what} has images of {counted(images.shape.channels, 'channel')}; allowed: {channels}, as the model takes"
        )


def require_classes(images: Images, most: int | None, what: str) -> None:
    """Before any work: no label may be above those that the model tells apart. None: it takes no labels."""
    if most is None or images.labels is None or (found := int(images.labels.max()) + 1) <= most:
        return
    raise DataError(f"{what} has {found} classes; allowed: at most {most}, as the model has")


def _names(images: Images) -> list[str]:
    """Of the classes that occur: a data set may name more than it has images of."""
    assert images.class_names is not None
    return [images.class_names[label] for label in sorted(set(images.known_labels.tolist()))]
