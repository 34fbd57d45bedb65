"""The case of a plain job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from casestudies.common.case import COPY, Arrays, Case, Peer, Problem
from casestudies.plain.common import TOLERANCE, copied
from selector.diagnostics import UserError


def plain_case(
    name: str,
    summary: str,
    problem: type,
    reference: Callable[[Any, Mapping[str, Any], Any], Any],
    peers: tuple[Peer, ...],
    random: Callable[[Any, int, Any], Arrays] | None = None,
) -> Case:
    """A case that has its algorithm in ``algorithms``, under its own name, and no schedule."""

    def algorithm(p: Problem) -> Any:
        from casestudies.plain import algorithms

        return getattr(algorithms, name)(p)

    def options(given: Mapping[str, Any]) -> Any:
        raise UserError(f"{name} is a job of the sweep", hint="python -m casestudies sweep")

    return Case(
        name=f"plain.{name}",
        summary=summary,
        build=lambda p, schedule: algorithm(p),
        reference=reference,
        benchmark=(),
        small=(),
        options=options,
        peers=(*peers, Peer(COPY, "a device copy of as many bytes", copied)),
        schedules=(),
        random=random,
        plain=algorithm,
        tolerance=TOLERANCE,
    )
