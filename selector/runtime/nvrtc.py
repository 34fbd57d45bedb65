"""CUDA source to machine code through NVRTC: needs neither a GPU nor a driver.

``compile_to_cubin`` is the only place that compiles CUDA, for artifacts, for CI and at call time,
so a kernel is the same bytes wherever it was compiled. The options are ``OPTIONS``: C++17 and
NVRTC's defaults, subnormals kept (``-ftz=false``; the interpreter keeps them too; an emitter that
wants ``.ftz`` writes it into its PTX).

``resource_usage`` and ``sass`` read a cubin back with the toolkit's ``cuobjdump`` and
``nvdisasm``; tests use them to see that tensor instructions are there and spills are not.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from selector import environment
from selector.dataclass import dataclass
from selector.diagnostics import InternalError, LimitError, ScheduleError, UserError
from selector.runtime.plan import Part, TextSize
from selector.runtime.sums import overlaps

OPTIONS = ("-std=c++17", "-ftz=false")
_CHILD = "selector.runtime.nvrtc_child"
_INSTALL = "install the compiler: pip install tensor-selector[compile]"
_TOOLS = "install the CUDA binary tools: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"
_LOG_LINE = re.compile(r"^.*?\((\d+)\): (?:catastrophic )?error", re.MULTILINE)
_REGISTERS = re.compile(r"Insufficient registers \((\d+)\).*?register target of (\d+)")
_RESOURCE = re.compile(r"Function (\S+):\s*\n\s*(.*)")
_LOCAL_ACCESS = re.compile(r"\b(LDL|STL)\b")


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """What one kernel takes: registers and bytes of stack a thread, bytes of static shared memory
    a block.

    ``shared_bytes`` holds the 1024 bytes that the system keeps for itself on sm_90.

    ``local_accesses`` counts the instructions that read or write local memory (LDL, STL): 0 means
    that nothing spilled and that no register array is indexed by a variable.
    """

    registers: int
    shared_bytes: int
    stack_bytes: int
    local_accesses: int


@cache
def bindings() -> Any:
    """The module ``cuda.bindings.nvrtc`` with its library loaded; ``UserError`` if either is
    missing.
    """
    try:
        from cuda.bindings import nvrtc  # pyright: ignore

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:  # RuntimeError: the bindings found no libnvrtc
        raise UserError(
            "CUDA source cannot be compiled here",
            why=f"NVRTC was not found ({str(error).strip().splitlines()[0]})",
            hint=_INSTALL,
        ) from error
    return nvrtc


def version() -> str:
    """NVRTC's version, such as ``13.0``; part of the key of the kernel cache."""
    _, major, minor = bindings().nvrtcVersion()
    return f"{major}.{minor}"


def available() -> bool:
    """Whether this machine can compile CUDA source."""
    try:
        bindings()
    except UserError:
        return False
    return True


@cache
def include_directories() -> tuple[str, ...]:
    """Folders with ``cuda_fp16.h`` and what it includes: from the installed wheels, conda or
    ``CUDA_HOME``.
    """
    from cuda.pathfinder import find_nvidia_header_directory  # pyright: ignore

    folder: str | None = find_nvidia_header_directory("cudart")  # pyright: ignore
    if folder is None:
        raise UserError(
            "CUDA source cannot be compiled here",
            why="cuda_fp16.h was found neither in the installed packages nor in CUDA_HOME",
            hint=_INSTALL,
        )
    libraries = Path(folder) / "cccl"  # where CUDA 13 keeps <cuda/...> and <nv/target>
    return (folder, str(libraries)) if libraries.is_dir() else (folder,)


