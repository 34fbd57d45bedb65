"""Calls of exported kernels through ctypes, and the same launches by way of Python.

As a program: ``ahead_calls.py FOLDER`` compares them for the plans in the folder, on the driver
without a GPU that the loader finds as ``libcuda.so.1``.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from selector.interop.ahead.export import files_of, write_files
from selector.interop.ahead.tables import Program
from selector.runtime import arguments
from selector.runtime.arrays import numpy_dtype
from selector.runtime.plan import MapArgument, MapsReady, Plan, ValueArgument
from selector.runtime.plan_json import plan_from_json

STRICT = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-fPIC")
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


class Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int32))


class Dtype(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device", Device), ("ndim", ctypes.c_int32),
        ("dtype", Dtype), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


def tensor(array: np.ndarray[Any, Any], device: int = 1, number: int = 0) -> DLTensor:
    """A DLPack tensor over an array's memory; ``device`` 2 is a GPU."""
    longs = ctypes.c_int64 * max(array.ndim, 1)
    strides = (s // array.itemsize for s in array.strides)
    dtype = Dtype(_CODES[array.dtype.kind], 8 * array.itemsize, 1)
    return DLTensor(
        array.__array_interface__["data"][0], Device(device, number), array.ndim, dtype,
        longs(*array.shape), longs(*strides), 0,
    )  # fmt: skip


def shared(folder: Path, name: str, programs: list[Program]) -> Any:
    """An export as a shared object with its ``message`` function typed; C for the CPU by gcc."""
    files = files_of(name, programs)
    write_files(folder, files)
    objects = []
    for source in [n for n in files if n.endswith((".cpp", "_software.c", "_none.c"))]:
        made = str(folder / f"{source}.o")
        own = ["g++", *STRICT] if source.endswith(".cpp") else ["gcc", "-O1", "-fPIC", "-w"]
        own += [] if source.endswith(".cpp") else ["-march=native", "-fopenmp", "-std=gnu11"]
        subprocess.run([*own, "-c", source, "-o", made], cwd=folder, check=True)
        objects.append(made)
    if any(n.endswith("_hardware.c") for n in files):  # only software is called here
        stand_in = folder / "hardware.c"
        entries = [f"{name}_program_{i}_hardware" for i, p in enumerate(programs) if not p.cubin]
        stand_in.write_text("".join(f"int {e}(void) {{ return 1; }}\n" for e in entries))
        objects.append(str(stand_in))
    path = folder / f"{name}.so"
    link = ["gcc", "-shared", "-fPIC", *objects, "-o", str(path), "-ldl", "-lstdc++", "-fopenmp"]
    subprocess.run([*link, "-lm"], check=True)
    library = ctypes.CDLL(str(path))
    getattr(library, f"{name}_message").restype = ctypes.c_char_p
    return library


def argument_sizes(plan: Plan) -> dict[str, tuple[int, ...]]:
    """Bytes of the arguments of each kernel."""

    def size(a: Any) -> int:
        match a:
            case ValueArgument(_, t):
                return numpy_dtype(t).itemsize
            case MapArgument():
                return 128
            case MapsReady():
                return 4
            case _:
                return 8

    return {each.entry: tuple(map(size, each.arguments)) for each in plan.launches}


def launches(cuda: Any, plan: Plan, arrays: list[Any]) -> list[Any]:
    """What was launched, with the addresses of memory between kernels by their order."""
    known: dict[int, str] = {}
    for array, buffer in zip(arrays, arguments.inputs_then_outputs(plan), strict=True):
        known[array.data.ptr] = buffer.name
    own = {each.entry: each.arguments for each in plan.launches}
    found: list[Any] = []
    for entry, grid, block, held, stream, context, early, *values in cuda.taken():
        named: list[Any] = []
        for a, value in zip(own[entry], values, strict=True):
            address = int.from_bytes(value, "little")
            pointer = len(value) == 8 and not isinstance(a, ValueArgument)
            if pointer:
                known.setdefault(address, f"between {len(known)}")
            if isinstance(a, MapArgument) and any(value):
                address = int.from_bytes(value[24:32], "little")
                name = known.setdefault(address, f"between {len(known)}")
                value, pointer = value[:24] + value[32:], False
                named.append(name)
            named.append(known[address] if pointer else value.hex())
        found.append([entry, grid, block, held, stream, context, early, named])
    return found


def compared(folder: Path, case: dict[str, Any]) -> int:
    """The number of launches of three calls, which have to be the same in both ways."""
    from fake_cuda import FakeCuda

    from selector.runtime.cuda import CupyDriver
    from selector.runtime.execute import Executable

    plan = plan_from_json(case["plan"], "")
    cuda = FakeCuda(Path("libcuda.so.1"), argument_sizes(plan))
    for name, kernel in cuda.kernels.items():
        cuda.library.fake_know(ctypes.c_char_p(name.encode()), ctypes.byref(kernel))
    arrays = [
        cuda.cupy.ndarray(tuple(case["shapes"][b.name]), numpy_dtype(b.type))
        for b in arguments.inputs_then_outputs(plan)
    ]
    inputs = len(arguments.inputs_of(plan))
    numbers = [case["numbers"][s.name] for s in plan.scalars]
    outs = [b.name for b in arguments.outputs_of(plan)]
    run = Executable(plan, lambda: b"", CupyDriver(cuda.cupy, None))
    wanted: list[Any] = []
    for stream in case["streams"]:
        out = dict(zip(outs, arrays[inputs:], strict=True))
        run((*arrays[:inputs], *numbers), {}, out=out, stream=stream)
        wanted += launches(cuda, plan, arrays)
    name = case["name"]
    library = shared(folder / name, name, [Program(plan, b"machine code")])
    tensors = [ctypes.byref(tensor(a.values, 2)) for a in arrays]
    types = {"float32": ctypes.c_float, "int32": ctypes.c_int32}
    given = [types[str(s.type)](n) for s, n in zip(plan.scalars, numbers, strict=True)]
    message = getattr(library, f"{name}_message")

    def call(stream: int) -> int:
        on = ctypes.c_void_p(stream)
        return getattr(library, name)(*tensors[:inputs], *given, *tensors[inputs:], on)

    found: list[Any] = []
    for stream in case["streams"]:
        assert call(stream) == 0, message()
        found += launches(cuda, plan, arrays)
    assert found == wanted, f"{name}:\n{found}\n{wanted}"
    held = cuda.number("fake_held").value
    cuda.capture(7)
    assert call(7) == 0, message()
    every = [entry for entry, *_, stream, _, _, _ in found if stream == 0]
    captured = launches(cuda, plan, arrays)
    assert [entry for entry, *_ in captured] == every  # what runs once as well
    assert cuda.number("fake_held").value == held
    assert (call(0), b"CAPTURE_IMPLICIT" in message()) == (3, True)
    cuda.capture(0)
    assert getattr(library, f"{name}_release")() == 0
    assert [cuda.number(n).value for n in ("fake_held", "fake_loaded")] == [0, 0]
    cuda.number("fake_capability").value = 75
    assert (call(0), message()) == (
        2, f"{name} is compiled for sm_90a; this GPU has compute capability 7.5".encode()
    )  # fmt: skip
    cuda.number("fake_capability").value = 90
    assert getattr(library, f"{name}_release")() == 0
    if every:
        cuda.number("fake_status").value = 719
        assert (call(0), b"CUDA_ERROR_OF_THE_FAKE (719)" in message()) == (3, True)
        cuda.number("fake_status").value = 0
        assert getattr(library, f"{name}_release")() == 0
    return len(found)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
    counts = {}
    for each in json.loads((place / "cases.json").read_text()):
        counts[each["name"]] = compared(place, each)
    print(json.dumps(counts))
