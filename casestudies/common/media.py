"""Pictures and sounds of the user as inputs of a case, results as files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from casestudies.common import images, sounds
from casestudies.common.case import Arrays, Case, Pictures, Problem, Sounds
from casestudies.common.progress import say
from casestudies.common.registry import all_cases
from selector.diagnostics import UserError


@dataclass(frozen=True, slots=True)
class Medium:
    """What a case works on instead of random data. ``size`` is the problem's, ``suffix`` that of
    the result's file, ``rate`` the samples a second of a sound and the bits of one.
    """

    size: tuple[int, ...]
    suffix: str
    inputs: Callable[[Problem], Arrays]
    rate: tuple[int, int] = sounds.CD


def choose(
    case: Case, image: Path | None, sound: Path | None, size: tuple[int, ...] | None
) -> Medium | None:
    """The picture (default: one of ours) or the sound that a case takes, cut or continued to
    ``size``; None where it works on random data. ``UserError`` for a file that it does not take.
    """
    if image is not None and case.pictures is None:
        takers = [c.name for c in all_cases() if c.pictures]
        raise UserError(f"{case.name} takes no image", hint=f"these do: {', '.join(takers)}")
    if sound is not None and case.sounds is None:
        takers = [c.name for c in all_cases() if c.sounds]
        raise UserError(f"{case.name} takes no sound", hint=f"these do: {', '.join(takers)}")
    if case.pictures is not None:
        usual = images.PHOTOGRAPH if case.pictures.planes == 1 else images.COLOURS
        return _picture(case.pictures, image or usual, size)
    if case.sounds is not None and sound is not None:
        return _sound(case.sounds, sound, size)
    return None


def _picture(pictures: Pictures, path: Path, size: tuple[int, ...] | None) -> Medium:
    picture = images.load(path, pictures.planes)
    if size is not None:
        picture = images.fit(picture, size[-1], size[0])
    extents = (picture.shape[1], picture.shape[0])
    return Medium(extents, "png", lambda p: pictures.inputs(p, picture))


def _sound(case_sounds: Sounds, path: Path, size: tuple[int, ...] | None) -> Medium:
    sound, rate = sounds.load(path)
    if size is not None:
        sound = sounds.fit(sound, size[0], size[1] if len(size) > 1 else sound.shape[1])
    extents = (sound.shape[0], sound.shape[1])
    return Medium(extents, "wav", lambda p: case_sounds.inputs(p, sound), rate)


def check_out(case: Case, path: Path) -> None:
    """``UserError`` unless the suffix of ``--out`` is one that ``save`` writes for the case."""
    forms = [".png"] * bool(case.pictures) + [".wav"] * bool(case.sounds) + [".npy"]
    suffix = path.suffix.lower()
    if suffix not in forms:
        raise UserError(
            f"{case.name}: cannot write a result as {suffix or 'a file without suffix'!r}",
            hint=f"--out takes {' or '.join(forms)}",
        )


def save(
    case: Case, problem: Problem, path: Path, output: np.ndarray, rate: tuple[int, int]
) -> None:
    """Write a result as the suffix says: a picture, a sound, or the array itself."""
    check_out(case, path)
    suffix = path.suffix.lower()
    if suffix == ".png" and case.pictures is not None:
        images.save(path, case.pictures.picture(problem, output))
    elif suffix == ".wav" and case.sounds is not None:
        sound = case.sounds.sound(problem, output)
        loudest = float(np.abs(sound).max(initial=0))
        if loudest > 1:
            say(f"the loudest sample is {loudest:.3g}: what is beyond 1 is clipped")
        sounds.save(path, sound, *rate)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, output)
