"""A compiled pipeline: ``Kernel``, a plan with its source, its report and, once asked for, its
machine code. Running it takes NumPy, and CuPy for a GPU.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from selector import notebook, performance, pipeline
from selector.diagnostics import ArtifactError, TargetError
from selector.ir.module import Module
from selector.ir.nodes import BufferParam
from selector.report import Report
from selector.runtime import artifact as artifacts
from selector.runtime.artifact import Artifact
from selector.runtime.cache import KernelCache
from selector.runtime.classes import Shapes
from selector.runtime.execute import Executable
from selector.runtime.graph import LaunchGraph
from selector.runtime.interpret import interpret_plan
from selector.runtime.plan import Plan
from selector.runtime.sizes import constant_extents
from selector.targets import Target, find_target

if TYPE_CHECKING:
    from selector.interop.ahead.tables import Program

CacheEntry = tuple[KernelCache, str]


class Kernel:
    """A compiled pipeline. Axes follow NumPy: the last axis of an array is dimension 0."""

    def __init__(
        self,
        artifact: Artifact,
        clock: pipeline.Clock,
        entry: CacheEntry | None,
        trust: bool = True,
    ) -> None:
        self._artifact = artifact
        self._trust = trust
        self._clock = clock
        self._entry = entry

    def __call__(
        self, *args: Any, out: Any = None, stream: Any = None, sizes: Any = None, **named: Any
    ) -> Any:
        """Run on the GPU, or on the CPU for target ``amx``.

        Inputs come in calling order or by name, then scalars.

        Inputs are NumPy, CuPy or torch arrays; the result is of the same kind: an array, or a dict
        by name if there are several outputs. ``out=`` (array or dict) is written instead of new
        arrays; ``sizes=`` gives the shapes of outputs that neither the plan nor the inputs fix;
        ``stream=`` is a CuPy or torch stream or a handle; default: the current one of the arrays'
        library on their device. Threads may call one kernel.

        With device arrays a call only launches, and can be captured in a CUDA graph, CuPy's or
        torch's. What it allocates then comes from the arrays' library: torch keeps it for its
        graph; what CuPy allocates, and the kernel's code, are held until the graph and all that was
        made of it are gone.

        ``ArgumentError`` for arrays that do not fit, and for a call on the default stream that
        another one, which is being captured, would have to wait for; ``TargetError`` where the
        kernel cannot run.
        """
        return self._executable(args, named, out, stream, sizes)

    def graph(self, *args: Any, out: Any = None, sizes: Any = None, **named: Any) -> LaunchGraph:
        """The launches of a call as one CUDA graph on these arrays of the GPU.

        ``graph()`` or ``graph.launch(stream)`` replays all of them with the cost of one launch: on
        what the inputs then hold, into ``out=`` or, without it, into ``graph.output``. Scalars stay
        as they are given here. The intermediate arrays are the graph's own.

        ``ArgumentError`` for arrays that do not fit or are not on a GPU, ``TargetError`` for a
        kernel that runs on no GPU.
        """
        if self.target.family != "cuda":
            raise TargetError(
                f"{self.name} is compiled for {self.plan.target}, which has no CUDA graphs",
                hint="compile it for target 'cuda'",
            )
        return self._executable.graph(args, named, out, sizes)

    def interpret(self, *args: Any, sizes: Any = None, **named: Any) -> Any:
        """Run the selected program in NumPy, each instruction by its record's meaning, on any
        machine.

        Arguments and result are those of a call, as NumPy arrays. ``ArgumentError`` for arrays that
        do not fit. Some seconds for an image of 512 x 512.
        """
        from selector.intrinsics.windows import with_zeros

        return interpret_plan(self.plan, with_zeros(self.module), args, named, sizes)

    @property
    def name(self) -> str:
        """The program's, by default that of its output."""
        return self.plan.name

    @property
    def cache_key(self) -> str | None:
        """Its name in the kernel cache; None if it is not there."""
        return None if self._entry is None else self._entry[1]

    @property
    def trusted(self) -> bool:
        """Whether code for the CPU may be run: it was compiled here, or loaded with trust."""
        return self._trust

    @property
    def plan(self) -> Plan:
        """What a launch needs: parameters with their types and axes, kernels, source."""
        return self._artifact.plan

    @property
    def target(self) -> Target:
        """What it is compiled for; its name is ``kernel.target.name``."""
        return find_target(self.plan.target)

    @property
    def source(self) -> str:
        """The emitted source: CUDA, or C for target ``amx``."""
        return self.plan.source

    @cached_property
    def report(self) -> Report:
        """What went to which instruction, by which rules; what did not, and why. Prints as text."""
        report = Report.from_dict(self._artifact.report)
        copies = performance.copies_of(self.plan)
        return replace(report, copies=copies, target=self.plan.target)

    @cached_property
    def module(self) -> Module:
        """The selected program; ``str`` gives its text form."""
        from selector.ir.parser import parse_module

        return parse_module(self._artifact.module_text, f"{self.name}.vir")

    @property
    def stages(self) -> Mapping[str, float]:
        """Seconds that each stage took in this process: ``lower`` (by ``halide_bridge.compile``),
        ``verify``, ``select``, ``emit`` and, once there is machine code, ``cubin`` (NVRTC) or
        ``library``; ``cached`` in place of the middle for a kernel that was found.
        """
        return dict(self._clock.seconds)

    def lowered_in(self, seconds: float) -> None:
        """Say how long it took to lower what it is made of."""
        known = dict(self._clock.seconds)
        self._clock.seconds.clear()
        self._clock.seconds.update({"lower": seconds, **known})

    def cubin(self) -> bytes:
        """Machine code for the kernel's target; compiled at the first call, without a GPU.

        ``TargetError`` for a target that is no GPU: see ``library``.
        """
        if self.target.family != "cuda":
            raise TargetError(
                f"{self.name} is compiled for {self.plan.target}, which has no cubin",
                why="a cubin is machine code for an NVIDIA GPU",
                hint="kernel.library() gives the shared object for the CPU",
            )
        found = self._artifact.cubins.get(self.plan.target)
        if found is not None:
            return found
        from selector.runtime import nvrtc

        start = time.perf_counter()
        code = nvrtc.compile_to_cubin(self.source, self.plan.target, size=self.plan.size)
        self._clock.time("cubin", start)
        self._keep(with_cubin(self._artifact, code))
        return code

    def library(self, tiles: str | None = None) -> bytes:
        """The shared object of a kernel for the CPU; compiled by the system's C compiler at the
        first call, where none that was saved fits.

        ``tiles``: ``"hardware"`` for tile registers, which needs no such CPU to compile;
        ``"software"`` for the same program on arrays; default: what this CPU has. ``TargetError``
        for a target that is no CPU, and without a compiler; ``ArtifactError`` for a kernel that was
        loaded without trust.
        """
        if self.target.family != "amx":
            raise TargetError(
                f"{self.name} is compiled for {self.plan.target}, which has no shared object",
                hint="kernel.cubin() gives the machine code for the GPU",
            )
        if tiles not in (None, "hardware", "software"):
            raise TargetError(
                f"tiles={tiles!r} is neither 'hardware' nor 'software'",
                hint="leave it out for what this CPU has",
            )
        self._check_trust()
        from selector.runtime import cpu_builds, cpu_compile

        wanted = cpu_builds.wanted_build(self.source, tiles)
        found = cpu_builds.choose(self._artifact.libraries, wanted)
        if found is not None:
            return found.code
        start = time.perf_counter()
        made = cpu_compile.compile_library(self.source, wanted)
        self._clock.time("library", start)
        self._keep(replace(self._artifact, libraries=(made, *self._artifact.libraries)))
        return made.code

    def _check_trust(self) -> None:
        """``ArtifactError`` for code for the CPU that was loaded without trust."""
        if not self._trust:
            raise ArtifactError(
                f"{self.name} was read from a file, and is code for the CPU",
                why="such code runs as this process does, and can do whatever you can",
                hint="selector.load(path, trust=True), if you know who could write the file; "
                "kernel.interpret(...) needs no trust",
            )

    def _keep(self, artifact: Artifact) -> None:
        """Go on with more machine code, and put it into the cache."""
        self._artifact = artifact
        if self._entry is not None:
            cache, key = self._entry
            cache.put(key, artifact)

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write a file that ``selector.load`` reads, with machine code: for the CPU that of this
        machine and, if it uses tiles, that for tile registers in hardware.

        ``ArtifactError`` if ``path`` holds something else and ``overwrite`` is not set.
        """
        artifacts.write(self.to_bytes(), path, overwrite)

    def program_for(self, shapes: Shapes) -> Kernel:
        """The kernel for arrays of these shapes, inputs and outputs by name: this one."""
        return self

    def export(self, name: str, directory: str | os.PathLike[str], *others: Kernel) -> None:
        """Write a C++ library with the function ``name`` for the kernel, which needs no Python when
        it runs: header, source with the machine code, CMake package.

        ``others``: the same pipeline for other targets; a call takes the one for its arrays' GPU,
        or CPU. ``ArgumentError`` for a name that is none in C and for kernels that take other
        arguments, ``TargetError`` for what cannot be exported, ``ArtifactError`` if ``directory``
        holds something else under one of the names.
        """
        from selector.interop.ahead.export import files_of, write_files

        programs = [p for kernel in (self, *others) for p in kernel.programs_to_export()]
        write_files(directory, files_of(name, programs))

    def programs_to_export(self) -> list[Program]:
        """What ``export`` writes: this kernel's one program."""
        from selector.interop.ahead.tables import Program

        if self.target.family == "cuda":
            return [Program(self.plan, self.cubin())]
        self._check_trust()
        return [Program(self.plan)]

    def to_bytes(self, machine_code: bool = True) -> bytes:
        """The bytes of the file that ``save`` writes; ``load_bytes`` reads them.

        Without ``machine_code`` nothing is compiled, and none is in them: enough to interpret.
        """
        return artifacts.to_bytes(self._whole() if machine_code else self._bare())

    def __reduce__(self) -> tuple[Callable[[bytes, bool], Kernel], tuple[bytes, bool]]:
        """Pickled as its saved bytes, with the machine code that there is: nothing of it is run
        when it is read. Trusted like this one: a pickle can run anything anyway.
        """
        return read_kernel, (artifacts.to_bytes(self._artifact), self._trust)

    def _whole(self) -> Artifact:
        """The artifact with its machine code and the whole report."""
        if self.target.family == "cuda":
            self.cubin()
        else:
            from selector.runtime.cpu_builds import uses_tiles

            if uses_tiles(self.source):
                self.library("hardware")
            self.library()
        report = self.report
        return replace(self._artifact, report_text=str(report), report=report.as_dict())

    def _bare(self) -> Artifact:
        return replace(self._artifact, cubins={}, libraries=())

    def _repr_html_(self) -> str:
        """What a notebook shows: arguments, what statements became, the source behind a click."""
        rows = (
            (notebook.paragraphs(b.name), str(b.type), _shape_of(b), b.role.value)
            for b in self.plan.buffers
        )
        source = notebook.folded(
            f"{len(self.source.splitlines())} lines", notebook.code(self.source)
        )
        return (
            notebook.paragraphs(f"{self.name} for {self.plan.target}")
            + notebook.table(("array", "type", "shape", "is"), rows)
            + self.report.html()
            + source
        )

    def __repr__(self) -> str:
        names = ", ".join(b.name for b in self.plan.buffers)
        return f"<Kernel {self.name}({names}) for {self.plan.target}>"

    @cached_property
    def _executable(self) -> Executable:
        if self.target.family == "amx":
            from selector.runtime.cpu import CpuExecutable

            return CpuExecutable(self.plan, self.library)
        from selector.runtime.cuda import driver

        return Executable(self.plan, self.cubin, driver())


def _shape_of(buffer: BufferParam) -> str:
    """In NumPy's order, "?" where the plan fixes no extent."""
    extents = reversed(constant_extents(buffer))
    return " x ".join("?" if n is None else str(n) for n in extents) or "a number"


def read_kernel(data: bytes, trust: bool) -> Kernel:
    """One program that ``Kernel.to_bytes`` gave."""
    return Kernel(artifacts.from_bytes(data), pipeline.Clock(), None, trust)


def with_cubin(artifact: Artifact, code: bytes) -> Artifact:
    return replace(artifact, cubins={**artifact.cubins, artifact.plan.target: code})
