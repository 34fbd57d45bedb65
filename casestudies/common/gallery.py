"""The command ``gallery``: inputs and outputs of every case that takes pictures, and a page that
shows them beside the commands that made them.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from casestudies.common import images, media
from casestudies.common.case import Case
from casestudies.common.options import add_options, problem_of
from casestudies.common.progress import say
from casestudies.common.registry import all_cases, find_case
from casestudies.common.runner import Outcome, choose_device, run

FOLDER = Path(__file__).resolve().parent.parent / "gallery"
PAGE = "README.md"
NOISE, SEED = 0.1, 7  # standard deviation, pixels being 0 to 1
# Part of the photograph: rows and columns.
DETAIL = (slice(40, 296), slice(120, 376))
SMALLER = (slice(70, 198), slice(190, 318))


@dataclass(frozen=True, slots=True)
class Picture:
    """An input of the gallery: file, what it is, and the file that a result should come near."""

    file: str
    about: str
    clean: str = ""


PHOTOGRAPH = Picture("photograph.png", "part of the photograph")
SMALL = Picture("small.png", "a smaller part of it")
NOISY = Picture("noisy.png", f"part of it with noise, deviation {NOISE}", PHOTOGRAPH.file)
COLOURS = Picture("colours.png", "made of formulas by `casestudies/data/colours.py`")


@dataclass(frozen=True, slots=True)
class Entry:
    """A run of a case; ``result`` is the file of its output."""

    case: str
    picture: Picture
    options: str
    result: str

    @property
    def command(self) -> str:
        parts = ("python -m casestudies run", self.case, self.options)
        line = " ".join(part for part in parts if part)
        return f"{line} --image {self.picture.file} --out {self.result}"


ENTRIES = (
    Entry("conv1d", PHOTOGRAPH, "--taps 32", "conv1d.png"),
    Entry("conv2d", PHOTOGRAPH, "--taps 16", "conv2d.png"),
    Entry("downsample", PHOTOGRAPH, "--taps 16 --boundary clamp", "downsample.png"),
    Entry("upsample", SMALL, "--taps 16 --boundary clamp", "upsample.png"),
    Entry("resample", COLOURS, "--to 150x150", "resample.png"),
    Entry("resample", COLOURS, "--to 333x333", "resample-larger.png"),
    Entry("dct_denoise", NOISY, f"--strength {NOISE}", "dct_denoise.png"),
)


def entries() -> Iterator[Entry]:
    """Those above, and whatever other case takes pictures as it comes."""
    for case in all_cases():
        own = [entry for entry in ENTRIES if entry.case == case.name]
        if case.pictures is not None and not own:
            source = PHOTOGRAPH if case.pictures.planes == 1 else COLOURS
            own = [Entry(case.name, source, "", f"{case.name}.png")]
        yield from own


def gallery(options: argparse.Namespace) -> int:
    """Make the pictures and the page; the exit code."""
    folder: Path = options.out
    device = choose_device(options.device)
    save_inputs(folder)
    lines = [HEAD]
    shown: set[str] = set()
    passed = True
    for entry in entries():
        case = find_case(entry.case)
        outcome = render(case, entry, folder, device)
        passed = passed and outcome.passed
        lines += [] if case.name in shown else title(case)
        lines += section(entry, folder)
        shown.add(case.name)
    (folder / PAGE).write_text("\n".join(lines), encoding="utf-8")
    say(f"written: {folder / PAGE}")
    return 0 if passed else 1


HEAD = """# Gallery

Made by `python -m casestudies gallery`: every case study that takes pictures, with its `tensor`
schedule, on a GPU or in the interpreter (NumPy). Every result was within its tolerance of float64.
The commands are for this folder.
"""


def save_inputs(folder: Path) -> None:
    """The pictures that the cases work on."""
    photograph = images.load()
    images.save(folder / PHOTOGRAPH.file, photograph[DETAIL])
    images.save(folder / SMALL.file, photograph[SMALLER])
    images.save(folder / COLOURS.file, images.load(images.COLOURS, 3))
    detail = np.repeat(photograph[DETAIL][..., None], 3, axis=2)
    noise = np.random.default_rng(SEED).standard_normal(detail.shape, dtype=np.float32)
    images.save(folder / NOISY.file, detail + NOISE * noise)


def render(case: Case, entry: Entry, folder: Path, device: str) -> Outcome:
    """Run an entry as its command does, and save what comes out."""
    medium = media.choose(case, folder / entry.picture.file, None, None)
    assert medium is not None
    problem = problem_of(case, _parsed(entry.options), medium.size)
    outcome = run(case, problem, medium.inputs(problem), case.schedules[0], device, None)
    media.save(case, problem, folder / entry.result, outcome.output, medium.rate)
    return outcome


def _parsed(options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_options(parser, all_cases())
    found = parser.parse_args(shlex.split(options))
    found.size = None
    return found


def title(case: Case) -> list[str]:
    return [f"## {case.name}", "", f"{case.summary[0].upper()}{case.summary[1:]}.", ""]


def section(entry: Entry, folder: Path) -> list[str]:
    """What the page says about an entry. No errors: their last digit depends on the machine."""
    about = ""
    if entry.picture.clean:
        files = (entry.picture.clean, entry.picture.file, entry.result)
        clean, before, after = (images.load(folder / file, 3) for file in files)
        about = f"; PSNR {psnr(after, clean):.1f} dB, {psnr(before, clean):.1f} dB before"
    return [
        f"```\n{entry.command}\n```",
        "",
        f"| {entry.picture.about} | `{entry.result}`{about} |",
        "|---|---|",
        f"| ![input]({entry.picture.file}) | ![output]({entry.result}) |",
        "",
    ]


def psnr(values: np.ndarray, clean: np.ndarray) -> float:
    """Peak signal to noise in dB of values in [0, 1]."""
    return float(-10 * np.log10(np.mean((values.astype(np.float64) - clean) ** 2)))
