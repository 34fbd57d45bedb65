"""Run drawn programs on the GPU after poison, and compare; needs NumPy and CuPy only.

    python tests/gpu/run_fuzzed.py FOLDER [--results FILE] [--only N] [--sanitize [TOOL ...]]

``build_fuzzed.py`` has made the folder. Before each kernel all shared memory and the memory pool
are NaN (and once more another pattern). Kernels run in a process that may be lost; one that does
not come back, or destroys the context, costs itself. ``--sanitize`` runs ``--only`` so many of
them, evenly chosen, under each tool of compute-sanitizer, without poison and each array an
allocation of its own. memcheck wants kernels whose waits end (``build_fuzzed.py --patience 5``);
racecheck wants the others, whose barriers it knows; it lays ``mbarrier.init``, which one thread
does, to the first thread of each warp and to what a register has there: a hazard with a NOP ahead
of ``SYNCS.EXCH`` is none. initcheck does not see what the copy engine stores, and would report
results of such kernels as never written: it runs the others (``--seen``).
Exit code 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import numpy as np  # noqa: E402
from fuzzing import formats, forms, reference  # noqa: E402
from fuzzing.device import run_on_device  # noqa: E402
from fuzzing.features import features  # noqa: E402
from fuzzing.program import from_data  # noqa: E402

import selector  # noqa: E402

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
POISONS = (0xFF, 0x5A)
PATIENCE = 60.0  # seconds for one kernel
BARRIERS = 1 << 14  # of all blocks of a kernel, at most, for synccheck
ENGINE_STORE = "global.shared::cta"  # in the text of a kernel


def chosen(folder: Path, only: int, seen: bool = False) -> list[dict[str, Any]]:
    """Lines of the index: all, or so many of them, evenly; ``seen``: of those whose stores all are
    of threads.
    """
    lines = (folder / "programs.jsonl").read_text(encoding="utf-8").splitlines()
    programs = [json.loads(line) for line in lines]
    if seen:
        sources = [selector.load(folder / f"{p['name']}.kernel").source for p in programs]
        programs = [
            p for p, text in zip(programs, sources, strict=True) if ENGINE_STORE not in text
        ]
    if not 0 < only < len(programs):
        return programs
    return [programs[i * len(programs) // only] for i in range(only)]


def verdict(folder: Path, line: dict[str, Any], plain: bool) -> str:
    """What is wrong with a kernel; empty if nothing is."""
    p = from_data(line["program"])
    kernel = selector.load(folder / f"{line['name']}.kernel")
    stored = np.load(folder / f"{line['name']}.npz").values()
    kinds = forms.result_kinds(p)
    expected = [formats.numbers(one, kind) for one, kind in zip(stored, kinds, strict=True)]
    needed = {name: tuple(extents) for name, extents in line["needed"].items()}
    arrays, scalars = reference.inputs(p, needed), reference.scalars(p)
    for byte in (None,) if plain else POISONS:
        found = run_on_device(kernel, arrays, scalars, forms.result_shape(p), byte)
        wrong = reference.all_differ(p, expected, found, size=reference.spread(p, arrays))
        if wrong:
            return wrong if byte is None else f"after poison {byte:#x}: {wrong}"
    return ""


def here(programs: list[dict[str, Any]], folder: Path, first: int, plain: bool) -> int:
    """Run in this process, one line of JSON a kernel."""
    if plain:
        import cupy

        cupy.cuda.set_allocator(None)  # type: ignore[attr-defined]
    failed = 0
    for number, line in enumerate(programs):
        if number < first:
            continue
        print(json.dumps({"begun": number}), flush=True)
        try:
            wrong = verdict(folder, line, plain)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        failed += bool(wrong)
        print(json.dumps({"number": number, "name": line["name"], "wrong": wrong}), flush=True)
        if "CUDA_ERROR" in wrong or "cudaError" in wrong or "Illegal" in wrong:
            return 1  # the context is gone
    return 1 if failed else 0


def supervise(options: argparse.Namespace) -> dict[str, str]:
    """Verdicts by name; the process is started anew after one that was lost."""
    programs = chosen(options.folder, options.only)
    found: dict[str, str] = {}
    while len(found) < len(programs):
        first = len(found)
        command = [sys.executable, __file__, str(options.folder), "--here", "--first", str(first)]
        process = subprocess.Popen(
            [*command, "--only", str(options.only)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        while True:
            ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
            line = process.stdout.readline() if ready else ""
            if not line:
                break
            said = json.loads(line)
            if "wrong" in said:
                found[programs[said["number"]]["name"]] = said["wrong"]
        lost = "the process was lost" if process.poll() is not None else "it does not come back"
        process.kill()
        process.wait()
        if len(found) == first:
            found[programs[first]["name"]] = lost
    return found


def what_is_said(lines: list[str]) -> list[str]:
    """Lines of a tool, and those of kernels that are wrong or that the tool said something of."""
    said: list[str] = []
    since = 0  # how many of them were there when a kernel began
    for line in lines:
        if line.startswith("=====") and "Host Frame" not in line:
            said.append(line)
        elif '"begun"' in line:
            since = len(said)
        elif '"wrong"' in line and (len(said) > since or not line.endswith('"wrong": ""}')):
            said.append(line)
    return said


def sanitize(options: argparse.Namespace) -> dict[str, str]:
    """``clean``, or the first and last lines of what each tool says."""
    if shutil.which("compute-sanitizer") is None:
        return dict.fromkeys(options.sanitize or TOOLS, "compute-sanitizer is not installed")
    verdicts: dict[str, str] = {}
    for tool in options.sanitize or TOOLS:
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
        if tool == "synccheck":  # it counts those that C++ declares, of which there are none
            command += ["--num-cuda-barriers", str(BARRIERS)]
        command += [sys.executable, __file__, str(options.folder), "--here", "--plain"]
        command += ["--only", str(options.only)]
        command += ["--seen"] if tool == "initcheck" else []
        begin = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = what_is_said(done.stdout.splitlines())
        clean = done.returncode == 0
        count = done.stdout.count('"wrong": ""')
        said = [*lines[:20], "...", *lines[-20:], done.stderr[-500:]]
        verdicts[tool] = "clean" if clean else "\n".join(said)
        seconds = time.perf_counter() - begin
        print(f"{tool}: {verdicts[tool]} ({count} right, {seconds:.0f} s)", flush=True)
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, help="file for the results as data")
    parser.add_argument("--only", type=int, default=0, help="so many of them, evenly chosen")
    parser.add_argument("--sanitize", nargs="*", choices=TOOLS, metavar="TOOL")
    parser.add_argument("--here", action="store_true", help="no process that may be lost")
    parser.add_argument("--first", type=int, default=0, help="with --here: the first to run")
    parser.add_argument("--seen", action="store_true", help="with --here: no stores by the engine")
    parser.add_argument("--plain", action="store_true", help="without poison and memory pool")
    options = parser.parse_args()
    if options.here:
        programs = chosen(options.folder, options.only, options.seen)
        return here(programs, options.folder, options.first, options.plain)
    if options.sanitize is not None:
        verdicts = sanitize(options)
        bad = [t for t, v in verdicts.items() if v != "clean"]
        data: dict[str, Any] = {"sanitizer": verdicts}
    else:
        found = supervise(options)
        bad = [name for name, wrong in found.items() if wrong]
        programs = {line["name"]: line for line in chosen(options.folder, options.only)}
        for name in bad:
            about = ", ".join(list(features(from_data(programs[name]["program"])))[:4])
            print(f"{name}: {found[name]} ({about})")
        print(f"{len(found) - len(bad)} right, {len(bad)} wrong of {len(found)}")
        data = {"kernels": found}
    if options.results is not None:
        options.results.write_text(json.dumps(data, indent=1), encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
