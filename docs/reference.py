"""The reference pages, made from what they describe: docstrings, records, rule files and tests.

    python docs/reference.py             rewrite the pages of docs/reference/ that are made
    python docs/reference.py --check     only say which are out of date (exit 1)

``errors.md`` is made by running every scenario of the tests; ``--check`` leaves it out, because
the tests of those scenarios compare each message with the page (``tests/dictionary.py``). So it
does with ``proofs.md``, which ``tests/workbench/test_prove.py`` compares.
"""

from __future__ import annotations

import argparse
import ast
import enum
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
REFERENCE = HERE / "reference"
MADE = "<!-- Made by docs/reference.py: do not edit. -->\n\n"
sys.path[:0] = [str(ROOT), str(HERE)]

import rule_pages  # noqa: E402
from written import first, markdown, table  # noqa: E402

import halide_bridge as hb  # noqa: E402
import halide_bridge.memory  # noqa: E402  # pyright: ignore[reportUnusedImport]
import selector  # noqa: E402
import selector.tuning  # noqa: E402
from selector import diagnostics, environment  # noqa: E402
from selector.eqsat.facts import EXECUTES  # noqa: E402
from selector.intrinsics import INSTRUCTIONS, TensorInstruction  # noqa: E402
from selector.report import Block, Opportunity, Report, Search, StatementReport  # noqa: E402
from selector.runtime.graph import LaunchGraph  # noqa: E402
from selector.targets import COMPILE_ONLY, TARGETS  # noqa: E402

DIRECTIVES = (
    hb.store_in, hb.pipeline_stages, hb.resident_blocks, hb.persistent, hb.self_fed, hb.teams,
    hb.cluster, hb.in_line, hb.online, hb.clone, hb.operand, hb.narrowed, hb.from_zero,
    hb.divided_last, hb.multiplied_last, hb.as_product, hb.narrow_factors, hb.subtracted_last,
    hb.expanded, hb.sums_apart, hb.counted_from_zero, hb.counted_down, hb.around, hb.in_parts,
    hb.phased, hb.joined, hb.separated, hb.together,
    hb.grouped, hb.interleaved,
)  # fmt: skip


def signature(name: str, thing: Callable[..., Any]) -> str:
    """``name(a, b, *, c=1)``, without types: the text says what things are."""
    parameters = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in inspect.signature(thing).parameters.values()
        if p.name != "self"
    ]
    return _shown(name, str(inspect.Signature(parameters)))


def _shown(name: str, parameters: str) -> str:
    """A signature as a block, in lines that a page is wide."""
    lines = textwrap.wrap(f"{name}{parameters}", 90, subsequent_indent="    ")
    return "\n".join(["```", *lines, "```", ""])


def member_docs(kind: type[enum.Enum]) -> dict[str, str]:
    """The text below each member of an enumeration."""
    (body,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for node, text in zip(body.body, body.body[1:], strict=False):
        match node, text:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=value)):
                found[name] = markdown(str(value))
            case _:
                continue
    return found


# ---------------------------------------------------------------------------------- the pages


def directives() -> str:
    parts = [
        "# Directives\n\n"
        "What a schedule says beyond Halide's own. Each takes the Func first and returns it. A "
        "Func with a directive still compiles with stock Halide, which never sees it.\n"
    ]
    for function in DIRECTIVES:
        name = function.__name__
        parts += [f"## {name}\n", signature(f"hb.{name}", function), markdown(function.__doc__)]
        parts.append("")
    return "\n".join(parts)


STOCK = {
    "hl.MemoryType.GPUShared": "A block's shared memory: where operands are staged, and what "
    "warps or groups exchange.",
    "hl.MemoryType.Register": "A thread's registers.",
    "hl.MemoryType.Heap": "Global memory; also what `compute_root` gives.",
}


def memory() -> str:
    docs = member_docs(hb.MemoryType)
    parts = [
        "# Memory kinds\n\nWhere the values of a Func live. Those of a tensor unit are asked for "
        "with `hb.store_in(func, kind)`:\n"
    ]
    for kind in hb.MemoryType:
        families = EXECUTES[kind.memory.location]
        having = [t.name for t in TARGETS.values() if any(t.has(f) for f in families)]
        parts += [
            f"## {kind.name}\n",
            f"{docs[kind.name]}\n",
            f"Instructions: {', '.join(f'`{f}`' for f in families)}. "
            f"Targets: {', '.join(f'`{t}`' for t in having)}.\n",
        ]
    parts.append("## Stock Halide's\n\nAsked for with Halide's own `func.store_in(kind)`:\n")
    parts.append(table(("kind", "meaning"), ((f"`{k}`", v) for k, v in STOCK.items())))
    return "\n".join(parts)


