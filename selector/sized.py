"""One kernel object with a program for each size class (``runtime.classes``).

The programs come from one pipeline that nobody scheduled, each with the schedule for its class;
each is right at every size. One is chosen by the shapes of a call: by the native launcher for a
call that it knows, so that nothing is added to what such a call costs. A class that a call needs
first is compiled then, where the pipeline still is; a kernel that was loaded takes the nearest that
it has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from selector import pipeline
from selector.diagnostics import ArgumentError
from selector.kernel import Kernel
from selector.runtime import arguments, host, sized_artifact
from selector.runtime import artifact as artifacts
from selector.runtime.classes import Shapes, SizeClass
from selector.runtime.execute import Executable
from selector.runtime.graph import LaunchGraph
from selector.runtime.prepare import output_shapes
from selector.runtime.sizes import Size

if TYPE_CHECKING:
    from selector.interop.ahead.tables import Program

Make = Callable[[Shapes], tuple[SizeClass, Kernel]]
_SHAPES_AT_MOST = 1024  # of calls, whose programs are remembered


class SizedKernel(Kernel):
    """A kernel with a program for each size class, made when a call first needs it.

    A call, ``graph`` and ``interpret`` take the program of their sizes. ``report``, ``source``,
    ``module``, ``plan`` and ``cubin()`` are those of the program with which compiling began (of the
    first sizes that were given, else for unknown ones); ``program`` gives another. Threads may
    call it: a class is compiled once.
    """

    def __init__(
        self, base: Kernel, programs: Mapping[SizeClass, Kernel], make: Make | None
    ) -> None:
        super().__init__(base._artifact, base._clock, base._entry, base._trust)
        self.report = base.report
        self._programs = dict(programs)  # never changed, but replaced
        self._make = make
        self._making = threading.Lock()
        self._chosen: dict[Hashable, Kernel] = {}

    def __call__(
        self, *args: Any, out: Any = None, stream: Any = None, sizes: Any = None, **named: Any
    ) -> Any:
        """Run the program of the call's sizes, as ``Kernel`` does."""
        results = self._executable.call_known(args, named, out, stream, sizes)
        if results is not NotImplemented:
            return results
        program = self.program(*args, out=out, sizes=sizes, **named)
        return self._executable_of(program)(args, named, out, stream, sizes)

    def graph(self, *args: Any, out: Any = None, sizes: Any = None, **named: Any) -> LaunchGraph:
        """The launches of a call as one CUDA graph, as that of ``Kernel``."""
        program = self.program(*args, out=out, sizes=sizes, **named)
        return Kernel.graph(program, *args, out=out, sizes=sizes, **named)

    def interpret(self, *args: Any, sizes: Any = None, **named: Any) -> Any:
        """Run the program of the call's sizes in NumPy, as that of ``Kernel``."""
        program = self.program(*args, sizes=sizes, **named)
        return Kernel.interpret(program, *args, sizes=sizes, **named)

    @property
    def size_classes(self) -> tuple[SizeClass, ...]:
        """Those for which there are programs so far."""
        return tuple(self._programs)

    def program(self, *args: Any, out: Any = None, sizes: Any = None, **named: Any) -> Kernel:
        """The kernel that runs such a call, with its own report and source; compiled if need be.

        ``ArgumentError`` for arrays that do not fit.
        """
        key = _signature(args, named, out, sizes)
        found = None if key is None else self._chosen.get(key)
        if found is None:
            found = self._program(self._shapes(args, named, out, sizes))
            if key is not None:
                if len(self._chosen) >= _SHAPES_AT_MOST:
                    self._chosen = {}
                self._chosen[key] = found
        return found

    def program_for(self, shapes: Shapes) -> Kernel:
        """The kernel for arrays of these shapes, inputs and outputs by name; compiled if it has to
        be.
        """
        return self._program(shapes)

    def compile_for(self, sizes: Any) -> SizeClass | None:
        """Compile the program of some sizes before a call needs it: shapes of inputs and outputs by
        name, or the output's; what follows from the inputs may be left out. The class that it
        has; None for a kernel that was loaded, which makes none.
        """
        if self._make is None:
            return None
        shapes = self._completed(sizes)
        with self._making:
            return self._class_of(shapes) or self._made(shapes)[0]

    def to_bytes(self, machine_code: bool = True) -> bytes:
        """The bytes of the file that ``save`` writes, with all programs that there are."""
        if not machine_code:
            return self._bytes(Kernel._bare)
        return self._bytes(Kernel._whole)

    def programs_to_export(self) -> list[Program]:
        """Those of all size classes that there are; without any, that with which compiling
        began.
        """
        found = [
            replace(each, size_class=size_class)
            for size_class, kernel in self._programs.items()
            for each in kernel.programs_to_export()
        ]
        return found or super().programs_to_export()

    def __reduce__(self) -> tuple[Callable[[bytes, bool], Kernel], tuple[bytes, bool]]:
        """Pickled as its saved bytes, with the programs that there are; it makes no more then."""
        return _unpickled, (self._bytes(lambda kernel: kernel._artifact), self._trust)

    def __repr__(self) -> str:
        count = len(self._programs)
        return f"{super().__repr__()[:-1]}, {count} size class{'es' if count != 1 else ''}>"

    def _bytes(self, artifact_of: Callable[[Kernel], artifacts.Artifact]) -> bytes:
        same = (k for k in self._programs.values() if k.source == self.source)
        begun = next(same, self)  # whose machine code is asked for once
        programs = {c: artifact_of(k) for c, k in self._programs.items()}
        return sized_artifact.to_bytes(artifact_of(begun), programs)

    def _executable_of(self, program: Kernel) -> Executable:
        """The way to run a program: what it comes to know of calls, the native launcher of a GPU
        finds here.
        """
        gpu = self.target.family == "cuda"
        if gpu and program is not self and "_executable" not in vars(program):
            program._executable = self._executable.beside(program.plan, program.cubin)
        return program._executable

    def _program(self, shapes: Shapes) -> Kernel:
        found = self._of(shapes)
        if found is not None:
            return found
        if self._make is None:
            return self._nearest(shapes)
        with self._making:  # another thread may have made it meanwhile
            found = self._of(shapes)
            return self._made(shapes)[1] if found is None else found

    def _of(self, shapes: Shapes) -> Kernel | None:
        known = self._class_of(shapes)
        return None if known is None else self._programs[known]

    def _class_of(self, shapes: Shapes) -> SizeClass | None:
        return next((c for c in self._programs if c.holds(shapes)), None)

    def _nearest(self, shapes: Shapes) -> Kernel:
        classes = sorted(self._programs, key=lambda c: c.away(shapes))
        return self._programs[classes[0]] if classes else self

    def _made(self, shapes: Shapes) -> tuple[SizeClass, Kernel]:
        assert self._make is not None
        size_class, kernel = self._make(shapes)
        if size_class not in self._programs:
            self._programs = {**self._programs, size_class: kernel}
        return size_class, self._programs[size_class]

    def _shapes(self, args: Any, named: Any, out: Any, sizes: Any) -> Shapes:
        """Shapes of all inputs and outputs of a call, each checked."""
        values = arguments.match_names(self.plan, args, named)
        outs = arguments.match_outputs(self.plan, out)
        known: dict[str, Size] = {}
        given = outs | values
        for buffer in self.plan.buffers:
            if buffer.name in given:
                view = host.views_of((buffer,), (given[buffer.name],))[buffer.name]
                arguments.check_array(buffer, view)
                known[buffer.name] = arguments.size_of(buffer, view)
        found = {name: size.extents[::-1] for name, size in known.items()}
        if outs:
            return found
        scalars = {s.name: arguments.check_scalar(s, values[s.name]) for s in self.plan.scalars}
        return found | output_shapes(self.plan, known, arguments.numbers(self.plan, scalars), sizes)

    def _completed(self, sizes: Any) -> Shapes:
        """The shapes that are given, and those of outputs that follow from them."""
        outputs, inputs = arguments.outputs_of(self.plan), arguments.inputs_of(self.plan)
        given = sizes if isinstance(sizes, Mapping) else {outputs[0].name: sizes}
        shapes = {name: tuple(int(n) for n in shape) for name, shape in given.items()}
        ranks = {b.name: len(b.dims) for b in (*inputs, *outputs)}
        for name, shape in shapes.items():
            if ranks.get(name) != len(shape):
                raise ArgumentError(
                    f"sizes has {shape} for `{name}`",
                    why=f"it has {ranks[name]} dimensions"
                    if name in ranks
                    else f"that is no output and no argument of {self.name}",
                    hint="shapes in NumPy's order, by the names of outputs and arguments",
                )
        if all(b.name in shapes for b in inputs):
            known = {b.name: arguments.dense_size(b, shapes[b.name]) for b in inputs}
            wanted = {b.name: shapes[b.name] for b in outputs if b.name in shapes}
            with suppress(ArgumentError, KeyError):  # it does not follow, or from a number
                shapes |= output_shapes(self.plan, known, {}, wanted)
        return shapes


