"""Device functions that emitted CUDA may use, as named snippets; a source holds only those it
calls.

No header is included, so that NVRTC needs none and compiles in milliseconds. f16 and bf16 are their
bits; every arithmetic step goes through f32, which rounds once to the same value as a native
operation would (f32 has more than twice the significand). Sources of the instruction forms: PTX
ISA, sections on ``mma``, ``ldmatrix``, ``cp.async``, ``cvt``.
"""

from __future__ import annotations

from selector.gpu.cuda.snippets.arithmetic import ARITHMETIC
from selector.gpu.cuda.snippets.barriers import BARRIERS
from selector.gpu.cuda.snippets.copies import COPIES
from selector.gpu.cuda.snippets.fragments import FRAGMENTS
from selector.gpu.cuda.snippets.groups import GROUPS
from selector.gpu.cuda.snippets.stores import STORES
from selector.gpu.cuda.snippets.tensor import TENSOR

_ALWAYS = """\
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8; typedef short s16; typedef long long s64;
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
"""

_SNIPPETS: dict[str, str] = ARITHMETIC | COPIES | BARRIERS | GROUPS | FRAGMENTS | STORES | TENSOR

# Copies to the block's own shared memory that say so (PTX ISA 8.6): else, code for sm_120 asks
# before each whether the address is another block's, and has a stack for what it does then.
_OWN = {
    name: text.replace(".shared::cluster.global", ".shared::cta.global")
    for name, text in BARRIERS.items()
    if name.startswith(("tensor_copy", "bulk_copy"))
}

SNIPPET_NAMES = frozenset(_SNIPPETS)
"""What the functions of the snippets are called."""


class _Apart(dict[int, str]):
    """For ``str.translate``: characters that are in no word become spaces."""

    def __missing__(self, character: int) -> str:
        letter = chr(character)
        self[character] = letter if letter.isalnum() or letter == "_" else " "
        return self[character]


_APART = _Apart()


def words(text: str) -> set[str]:
    """The names in a text of C, and whatever else is written together: numbers, too."""
    return set(text.translate(_APART).split())


def preamble(body: str, extra: dict[str, str], *, own: bool = False) -> str:
    """The snippets whose name occurs in ``body``, in a fixed order; ``extra`` holds instruction
    wrappers. ``own``: copies of the engine name the block's shared memory, not the cluster's.
    """
    used = words(body)
    parts = [_ALWAYS]
    known = _SNIPPETS | _OWN if own else _SNIPPETS
    parts += [text for name, text in known.items() if name in used]
    parts += [text for name, text in sorted(extra.items()) if name in used]
    return "".join(parts)
