"""Comparisons of many runs: grids, the experiments of the papers, and how their trials run."""
