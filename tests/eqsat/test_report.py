"""The report says what went where, as text and as data."""

from __future__ import annotations

import json

from tensor_programs import SM80, convolution, matmul

from selector.eqsat import select
from selector.report import Report


def test_an_update_is_described():
    report = select(convolution(256, 64), SM80).report
    (update,) = report.updates
    assert update.stage == "update"
    assert update.block is not None
    block = update.block
    assert block.useful_macs == 256 * 64
    assert block.issued_macs >= block.useful_macs
    assert 0.7 < block.useful_share <= 1
    assert block.m * block.n == 256
    assert update.temporaries[0].startswith("toeplitz")
    assert {"toeplitz", "multiply-add", "convolve"} <= set(update.rules)
    assert [s.stage for s in report.statements] == ["init", "update", "read"]


def test_a_whole_tile_is_fully_useful():
    (update,) = select(matmul(32, 32, 32), SM80).report.updates
    assert update.block is not None
    assert update.block.useful_share == 1
    assert update.block.count == 8


def test_text_and_data():
    report = select(convolution(256, 64), SM80).report
    text = str(report)
    for piece in ("acc (update)", "block 32 x 8 x 71", "useful", "temporary toeplitz", "rules"):
        assert piece in text
    data = json.loads(json.dumps(report.as_dict()))
    assert data["statements"][1]["block"] == [32, 8, 71]
    assert Report.from_dict(data).updates[0].block == report.updates[0].block


def test_an_empty_report_says_so():
    assert "no statement" in str(Report())


def test_a_minimal_set_of_rules():
    (update,) = select(matmul(16, 16, 16), SM80, instructions=("wmma",)).report.updates
    needed = update.rules
    assert {"matmul", "multiply-add", "product", "tile"} <= set(needed)
    assert "toeplitz" not in needed
    assert "select-load" not in needed
