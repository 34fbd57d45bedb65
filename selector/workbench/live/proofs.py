"""Proofs that do not hold up anything: in a process of their own, which is ended when they are no
longer wanted. (A proof of ours takes up to some seconds; the solver cannot be stopped otherwise.)
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import signal
from collections.abc import Generator, Sequence
from multiprocessing.connection import Connection

from selector.diagnostics import InternalError
from selector.workbench.problems import Problem, at
from selector.workbench.ruleset import Rule, RuleFiles

PAUSE = 0.02
"""Seconds between two looks."""


def prove_apart(rules: Sequence[Rule], files: RuleFiles) -> Generator[Problem | None]:
    """What is missing in the proof of each rule, as it becomes known, and None while it is not.
    Nothing without a solver. Closing the generator ends the process."""
    if not rules or importlib.util.find_spec("z3") is None:
        return
    ours, theirs = multiprocessing.Pipe(duplex=False)
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=_prove, args=(theirs, tuple(rules), files), daemon=True)
    # An interrupt at the terminal is for us: the process has the signals blocked that we have.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        process.start()
        theirs.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        while True:
            yield ours.recv() if ours.poll(PAUSE) else None
    except EOFError:
        process.join()
        if process.exitcode:
            raise InternalError(f"the proofs ended with exit code {process.exitcode}") from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        process.kill()
        process.join()
        ours.close()


def _prove(found: Connection, rules: Sequence[Rule], files: RuleFiles) -> None:
    from selector.workbench.prove.sorts import Signatures
    from selector.workbench.prove.verdicts import Kind, prove_rule

    signatures = Signatures.of(files)
    for rule in rules:
        verdict = prove_rule(rule, signatures)
        if verdict.kind is not Kind.PROVED:
            what = f"{verdict.kind.value}, not proved:"
            found.send(at(rule.form, rule.name, what, verdict.why))
