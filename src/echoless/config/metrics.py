"""Which metrics are there, and what does each mean? One table, and the record of a measured value with its protocol.

Terminal, report, sweeps and the papers' experiments take titles, units and directions from `METRICS` only. `YIELDS` has
the names that `--metrics` accepts; `evaluation/registry.py` has the functions that measure them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from textwrap import wrap
from typing import Any, Literal

from echoless.config.checks import require_one_of
from echoless.config.tables import WIDTH
from echoless.errors import ConfigError


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """Title, unit, direction and description of a metric. `short` is the heading in tables."""

    title: str
    short: str
    unit: Literal["share", "number"]  # a share of 1 is shown in per cent
    better: Literal[-1, 0, 1]  # 1: higher is better, -1: lower is, 0: neither can be said
    about: str
    kind: Literal["features", "samples", "classifier", "training"] = "features"  # what it measures
    has_chance: bool = False  # whether naming the most frequent class is a baseline: for accuracies

    @property
    def is_share(self) -> bool:
        return self.unit == "share"

    @property
    def labelled(self) -> bool:
        """Whether it depends on labels: every accuracy does, and every comparison of segments with classes."""
        return self.is_share and self.kind in ("features", "classifier")

    @property
    def heading(self) -> str:
        return f"{self.short} %" if self.is_share else self.short


# In the order of importance, which is the order of charts and cards.
METRICS: dict[str, MetricInfo] = {
    "knn": MetricInfo(
        "kNN accuracy",
        "kNN",
        "share",
        1,
        "Images classified correctly by a weighted vote of the nearest neighbours.",
        has_chance=True,
    ),
    "linear": MetricInfo(
        "Linear probe accuracy",
        "linear",
        "share",
        1,
        "Images classified correctly by a linear classifier.",
        has_chance=True,
    ),
    "miou": MetricInfo(
        "Segmentation mIoU",
        "mIoU",
        "share",
        1,
        "Mean IoU over classes of spectral clusters, matched one to one to the classes.",
    ),
    "miou_object": MetricInfo(
        "Segmentation mIoU, object and background",
        "object mIoU",
        "share",
        1,
        "Mean IoU of object and background, each spectral cluster assigned to the one that holds most of its pixels.",
    ),
    "tokencut-corloc": MetricInfo(
        "Object discovery, CorLoc",
        "CorLoc",
        "share",
        1,
        "Images in which the box found by TokenCut overlaps the true one by more than half.",
    ),
    "tokencut-iou": MetricInfo(
        "Object discovery, mask IoU", "TokenCut IoU", "share", 1, "Mean IoU of the masks found by TokenCut."
    ),
    "segprobe-miou": MetricInfo(
        "Segmentation probe mIoU", "probe mIoU", "share", 1, "Mean IoU over classes of a linear probe on patch tokens."
    ),
    "accuracy": MetricInfo(
        "Test accuracy",
        "accuracy",
        "share",
        1,
        "Test images classified correctly by the trained network.",
        "classifier",
        has_chance=True,
    ),
    "finetune": MetricInfo(
        "Fine-tuned accuracy",
        "fine-tuned",
        "share",
        1,
        "Test images classified correctly after training all weights on labels.",
        "classifier",
        has_chance=True,
    ),
    "frechet": MetricInfo(
        "Frechet distance",
        "Frechet",
        "number",
        -1,
        "Between Gaussians fitted to real and generated features.",
        "samples",
    ),
    "precision": MetricInfo(
        "Precision of samples", "precision", "share", 1, "Samples that lie on the manifold of real images.", "samples"
    ),
    "recall": MetricInfo(
        "Recall of samples", "recall", "share", 1, "Real images that lie on the manifold of the samples.", "samples"
    ),
    "inception-score": MetricInfo(
        "Inception Score", "Inception Score", "number", 1, "Confidence and variety of Inception's classes.", "samples"
    ),
    "rank_paper": MetricInfo(
        "Effective rank (the paper's)",
        "rank",
        "number",
        0,
        "Entropy of the singular values of the covariance of the class tokens, in nats (Eq. 6, arXiv:2404.10947).",
    ),
    "rank_centered": MetricInfo(
        "Effective rank (column-centred)", "centred rank", "number", 0, "The same of pooled features, centred."
    ),
    "rankme": MetricInfo(
        "Effective rank (RankMe)", "RankMe", "number", 0, "exp of the entropy of the singular values."
    ),
    "pearson": MetricInfo(
        "Correlation of rank and accuracy", "Pearson r", "number", 0, "Pearson's correlation across runs at one step."
    ),
    "final_loss": MetricInfo(
        "Final training loss", "loss", "number", -1, "Mean over the last tenth of the logged steps.", "training"
    ),
    "completed": MetricInfo(
        "Steps completed", "completed", "share", 1, "Steps done before training ended or diverged.", "training"
    ),
    "setback": MetricInfo(
        "Largest rise of the loss",
        "largest rise of the loss",
        "number",
        -1,
        "Above its lowest value so far.",
        "training",
    ),
    "gradient_peak": MetricInfo(
        "Largest gradient norm", "largest / median gradient", "number", -1, "In units of the median.", "training"
    ),
    "norm_first": MetricInfo(
        "Feature norm at step 1", "norm, step 1", "number", 0, "Mean token norm of the last block.", "training"
    ),
    "norm_largest": MetricInfo(
        "Largest feature norm", "largest norm", "number", 0, "Mean token norm of the last block.", "training"
    ),
    "norm_last": MetricInfo(
        "Final feature norm", "norm, end", "number", 0, "Mean token norm of the last block.", "training"
    ),
    "alpha": MetricInfo(
        "Learned alpha", "alpha", "number", 0, "Weight of an identity shortcut that was trained.", "training"
    ),
}

# Measurement -> the metrics that it yields, the one that a sweep shows first; pictures yield none.
YIELDS: dict[str, tuple[str, ...]] = {
    "knn": ("knn",),
    "linear": ("linear",),
    "rank": ("rank_paper", "rank_centered", "rankme"),
    "spectral": ("miou", "miou_object"),
    "tokencut": ("tokencut-corloc", "tokencut-iou"),
    "segprobe": ("segprobe-miou",),
    "tsne": (),
    "neighbours": (),
    "reconstruct": (),
    "frechet": ("frechet",),
    "precision": ("precision", "recall"),
    "inception-score": ("inception-score",),
}


def info_of(name: str) -> MetricInfo:
    """The entry of a metric; one that is not in the table is a plain number without a direction."""
    return METRICS.get(name) or MetricInfo(name.replace("_", " ").capitalize(), name, "number", 0, "")


def require_measurements(names: Iterable[str], *, of_samples: bool = True) -> None:
    """Refuses a name that `--metrics` does not know; without `of_samples`, also those that need generated images."""
    allowed = [name for name, yielded in YIELDS.items() if of_samples or not _needs_samples(yielded)]
    for name in names:
        if set(parts := name.split(",")) <= set(allowed) and len(parts) > 1:
            raise ConfigError(f"metrics is {name!r}; give them with spaces between: {' '.join(parts)}")
        require_one_of("metrics", name, allowed)


def _needs_samples(metrics: Iterable[str]) -> bool:
    return any(info_of(metric).kind == "samples" for metric in metrics)


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A measured value. `protocol` has everything that determines it: features, layer, pooling, k, folds, seed, ..."""

    metric: str
    value: float
    n: int
    interval: tuple[float, float] | None = None  # bootstrap, 95 %
    protocol: dict[str, Any] = field(default_factory=dict)
    right: str = field(default="", repr=False, compare=False)  # which answers were right, packed: measures/outcomes.py
    groups: Any = field(default=None, repr=False, compare=False)  # which of them belong together: there too

    @property
    def info(self) -> MetricInfo:
        return info_of(self.metric)

    def to_json(self) -> dict[str, Any]:
        interval = None if self.interval is None else list(self.interval)
        return {
            "metric": self.metric,
            "value": self.value,
            "n": self.n,
            "interval": interval,
            "protocol": self.protocol,
            **({"right": self.right} if self.right else {}),
            **({"groups": self.groups} if self.right and self.groups else {}),
        }

    @staticmethod
    def from_json(record: dict[str, Any]) -> Metric:
        interval = record.get("interval")
        return Metric(
            metric=record["metric"],
            value=record["value"],
            n=record["n"],
            interval=None if interval is None else (interval[0], interval[1]),
            protocol=record["protocol"],
            right=record.get("right", ""),
            groups=record.get("groups"),
        )

    def __str__(self) -> str:
        how = describe(without_fingerprints(self.protocol))
        return f"{self.metric} {number(self)}{interval_text(self)}  n={self.n}  {how}"


