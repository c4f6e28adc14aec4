"""What does `evaluate` return? Its numbers, which print as a table with what they say in plain words."""

from __future__ import annotations

from html import escape

from echoless.config.metrics import Metric, html_table, table
from echoless.config.tables import wrapped
from echoless.config.words import best_of

NEXT = "Next: "


class Metrics(list[Metric]):
    """The results of `evaluate`: a list that prints as a table, in a terminal and in a notebook.

    closing: the sentences behind the table: the verdict, the next step, and the best layer where layers were compared.
    """

    closing: tuple[str, ...] = ()

    def __str__(self) -> str:
        best = best_of(self)
        lines = [table(self, best)]
        if any(best):
            lines.append("* the best of its rows, beyond the 95 % intervals of the others")
        if any(metric.metric.startswith("rank") for metric in self):
            lines += [
                "rankme: about how many directions the features use; rank_paper, rank_centered: entropies in nats, 0",
                "  for a single direction. Low is collapsed, higher is not always better",
            ]
        for sentence in self.closing:
            lines += [*([] if sentence.startswith(NEXT) else [""]), *wrapped(sentence)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_table(self) + "".join(f"<p>{escape(sentence)}</p>" for sentence in self.closing)
