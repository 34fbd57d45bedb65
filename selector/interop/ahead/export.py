"""The files of an exported kernel: a header with the function's C interface, its source with the
machine code, the C of programs for the CPU, and a CMake package.

What is the same for all kernels lies beside this file as C++ (``runtime_*.h``) and is copied.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from selector.diagnostics import ArgumentError, ArtifactError, TargetError
from selector.interop.ahead.cmake import cmake_lists
from selector.interop.ahead.tables import (
    Program,
    builds_of,
    fields_table,
    host_symbol,
    number_type,
    program_text,
    quoted,
)
from selector.ir.nodes import BufferParam, IntImm, Role
from selector.runtime import arguments
from selector.runtime.plan import Plan
from selector.runtime.sizes import constant_extents
from selector.targets import find_target

MARK = "Written by tensor-selector: do not edit."
_HERE = Path(__file__).parent
_PUBLIC = "tensor_selector.h"
_ALWAYS = (_PUBLIC, "runtime_arrays.h")
_GPU = ("runtime_cuda.h", "runtime_driver.h", "runtime_launches.h")
_HOST = ("runtime_host.h",)
_MOST_AXES = 8
_WORDS = """
auto bool break case catch char class const continue default delete do double else enum extern false
float for goto if inline int long namespace new operator private public register return short signed
sizeof static struct switch template this throw true try typedef union unsigned using virtual void
volatile while and or not xor stream message DLTensor Number tensor_selector_call"""
_RESERVED = frozenset(_WORDS.split())


def files_of(name: str, programs: Sequence[Program]) -> dict[str, str]:
    """The texts of all files by name. ``ArgumentError`` for a name that is none in C, and for
    programs that do not take the same arrays; ``TargetError`` for what cannot be exported.
    """
    if not re.fullmatch(r"[A-Za-z]\w*", name) or name in _RESERVED:
        raise ArgumentError(
            f"{name!r} is no name for a function in C", hint="letters, digits and underscores"
        )
    _check(name, programs)
    gpu = any(p.cubin is not None for p in programs)
    host = any(p.cubin is None for p in programs)
    shared = (*_ALWAYS, *(_GPU if gpu else ()), *(_HOST if host else ()))
    files = {n: (_HERE / n).read_text(encoding="utf-8") for n in shared}
    files |= {f"{name}.h": _header(name, programs), f"{name}.cpp": _source(name, programs)}
    built: dict[str, str] = {}
    for i, program in enumerate(programs):
        if program.cubin is None:
            files[f"{name}_{i}.c"] = f"// {MARK}\n{program.plan.source}"
            for tiles in builds_of(program.plan):
                files[f"{name}_{i}_{tiles}.c"] = _built(name, i, program.plan, tiles)
                built[f"{name}_{i}_{tiles}.c"] = tiles
    threads = any("#pragma omp" in p.plan.source for p in programs if p.cubin is None)
    return files | {"CMakeLists.txt": cmake_lists(name, built, threads, gpu, MARK)}


def write_files(directory: str | os.PathLike[str], files: Mapping[str, str]) -> None:
    """Write the files of an export; ``ArtifactError`` rather than replace what is none."""
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in files:
            path = folder / name
            if path.exists() and MARK not in path.read_text(errors="replace")[:200]:
                raise ArtifactError(
                    f"{path} exists and was not written by an export", hint="choose another folder"
                )
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ArtifactError(f"{folder} cannot be written", why=error.strerror or "") from error


def _check(name: str, programs: Sequence[Program]) -> None:
    first = programs[0].plan
    targets: dict[str, Plan] = {}
    for program in programs:
        plan = program.plan
        if _parameters(plan) != _parameters(first):
            raise ArgumentError(
                f"{name}: the kernels for {first.target} and {plan.target} take different "
                "arguments",
                hint="export kernels of one pipeline together",
            )
        if program.size_class is None and targets.setdefault(plan.target, plan) is not plan:
            raise ArgumentError(f"{name}: there are two kernels for {plan.target}")
    if any(len(b.dims) > _MOST_AXES for b in first.buffers):
        raise TargetError(
            f"{name} cannot be exported", why=f"arrays have {_MOST_AXES} axes at most"
        )
    if not arguments.outputs_of(first):
        raise TargetError(f"{name} cannot be exported", why="it has no output")


def _parameters(plan: Plan) -> object:
    """What a call is checked against before a program is chosen."""
    strides = [
        [d.stride.value if isinstance(d.stride, IntImm) else None for d in b.dims]
        for b in arguments.inputs_then_outputs(plan)
    ]
    buffers = [
        (b.name, str(b.type), b.role, constant_extents(b))
        for b in arguments.inputs_then_outputs(plan)
    ]
    return buffers, strides, plan.scalars


def _parameter_names(function: str, plan: Plan) -> list[str]:
    """Names of inputs, numbers and outputs that C takes, none of them the function's."""
    found: list[str] = []
    outputs = [b.name for b in arguments.outputs_of(plan)]
    for name in (*arguments.parameter_names(plan), *outputs):
        own = re.sub(r"\W", "_", name)
        own = own if own[0].isalpha() else f"a{own}"
        while own in _RESERVED or own in (*found, function):
            own += "_"
        found.append(own)
    return found


def _declaration(name: str, plan: Plan) -> str:
    types = ["const DLTensor *"] * len(arguments.inputs_of(plan))
    types += [f"{number_type(s.type)} " for s in plan.scalars]
    types += ["const DLTensor *"] * len(arguments.outputs_of(plan))
    pairs = zip(types, _parameter_names(name, plan), strict=True)
    return f"int {name}({', '.join(t + n for t, n in pairs)}, void *stream)"


