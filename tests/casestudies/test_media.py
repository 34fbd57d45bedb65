"""Pictures and sounds: what is written is read back, what cannot be read is refused."""

from __future__ import annotations

import struct
import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from casestudies.common import images, media, sounds
from casestudies.common.case import Case, Sounds
from casestudies.common.registry import find_case
from selector.diagnostics import UserError


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3)])
def test_pictures_round_trip(shape: tuple[int, ...], tmp_path: Path) -> None:
    levels = np.random.default_rng(0).integers(0, 256, shape).astype(np.float32) / 255
    path = tmp_path / "deep" / "p.png"
    images.save(path, levels)
    np.testing.assert_array_equal(images.load(path, 3 if len(shape) == 3 else 1), levels)


def test_gray_and_colour_convert(tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    images.save(path, np.full((2, 3), 0.2, np.float32))
    assert images.load(path, 3).shape == (2, 3, 3)
    assert (images.load(path, 3) == images.load(path)[..., None]).all()
    images.save(path, np.full((2, 3, 3), 0.4, np.float32))
    assert (images.load(path) == np.float32(102 / 255)).all()


def test_sixteen_bits_are_not_clipped(tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    Image.fromarray(np.array([[0, 32768, 65535]], np.uint16)).save(path)
    np.testing.assert_allclose(images.load(path), [[0, 0.5, 1]], atol=1e-4)
    assert images.load(path, 3).shape == (1, 3, 3)


def test_values_outside_are_clipped(tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    images.save(path, np.array([[-0.5, 1.5]], np.float32))
    assert images.load(path).tolist() == [[0, 1]]


def test_fit_keeps_the_planes() -> None:
    picture = np.arange(18, dtype=np.float32).reshape(2, 3, 3)
    larger = images.fit(picture, 4, 5)
    assert larger.shape == (4, 5, 3)
    assert (larger[3, 3] == picture[0, 2]).all()


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
@pytest.mark.parametrize("channels", [1, 2])
def test_sounds_round_trip(bits: int, channels: int, tmp_path: Path) -> None:
    sound = np.random.default_rng(bits).uniform(-1, 1, (301, channels)).astype(np.float32)
    sound[0] = -1
    path = tmp_path / "deep" / "s.wav"
    sounds.save(path, sound, 22_050, bits)
    again, rate = sounds.load(path)
    assert rate == (22_050, bits)
    assert again.shape == sound.shape
    assert np.abs(again - sound).max() <= max(2.0 ** (1 - bits), 2**-24)
    assert (again[0] == -1).all()


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
def test_samples_are_those_of_the_format(bits: int) -> None:
    """Zero, a half, the smallest: little-endian, signed but for 8 bits."""
    data = sounds.encode(np.array([0.0, 0.5, -1.0]), bits)
    values = [
        int.from_bytes(data[i : i + bits // 8], "little") for i in range(0, len(data), bits // 8)
    ]
    top = 1 << (bits - 1)
    assert values == ([128, 192, 0] if bits == 8 else [0, top // 2, top])
    np.testing.assert_array_equal(sounds.decode(data, bits), [0, 0.5, -1])


def test_loud_sounds_are_clipped() -> None:
    assert sounds.encode(np.array([2.0, -2.0]), 16) == struct.pack("<hh", 32767, -32768)


def float_wav(path: Path) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 4, 8000, 0, "NONE", ""))
        file.writeframes(struct.pack("<f", 0.5))
    data = bytearray(path.read_bytes())
    data[20:22] = struct.pack("<H", 3)  # the format tag of float samples
    path.write_bytes(bytes(data))


def test_what_is_no_wav_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.wav"
    with pytest.raises(UserError, match="no such sound"):
        sounds.load(path)
    path.write_bytes(b"RIFF")
    with pytest.raises(UserError, match="as a WAV file"):
        sounds.load(path)
    path.write_text("a text")
    with pytest.raises(UserError, match="as a WAV file"):
        sounds.load(path)
    float_wav(path)
    with pytest.raises(UserError, match="as a WAV file") as refused:
        sounds.load(path)
    assert "8, 16, 24 or 32 bits" in refused.value.hint
    sounds.save(path, np.zeros((0, 2), np.float32))
    with pytest.raises(UserError, match="holds no samples"):
        sounds.load(path)


def test_a_cut_file_gives_whole_samples(tmp_path: Path) -> None:
    path = tmp_path / "s.wav"
    sounds.save(path, np.zeros((10, 2), np.float32))
    path.write_bytes(path.read_bytes()[:-3])
    assert sounds.load(path)[0].shape == (9, 2)


def quiet_case() -> Case:
    """A case of sounds that halves them."""
    case = find_case("gemm")
    halved = Sounds(lambda _, sound: {"x": sound}, lambda _, output: output / 2)
    fields = {name: getattr(case, name) for name in Case.__slots__}
    return Case(**(fields | {"name": "quiet", "sounds": halved}))


def test_a_sound_goes_through_a_case(tmp_path: Path) -> None:
    path, out = tmp_path / "s.wav", tmp_path / "out.wav"
    sounds.save(path, np.full((30, 2), 0.5, np.float32), 8000, 24)
    case = quiet_case()
    medium = media.choose(case, None, path, None)
    assert medium is not None
    assert (medium.size, medium.suffix, medium.rate) == ((30, 2), "wav", (8000, 24))
    problem = find_case("gemm").small[0]
    media.save(case, problem, out, medium.inputs(problem)["x"], medium.rate)
    again, rate = sounds.load(out)
    assert (again == 0.25).all()
    assert rate == (8000, 24)
    longer = media.choose(case, None, path, (70,))
    assert longer is not None
    assert longer.size == (70, 2)


def test_clipping_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem, out = find_case("gemm").small[0], tmp_path / "out.wav"
    media.save(quiet_case(), problem, out, np.full((4, 2), 3.0, np.float32), sounds.CD)
    assert "the loudest sample is 1.5" in capsys.readouterr().err
    assert (sounds.load(out)[0] > 0.999).all()


def test_a_case_of_sounds_works_on_random_data_too() -> None:
    assert media.choose(quiet_case(), None, None, None) is None


def test_results_go_where_the_case_says(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        media.check_out(quiet_case(), tmp_path / "x.png")
    assert ".wav or .npy" in refused.value.hint
    with pytest.raises(UserError, match="takes no image"):
        media.choose(quiet_case(), tmp_path / "x.png", None, None)
