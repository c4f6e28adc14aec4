"""Which mutants change nothing that anybody could see? Each with the reason; they count neither as noticed nor as not.

Only what gives the same results for every input belongs here: a faster way to the same result, a bound that other code
makes sure of. What is merely unimportant does not.
"""

from __future__ import annotations

# (file, the line before, the line after) -> why nothing changes
EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "data/augment.py",
        "spread = np.array(std, dtype=np.float64)",
        "spread = np.array(std)",
    ): "numbers of Python become float64 by themselves",
    (
        "objectives/paths.py",
        "def __init__(self, data_time: float = 0.0) -> None:",
        "def __init__(self, data_time: float = 1.0) -> None:",
    ): "a base class without a schedule of its own; both classes below it say where the data is",
    (
        "data/parquet.py",
        "self._kept.move_to_end(group)",
        "pass",
    ): "decides which row groups stay in memory, never what is read from them",
    (
        "storage/mapped.py",
        'return np.lib.format.open_memmap(path, mode="r+")',
        "return np.lib.format.open_memmap(path)",
    ): '"r+" is the default of numpy',
    (
        "__init__.py",
        'stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))',
        "stub = ast.parse(Path(__file__).with_suffix('.pyi').read_text())",
    ): "the stub is ASCII, which every encoding of a locale reads alike",
    (
        "verbs/scale_rates.py",
        "file.seek(0)",
        "file.seek(1)",
    ): "only the time of writing counts; what is written is dropped",
    (
        "runtime/sharing.py",
        "_MOST_DIMS = 4",
        "_MOST_DIMS = 5",
    ): "the length of a header that both sides read alike; nothing that is sent has more than four dimensions",
    (
        "data/encoded.py",
        "decoded = in_parallel(self._decode_chunk, self._pieces(first, last), 1 if self.small else _THREADS)",
        "decoded = in_parallel(self._decode_chunk, self._pieces(first, last), 2 if self.small else _THREADS)",
    ): "the number of threads decides how fast, never what",
    (
        "measures/spectral.py",
        "trivial = root / max(float(np.linalg.norm(root)), np.finfo(np.float64).tiny)",
        "trivial = (root * max(float(np.linalg.norm(root)), np.finfo(np.float64).tiny))",
    ): "the trivial vector is taken out of the matrix with more weight; all others and their order stay",
    (
        "measures/spectral.py",
        "return vectors_TK * torch.where(largest < 0, -1.0, 1.0)",
        "return vectors_TK * torch.where((largest <= 0), -1.0, 1.0)",
    ): "the entry of largest size is zero only in a vector of zeros, whose sign does not matter",
    (
        "data/resample.py",
        "rounded = np.rint(sums, out=sums).astype(kind)",
        "rounded = np.rint(sums).astype(kind)",
    ): "the same numbers, in memory of their own",
    (
        "config/metrics.py",
        '"Segmentation probe mIoU", "probe mIoU", "share", 1, '
        '"Mean IoU over classes of a linear probe on patch tokens."',
        '"Segmentation probe mIoU", "probe mIoU", "share", 2, '
        '"Mean IoU over classes of a linear probe on patch tokens."',
    ): "only its sign is used: whether higher is better",
    (
        "data/resample.py",
        "top, left, *sides = first[:4]",
        "top, left, *sides = first[:5]",
    ): "a crop of whole pixels is then resampled by weights of one instead of copied: the same pixels",
}