def _header(name: str, programs: Sequence[Program]) -> str:
    plan = programs[0].plan
    guard = f"TENSOR_SELECTOR_{name.upper()}_H"
    targets = ", ".join(dict.fromkeys(find_target(p.plan.target).name for p in programs))
    arrays = "\n".join(
        f"//   {n}: {b.type}, {len(b.dims)} axes{' (written)' if b.role is Role.OUTPUT else ''}"
        for b, n in _arrays(name, plan)
    )
    return f"""// {MARK}
//
// {name}, compiled for {targets}:
{arrays}
// The last axis of an array is the pipeline's dimension 0. `stream` is a CUstream or cudaStream_t
// of the arrays' GPU; null for its default stream, and for the CPU. Work on a GPU is only begun,
// and can be captured in a CUDA graph. float16 and bfloat16 numbers are given as their bits.
// Threads may call it.
#ifndef {guard}
#define {guard}

#include "tensor_selector.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

// TENSOR_SELECTOR_OK, or another code: {name}_message() says what is wrong.
{_declaration(name, plan)};

// What the last call in this thread that failed said; it lasts until the next one.
const char *{name}_message(void);

// Gives back machine code and memory on all GPUs. No call may run meanwhile; the next loads anew.
int {name}_release(void);

#ifdef __cplusplus
}}
#endif

#endif
"""


def _arrays(name: str, plan: Plan) -> list[tuple[BufferParam, str]]:
    names = _parameter_names(name, plan)
    inputs, numbers = len(arguments.inputs_of(plan)), len(plan.scalars)
    own = names[:inputs] + names[inputs + numbers :]
    return list(zip(arguments.inputs_then_outputs(plan), own, strict=True))


_GUARDED = """\
thread_local std::string message;

template <typename Work> int guarded(const Work &work) {
  try {
    work();
    return TENSOR_SELECTOR_OK;
  } catch (const Failure &failure) {
    message = failure.text;
    return failure.code;
  } catch (const std::exception &error) {  // no memory for a vector
    message = error.what();
    return TENSOR_SELECTOR_MEMORY;
  }
}"""
"""What all calls go through: what is thrown is a code and a message."""


def _source(name: str, programs: Sequence[Program]) -> str:
    plan = programs[0].plan
    gpu = any(p.cubin is not None for p in programs)
    host = any(p.cubin is None for p in programs)
    declared, texts, rows = zip(*(program_text(i, p) for i, p in enumerate(programs)), strict=True)
    includes = ["runtime_launches.h"] * gpu + ["runtime_host.h"] * host
    includes_text = "\n".join(f'#include "{i}"' for i in includes)
    return f"""// {MARK}
#include "{name}.h"

{includes_text}

#define NAME(symbol) {name}_##symbol

{chr(10).join(filter(None, declared))}

namespace {{

{fields_table(plan)}

{chr(10).join(texts)}

const Program programs[] = {{
{chr(10).join("  " + row for row in rows)}
}};

const Kernel kernel = {{{quoted(name)}, fields, {len(plan.buffers)}, \
{len(arguments.inputs_of(plan))}, programs, {len(programs)}}};
{"Launcher launcher(kernel);" if gpu else ""}
{_GUARDED}

{_call(name, plan, gpu, host)}

}}  // namespace

{_entry(name, plan)}

extern "C" const char *{name}_message(void) {{ return message.c_str(); }}

extern "C" int {name}_release(void) {{
  return guarded([] {{{" launcher.release(); " if gpu else ""}}});
}}
"""


def _call(name: str, plan: Plan, gpu: bool, host: bool) -> str:
    """What runs a kernel where its arrays are."""
    on_gpu = "launcher.call(device.device_id, v, s, stream)"
    on_host = "run_on_host(kernel, v, s)"
    if not gpu:
        on_gpu = f'(void)stream, fail(TENSOR_SELECTOR_ARGUMENT, "{name} runs on the CPU alone")'
    if not host:
        on_host = f'fail(TENSOR_SELECTOR_ARGUMENT, "{name} runs on GPUs alone")'
    return f"""int tensor_selector_call(const DLTensor *const *tensors, const Number *s, \
void *stream) {{
  return guarded([&] {{
    View v[{len(plan.buffers)}];
    for (int i = 0; i < kernel.arrays; ++i) v[i] = view_of(fields[i], tensors[i]);
    const DLDevice device = device_of(kernel, tensors);
    if (device.device_type == kDLCPU)
      {on_host};
    else
      {on_gpu};
  }});
}}"""


def _entry(name: str, plan: Plan) -> str:
    """The function that users call."""
    names = _parameter_names(name, plan)
    inputs, numbers = len(arguments.inputs_of(plan)), len(plan.scalars)
    tensors = ", ".join(names[:inputs] + names[inputs + numbers :])
    scalars = ", ".join(f"Number::of({n})" for n in names[inputs : inputs + numbers])
    return f"""extern "C" {_declaration(name, plan)} {{
  const DLTensor *const tensor_selector_arrays[] = {{{tensors}}};
  const Number tensor_selector_numbers[] = {{{scalars or "Number()"}}};
  return tensor_selector_call(tensor_selector_arrays, tensor_selector_numbers, stream);
}}"""


def _built(name: str, number: int, plan: Plan, tiles: str) -> str:
    """One build of a program for the CPU: its C with the entry point under another name."""
    (launch,) = plan.launches
    software = "#define SELECTOR_SOFTWARE_TILES\n" if tiles == "software" else ""
    return (
        f"// {MARK}\n{software}#define {launch.entry} {name}_{host_symbol(number, tiles)}\n"
        f'#include "{name}_{number}.c"\n'
    )
