"""Sounds for the case studies: WAV files of integer samples, read and written with the standard
library.
"""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

from selector.diagnostics import UserError

CD = (44_100, 16)  # samples a second and bits of a sample where nothing else is said


def load(path: Path) -> tuple[np.ndarray, tuple[int, int]]:
    """A WAV file as float32 in [-1, 1], shape (samples, channels); its samples a second and the
    bits of one. ``UserError`` if it cannot be read.
    """
    try:
        with wave.open(str(path), "rb") as file:
            channels, size, rate, frames = file.getparams()[:4]
            data = file.readframes(frames)
    except FileNotFoundError:
        raise UserError(f"no such sound: {path}") from None
    except (wave.Error, EOFError, OSError) as error:
        raise UserError(
            f"cannot read {path} as a WAV file",
            why=str(error) or "it ends too early",
            hint="integer samples (PCM) of 8, 16, 24 or 32 bits are read",
        ) from None
    whole = len(data) // (size * channels) * size * channels
    if size > 4 or not whole:
        raise UserError(f"{path} holds no samples of 8, 16, 24 or 32 bits")
    return decode(data[:whole], 8 * size).reshape(-1, channels), (rate, 8 * size)


def save(path: Path, sound: np.ndarray, rate: int = CD[0], bits: int = CD[1]) -> None:
    """Write a sound, shape (samples, channels), as integer samples; values outside [-1, 1] are
    clipped.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(path), "wb") as file:
            file.setparams((sound.shape[1], bits // 8, rate, 0, "NONE", ""))
            file.writeframes(encode(sound, bits))
    except OSError as error:
        raise UserError(f"cannot write {path}", why=str(error)) from None


def decode(data: bytes, bits: int) -> np.ndarray:
    """Little-endian samples as float32; those of 8 bits are unsigned, with their zero at 128."""
    if bits == 8:
        return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
    octets = np.frombuffer(data, np.uint8).reshape(-1, bits // 8)
    words = np.zeros((len(octets), 4), np.uint8)
    words[:, 4 - bits // 8 :] = octets  # the sample in the upper bytes: its sign is the word's
    return (words.view("<i4")[:, 0] / 2.0**31).astype(np.float32)


def encode(sound: np.ndarray, bits: int) -> bytes:
    """The inverse of ``decode``: rounded to nearest, clipped."""
    scale = 2.0 ** (bits - 1)
    levels = np.clip(np.rint(sound.astype(np.float64) * scale), -scale, scale - 1)
    if bits == 8:
        return (levels + 128).astype(np.uint8).tobytes()
    octets = levels.astype("<i4").reshape(-1, 1).view(np.uint8)
    return octets[:, : bits // 8].tobytes()


def fit(sound: np.ndarray, samples: int, channels: int) -> np.ndarray:
    """A sound of exactly that shape: cut or repeated in time, channels repeated in turn."""
    rows, columns = np.arange(samples) % sound.shape[0], np.arange(channels) % sound.shape[1]
    return sound[np.ix_(rows, columns)]
