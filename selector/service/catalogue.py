"""What there is: targets with their instructions, whether programs in Python are taken, and rules
with their laws.
"""

from __future__ import annotations

from selector.intrinsics import for_target
from selector.targets import TARGETS
from selector.workbench.ruleset import read_rules, standard_files


def targets_answer(python: bool) -> dict[str, object]:
    return {
        "targets": [
            {
                "name": t.name,
                "family": t.family,
                "capability": t.capability,
                "shared_memory": t.shared_memory,
                "compile_only": t.compile_only,
                "features": sorted(t.features),
                "instructions": [i.name for i in for_target(t)],
            }
            for t in TARGETS.values()
        ],
        "python_input": python,
    }


def rules_answer() -> dict[str, object]:
    files = standard_files()
    return {
        "rules": [rule.as_dict() for rule in read_rules(files)],
        "files": [name for name, _ in files],
    }
