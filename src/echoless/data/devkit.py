"""Which class is number k of ILSVRC2012? The development kit's meta.mat names it, beside the ground-truth file.

The validation images of ImageNet-1k come as one flat tar file, and their classes as a text file with one number per
line, in the order of the images' names. These numbers are ILSVRC2012_IDs, which are not in the order of WordNet ids.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from echoless.errors import UntrustedFile

META = "meta.mat"
_LARGEST = 2**26


def wordnet_ids(meta: Path) -> dict[int, str]:
    """ILSVRC2012_ID -> WordNet id, of a meta.mat."""
    from scipy.io import loadmat

    if meta.stat().st_size > _LARGEST:
        raise UntrustedFile(f"{meta} has {meta.stat().st_size:,} bytes; allowed: {_LARGEST:,}")
    try:
        synsets = np.atleast_1d(loadmat(meta, squeeze_me=True, variable_names=["synsets"])["synsets"])
        pairs = zip(synsets["ILSVRC2012_ID"].tolist(), synsets["WNID"].tolist())
        return {int(number): str(name) for number, name in pairs}
    except Exception as error:  # scipy raises many things on files that are something else
        raise UntrustedFile(f"{meta} is not the meta.mat of the ILSVRC2012 development kit: {error}") from None
