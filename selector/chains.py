"""The chains of rules of a kernel's statements: looked for when a report is first asked for one.

That takes longer than the selection, and most kernels are called without it. Until then a kernel's
report in the cache has none; from then on the cache has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial

from selector import performance
from selector.report import Report, StatementReport
from selector.runtime.artifact import Artifact
from selector.runtime.cache import KernelCache

CacheEntry = tuple[KernelCache, str]


class Chains:
    """Those of a kernel: ``selected`` gives its statements, which know how theirs is found."""

    def __init__(
        self, selected: Callable[[], Sequence[StatementReport]], entry: CacheEntry | None
    ) -> None:
        self._selected = selected
        self._entry = entry

    @cached_property
    def _found(self) -> tuple[tuple[str, ...], ...]:
        found = tuple(s.rules for s in self._selected())
        self._selected = tuple  # what it holds is not needed any more
        return found

    def of(self, number: int) -> tuple[str, ...]:
        """The chain of the statement of that number."""
        first = "_found" not in self.__dict__
        chain = self._found[number]
        if first and self._entry is not None:
            cache, key = self._entry
            artifact = cache.get(key)
            if artifact is not None:
                cache.put(key, self.added_to(artifact))
        return chain

    def told(self, report: Report) -> Report:
        """The report, whose statements without a chain ask for theirs."""
        statements = (
            replace(s, explain=partial(self.of, i)) if s.explain is None else s
            for i, s in enumerate(report.statements)
        )
        return replace(report, statements=tuple(statements))

    def added_to(self, artifact: Artifact) -> Artifact:
        """The artifact, with the chains if they have been looked for."""
        if "_found" not in self.__dict__:
            return artifact
        return with_report(artifact, self.told(report_of(artifact)))


def report_of(artifact: Artifact) -> Report:
    """The report that an artifact has."""
    copies = performance.copies_of(artifact.plan)
    report = Report.from_dict(artifact.report)
    return replace(report, copies=copies, target=artifact.plan.target)


def with_report(artifact: Artifact, report: Report) -> Artifact:
    return replace(artifact, report_text=str(report), report=report.as_dict())