def read_sized(programs: sized_artifact.Programs, trust: bool) -> Kernel:
    """The kernel of a file, which has one program or several."""
    base, others = programs

    def kernel(artifact: artifacts.Artifact) -> Kernel:
        return Kernel(artifact, pipeline.Clock(), None, trust)

    if not others:
        return kernel(base)
    return SizedKernel(kernel(base), {c: kernel(a) for c, a in others.items()}, None)


def _unpickled(data: bytes, trust: bool) -> Kernel:
    return read_sized(sized_artifact.from_bytes(data), trust)


def _signature(args: Any, named: Any, out: Any, sizes: Any) -> Hashable | None:
    """What the sizes of a call follow from; None for a call that has to be looked at anew."""
    outs = tuple(out.items()) if isinstance(out, dict) else (("", out),)
    try:
        key = (
            tuple(map(_shape_of, args)),
            tuple((name, _shape_of(v)) for name, v in named.items()),
            tuple((name, _shape_of(v)) for name, v in outs),
            None if sizes is None else repr(sizes),
        )
        hash(key)
    except TypeError:
        return None
    return key


def _shape_of(value: Any) -> Hashable:
    """An array's shape, and integers as they are: sizes may follow from those."""
    if value is None or isinstance(value, (int, np.integer)):
        return value
    return (type(value), tuple(getattr(value, "shape", ())))
