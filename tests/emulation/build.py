"""Machine code for the CPU, by g++: of the runtime once, of a kernel's text when it is new.

What was built is kept in a folder under a name made of its text: ``SELECTOR_EMULATION_DIR``, or one
in the system's folder for temporary files. Several processes may use it at once.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from emulation.problems import Unsupported
from emulation.translate import to_cpp

SHIM = Path(__file__).parent / "shim"
_SONAME = "selector-emulation-runtime.so"  # by which the loader knows that it is loaded
# The same code on every machine; numbers.h needs F16C.
_COMMON = ("-std=c++20", "-march=x86-64-v3", "-fPIC", "-fwrapv", "-fno-strict-aliasing")
_RUNTIME = (*_COMMON, "-O1", "-shared", f"-Wl,-soname,{_SONAME}")
# Every access of memory is a call of the runtime (a sanitizer's, whose library is left out);
# registers begin with a pattern.
_TEXT = (
    *_COMMON,
    "-w",
    "-Og",
    "-fsanitize=thread",
    "--param=tsan-instrument-func-entry-exit=0",
    "-ftrivial-auto-var-init=pattern",
)
# A function that is missing is an error here, not when it is called.
_LINKED = ("-shared", "-nostdlib", "-Wl,-z,defs")


def folder() -> Path:
    named = os.environ.get("SELECTOR_EMULATION_DIR")
    found = Path(named or Path(tempfile.gettempdir()) / f"selector-emulation-{os.getuid()}")
    found.mkdir(mode=0o700, parents=True, exist_ok=True)
    if found.stat().st_uid != os.getuid():  # what lies there is loaded as code
        raise Unsupported(f"{found} belongs to somebody else")
    return found


def _gcc(*arguments: str | Path) -> None:
    try:
        done = subprocess.run(["g++", *map(str, arguments)], capture_output=True, text=True)
    except FileNotFoundError:
        raise Unsupported("g++ is not installed") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        raise Unsupported(f"g++: {(errors or [done.stderr[:300]])[0]}")


@cache
def _shim_key() -> str:
    texts = [p.read_bytes() for p in sorted(SHIM.iterdir())]
    return _digest(b"".join(texts) + repr((_RUNTIME, _TEXT)).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


@cache
def runtime() -> Path:
    """The runtime's library. Beside it is the header of emitted text, which g++ has read."""
    made = folder() / f"shim-{_shim_key()}"
    library = made / "runtime.so"
    if not library.exists():
        made.mkdir(exist_ok=True)
        own = made / f"{os.getpid()}"
        own.mkdir(exist_ok=True)
        for header in SHIM.glob("*.h"):
            (own / header.name).write_bytes(header.read_bytes())
            os.replace(own / header.name, made / header.name)
        _gcc(*_TEXT, "-x", "c++-header", made / "device.h", "-o", own / "device.h.gch")
        parts = "".join(f'#include "{p}"\n' for p in sorted(SHIM.glob("*.cpp")))
        (own / "runtime.cpp").write_text(parts, encoding="utf-8")
        _gcc(*_RUNTIME, own / "runtime.cpp", "-o", own / "runtime.so")
        (own / "runtime.cpp").unlink()
        os.replace(own / "device.h.gch", made / "device.h.gch")
        os.replace(own / "runtime.so", library)
        own.rmdir()
    return library


def build(source: str) -> Path:
    """The library of a CUDA source: a function ``launch_NAME`` for each kernel."""
    text = to_cpp(source)
    made = folder() / f"{_digest(text.encode())}-{_shim_key()}.so"
    if not made.exists():
        headers = runtime().parent
        own = made.with_name(f"{made.stem}.{os.getpid()}.so")
        code = own.with_suffix(".cpp")
        code.write_text(text, encoding="utf-8")
        _gcc(*_TEXT, *_LINKED, f"-I{headers}", code, runtime(), "-lm", "-lc", "-o", own)
        code.unlink()
        os.replace(own, made)
    return made
