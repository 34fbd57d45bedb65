from __future__ import annotations
from dataclasses import dataclass
@dataclass(frozen=True, slots=True)
class Miss:
    index: int
    why: str
    hint: str = ""
    nearest: str = ""
    @staticmethod
    def stray(s): return Miss(-1, "stray")
def diagnose(scope, i, shapes, legal, target): return Miss(i, "todo")
