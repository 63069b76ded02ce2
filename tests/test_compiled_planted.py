"""Planted kernels are told apart: what spills, what is too large, what is for another GPU."""

import json
from pathlib import Path

import pytest

from workbench.compiled import Compiler, table
from workbench.compiled import cache as cache_files

MODULE = str(Path(__file__).with_name("planted_kernels.py"))
ARCHS = ("sm_90", "sm_120")
NAMES = ("spills", "spills_declared", "large", "small_tile", "tall_tile", "hopper_only", "refuses",
         "refused", "raises", "reads_values")  # fmt: skip


def compiled(cache: Path, names=NAMES, arch="sm_90,sm_120") -> dict:
    found = table("device_copy", arch=arch, variants=names, modules=[MODULE], cache_folder=cache)
    rows = {(row["variant"], row["arch"]): row for row in found}
    assert len(rows) == len(found)
    return rows


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def rows(cache) -> dict:
    return compiled(cache)


def test_every_variant_has_a_row_for_every_architecture(rows):
    assert set(rows) == {(name, arch) for name in NAMES for arch in ARCHS}


@pytest.mark.parametrize("arch", ARCHS)
def test_a_spill_in_a_loop_is_read_from_its_instructions(rows, arch):
    row, declared = rows["spills", arch], rows["spills_declared", arch]
    assert row["looped"]["LDL"] > 0 and row["looped"]["STL"] > 0 and row["registers"] <= 96
    assert row["hot_loop"]["LDL"] == row["looped"]["LDL"] < row["instructions"]["LDL"]
    assert row["spill_load_bytes"] > 0 and row["stack_bytes"] > 0
    assert not row["fits"] and "LDL" in row["why"] and "0 are declared" in row["why"]
    assert declared["fits"] and declared["looped"] == row["looped"] and not declared["why"]
    clean = rows["tall_tile", arch]
    assert clean["fits"] and not {"LDL", "STL"} & set(clean["instructions"])


def test_a_tile_too_large_for_one_gpu_fits_another(rows):
    for arch, fits, limit in (("sm_90", True, 232448), ("sm_120", False, 101376)):
        row = rows["large", arch]
        assert row["fits"] is fits and row["shared_limit"] == limit, row["why"]
        assert 101376 < row["shared_bytes"] <= 232448
    assert f"needs {row['shared_bytes']} bytes" in row["why"] and "101376" in row["why"]
    assert (row["blocks_per_sm"], row["occupancy_limit"]) == (0, "shared")


@pytest.mark.parametrize(
    ("name", "arch", "instruction"),
    [("small_tile", "sm_90", "HMMA"), ("small_tile", "sm_120", "HMMA"),
     ("tall_tile", "sm_90", "HGMMA"), ("tall_tile", "sm_120", "HMMA")],
)  # fmt: skip
def test_the_tensor_core_instruction_is_the_architectures_own(rows, name, arch, instruction):
    row = rows[name, arch]
    of_products = {n for n in row["instructions"] if n.endswith("MMA")}
    assert of_products == {instruction} and row["hot_loop"][instruction] > 0
    assert sum(row["mma"].values()) == row["instructions"][instruction]
    if instruction == "HMMA":  # 16 x 8 x 16 each
        size = 16 if name == "small_tile" else 64
        assert row["hot_loop"]["HMMA"] >= size**3 // (16 * 8 * 16) // row["warps"]
        assert row["instructions"]["LDSM"] > 0 and row["instructions"]["LDGSTS"] > 0


def test_another_architecture_is_no_failure(rows):
    assert rows["hopper_only", "sm_90"]["fits"] and rows["hopper_only", "sm_90"]["registers"]
    row = rows["hopper_only", "sm_120"]
    assert row["fits"] is None and row["why"] == "not for sm_120: written for sm_90"
    assert "kernel" not in row


