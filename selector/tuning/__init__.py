"""Tuning: every configuration of a small space is compiled, checked and timed, and the fastest that
is right wins.

``halide_bridge.tune`` is the way in for pipelines; ``tune_saved`` times kernels that were built on
another machine and needs neither Halide nor the rules. What runs the tasks is an ``Executor``:
processes of this machine (``LocalExecutor``), a Ray cluster (``RayExecutor``), the calling process
(``InlineExecutor``), or something else with the same four methods.
"""

from __future__ import annotations

from selector.tuning.executor import Done, Executor, Failure, Kind, Shared, Task
from selector.tuning.inline import InlineExecutor
from selector.tuning.local import LocalExecutor
from selector.tuning.on_ray import RayExecutor
from selector.tuning.results import Measurement, Status, Trial, Tuning
from selector.tuning.saved import tune_saved

__all__ = [
    "Done",
    "Executor",
    "Failure",
    "InlineExecutor",
    "Kind",
    "LocalExecutor",
    "Measurement",
    "RayExecutor",
    "Shared",
    "Status",
    "Task",
    "Trial",
    "Tuning",
    "tune_saved",
]
