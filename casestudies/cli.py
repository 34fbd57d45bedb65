"""The command line of the case studies: ``list``, ``run``, ``bench``, ``sweep``, ``host-time``,
``tune``, ``model``, ``gallery`` and ``demo``.

Results go to standard output (``--json``: as data), progress to standard error. A mistake of the
user ends in one message and exit code 2, a wrong result in exit code 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from casestudies.common import images, media, sounds
from casestudies.common.case import Case
from casestudies.common.data import case_inputs
from casestudies.common.gallery import FOLDER, gallery
from casestudies.common.options import add_options, problem_of, refuse_unknown  # fmt: skip
from casestudies.common.registry import NAMES, all_cases, find_case, is_amx
from casestudies.common.runner import DEVICES, Outcome, choose_device, run
from casestudies.common.tune import add_arguments, tune_case
from casestudies.measuring.benching import ARTIFACTS, bench_cases
from casestudies.measuring.host_time import host_times
from casestudies.measuring.model.command import add_arguments as add_model_arguments
from casestudies.sweep.command import add_sweep
from selector.diagnostics import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    try:
        if unknown:
            refuse(parser, options, unknown[0])
        return int(options.command(options))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe left
        sys.stderr.close()
        return 1


def refuse(parser: argparse.ArgumentParser, options: argparse.Namespace, unknown: str) -> None:
    """End on an argument that no case has, with what the case at hand does have."""
    names: list[str] = getattr(options, "names", None) or [getattr(options, "name", "all")]
    if names == ["all"] or not unknown.startswith("-"):
        parser.error(f"unrecognized argument: {unknown}")
    refuse_unknown(find_case(names[0]), unknown)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m casestudies", description=__doc__)
    commands = parser.add_subparsers(
        required=True,
        metavar="list | run | bench | sweep | host-time | tune | model | gallery | demo",
    )
    listing = commands.add_parser("list", help="the case studies and their schedules")
    listing.add_argument("--json", action="store_true", help="as data")
    listing.set_defaults(command=list_cases)
    running = commands.add_parser("run", help="compile, run and check one problem")
    running.add_argument("name", metavar="NAME", help=", ".join(NAMES))
    _add_problem(running)
    running.add_argument("--schedule", help="tensor, cuda, plain, ...: see list")
    running.add_argument("--device", choices=DEVICES, default="auto")
    running.add_argument("--image", type=Path, help="picture to work on (default: one of ours)")
    running.add_argument("--sound", type=Path, help="WAV file to work on (default: random data)")
    running.add_argument("--out", type=Path, help="where the result goes (.png, .wav or .npy)")
    running.set_defaults(command=run_case)
    measuring = commands.add_parser("bench", help="time against stock Halide and libraries (GPU)")
    measuring.add_argument("names", metavar="NAME", nargs="*", help=", ".join(NAMES))
    measuring.add_argument("--all", action="store_true", help="every case at its benchmark sizes")
    _add_problem(measuring)
    measuring.add_argument("--schedule", help="only this one")
    measuring.add_argument(
        "--artifacts", type=Path, help="folder of saved kernels, not Halide; code in it is run"
    )
    measuring.add_argument("--out", type=Path, help="folder for data, table and plots")
    measuring.set_defaults(command=bench_cases)
    sweeping = commands.add_parser("sweep", help="the public sweep, beside the best library (GPU)")
    add_sweep(sweeping)
    calling = commands.add_parser("host-time", help="what calls cost the host (GPU)")
    calling.add_argument("names", metavar="NAME", nargs="*", help=", ".join(NAMES))
    calling.add_argument(
        "--artifacts", type=Path, default=ARTIFACTS, help="folder of saved kernels; they are run"
    )
    calling.add_argument("--match", default="", help="only problems whose name holds this (regex)")
    calling.add_argument("--seed", type=int, default=1, help="of the random inputs")
    calling.add_argument("--out", type=Path, help="file for the results as data")
    calling.set_defaults(command=host_times)
    tuning = commands.add_parser("tune", help="try schedules of a space, the fastest wins (GPU)")
    tuning.add_argument("name", metavar="NAME", help="gemm")
    _add_problem(tuning)
    add_arguments(tuning)
    tuning.set_defaults(command=tune_case)
    judging = commands.add_parser("model", help="the costs that schedules are chosen by, judged")
    add_model_arguments(judging)
    hanging = commands.add_parser("gallery", help="inputs and outputs of all that take pictures")
    hanging.add_argument("--device", choices=DEVICES, default="auto")
    hanging.add_argument("--out", type=Path, default=FOLDER, help="folder for pictures and page")
    hanging.set_defaults(command=gallery)
    showing = commands.add_parser("demo", help="blur a photograph through the whole way")
    showing.add_argument("--device", choices=DEVICES, default="auto")
    showing.add_argument("--out", type=Path, default=Path("out"), help="folder for the pictures")
    showing.set_defaults(command=demo)
    return parser


def _add_problem(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--size", type=_size, help="WxH of the image, samples of the sound; gemm: N or MxNxK"
    )
    add_options(parser, all_cases())
    parser.add_argument("--target", help="cuda (the GPU at hand), sm_80, ... sm_90a")
    parser.add_argument("--seed", type=int, default=1, help="of the random inputs")
    parser.add_argument("--json", action="store_true", help="results as data")


def _size(text: str) -> tuple[int, ...]:
    extents = tuple(int(part) for part in text.lower().split("x"))
    if min(extents) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a size")
    return extents


def list_cases(options: argparse.Namespace) -> int:
    if options.json:
        data = [
            {
                "name": c.name,
                "summary": c.summary,
                "schedules": list(c.schedules),
                "options": [option.name for option in c.arguments],
                "benchmark": [p.name for p in c.benchmark],
            }
            for c in all_cases()
        ]
        print(json.dumps(data, indent=2))
        return 0
    width = max(map(len, NAMES)) + 1
    for case in all_cases():
        print(f"{case.name:{width}}{case.summary}")
        print(f"{'':{width}}{_facts(case)}")
    return 0


def _facts(case: Case) -> str:
    """What a case can be asked for, in one line."""
    takes = ["--image"] * bool(case.pictures) + ["--sound"] * bool(case.sounds)
    own = ", ".join((*takes, *(f"--{option.name}" for option in case.arguments)))
    sizes = f"{len(case.benchmark)} benchmark sizes"
    return "; ".join(filter(None, (f"schedules {', '.join(case.schedules)}", own, sizes)))


def run_case(options: argparse.Namespace) -> int:
    case = find_case(options.name)
    schedule = options.schedule or case.schedules[0]
    device = "cpu" if is_amx(schedule) else choose_device(options.device)
    if options.out is not None:
        media.check_out(case, options.out)
    size = options.size or (case.interpreted if device == "cpu" else None)
    problem = problem_of(case, options, size)
    medium = media.choose(case, options.image, options.sound, options.size)
    problem = problem_of(case, options, medium.size) if medium else problem
    inputs = medium.inputs(problem) if medium else case_inputs(case, problem, options.seed, np)
    outcome = run(case, problem, inputs, schedule, device, options.target)
    path = options.out or (Path("out", f"{problem.name}.{medium.suffix}") if medium else None)
    if path is not None:
        media.save(case, problem, path, outcome.output, medium.rate if medium else sounds.CD)
    _print_outcome(outcome, path, options.json)
    return 0 if outcome.passed else 1


def _print_outcome(outcome: Outcome, path: Path | None, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**outcome.as_dict(), "output": str(path) if path else None}, indent=2))
        return
    print(outcome.report)
    print(describe(outcome))
    if path is not None:
        print(f"output: {path}")


def describe(outcome: Outcome) -> str:
    """One line: error against float64, time, and what it ran on."""
    verdict = "ok" if outcome.passed else "WRONG"
    scale, unit = (1e6, "us") if outcome.seconds < 1e-3 else (1e3, "ms")
    time = f"{outcome.seconds * scale:.1f} {unit}"
    return (
        f"{outcome.problem}: relative error {outcome.error:.1e} (at most {outcome.tolerance:.0e}: "
        f"{verdict}), {time} on {outcome.where}, compiled for {outcome.target} "
        f"in {outcome.compile_seconds:.2f} s"
    )


DEMO = {
    "conv1d": "a blur of every row, 32 taps",
    "conv2d": "a blur in both directions, 16 x 16 taps",
}


def _extents(picture: np.ndarray) -> str:
    return f"{picture.shape[1]} x {picture.shape[0]}"


def _shown(path: Path) -> Path:
    """Relative to the working directory where it lies below that."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def demo(options: argparse.Namespace) -> int:
    """Blur the photograph with both convolutions."""
    device = choose_device(options.device)
    picture = images.load()
    print(f"photograph: {_shown(images.PHOTOGRAPH)}, {_extents(picture)} pixels")
    if device == "gpu":
        picture = images.fit(picture, 4096, 4096)
        print(f"repeated, mirrored, to {_extents(picture)} for the GPU")
    else:
        print("no GPU used: the program for sm_90a runs in the interpreter (NumPy)")
    outcomes: list[Any] = []
    for name, taps in (("conv1d", 32), ("conv2d", 16)):
        case = find_case(name)
        assert case.pictures is not None
        print(f"\n{name}: {DEMO[name]}")
        size = (picture.shape[1], picture.shape[0])
        problem = case.options({"size": size, "taps": taps})
        outcome = run(case, problem, case.pictures.inputs(problem, picture), "tensor", device, None)
        path = options.out / f"demo-{name}.png"
        images.save(path, outcome.output)
        _print_outcome(outcome, path, as_json=False)
        outcomes.append(outcome)
    return 0 if all(o.passed for o in outcomes) else 1