def targets() -> str:
    rows = (
        (
            f"`{t.name}`",
            f"{t.capability // 10}.{t.capability % 10}" if t.capability else "CPU",
            f"{t.shared_memory // 1024} KiB" if t.shared_memory else "-",
            ", ".join(sorted(t.features)),
            COMPILE_ONLY if t.compile_only else "",
        )
        for t in TARGETS.values()
    )
    head = ("target", "compute capability", "shared memory of a block", "has", "")
    return (
        '# Targets\n\nWhat a kernel is compiled for: `hb.compile(output, target=...)`. `"cuda"` is '
        "the best of these for the GPU at hand. Compiling needs no GPU.\n\n"
        f"{table(head, rows)}\n"
        "Machine code runs on its own major version from its own minor version on; that of "
        "`sm_90a` on 9.0 alone, of `sm_100a` on 10.0. Code for `amx` is compiled by the system's C "
        "compiler when it is first called; on a CPU without AMX the tile registers are done in "
        "software.\n\n"
        "`boxes`: what warps stage ahead comes by tensor maps where it can; on `sm_90`, too, where "
        "`self_fed` asks for it. Code for Blackwell uses the instructions of warps (`mma.sync`), "
        "that for `sm_100a` `tcgen05`, too, where accumulators are `WGMMAAccumulator`.\n"
    )


def instructions() -> str:
    parts = [
        "# Instructions\n\nOne record each (`selector/intrinsics/records.py`), which rules, "
        "interpreter, emitter and report read. An instruction multiplies m x k by k x n and adds "
        "to m x n. A statement may be any multiple of m and n, and of any depth: the compiler cuts "
        "it into instructions and fills up the depth with zeros. AMX tiles may have fewer rows and "
        "columns.\n"
    ]
    families = dict.fromkeys(i.family for i in INSTRUCTIONS)
    for family in families:
        own = [i for i in INSTRUCTIONS if i.family == family]
        having = [t.name for t in TARGETS.values() if t.has(own[0].needs)]
        where = ", ".join(f"`{t}`" for t in having)
        parts += [f"## {family}\n", f"{own[0].source}. Targets: {where}.\n"]
        head = ("name", "m", "n", "k", "operands", "sums", "remarks")
        parts.append(table(head, (_row(i) for i in own)))
    return "\n".join(parts)


def _row(i: TensorInstruction) -> tuple[object, ...]:
    operands = str(i.a_type) if i.a_type == i.b_type else f"{i.a_type} x {i.b_type}"
    remarks = []
    if i.apart:
        remarks.append(f"a part of 8 columns: windows {i.apart} elements apart, times a band")
    if i.packing > 1:
        remarks.append(f"B in groups of {i.packing} k (VNNI order)")
    if i.asked:
        remarks.append(f'where `instructions=` names it, or `"{i.asked}"`; {i.loses}')
    return f"`{i.name}`", i.m, i.n, i.k, operands, i.c_type, "; ".join(remarks)


def variables() -> str:
    text = markdown(environment.__doc__)
    before, *items, after = re.split(r"\n(?=- )|\n\n(?=`XDG)", text)
    rows = []
    for item in items:
        name, _, meaning = item.removeprefix("- ").partition(": ")
        rows.append((name, " ".join(meaning.split())))
    return (
        f"# Environment variables\n\nAll of them. {' '.join(before.split('. ', 1)[1].split())}\n\n"
        f"{table(('variable', 'meaning'), iter(rows))}\n{' '.join(after.split())}\n"
    )


PUBLIC: dict[str, tuple[tuple[str, Any], ...]] = {
    "From a pipeline to a kernel": (
        ("hb.compile", hb.compile), ("hb.apply", hb.apply), ("hb.autoschedule", hb.autoschedule),
        ("hb.Schedule", hb.Schedule), ("hb.funcs", hb.funcs), ("hb.lower", hb.lower),
        ("hb.adjoint", hb.adjoint),
        ("hb.split_product", hb.split_product), ("hb.e4m3", hb.e4m3), ("hb.e5m2", hb.e5m2),
        ("hb.Taps", hb.Taps),
        ("selector.compile", selector.compile),
        ("selector.load", selector.load), ("selector.Service", selector.Service),
        ("selector.resolve_target", selector.resolve_target),
    ),
    "Kernels": (
        ("kernel", selector.Kernel), ("sized_kernel", selector.SizedKernel),
        ("hb.SizeClass", hb.SizeClass), ("graph", LaunchGraph),
        ("kernel.report", Report), ("kernel.report.statements[i]", StatementReport),
        ("kernel.report.opportunities[i]", Opportunity),
        ("kernel.report.searches[i]", Search),
        ("kernel.report.updates[i].block", Block),
    ),
    "Tuning": (
        ("hb.tune", hb.tune), ("selector.tuning.tune_saved", selector.tuning.tune_saved),
        ("result", selector.tuning.Tuning), ("result.trials[i]", selector.tuning.Trial),
        ("selector.tuning.LocalExecutor", selector.tuning.LocalExecutor),
        ("selector.tuning.RayExecutor", selector.tuning.RayExecutor),
        ("selector.tuning.InlineExecutor", selector.tuning.InlineExecutor),
    ),
}  # fmt: skip
FUNCTIONS = (
    "softmax", "rms_norm", "gaussian_blur", "filter_2d", "unsharp_mask", "use", "save",
)  # fmt: skip
OUR_OWN = ("lowered_in", "explained")  # what other rooms call, and users do not


