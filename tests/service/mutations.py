"""Requests that nobody means: programs of the corpus with words changed, JSON forms with values
changed, rules with words changed, noise.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any

from rules import program_files, rule_files
from selector.ir.parser import parse_module
from selector.ir.serialize import to_json
from selector.service.requests import EXAMPLE_IR

TARGETS = ("sm_80", "sm_86", "sm_90", "sm_90a", "amx")
SMALL = (EXAMPLE_IR, *(text for _, text in program_files() if len(text) < 600))
LARGE = dict(program_files())["conv1d.vir"]
_TOKEN = re.compile(r"\s+|[A-Za-z_$][\w$.]*|\d+\.\d+\w*|\d+|.", re.DOTALL)
_NUMBERS = ("0", "1", "-1", "2", "3", "7", "8", "16", "17", "255", "256", "1000", "65536",
            "2147483647", "2147483648", "-2147483648", "9223372036854775808", "1e99", "0.5f",
            "nan", "inf")  # fmt: skip
_WORDS = ("ramp", "x16", "x256", "float16", "float32", "int8", "int32", "uint1", "bfloat16", "bool",
          "float32x256", "int32x4", "select", "min", "max", "vector_reduce_add", "A", "B", "acc",
          "out", "I", "K", "WMMAAccumulator", "WGMMAAccumulator", "AMXTile", "GPUShared", "Stack",
          "for", "gpu_block<CUDA>", "gpu_thread<CUDA>", "gpu_lane<CUDA>", "unrolled", "parallel",
          "if", "else", "let", "in", "allocate", "stages", "input", "output", "scalar", "require",
          "module", "body", "shuffle", "cast", "exp_f32", "mem_to_wmma", "wmma_to_mem", "ExprVar",
          "wmma.mma.m16n16k16.f16.f32", "tile_matmul", "`a\\\"b`", "`x\\u0000y`",
          "`#include \\\"/etc/passwd\\\"`")  # fmt: skip
_MARKS = (*"()[]{}<>=+-*/%,;:.&|!`\"'\\\n ", "&&", "||", "==", "<=", "//", "/*")
_VALUES: tuple[Any, ...] = (None, True, 0, -1, 1, 2**31, 2**63, 1e308, "", "x", "int32",
                            "a\"b\n#include </etc/passwd>", [], {}, [0], ["var", "int32", "x"],
                            "GPUShared", "wmma", "float16x4", "\0", "\u2028")  # fmt: skip


def program(rng: random.Random) -> str:
    """A text: mostly a program with a few words changed."""
    text = LARGE if rng.random() < 0.03 else rng.choice(SMALL)
    match rng.randrange(20):
        case 0:
            return "".join(chr(rng.randrange(1, 0x2FF)) for _ in range(rng.randrange(200)))
        case 1:
            cut = rng.randrange(len(text))
            return text[:cut]
        case 2:
            lines = text.split("\n")
            rng.shuffle(lines)
            return "\n".join(lines)
        case 3:
            other = rng.choice(SMALL)
            return text[: rng.randrange(len(text))] + other[rng.randrange(len(other)) :]
        case 4:
            return _nested(text, rng)
        case 5 | 6:
            return _lines(text, rng)
        case _:
            return _tokens(text, rng)


def _tokens(text: str, rng: random.Random) -> str:
    tokens = list(_tokens_of(text))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(tokens))
        kind = rng.randrange(6)
        if kind == 0:
            del tokens[at]
        elif kind == 1:
            tokens.insert(at, rng.choice(tokens))
        elif kind == 2:
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif tokens[at][0].isdigit():
            tokens[at] = rng.choice(_NUMBERS)
        elif tokens[at][0].isalpha():
            tokens[at] = rng.choice((*_WORDS, rng.choice(tokens)))
        else:
            tokens[at] = rng.choice(_MARKS)
    return "".join(tokens)


@cache
def _tokens_of(text: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(text))


@cache
def _json_of(text: str) -> str:
    return json.dumps(to_json(parse_module(text)))


def _lines(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    if rng.random() < 0.5:
        del lines[at]
    else:
        lines.insert(at, rng.choice(lines))
    return "\n".join(lines)


def _nested(text: str, rng: random.Random) -> str:
    depth = rng.choice((10, 300, 5000))
    opening, closing = rng.choice((("(", ")"), ("min(", ", 1)"), ("x1(", ")"), ("if (b) {", "}")))
    at = text.find("= ") + 2
    return text[:at] + opening * depth + text[at:-4] + closing * depth + text[-4:]


def json_program(rng: random.Random) -> object:
    """A JSON form with a few values changed."""
    data: Any = json.loads(_json_of(rng.choice(SMALL)))
    for _ in range(rng.choice((1, 1, 2, 5))):
        place: Any = data
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = rng.choice(keys)
            inner = place[key]
            if isinstance(inner, (dict, list)) and inner and rng.random() < 0.85:
                place = inner
                continue
            match rng.randrange(4):
                case 0:
                    del place[key]
                case 1 if isinstance(inner, int):
                    place[key] = inner + rng.choice((-1, 1, 7))
                case _:
                    place[key] = deepcopy(rng.choice(_VALUES))
            break
    return data if rng.random() < 0.5 else json.dumps(data)


SOURCES = (
    "import halide as hl, halide_bridge as hb\nf, x = hl.Func('f'), hl.Var('x')\nf[x] = x * 2\n"
    "f.vectorize(x, 8)\noutput = f\n",
    "import numpy as np\nfor i in range(3): print(np.ones(i), target)\noutput = open('x')\n",
)
"""Programs in Python."""
_FORMS = [
    f
    for _, text in rule_files()
    for f in re.findall(r"^\((?:rule|rewrite)(?s:.)*?\)\n\n", text, re.M)
]
COMMANDS = (
    '(include "{0}")', '(input f "{0}")', '(output "{0}" 1)', '(print-stats :file "{0}")',
    '(print-function lanes 9 :file "{0}")', '(fail (include "{0}"))', '(push)', '(pop)',
    '(run-schedule (run))',
    '(rule ((= x (Int a))) ((py-exec "open(\'{0}\', \'w\')" (py-dict) (py-dict))) :ruleset axioms)',
    '(let $x (py-eval "open(\'{0}\').read()" (py-dict) (py-dict)))',
    '(datatype Py (P PyObject))', '(with-ruleset axioms (include "{0}"))', '(extract (Int 1))',
)  # fmt: skip


def rules(rng: random.Random, secret: str) -> str:
    """Rules with words changed, and commands that reach for a file."""
    if rng.random() < 0.5:
        return rng.choice(COMMANDS).format(secret)
    text = _tokens(rng.choice(_FORMS), rng)
    return text.replace(':name "', f':name "fuzz{rng.randrange(10**6)}-')


def requests(seed: int, secret: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Routes and requests without an end; ``secret`` is a file that none of them may reach."""
    rng = random.Random(seed)
    while True:
        ir = json_program(rng) if rng.random() < 0.25 else program(rng)
        request: dict[str, object] = {"ir": ir, "target": rng.choice(TARGETS)}
        kind = rng.choices(("compile", "explain", "graph"), (300, 1, 2))[0]
        if kind == "compile":
            request["strict"] = rng.random() < 0.5
            request["cubin"] = rng.random() < 0.005
        if rng.random() < 0.01:
            request["ir"] = rng.choice(SMALL)
            request["rules"] = rules(rng, secret)
        if rng.random() < 0.02:
            kind = "links"
        if rng.random() < 0.01:
            del request["ir"]
            request |= {"kind": "python", "program": _tokens(rng.choice(SOURCES), rng)}
        yield kind, request
