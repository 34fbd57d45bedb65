"""CUDA text to C++ that g++ compiles with ``shim/device.h``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from emulation.assembly import translated
from emulation.problems import Unsupported

# Types that the shim brings itself.
_KNOWN = re.compile(r"^struct (?:alignas\(\d+\) )?(?:f16|bf16|TensorMap) \{[^{}]*\};\n", re.M)
_SHARED = re.compile(r"extern __shared__ (?:__align__\(\d+\) )?unsigned char (\w+)\[\];")
_ENTRY = re.compile(
    r'extern "C" __global__ void (?:__\w+__\([^)]*\) )*(\w+)\(([^)]*)\) \{', re.DOTALL
)
_ASM = re.compile(r"\basm(?:\s+volatile)?\s*\(")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def to_cpp(source: str) -> str:
    """C++ of a source. Each kernel has a function ``launch_NAME`` of C that takes pointers to its
    arguments and is one thread of it.
    """
    text = _SHARED.sub(r"unsigned char* const \1 = here->shared;", _KNOWN.sub("", source))
    text = "".join(_without_assembly(text))
    if "__shared__" in text:
        raise Unsupported("shared memory of a fixed size")
    entries = "\n".join(_entry(m[1], m[2]) for m in _ENTRY.finditer(text))
    return f'#include "device.h"\n{text}\n{entries}\n'


def _entry(name: str, parameters: str) -> str:
    """What the runtime calls."""
    kinds: list[str] = []
    for parameter in filter(None, map(str.strip, parameters.split(","))):
        kind = re.sub(r"\b__\w+__\b", "", parameter).strip()
        kind = re.sub(r"\s*\w+$", "", kind)
        kinds.append(kind if "*" in kind else kind.removeprefix("const "))
    values = ", ".join(f"argument<{kind}>(arguments[{i}])" for i, kind in enumerate(kinds))
    return f'extern "C" void launch_{name}(void** arguments) {{ {name}({values}); }}'


def _without_assembly(source: str) -> Iterator[str]:
    """The pieces of a source, its ``asm`` statements translated."""
    at = 0
    for number, found in enumerate(_ASM.finditer(source)):
        end = _closing(source, found.end())
        yield source[at : found.start()]
        text, outputs, inputs = _parts(source[found.end() : end])
        yield translated(text, outputs, inputs, number)
        at = source.index(";", end) + 1
    yield source[at:]


def _closing(source: str, start: int) -> int:
    """Where the parenthesis before ``start`` is closed."""
    depth, at = 1, start
    while depth:
        if string := _STRING.match(source, at):
            at = string.end()
            continue
        depth += {"(": 1, ")": -1}.get(source[at], 0)
        at += 1
    return at - 1


def _parts(statement: str) -> tuple[str, list[str], list[str]]:
    """The text of an ``asm`` statement, outputs and inputs."""
    parts, depth, at = [""], 0, 0
    while at < len(statement):
        if string := _STRING.match(statement, at):
            parts[-1] += string[0]
            at = string.end()
            continue
        c = statement[at]
        depth += {"(": 1, ")": -1, "[": 1, "]": -1}.get(c, 0)
        if c == ":" and not depth:
            parts.append("")
        else:
            parts[-1] += c
        at += 1
    text = "".join(m[1] for m in _STRING.finditer(parts[0]))
    text = text.replace("\\n", "\n").replace("\\t", "\t")
    lists = [_operands(part) for part in parts[1:3]]
    lists += [[]] * (2 - len(lists))
    if lists[0] or lists[1]:  # without operands, a percent sign stands for itself
        text = text.replace("%%", "%")
    return text, lists[0], lists[1]


def _operands(text: str) -> list[str]:
    found, depth = [""], 0
    for c in text:
        depth += {"(": 1, ")": -1, "[": 1, "]": -1}.get(c, 0)
        if c == "," and not depth:
            found.append("")
        else:
            found[-1] += c
    return [f for f in map(str.strip, found) if f]
