"""Many runs compared: grids, the experiments of the papers, and where their trials run."""
