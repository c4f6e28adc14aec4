"""Which images are copies of others, or tiles of one file? In training and test set, or in one set and its folds."""

from __future__ import annotations

from echoless.data.images import Images


def count_shared(train: Images, test: Images) -> int:
    """How many images of the second set are in the first, under whatever name: equal bytes are equal images.

    Images that are left out, such as those without a label, are in neither: one folder may hold both sets. Drawn images
    have no bytes; their paths say which stream and which number of it they are.
    """
    if train.digests_ND is not None and test.digests_ND is not None:
        known = {row.tobytes() for index, row in enumerate(train.digests_ND) if index not in train.excluded}
        return sum(row.tobytes() in known for index, row in enumerate(test.digests_ND) if index not in test.excluded)
    if train.digests_ND is None and test.digests_ND is None:
        one, other = ({images.paths[index] for index in images.usable_ids()} for images in (train, test))
        return len(one & other)
    return 0


def overlap_warning(train: Images, test: Images) -> str:
    """One sentence where --train and --test share images, else nothing."""
    shared = count_shared(train, test)
    if not shared:
        return ""
    return (
        f"{shared} of {test.usable} images of --test are in --train too: overlapping images inflate test accuracy, so "
        "these numbers say little about new images"
    )


def count_groups(images: Images) -> dict[str, int]:
    """How many files the tiles are of, or how many images there are without copies; nothing where each stands alone."""
    groups_N = images.groups_of(images.usable_ids())
    if groups_N is None:
        return {}
    return {"distinct" if images.corners_N2 is None else "files": len(groups_N.unique())}


def group_notes(images: Images, *, which: str = "") -> list[str]:
    """A sentence where images belong together. which: the option of a test set; empty: they are put into folds."""
    of = f" of {which}" if which else ""
    lines = []
    for kind, count in count_groups(images).items():
        if kind == "files":
            lines.append(f"{'intervals' if which else 'folds'} by file: {images.usable} tiles{of} of {count} files")
        else:
            together = "intervals draw them together" if which else "copies stay in one fold"
            lines.append(f"{images.usable - count} of {images.usable} images{of} are copies of others; {together}")
    return lines