# Entries of a protocol that name a set or the file of its labels, or tell what its files are; a fingerprint decides
# whether it is another one.
NAMES_OF_IMAGES = ("train", "test")
NAMES_OF_SETS = (*NAMES_OF_IMAGES, "label_file", "file_channels")
FINGERPRINTS = ("train_set", "test_set", "label_set")


def on_same_images(one: Metric, other: Metric) -> bool:
    """Whether two numbers were measured on the same images, and by the same labels where both depend on labels.

    Where neither says which, they are taken to be.
    """
    labels = ("label_set",) if "label_set" in one.protocol and "label_set" in other.protocol else ()
    return all(one.protocol.get(name) == other.protocol.get(name) for name in ("train_set", "test_set", *labels))


def without_fingerprints(protocol: Mapping[str, Any]) -> dict[str, Any]:
    """A protocol for people: programs compare sets by their fingerprints."""
    return {name: value for name, value in protocol.items() if name not in FINGERPRINTS}


def describe(protocol: Mapping[str, Any]) -> str:
    """For people: labels by the name of their file, where it is known."""
    shown = {**protocol}
    if "labels" in shown and (file := shown.pop("label_file", None)):
        shown["labels"] = file
    return ", ".join(f"{key} {value}" for key, value in shown.items() if value is not None)


