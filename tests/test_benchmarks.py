"""Results that benchmarks keep know what made them."""

import importlib.util
import json
from pathlib import Path

import pytest


@pytest.fixture
def kept(monkeypatch):
    monkeypatch.delenv("TRANSCENDENT_FRESH", raising=False)
    path = Path(__file__).parents[1] / "benchmarks/drift/kept.py"
    spec = importlib.util.spec_from_file_location("kept", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_result_of_other_code_is_used_flagged_and_run_again_on_request(kept, tmp_path, monkeypatch):
    path, runs = tmp_path / "found-0.json", []

    def compute():
        runs.append(None)
        path.write_text(json.dumps(len(runs)))

    def used(code):
        kept.keep(path, compute, {"code": code})
        return json.loads(path.read_text()), kept.take_stale(tmp_path)

    assert used("first") == (1, [])
    assert used("first") == (1, [])
    assert used("second") == (1, [path.name])
    assert kept.flag_stale("table", [path.name]) == (
        "table\n\n**Stale**, made by other code or libraries; `--fresh` runs them again: found-0.json."
    )
    monkeypatch.setenv("TRANSCENDENT_FRESH", "1")
    assert used("second") == (2, [])
    assert used("second") == (2, [])
    monkeypatch.delenv("TRANSCENDENT_FRESH")
    (tmp_path / "found-0.json.made").unlink()  # written before there were records
    assert used("second") == (2, [path.name])


def test_the_record_changes_with_library_benchmark_and_settings(kept, tmp_path, monkeypatch):
    module, source = tmp_path / "module.py", tmp_path / "source"
    module.write_text("one")
    source.mkdir()
    (source / "library.py").write_text("one")
    monkeypatch.setattr(kept, "SOURCE", source)

    def record(settings=""):
        kept.maker.cache_clear()
        return kept.maker(str(module), settings=settings)["code"]

    records = [record(), record("other")]
    module.write_text("two")
    records.append(record())
    (source / "library.py").write_text("two")
    records.append(record())
    assert len(set(records)) == 4
    assert record() == records[-1]
    assert kept.maker(str(module))["numpy"]