def interface() -> str:
    parts = [
        "# Python interface\n\n`import halide_bridge as hb` needs Halide; `import selector` does "
        "not. Mistakes of the user raise a [`UserError`](errors.md). Shapes follow NumPy: the last "
        "axis is Halide's dimension 0.\n"
    ]
    for title, things in PUBLIC.items():
        parts.append(f"## {title}\n")
        for name, thing in things:
            parts += _presented(name, thing)
    apply = _read("selector/dask/call.py", "apply")
    parts += ["## Images in blocks\n", *_presented("selector.dask.apply", apply)]
    torch_op = _read("selector/interop/torch.py", "torch_op")
    parts += ["## PyTorch\n", *_presented("selector.interop.torch.torch_op", torch_op)]
    for name in FUNCTIONS:
        function = _read("selector/interop/functional.py", name)
        parts += _presented(f"selector.interop.functional.{name}", function)
    return "\n".join(parts)


def _read(path: str, name: str) -> Any:
    """Read, not imported: Dask and PyTorch are extras."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    (found,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
    return found


def _presented(name: str, thing: Any) -> list[str]:
    if isinstance(thing, ast.FunctionDef):
        for argument in (*thing.args.args, *thing.args.kwonlyargs):
            argument.annotation = None
        for argument in (thing.args.vararg, thing.args.kwarg):
            if argument is not None:
                argument.annotation = None
        shown = _shown(name, f"({ast.unparse(thing.args)})")
        return [f"### {name}\n", shown, markdown(ast.get_docstring(thing)), ""]
    if not inspect.isclass(thing):
        return [f"### {name}\n", signature(name, thing), markdown(thing.__doc__), ""]
    shown = signature(name, thing) if name.startswith("selector.") else ""
    parts = [f"### {name}\n", shown, markdown(thing.__doc__), ""]
    for member, value in vars(thing).items():
        if (member.startswith("_") and member != "__call__") or member in OUR_OWN:
            continue
        function = getattr(value, "func", getattr(value, "fget", value))
        if isinstance(value, staticmethod) or not getattr(function, "__doc__", None):
            continue
        if callable(value):
            call = name if member == "__call__" else f"{name}.{member}"
            head = " ".join(line.strip() for line in signature(call, value).splitlines()[1:-1])
            parts.append(f"**`{head}`**\n\n{markdown(function.__doc__)}\n")
        elif hasattr(value, "func") or isinstance(value, property):
            parts.append(f"**`{name}.{member}`**\n\n{markdown(function.__doc__)}\n")
    return parts


def kinds() -> Iterator[tuple[str, str]]:
    """The kinds of errors and what each means."""
    for name, kind in vars(diagnostics).items():
        if inspect.isclass(kind) and issubclass(kind, Exception):
            yield f"`{name}`", first(kind.__doc__)


PAGES: dict[str, Callable[[], str]] = {
    "directives.md": directives,
    "memory.md": memory,
    "targets.md": targets,
    "instructions.md": instructions,
    "rules.md": rule_pages.rules_by_file,
    "laws.md": rule_pages.laws_by_examples,
    "environment.md": variables,
    "api.md": interface,
}
"""The pages that ``--check`` compares."""


def page(name: str) -> str:
    """The text of a page, as it should be."""
    return MADE + re.sub(r"\n{3,}", "\n\n", PAGES[name]()).rstrip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 if out of date")
    options = parser.parse_args()
    late = [
        name
        for name in PAGES
        if not (REFERENCE / name).exists()
        or (REFERENCE / name).read_text(encoding="utf-8") != page(name)
    ]
    if options.check:
        for name in late:
            print(f"docs/reference/{name} is out of date: python docs/reference.py")
        return int(bool(late))
    for name in late:
        (REFERENCE / name).write_text(page(name), encoding="utf-8")
    (REFERENCE / "proofs.md").write_text(MADE + rule_pages.proofs(), encoding="utf-8")
    import error_pages

    (REFERENCE / "errors.md").write_text(MADE + error_pages.page(kinds()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
