"""Choosing by measurement: what is fastest here, for the sizes that a user has.

workload        the sizes, and how much of a batch is real
one_site        an attention as a model of its own, and inputs for it
stopwatch       models run in turns
site_costs      the kernels that take an attention, measured
packed_or_not   a whole model with and without its padding, measured
kept            what was measured before on such a machine
tuner           all of it, for the optimizer
"""

from __future__ import annotations

from .workload import Workload

__all__ = ["Workload"]