def compile_to_cubin(
    source: str, arch: str, options: tuple[str, ...] = (), size: TextSize | None = None
) -> bytes:
    """Machine code for ``arch`` (``sm_80`` ... ``sm_90a``) of CUDA C++ ``source``.

    A source of a ``size`` that is foretold to take longer than a moment is compiled in a process of
    its own, which has ``SELECTOR_NVRTC_SECONDS`` of the processor; not so without the size, for a
    process that is bounded as a whole. What is foretold is no bound (``plan.SECONDS`` says how far
    it was off): a source that takes longer than its size shows is waited for.

    ``UserError`` if there is no NVRTC or it does not know ``arch``, ``ScheduleError`` if a thread
    cannot have the registers that an instruction needs, if machine code overwrites sums (``sums``),
    or the source is too large to compile in that time; ``InternalError`` with
    NVRTC's log and the line of the source if the source does not compile: emitted source always
    should.
    """
    _check_arch(bindings(), arch)
    if size is None or size.largest is None:
        cubin, log = compiled(source, arch, options)
    else:
        seconds = environment.nvrtc_seconds()
        try:
            cubin, log = compile_apart(source, arch, options, seconds)
        except LimitError as error:
            raise _too_large(size, size.largest, seconds) from error
    if not cubin:
        _refuse_registers(log)
        raise InternalError(_failure(source, arch, log))
    if arch.startswith("sm_90"):
        _refuse_overlaps(cubin)
    return cubin