def number(metric: Metric) -> str:
    return f"{100 * metric.value:.2f} %" if metric.info.is_share else f"{metric.value:.4g}"


def interval_text(metric: Metric) -> str:
    if metric.interval is None:
        return ""
    low, high = metric.interval
    return f" [{100 * low:.2f}, {100 * high:.2f}]" if metric.info.is_share else f" [{low:.4g}, {high:.4g}]"


def table(metrics: Sequence[Metric], best: Sequence[bool] = ()) -> str:
    """For a terminal of 100 columns: protocol entries that all rows share come first; each row has its own.

    best: which rows get a star.
    """
    if not metrics:
        return "nothing was measured"
    shared = shared_protocols(metrics)
    above = [f"{name}: {describe(protocol)}" for name, protocol in shared.items() if protocol]
    stars = ["*" if place < len(best) and best[place] else "" for place in range(len(metrics))]
    cells = [(m.metric, number(m) + interval_text(m) + star, f"n={m.n}") for m, star in zip(metrics, stars)]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    lines = [
        line for sentence in above for line in wrap(sentence, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    ]
    lines += [""] if lines else []
    for metric, row in zip(metrics, cells):
        start = "".join(cell.ljust(width + 2) for cell, width in zip(row, widths))
        own = wrap(describe(_own(metric, shared)), max(30, WIDTH - len(start)), break_on_hyphens=False) or [""]
        lines += [f"{lead}{text}".rstrip() for lead, text in zip([start] + [" " * len(start)] * (len(own) - 1), own)]
    return "\n".join(lines)


def html_table(metrics: Sequence[Metric]) -> str:
    """The same for a notebook: a column for every entry of the protocol in which rows differ."""
    shared = shared_protocols(metrics)
    keys = list(dict.fromkeys(key for metric in metrics for key in _own(metric, shared)))
    header = "".join(f"<th>{escape(title)}</th>" for title in ("metric", "value", "95 % interval", "n", *keys))
    body = []
    for metric in metrics:
        own = _own(metric, shared)
        cells = [metric.info.title, number(metric), interval_text(metric).strip(), metric.n]
        cells += [own.get(key, "") for key in keys]
        body.append("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>")
    above = [f"<p>{escape(name)}: {escape(describe(protocol))}</p>" for name, protocol in shared.items() if protocol]
    return f"{''.join(above)}<table><thead><tr>{header}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def shared_protocols(metrics: Sequence[Metric]) -> dict[str, dict[str, Any]]:
    """Protocol entries shared by all values, under "all", and by all values of a metric, under its name."""
    everywhere = _common(metrics)
    found = {"all": everywhere}
    for name in dict.fromkeys(metric.metric for metric in metrics):
        common = _common([metric for metric in metrics if metric.metric == name])
        found[name] = {key: value for key, value in common.items() if key not in everywhere}
    return found


def _common(metrics: Sequence[Metric]) -> dict[str, Any]:
    """Entries with the same value in every protocol; for a single value all but `features`."""
    if len(metrics) < 2:
        return {key: value for metric in metrics for key, value in metric.protocol.items() if key != "features"}
    first, *others = [metric.protocol for metric in metrics]
    return {key: value for key, value in first.items() if all(key in o and o[key] == value for o in others)}


def _own(metric: Metric, shared: dict[str, dict[str, Any]]) -> dict[str, Any]:
    known = shared["all"] | shared[metric.metric]
    return {key: value for key, value in metric.protocol.items() if key not in known}
