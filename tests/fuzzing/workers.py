"""Processes that run programs one after the other: one that crashes or hangs costs its program.

A worker is warm: it imports once. It says which stage it is in, so that a program that does not
come back has a place.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from fuzzing.outcome import Outcome
from fuzzing.program import Program

LIMIT = 150.0  # seconds for one program, compiled and run by all oracles
STARTING = 60.0  # seconds until a process is there
PROGRAMS = 250  # of one process: what Halide compiles stays in memory
ENVIRONMENT = {"SELECTOR_CHECK": "1", "SELECTOR_CACHE_DIR": "", "HL_NUM_THREADS": "1",
               "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip


def serve(connection: Connection, gpu: bool, quiet: bool) -> None:
    """A worker's process: programs in, stages and outcomes out."""
    if quiet:  # Halide's warnings
        for descriptor in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    from fuzzing.oracles import run_program

    while True:
        program: Program | None = connection.recv()
        if program is None:
            return
        outcome = run_program(program, lambda stage: connection.send(("stage", stage)), gpu)
        connection.send(("done", outcome))


@dataclass
class Worker:
    """A process and what it is at."""

    gpu: bool = False
    quiet: bool = True
    limit: float = LIMIT
    work: Callable[[Connection, bool, bool], None] = serve
    process: Any = None
    connection: Any = None
    job: tuple[int, Program] | None = None
    begun: float = 0.0
    stage: str = ""
    programs: int = 0

    def start(self, number: int, program: Program) -> None:
        if self.process is None:
            self.connection, other = multiprocessing.Pipe()
            context = multiprocessing.get_context("spawn")
            self.process = context.Process(
                target=self.work, args=(other, self.gpu, self.quiet), daemon=True
            )
            self.process.start()
            other.close()
            self.programs = 0
        self.job, self.begun, self.stage = (number, program), time.monotonic(), "start"
        self.programs += 1
        self.connection.send(program)

    def poll(self) -> Outcome | None:
        """The outcome of the job, if there is one by now."""
        try:
            while self.connection.poll():
                kind, value = self.connection.recv()
                if kind == "done":
                    self.job = None
                    if self.programs >= PROGRAMS:
                        self.stop()
                    return value
                if self.stage == "start":  # the process is there, and has imported
                    self.begun = time.monotonic()
                self.stage = value
        except (EOFError, OSError):
            self.process.join(5)
            code = self.process.exitcode
            return self._lost(Outcome("crash", f"exit code {code} in {self.stage}"))
        if time.monotonic() - self.begun > self.limit + (STARTING if self.stage == "start" else 0):
            return self._lost(Outcome("hang", f"in {self.stage}", f"over {self.limit:.0f} s"))
        return None

    def _lost(self, outcome: Outcome) -> Outcome:
        self.job = None
        self.stop()
        return outcome

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.connection.close()
        self.process = self.connection = None

    def run(self, program: Program) -> Outcome:
        """One program, waited for."""
        self.start(0, program)
        while True:
            wait([self.connection], timeout=1.0)
            outcome = self.poll()
            if outcome is not None:
                return outcome


@dataclass
class Pool:
    count: int
    gpu: bool = False
    quiet: bool = True
    workers: list[Worker] = field(default_factory=list[Worker])

    def run(self, jobs: Iterator[tuple[int, Program]]) -> Iterator[tuple[int, Program, Outcome]]:
        """(number, program, outcome) as they come."""
        self.workers = [Worker(self.gpu, self.quiet) for _ in range(self.count)]
        more = True
        try:
            while more or any(w.job for w in self.workers):
                for w in self.workers:
                    job = next(jobs, None) if more and w.job is None else None
                    if job is not None:
                        w.start(*job)
                    elif w.job is None:
                        more = False
                busy = [w for w in self.workers if w.job]
                wait([w.connection for w in busy], timeout=1.0)
                for w in busy:
                    assert w.job is not None
                    number, program = w.job
                    outcome = w.poll()
                    if outcome is not None:
                        yield number, program, outcome
        finally:
            for w in self.workers:
                w.stop()
