"""GPUs, and a CPU, as data: what the cost of a schedule is computed from.

``record`` says what is known of a GPU, ``gpus`` which GPUs are known, ``choice`` which one a target
or a device stands for, ``hosts`` what is known of CPUs; ``python -m selector.machine.calibrate``
measures the GPU at hand. Stands below the families of schedules (``selector.families``); nothing
here imports CuPy but the measuring.
"""

from __future__ import annotations

from selector.machine.choice import machine_for, machine_named
from selector.machine.gpus import MACHINES
from selector.machine.hosts import HOST, Host
from selector.machine.record import Machine, Rate

__all__ = ["HOST", "MACHINES", "Host", "Machine", "Rate", "machine_for", "machine_named"]
