"""Inline assembly to C++: each PTX instruction of an ``asm`` statement becomes a call of the shim.

A statement is a block that gives its operands names, declares the registers of the text, and has
one C++ statement per instruction. Which call an instruction is, ``INSTRUCTIONS`` says by its
opcode. Source: PTX ISA, "Instruction Set"; CUDA, "Inline PTX Assembly".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from emulation.problems import Unsupported

_TYPES = {"r": "u32", "l": "u64", "h": "u16", "f": "float", "d": "double", "n": "int"}
_REGISTERS = {"pred": "bool", "b16": "u16", "b32": "u32", "b64": "u64", "u32": "u32", "u64": "u64"}
_FORMATS = {
    "f16": "F16",
    "bf16": "BF16",
    "s8": "S8",
    "u8": "U8",
    "f32": "F32",
    "s32": "S32",
    "tf32": "TF32",
    "e4m3": "E4M3",
    "e5m2": "E5M2",
}
_SPECIAL = {
    "%cluster_ctarank": "cluster_rank()",
    "%globaltimer": "global_timer()",
    "%dynamic_smem_size": "shared_size()",
}


@dataclass(frozen=True, slots=True)
class Operands:
    """What an instruction is written with. An operand is a C++ expression, or a tuple of them for
    what stands in braces; an address ``[a, b]`` is its parts.
    """

    opcode: str
    values: tuple[str | tuple[str, ...], ...]

    def one(self, i: int) -> str:
        value = self.values[i]
        if isinstance(value, tuple):
            raise Unsupported(f"{self.opcode}: a list as operand {i}")
        return value

    def several(self, i: int) -> tuple[str, ...]:
        value = self.values[i]
        return value if isinstance(value, tuple) else (value,)


Meaning = Callable[["re.Match[str]", Operands], str]


def _pointers(name: str, registers: Sequence[str]) -> str:
    given = ", ".join(f"(void*)&{r}" for r in registers)
    return f"void* const {name}[] = {{{given}}};"


def _words(name: str, registers: Sequence[str]) -> str:
    given = ", ".join(f"word({r})" for r in registers)
    return f"const u32 {name}[] = {{{given}}};"


def _result(function: str) -> Meaning:
    """The first operand is a function of the others."""
    return lambda _, o: f"{o.one(0)} = {function}({', '.join(o.values[1:])});"  # type: ignore[arg-type]


def _call(function: str) -> Meaning:
    return lambda _, o: f"{function}({', '.join(map(str, o.values))});"


def _mma(found: re.Match[str], o: Operands) -> str:
    k, c, a, b = found.groups()
    if o.values[0] != o.values[3]:
        raise Unsupported(f"{o.opcode} that adds to other registers than it writes")
    formats = ", ".join(_FORMATS[t] for t in (a, b, c))
    return (
        f"{_pointers('to', o.several(0))} {_words('left', o.several(1))} "
        f"{_words('right', o.several(2))} mma({formats}, {k}, to, left, right);"
    )


def _load_matrices(found: re.Match[str], o: Operands) -> str:
    across = "true" if found[2] else "false"
    return f"{_pointers('to', o.several(0))} load_matrices({found[1]}, {across}, to, {o.one(1)});"


def _store_matrices(found: re.Match[str], o: Operands) -> str:
    across = "true" if found[2] else "false"
    return f"{_words('from', o.several(1))} store_matrices({found[1]}, {across}, {o.one(0)}, from);"


def _copy(_: re.Match[str], o: Operands) -> str:
    valid = o.one(3) if len(o.values) > 3 else o.one(2)
    return f"copy_later({o.one(0)}, (const void*)({o.one(1)}), {o.one(2)}, {valid});"


def _bulk_copy(_: re.Match[str], o: Operands) -> str:
    to, source, count, barrier = (o.one(i) for i in range(4))
    return f"bulk_copy_later({to}, (const void*)({source}), {count}, {barrier});"


def _arrive(found: re.Match[str], o: Operands) -> str:
    """``mbarrier.arrive state, [barrier]`` and, with bytes to expect, one operand more."""
    expected = f"mbarrier_expect({o.one(1)}, {o.one(2)}); " if found[1] else ""
    return f"{expected}mbarrier_arrive({o.one(1)});"


def _group_product(found: re.Match[str], o: Operands) -> str:
    """``wgmma.mma_async d, a, b, add`` and, for floats, signs and which operands lie across."""
    n, k, c, a, b = found.groups()
    held = isinstance(o.values[1], tuple)
    add, modes = o.one(3), [o.one(i) for i in range(4, len(o.values))]
    a_sign, b_sign = modes[:2] if modes else ("1", "1")
    *a_across, b_across = modes[2:] or ["0", "0"]
    left = _words("left", o.several(1)) if held else "const u32* const left = nullptr;"
    formats = ", ".join(_FORMATS[t] for t in (a, b, c))
    fields = (
        f"{formats}, {n}, {k}, {'0' if held else o.one(1)}, {o.one(2)}, (bool)({add}), {a_sign}, "
        f"{b_sign}, {'false' if held else f'(bool)({a_across[0]})'}, (bool)({b_across})"
    )
    return (
        f"{_pointers('to', o.several(0))} {left} "
        f"group_multiply(GroupProduct{{{fields}}}, to, left);"
    )


def _box_copy(found: re.Match[str], o: Operands) -> str:
    """``[to], [map, {place}], [barrier]`` and, for several blocks, which ones."""
    blocks = o.one(4) if found[2] else "0"
    return (
        f"{_place(o, 2)} box_copy_later({o.one(0)}, (const TensorMap*)({o.one(1)}), place, "
        f"{found[1]}, {o.one(3)}, {blocks});"
    )


def _box_store(found: re.Match[str], o: Operands) -> str:
    return (
        f"{_place(o, 1)} box_store_later({o.one(2)}, (const TensorMap*)({o.one(0)}), place, "
        f"{found[1]});"
    )


def _place(o: Operands, i: int) -> str:
    return f"const int place[] = {{{', '.join(f'(int)({x})' for x in o.several(i))}}};"


def _nothing(_: re.Match[str], __: Operands) -> str:
    return ""


_SHARED = r"\.shared(?:::cta)?"
_TENSOR = r"tcgen05"
_ONE = r"\.cta_group::1"
_BULK = r"cp\.async\.bulk"
_LANDS = r"\.shared::(?:cluster|cta)\.global\.mbarrier::complete_tx::bytes"
INSTRUCTIONS: dict[str, Meaning] = {
    r"cvt\.f32\.f16": _result("half_value"),
    r"cvt\.rn\.f16\.f32": _result("half_bits"),
    r"cvt\.rn\.bf16\.f32": _result("brain_bits"),
    r"cvt\.rna\.tf32\.f32": _result("rounded_to_tf32"),
    r"cvt\.rn\.tf32\.f32": _result("even_tf32"),
    r"cvt\.rn\.f16x2\.f32": _result("half_pair"),
    r"cvt\.rn\.bf16x2\.f32": _result("brain_pair"),
    r"ex2\.approx\.ftz\.f32": _result("power_of_two"),
    r"lg2\.approx\.f32": _result("log2f"),
    r"div\.full\.f32": lambda _, o: f"{o.one(0)} = {o.one(1)} / {o.one(2)};",
    r"tanh\.approx\.f32": _result("tanhf"),
    r"(add|sub|mul|min|max)(?:\.rn)?\.f16x2": lambda m, o: _result(f"{m[1]}_halves")(m, o),
    r"set\.(eq|lt|le|gt|ge)\.u32\.f16x2": lambda m, o: _result(f"{m[1]}_halves")(m, o),
    r"mov\.[bu](?:32|64)": lambda _, o: f"{o.one(0)} = {_SPECIAL.get(o.one(1), o.one(1))};",
    r"add\.[su](?:32|64)": lambda _, o: f"{o.one(0)} = {o.one(1)} + {o.one(2)};",
    r"setp\.(eq|ne)\.[su]32": lambda m, o: (
        f"{o.one(0)} = {o.one(1)} {'==' if m[1] == 'eq' else '!='} {o.one(2)};"
    ),
    r"selp\.[su]32": lambda _, o: f"{o.one(0)} = {o.one(3)} ? {o.one(1)} : {o.one(2)};",
    r"bra": lambda _, o: f"goto {o.one(0)};",
    r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col\.(\w+)\.(\w+)\.(\w+)\.\2": _mma,
    rf"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?{_SHARED}\.b16": _load_matrices,
    rf"stmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?{_SHARED}\.b16": _store_matrices,
    rf"cp\.async\.c[ag]{_SHARED}\.global": _copy,
    r"cp\.async\.commit_group": _call("commit_copies"),
    r"cp\.async\.wait_group": _call("await_copies"),
    r"cp\.async\.wait_all": lambda _, __: "commit_copies(); await_copies(0);",
    rf"cp\.async\.mbarrier\.arrive(\.noinc)?{_SHARED}\.b64": lambda m, o: (
        f"mbarrier_arrive_behind_copies({o.one(0)}, {'false' if m[1] else 'true'});"
    ),
    rf"mbarrier\.init{_SHARED}\.b64": _call("mbarrier_make"),
    rf"mbarrier\.inval{_SHARED}\.b64": _call("mbarrier_end"),
    r"mbarrier\.arrive(\.expect_tx)?\.shared(?:::cta|::cluster)?\.b64": _arrive,
    rf"mbarrier\.expect_tx(?:\.relaxed\.cta)?{_SHARED}\.b64": _call("mbarrier_expect"),
    rf"mbarrier\.(?:test|try)_wait\.parity{_SHARED}\.b64": _result("mbarrier_passed"),
    rf"{_BULK}{_LANDS}": _bulk_copy,
    rf"{_BULK}\.tensor\.(\d)d{_LANDS}(\.multicast::cluster)?": _box_copy,
    rf"{_BULK}\.tensor\.(\d)d\.global\.shared::cta\.bulk_group": _box_store,
    rf"{_BULK}\.commit_group": _call("bulk_commit"),
    rf"{_BULK}\.wait_group(?:\.read)?": _call("bulk_wait"),
    r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.(\w+)\.(\w+)\.(\w+)": _group_product,
    r"wgmma\.fence\.sync\.aligned": _call("group_fence"),
    r"wgmma\.commit_group\.sync\.aligned": _call("group_commit"),
    r"wgmma\.wait_group\.sync\.aligned": _call("group_wait"),
    rf"{_TENSOR}\.alloc{_ONE}\.sync\.aligned\.shared::cta\.b32": _call("tensor_allocate"),
    rf"{_TENSOR}\.relinquish_alloc_permit{_ONE}\.sync\.aligned": _nothing,
    rf"{_TENSOR}\.dealloc{_ONE}\.sync\.aligned\.b32": _call("tensor_free"),
    rf"{_TENSOR}\.mma{_ONE}\.kind::(f16|i8)": lambda m, o: (
        f"tensor_multiply({'true' if m[1] == 'i8' else 'false'}, {', '.join(map(str, o.values))});"
    ),
    rf"{_TENSOR}\.commit{_ONE}\.mbarrier::arrive::one\.shared::cluster\.b64": (
        _call("tensor_commit")
    ),
    rf"{_TENSOR}\.ld\.sync\.aligned\.16x256b\.x(\d+)\.b32": lambda m, o: (
        f"{_pointers('to', o.several(0))} tensor_load({m[1]}, to, {o.one(1)});"
    ),
    rf"{_TENSOR}\.wait::ld\.sync\.aligned": _call("tensor_await_loads"),
    rf"{_TENSOR}\.fence::(?:before|after)_thread_sync": _nothing,
    r"mapa\.shared::cluster\.u32": _result("place_in"),
    r"barrier\.cluster\.arrive(?:\.\w+)*": _call("cluster_arrive"),
    r"barrier\.cluster\.wait(?:\.\w+)*": _call("cluster_wait"),
    r"(?:bar|barrier)\.sync(?:\.aligned)?": lambda _, o: (
        f"sync_named({o.one(0)}, {o.one(1)});" if len(o.values) > 1 else "sync_block();"
    ),
    rf"st{_SHARED}\.u32": _call("store_shared"),
    r"st\.shared::cluster\.u32": _call("store_there"),
    r"griddepcontrol\.(?:launch_dependents|wait)": _nothing,
    r"fence\.mbarrier_init\.release\.cluster": _call("fence_barriers"),
    r"fence\.proxy\.async(?:\.shared::cta)?": _call("fence_stores"),
    r"prefetch\.tensormap": _nothing,
    r"setmaxnreg\.(?:inc|dec)\.sync\.aligned\.u32": _nothing,
}
"""What an instruction is in C++, by a pattern of its opcode."""


def translated(text: str, outputs: Sequence[str], inputs: Sequence[str], number: int) -> str:
    """The C++ of an ``asm`` statement: its text, as the assembler reads it, and operands such as
    ``"=r"(x)``. ``number`` is its own among those of a source.
    """
    if not text.strip():
        return ";"
    lines: list[str] = []
    for i, operand in enumerate([*outputs, *inputs]):
        constraint, expression = _operand(operand)
        if i < len(outputs):
            lines.append(f"auto& operand{i} = ({expression});")
        else:
            kind = _TYPES[constraint[-1]]
            lines.append(f"const {kind} operand{i} = ({kind})({expression});")
    lines += _statements(text, number)
    return "{ " + "\n".join(lines) + " }"


def _operand(text: str) -> tuple[str, str]:
    found = re.match(r'\s*"([=+]?[rlhfdn])"\s*\((.*)\)\s*\Z', text, re.DOTALL)
    if found is None:
        raise Unsupported(f"an operand of asm: {text.strip()}")
    return found[1], found[2]


def _statements(text: str, number: int) -> Iterator[str]:
    """Declarations first: jumps go past what is declared later."""
    body = text.replace("\n", " ").strip()
    if body.startswith("{"):
        body = body[1:].rstrip().removesuffix("}")
    parts = [part.strip() for part in body.split(";") if part.strip()]
    names: set[str] = set()
    found: list[str] = []
    for part in parts:
        part = part.lstrip("{").strip()
        if declared := re.match(r"\.reg\s+\.(\w+)\s+(.*)\Z", part):
            registers = [r.strip() for r in declared[2].split(",")]
            names |= set(registers)
            yield f"{_REGISTERS[declared[1]]} {', '.join(_local(r) for r in registers)};"
        else:
            found.append(part)
    labels = {m[1] for p in found for m in re.finditer(r"(?:\A|\s)(\w+):(?!:)", p)}
    for part in found:
        yield _statement(part, names, labels, number)
    if found and re.search(r":\s*\}?\Z", found[-1]):
        yield ";"


def _local(register: str) -> str:
    return f"register_{register}"


def _statement(text: str, names: set[str], labels: set[str], number: int) -> str:
    before = ""
    while found := re.match(r"(\w+):(?!:)\s*", text):
        before += f"{found[1]}_{number}: "
        text = text[found.end() :].strip()
    text = text.rstrip("}").strip() if text.strip("} ") == "" else text
    if not text:
        return before
    if found := re.match(r"@(!?)(\w+)\s+", text):
        before += f"if ({found[1]}{_local(found[2])}) "
        text = text[found.end() :]
    opcode, _, rest = text.partition(" ")

    def value(operand: str) -> str:
        operand = operand.strip()
        if operand in labels:
            return f"{operand}_{number}"
        operand = re.sub(r"%(\d+)", r"operand\1", operand)
        return re.sub(r"[A-Za-z_]\w*", lambda m: _local(m[0]) if m[0] in names else m[0], operand)

    operands = Operands(opcode, tuple(_values(rest, value)))
    return f"{before}{{ {_meaning(operands)} }}"


def _values(text: str, value: Callable[[str], str]) -> Iterator[str | tuple[str, ...]]:
    """The operands between the commas; the parts of an address one by one."""
    for operand in _split(text):
        if operand.startswith("["):
            yield from _values(operand[1:-1], value)
        elif operand.startswith("{"):
            yield tuple(value(o) for o in _split(operand[1:-1]))
        else:
            yield value(operand)


def _split(text: str) -> list[str]:
    """Between the commas that are in no brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += {"[": 1, "{": 1, "(": 1, "]": -1, "}": -1, ")": -1}.get(c, 0)
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts if p.strip()]


def _meaning(operands: Operands) -> str:
    for pattern, meaning in INSTRUCTIONS.items():
        if found := re.fullmatch(pattern, operands.opcode):
            return meaning(found, operands)
    raise Unsupported(f"the instruction {operands.opcode}")
