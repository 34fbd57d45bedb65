"""Every route of the service: its statuses, its shapes, and that equal questions have equal
answers.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from service_tools import CONV, PROGRAMS, ROOT, Server, events, renamed

import selector
from rules import rule_files
from selector.gpu.cuda.printer import print_kernel
from selector.gpu.ir.text import parse_kernels
from selector.ir.parser import parse_module
from selector.ir.serialize import dumps, to_json
from selector.targets import TARGETS

pytestmark = pytest.mark.verified

MISS = CONV.replace("*x256(float32x64(K", "+x256(float32x64(K")


def test_a_program_is_compiled_and_then_found(server: Server, tmp_path: Path) -> None:
    first = server.compile(renamed("found_again"))
    assert first.status == 200
    assert list(first.data) == ["artifact", "source", "report", "stages", "cached"]
    assert first.data["cached"] is False
    assert set(first.data["stages"]) == {"verify", "select", "explain", "emit"}
    second, third = (server.compile(renamed("found_again")) for _ in range(2))
    assert second.data == {**first.data, "cached": True}
    assert second.body == third.body
    saved = server.ask("GET", f"/v1/artifacts/{first.data['artifact']}")
    assert (saved.status, saved.headers["content-type"]) == (200, "application/octet-stream")
    (tmp_path / "conv.kernel").write_bytes(saved.body)
    kernel = selector.load(tmp_path / "conv.kernel")
    assert kernel.source == first.data["source"]
    rows = np.random.default_rng(1).random((4, 327)).astype(np.float16)
    taps = np.random.default_rng(2).random(64).astype(np.float16)
    result = kernel.interpret(I=rows, K=taps, sizes=(4, 264))
    truth = sum(np.float64(taps[i]) * rows[:, i : i + 264] for i in range(64))
    assert np.linalg.norm(result - truth) < 1e-5 * np.linalg.norm(truth)


def test_the_artifact_is_that_of_the_command_line(server: Server) -> None:
    """Another process, another answer on the way, the same bytes of source and program."""
    ours = selector.compile(parse_module(CONV), target="sm_80", cache=False)
    assert server.compile().data["source"] == ours.source


def test_text_and_json_name_the_same_artifact(server: Server) -> None:
    module = parse_module(CONV)
    forms = (CONV, dumps(module), to_json(module))
    shas = {server.compile(ir).data["artifact"] for ir in forms}
    assert len(shas) == 1


def test_the_order_of_fields_does_not_matter(server: Server) -> None:
    body = {"ir": renamed("fields"), "target": "sm_80", "strict": True}
    first = server.ask("POST", "/v1/compile", body)
    other = server.ask("POST", "/v1/compile", dict(reversed(body.items())))
    assert other.data["artifact"] == first.data["artifact"]
    again = server.ask("POST", "/v1/compile", dict(reversed(body.items())))
    assert again.data == {**other.data, "cached": True}


@pytest.mark.nvrtc
def test_machine_code_and_its_disassembly(server: Server, tmp_path: Path) -> None:
    made = server.compile(cubin=True, sass=True)
    assert made.status == 200, made.body
    assert "HMMA" in "".join(made.data["sass"].values())
    path = tmp_path / "k.kernel"
    path.write_bytes(server.ask("GET", f"/v1/artifacts/{made.data['artifact']}").body)
    assert selector.load(path).cubin()[:4] == b"\x7fELF"


def test_the_ir_of_the_kernels(server: Server) -> None:
    made = server.compile(kernels=True)
    (kernel,) = parse_kernels(made.data["kernels"])
    assert print_kernel(kernel) in made.data["source"]
    assert "kernels" not in server.compile().data


def test_a_program_for_amx(server: Server) -> None:
    made = server.compile(PROGRAMS["amx_matmul.vir"], "amx")
    assert made.status == 200
    assert "_tile_dpbf16ps" in made.data["source"]
    for asked in ("cubin", "kernels"):
        refused = server.compile(PROGRAMS["amx_matmul.vir"], "amx", **{asked: True})
        assert refused.error["kind"] == "TargetError"


def test_a_miss_is_an_error_unless_it_may_pass(server: Server) -> None:
    refused = server.compile(MISS)
    assert refused.status == 422
    assert refused.error["kind"] == "SelectionError"
    assert refused.error["where"]["func"] == "conv"
    assert refused.error["where"]["statement"].startswith("conv[")
    found = server.metric('selector_lookups_total{found="memory"}')
    assert server.compile(MISS).body == refused.body
    assert server.metric('selector_lookups_total{found="memory"}') == found + 1
    passed = server.compile(MISS, strict=False)
    assert passed.status == 200
    assert any(s["miss"] for s in passed.data["report"]["statements"])


def test_mistakes_take_no_room_on_disk(server: Server) -> None:
    """They are soon found again; kept for ever, they would push out what takes time to make."""

    def kept() -> set[Path]:
        return {p for p in (server.store / "answers").rglob("*") if p.is_file()}

    before = kept()
    for number in range(3):
        assert server.compile(f"module wrong{number}").status == 422
    assert server.compile(renamed("after_mistakes")).status == 200
    assert len(kept() - before) == 1


@pytest.mark.parametrize("extent", [0, -4])
def test_a_block_without_threads_is_a_mistake(server: Server, extent: int) -> None:
    """No defect of ours, and no kernel that cannot be launched."""
    thread = "thread_id_x, 0, 4)"
    assert CONV.count(thread) == 1
    reply = server.compile(CONV.replace(thread, f"thread_id_x, 0, {extent})"))
    assert reply.status == 422
    assert reply.error["kind"] == "ScheduleError"


@pytest.mark.parametrize(
    ("request_", "kind", "where"),
    [
        ({"ir": "module x\nbody {\n  y[0] = \n}", "target": "sm_80"}, "ParseError", "program:4:1"),
        ({"ir": '{"format": "selector-ir"}', "target": "sm_80"}, "ParseError", "$"),
        ({"ir": {"format": "selector-ir"}, "target": "sm_80"}, "ParseError", "$"),
        ({"ir": CONV, "target": "sm_75"}, "TargetError", ""),
        ({"ir": CONV, "target": "cuda"}, "TargetError", ""),
        ({"ir": CONV, "target": "sm_80", "instructions": ["nope"]}, "ParseError", ""),
        ({"ir": CONV}, "ParseError", "target"),
        ({"ir": CONV, "target": "sm_80", "strict": "yes"}, "ParseError", "strict"),
        ({"ir": CONV, "target": "sm_80", "extra": 1}, "ParseError", "extra"),
        ({"ir": ["a"], "target": "sm_80"}, "ParseError", "ir.str"),
        ([], "ParseError", ""),
    ],
)
def test_wrong_requests(server: Server, request_: object, kind: str, where: str) -> None:
    reply = server.ask("POST", "/v1/compile", request_)
    assert reply.status == 422
    assert reply.error["kind"] == kind
    assert reply.error["where"]["location"] == where
    assert reply.error["what"]


@pytest.mark.parametrize("body", [b"", b"{", b'{"ir": "\xff"}', b'"\\ud800"', b"[" * 100_000])
def test_bodies_that_are_no_json(server: Server, body: bytes) -> None:
    for route in ("compile", "explain", "graph"):
        reply = server.ask("POST", f"/v1/{route}", body)
        assert reply.status == 422
        assert reply.error["kind"] == "ParseError"


def test_explain(server: Server) -> None:
    reply = server.ask("POST", "/v1/explain", {"ir": CONV, "target": "sm_80"})
    assert reply.status == 200
    assert set(reply.data) == {"report", "text", "selected", "misses"}
    (update,) = (s for s in reply.data["report"]["statements"] if s["instruction"])
    assert "toeplitz" in update["rules"]
    assert update["laws"]["toeplitz"]
    assert "wmma.mma" in reply.data["selected"]
    assert reply.data["misses"] == 0
    missed = server.ask("POST", "/v1/explain", {"ir": MISS, "target": "sm_80"})
    assert missed.status == 200
    assert missed.data["misses"] > 0
    assert "not selected" in missed.data["text"]


def test_graph(server: Server) -> None:
    body = {"ir": PROGRAMS["matmul.vir"], "target": "sm_80"}
    picture = server.ask("POST", "/v1/graph", body)
    assert (picture.status, picture.headers["content-type"]) == (200, "image/svg+xml")
    assert picture.body.startswith(b"<svg ")
    assert server.ask("POST", "/v1/graph", body).body == picture.body
    data = server.ask("POST", "/v1/graph", {**body, "format": "json"})
    assert data.data["boxes"]
    none = server.ask("POST", "/v1/graph", {**body, "statement": 99})
    assert none.status == 422
    plain = {"ir": "module x\nbody {\n}\n", "target": "sm_80"}
    assert server.ask("POST", "/v1/graph", plain).status == 422


def test_rules_of_the_request(server: Server) -> None:
    rule = '; b -> b\n(rewrite (Bop "+" x (Int 0)) x :ruleset axioms :name "adds-nothing")'
    made = server.compile(rules=rule)
    assert made.status == 200, made.body
    assert made.data["source"] == server.compile().data["source"]
    reply = server.ask("POST", "/v1/explain", {"ir": CONV, "target": "sm_80", "rules": rule})
    assert reply.status == 200
    wrong = server.compile(rules='(rewrite (Nothing x) x :ruleset axioms :name "n")')
    assert wrong.status == 422
    assert wrong.error["where"]["location"] == "rules:1:10"


def test_rules_that_select_what_ours_do_not(server: Server) -> None:
    """Wrong on purpose: with the law that a / b is a * b, a sum of quotients is a product."""
    program = MISS.replace("+x256(float32x64(K", "/x256(float32x64(K")
    law = '; a / b -> a * b\n(rewrite (Bop "/" a b) (Bop "*" a b) :ruleset axioms :name "over")'
    assert server.compile(program).error["kind"] == "SelectionError"
    assert server.compile(program, rules=law).status == 200
    assert server.compile(program).error["kind"] == "SelectionError"


def test_targets_and_rules(server: Server) -> None:
    targets = server.ask("GET", "/v1/targets").data["targets"]
    assert [t["name"] for t in targets] == list(TARGETS)
    assert any(i.startswith("wgmma") for t in targets for i in t["instructions"])
    rules = server.ask("GET", "/v1/rules").data
    assert rules["files"] == [f"rules/{name}" for name, _ in rule_files()]
    (toeplitz,) = (r for r in rules["rules"] if r["name"] == "toeplitz")
    assert toeplitz["law"]
    assert toeplitz["file"] == "rules/71_toeplitz.egg"
    lines = (ROOT / toeplitz["file"]).read_text().splitlines()
    assert toeplitz["text"].startswith(lines[toeplitz["line"] - 1])


def test_what_is_not_there(server: Server) -> None:
    for path in ("/v1/artifacts/" + 64 * "0", "/v1/artifacts/..%2f..%2fetc", "/v1/nothing", "/x"):
        assert server.ask("GET", path).status == 404
        assert server.ask("GET", path).error["what"]
    wrong = server.ask("GET", "/v1/compile")
    assert wrong.status == 405
    assert wrong.error["kind"] == "MethodError"


def test_health_and_metrics(server: Server) -> None:
    health = server.ask("GET", "/healthz")
    assert health.status == 200
    assert health.data["status"] == "ok"
    server.compile()
    found = server.metric('selector_lookups_total{found="memory"}')
    server.compile()
    assert server.metric('selector_lookups_total{found="memory"}') == found + 1
    text = server.ask("GET", "/metrics").body.decode()
    for line in text.splitlines():
        assert line.startswith("#") or float(line.rpartition(" ")[2]) >= 0
    assert server.metric("selector_store_bytes") > 0


def test_openapi_has_examples_that_work(server: Server) -> None:
    document = server.ask("GET", "/openapi.json").data
    wanted = {"/v1/compile", "/v1/explain", "/v1/graph", "/v1/artifacts/{sha}", "/v1/targets",
              "/v1/rules", "/links", "/links/{id}", "/livez", "/healthz", "/metrics"}  # fmt: skip
    assert set(document["paths"]) == wanted
    jobs = {"/v1/compile": 200, "/v1/explain": 200, "/v1/graph": 200, "/links": 201}
    for path, status in jobs.items():
        content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        for example in content["examples"].values():
            assert server.ask("POST", path, example["value"]).status == status
    assert b"http://" not in json.dumps(document).encode()


def test_one_computation_for_requests_that_meet(server: Server) -> None:
    name = 'selector_computations_total{outcome="200"}'
    before = server.metric(name)
    with ThreadPoolExecutor(16) as threads:
        replies = list(threads.map(lambda _: server.compile(renamed("meeting")), range(16)))
    assert {r.status for r in replies} == {200}
    assert len({r.data["artifact"] for r in replies}) == 1
    assert server.metric(name) == before + 1


def test_events(server: Server) -> None:
    body = {"ir": renamed("events"), "target": "sm_80"}
    accept = {"Accept": "text/event-stream"}
    reply = server.ask("POST", "/v1/compile", body, accept)
    assert reply.headers["content-type"].startswith("text/event-stream")
    name, data = events(reply.body)[-1]
    assert name == "result"
    assert {**data, "cached": True} == server.ask("POST", "/v1/compile", body).data
    assert events(server.ask("POST", "/v1/compile", body, accept).body)[0][0] == "result"
    wrong = {"ir": MISS, "target": "sm_80"}
    ((name, data),) = events(server.ask("POST", "/v1/compile", wrong, accept).body)[-1:]
    assert (name, data["status"], data["error"]["kind"]) == ("error", 422, "SelectionError")


def test_tokens(tight: Server) -> None:
    for given in ("", "Bearer wrong", "Basic secret-token", "secret-token", "Bearer secret-toke"):
        reply = tight.ask("POST", "/v1/compile", b"{}", {"Authorization": given})
        assert reply.status == 401
        assert reply.headers["www-authenticate"] == "Bearer"
        assert reply.error["kind"] == "TokenError"
    assert tight.ask("GET", "/healthz", headers={"Authorization": ""}).status == 200
    assert tight.ask("GET", "/metrics", headers={"Authorization": ""}).status == 401
    assert (
        tight.ask("GET", "/v1/targets", headers={"Authorization": "bearer other-token"}).status
        == 200
    )