def compiled(source: str, arch: str, options: tuple[str, ...]) -> tuple[bytes, str]:
    """Machine code, or if there is none NVRTC's log. It takes what it takes: nothing can stop it
    in this process.
    """
    nvrtc = bindings()
    program = _checked(nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
    includes = (f"-I{folder}" for folder in include_directories())
    flags = [f.encode() for f in (*OPTIONS, f"-arch={arch}", *includes, *options)]
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            return b"", _log(nvrtc, program)
        size = _checked(nvrtc, nvrtc.nvrtcGetCUBINSize(program))
        cubin = _buffer(size)
        _checked(nvrtc, nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin[:size], ""
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def compile_apart(
    source: str, arch: str, options: tuple[str, ...], seconds: float
) -> tuple[bytes, str]:
    """``compiled`` in another process; ``LimitError`` if it takes longer than that, or does not
    live.
    """
    request = {"source": source, "arch": arch, "options": options, "seconds": seconds}
    done = subprocess.run(
        [sys.executable, "-m", _CHILD],
        input=json.dumps(request).encode(),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    if done.returncode != 0 or done.stdout[:1] not in (b"+", b"-"):
        raise LimitError(f"NVRTC did not end: {done.stderr.decode(errors='replace')[-500:]}")
    if done.stdout[:1] == b"+":
        return done.stdout[1:], ""
    return b"", done.stdout[1:].decode(errors="replace")


def resource_usage(cubin: bytes) -> dict[str, ResourceUsage]:
    """Registers, shared memory and local memory of every kernel in a cubin, by entry point."""
    text = _tool("cuobjdump", cubin, "--dump-resource-usage")
    code = sass(cubin)
    usage: dict[str, ResourceUsage] = {}
    for name, line in _RESOURCE.findall(text):
        fields = dict(re.findall(r"(\w+)(?:\[\d+\])?:(\d+)", line))
        usage[name] = ResourceUsage(
            registers=int(fields["REG"]),
            shared_bytes=int(fields["SHARED"]),
            stack_bytes=int(fields["STACK"]),
            local_accesses=len(_LOCAL_ACCESS.findall(code.get(name, ""))),
        )
    return usage


def sass(cubin: bytes) -> dict[str, str]:
    """The disassembly of every kernel in a cubin, by entry point: one instruction a line."""
    text = _disassembly(cubin)
    parts = re.split(r"^\s*\.section\s+\.text\.(\S+?),.*$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@lru_cache(maxsize=1)
def _disassembly(cubin: bytes) -> str:
    """Takes half a second; who looks at the code of a kernel looks at its resources, too."""
    return _tool("nvdisasm", cubin, "--print-code", "--no-dataflow")


def count_instructions(disassembly: str, names: tuple[str, ...]) -> Mapping[str, int]:
    """How often each opcode (``HMMA``, ``LDSM``, ...; modifiers aside) occurs in a disassembly."""
    return {n: len(re.findall(rf"\b{n}\b", disassembly)) for n in names}


def _refuse_overlaps(cubin: bytes) -> None:
    found = overlaps(cubin)
    if found:
        o = found[0]
        raise ScheduleError(
            "the CUDA compiler overwrites sums of a warpgroup before they are added to",
            f"{len(found)} of its products store from register {o.sums} on what they add to "
            f"register {o.addend} and up, and results would be wrong: a fault of NVRTC {version()}",
            "give a group fewer rows of outputs, at most as many as there are rows of taps",
        )


def _check_arch(nvrtc: Any, arch: str) -> None:
    known = _checked(nvrtc, nvrtc.nvrtcGetSupportedArchs())
    match = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if match is None or int(match[1]) not in known:
        names = ", ".join(f"sm_{a}" for a in known)
        raise UserError(
            f"NVRTC {version()} cannot compile for {arch!r}",
            why=f"it knows {names}",
            hint="use another target, or a newer CUDA: pip install -U tensor-selector[compile]",
        )


def _checked(nvrtc: Any, result: tuple[Any, ...]) -> Any:
    """The value of a call of the bindings, which return ``(status, value)``; ``InternalError`` on
    failure.
    """
    status, *values = result
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise InternalError(f"NVRTC failed: {status.name}")
    return values[0] if values else None


def _too_large(size: TextSize, most: Part, seconds: float) -> ScheduleError:
    place, names = most.where, [f"`{name}`" for name in most.loops]
    loops = f" (here {' and '.join(names)})" if names else ""
    func = f"`{place.func}`{place.stage and f' ({place.stage})'}"
    return ScheduleError(
        f"NVRTC does not compile the kernel in {seconds:g} s: it is {size.characters} characters "
        f"long once its loops are unrolled, and has {size.loops} others",
        why=f"most of it is for {func}: {most.copies} unrolled copies of one statement are "
        f"{most.characters} of them",
        hint=f"unroll fewer loops around `{place.func}`{loops}, or by a smaller factor, or "
        "vectorize them; a statement that was not selected is better mended; "
        "SELECTOR_NVRTC_SECONDS is the limit",
        where=place,
    )


def _refuse_registers(log: str) -> None:
    """``ScheduleError`` where ptxas cannot fit an instruction into the registers of a thread."""
    short = _REGISTERS.search(log)
    if short is not None:
        raise ScheduleError(
            f"a thread needs {short[2]} registers or more, and its block leaves it {short[1]}",
            why="a multiprocessor has 65536 registers for the threads of a block, and an "
            "accumulator stays in those of its group",
            hint="let a group have a smaller part of the tile, or a block fewer groups",
        )


def _log(nvrtc: Any, program: Any) -> str:
    size = _checked(nvrtc, nvrtc.nvrtcGetProgramLogSize(program))
    log = _buffer(size)
    _checked(nvrtc, nvrtc.nvrtcGetProgramLog(program, log))
    return log.rstrip(b"\0 ").decode(errors="replace")


def _buffer(size: int) -> bytes:
    """Room for the bindings to write into, as they want it: bytes, and never one of Python's
    shared short ones.
    """
    return bytes(size + 16)


def _failure(source: str, arch: str, log: str) -> str:
    """NVRTC's log, and the line of the source that its first error names."""
    message = f"the emitted CUDA does not compile for {arch}:\n{log}"
    match = _LOG_LINE.search(log)
    lines = source.splitlines()
    if match is None or not 1 <= int(match[1]) <= len(lines):
        return message
    return f"{message}\nkernel.cu:{match[1]}: {lines[int(match[1]) - 1].strip()}"


def _tool(name: str, cubin: bytes, *flags: str) -> str:
    """What one of the toolkit's binary tools prints about a cubin."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run(
            [_find_tool(name), *flags, str(path)], check=False, capture_output=True, text=True
        )
    if done.returncode != 0:
        raise InternalError(f"{name} failed: {done.stderr.strip()}")
    return done.stdout


@cache
def _find_tool(name: str) -> str:
    try:
        from cuda.pathfinder import find_nvidia_binary_utility  # pyright: ignore
    except ImportError as error:
        raise UserError(f"{name} was not found", hint=_INSTALL) from error
    path: str | None = find_nvidia_binary_utility(name)  # pyright: ignore
    if path is None:
        raise UserError(f"{name} was not found", hint=_TOOLS)
    return path