def test_what_is_refused_and_what_fails_is_told(rows):
    assert rows["refuses", "sm_90"]["fits"] is None
    assert rows["refuses", "sm_90"]["why"] == "bytes=1073741824 are too few"
    assert rows["refused", "sm_90"]["fits"] is False
    assert "does not compile: CompilationError" in rows["refused", "sm_90"]["why"]
    assert rows["raises", "sm_90"]["fits"] is False
    assert "LookupError: no such tile" in rows["raises", "sm_90"]["why"]


def test_values_are_read_where_they_are_few_and_a_cache_is_not_needed(rows, tmp_path):
    assert rows["reads_values", "sm_90"]["fits"] is None
    assert "not traced: reads values on the host" in rows["reads_values", "sm_90"]["why"]
    (tmp_path / "file").write_text("")  # where a folder ought to be
    (row,) = table("device_copy", variants=["reads_values"], modules=[MODULE],
                   workload={"bytes": 4096}, cache_folder=tmp_path / "file")  # fmt: skip
    assert row["fits"] and row["instructions"] == rows["small_tile", "sm_90"]["instructions"]


def test_a_second_run_compiles_nothing(rows, cache, monkeypatch):
    names = ["spills", "large", "tall_tile", "hopper_only", "refuses"]
    compile_some = Compiler._compiled

    def none_is_missing(self, tasks, missing, done):
        assert missing == []
        return compile_some(self, tasks, missing, done)

    monkeypatch.setattr(Compiler, "_compiled", none_is_missing)
    again = compiled(cache, names)
    assert all(row["cached"] for row in again.values())
    for place, row in again.items():
        assert row == rows[place] | {"cached": True}


def test_a_damaged_entry_is_made_anew(rows, cache):
    row = rows["small_tile", "sm_90"]
    text = {path: path.read_text() for path in cache.iterdir()}
    assert all(path.suffix == ".json" for path in text)  # nothing half written is left
    (entry,) = (p for p, t in text.items() if json.loads(t)["kept"].items() <= row.items())
    entry.write_text(text[entry][: len(text[entry]) // 2])
    assert compiled(cache, ["small_tile"], "sm_90")["small_tile", "sm_90"] == row
    assert not row["cached"] and {path: path.read_text() for path in cache.iterdir()} == text


def report(folder: Path, name: str):
    return cache_files.get(folder, name, cache_files.is_report)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"name": "a", "kept": {}}', "other"])
def test_what_is_no_entry_is_as_good_as_absent(rows, tmp_path, text):
    whole = {name: rows["small_tile", "sm_90"][name] for name in cache_files.KINDS}
    cache_files.put(tmp_path, "a", whole)
    entry = tmp_path / "a.json"
    assert report(tmp_path, "a") == whole and report(tmp_path, "b") is None
    (tmp_path / "b.json").write_text(entry.read_text())  # of another kernel
    assert report(tmp_path, "b") is None
    wrong = entry.read_text().replace('"registers": ', '"registers": "many", "r": ')
    entry.write_text(wrong if text == "other" else text)
    assert report(tmp_path, "a") is None


def test_a_trace_is_names_with_counts_or_a_reason(tmp_path):
    for kept, whole in (([["a", 2]], True), ([], True), ("reads values", True), ([["a"]], False),
                        ([["a", "b"]], False), ({"a": 2}, False), (None, False)):  # fmt: skip
        cache_files.put(tmp_path, "t", kept)
        found = cache_files.get(tmp_path, "t", cache_files.is_trace)
        assert (found == kept) if whole else found is None


def test_wrong_names_are_refused(tmp_path):
    with Compiler(cache_folder=tmp_path) as compiler:
        for asked, said in [({"variants": ["union"]}, "unknown variant of device_copy 'union'"),
                            ({"workload": {"tokens": "8"}}, "unknown workload field 'tokens'"),
                            ({"config": {"group": "8"}}, "unknown config field 'group'"),
                            ({"modules": ["none.py"]}, "no module file")]:  # fmt: skip
            with pytest.raises(ValueError, match=said):
                compiler.tasks(["device_copy"], **asked)
        with pytest.raises(ValueError, match="unknown op 'copy'"):
            compiler.tasks(["copy"])
