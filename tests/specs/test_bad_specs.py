"""Bad spec files: each has one mistake, and gets one error, at its line and column, with exit code 2."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from perfmodel.cli.main import main

GOOD: dict[str, str] = {
    "accelerators": "name: x\nmemory: 80 GB\nmemory_bandwidth: 3 TB/s\npeak: {bf16: 900 TFLOP/s}\nsource: test\n",
    "links": "name: x\nlatency: 2 us\nbandwidth: 50 GB/s\nsource: test\n",
    "nodes": "name: x\naccelerator: h100-sxm5-80gb\naccelerators_per_node: 8\nscale_up: nvswitch-3\nscale_out: ib-ndr\nnics_per_node: 8\nsource: test\n",
    "clusters": "name: x\nnode: dgx-h100\nsource: test\n",
    "workloads": "name: x\nkind: generic\nflop_per_sample: 10 GFLOP\nbytes_per_sample: 3 MB\nparams: 1e6\nsource: test\n",
    "prices": "name: x\naccelerators: 8\non_demand: 20 USD/h\nsource: test\n",
    "grids": "grids:\n  XX: {carbon: 300 g/kWh, source: test}\n",
    "job": "workload: llama3-8b\ncluster: dgx-h100\n",
    "claim": "workload: resnet50\ncluster: dgx-a100\npoints:\n  - {k: 8, throughput: 16621}\n",
    "policies": "jobs:\n  a: {workload: resnet50, cluster: dgx-a100}\npolicies:\n  - knee >= 8\n",
}


class Bad(NamedTuple):
    kind: str
    change: tuple[str, str]  # a piece of the good file, and what stands there instead
    line: int
    column: int
    code: str
    message: str


CASES = {
    # units
    "bare number": Bad("accelerators", ("80 GB", "80"), 2, 9, "S006", "a number without a unit: 80"),
    "bits or bytes": Bad("links", ("50 GB/s", "400 Gb/s"), 3, 12, "S006", "write Gbit/s or GB/s"),
    "bits per second in one word": Bad("links", ("50 GB/s", "400 Gbps"), 3, 12, "S006", "write Gbit/s or GB/s"),
    "unknown unit": Bad("accelerators", ("3 TB/s", "3 TBps"), 3, 19, "S006", 'unknown unit "TBps"'),
    "wrong dimension": Bad("accelerators", ("3 TB/s", "3 TB"), 3, 19, "S006", "is an amount of data, expected a data rate"),
    "spelled-out unit": Bad("links", ("2 us", "2 seconds"), 2, 10, "S006", 'unknown unit "seconds"'),
    "flops": Bad("accelerators", ("900 TFLOP/s", "900 TFLOPS"), 4, 14, "S006", 'unknown unit "TFLOPS"'),
    "no number": Bad("accelerators", ("80 GB", "lots"), 2, 9, "S006", 'cannot read "lots" as a quantity'),
    "wrong case of kilo": Bad("accelerators", ("80 GB", "80000000 KB"), 2, 9, "S006", 'unknown unit "KB"'),
    "dollar sign": Bad("prices", ("20 USD/h", "20 $/h"), 3, 12, "S006", 'unknown unit "$/h"'),
    "price without a unit": Bad("prices", ("20 USD/h", "20"), 3, 12, "S006", "a number without a unit: 20"),
    "carbon in the wrong unit": Bad("grids", ("300 g/kWh", "300 g"), 2, 16, "S006", "is a mass, expected a mass per energy"),
    # limits
    "bandwidth of a petabyte": Bad("accelerators", ("3 TB/s", "1 PB/s"), 3, 19, "S007", "at most 100 TB/s is expected"),
    "memory of a few bytes": Bad("accelerators", ("80 GB", "80 B"), 2, 9, "S007", "too small to be real"),
    "negative memory": Bad("accelerators", ("80 GB", "-80 GB"), 2, 9, "S007", "must not be negative"),
    "infinite": Bad("accelerators", ("80 GB", ".inf"), 2, 9, "S006", "not a finite number: inf"),
    "overflow": Bad("accelerators", ("80 GB", "1e999 GB"), 2, 9, "S006", "too large to be real"),
    "latency of a second": Bad("links", ("2 us", "2 s"), 2, 10, "S007", "at most 100 ms is expected"),
    "no accelerators": Bad("nodes", ("per_node: 8\nscale_up", "per_node: 0\nscale_up"), 3, 24, "S007", "must be at least 1, got 0"),
    "efficiency above one": Bad("links", ("source: test", "efficiency: 1.2"), 4, 13, "S007", "must be at most 1, got 1.2"),
    "oversubscription below one": Bad("clusters", ("source: test", "topology: {kind: rail, oversubscription: 0.5}"), 3, 42, "S007", "must be at least 1, got 0.5"),
    "peak too high": Bad("accelerators", ("900 TFLOP/s", "900 EFLOP/s"), 4, 14, "S007", "at most 1 EFLOP/s is expected"),
    "fraction is not a number": Bad("links", ("source: test", "efficiency: .nan"), 4, 13, "S006", "not a finite number"),
    "carbon absurd": Bad("grids", ("300 g/kWh", "300 kg/kWh"), 2, 16, "S007", "at most 3000 g/kWh is expected"),
    # keys
    "misspelt required key": Bad("accelerators", ("memory: 80", "memry: 80"), 2, 1, "S003", 'unknown key "memry"; did you mean "memory"?'),
    "misspelt optional key": Bad("links", ("source: test", "eficiency: 0.9"), 4, 1, "S003", 'did you mean "efficiency"?'),
    "unknown key": Bad("links", ("source: test", "colour: blue"), 4, 1, "S003", 'unknown key "colour"'),
    "missing key": Bad("accelerators", ("memory: 80 GB\n", ""), 1, 1, "S004", 'missing key "memory"'),
    "missing bandwidth": Bad("links", ("bandwidth: 50 GB/s\n", ""), 1, 1, "S004", 'missing key "bandwidth"'),
    "duplicate key": Bad("accelerators", ("source: test", "memory: 90 GB"), 5, 1, "S002", 'key "memory" is given twice'),
    "duplicate key in a flow mapping": Bad("accelerators", ("{bf16: 900 TFLOP/s}", "{bf16: 900 TFLOP/s, bf16: 1 TFLOP/s}"), 4, 27, "S002", 'key "bf16" is given twice'),
    "unknown precision": Bad("accelerators", ("bf16: 900", "bf61: 900"), 4, 8, "S011", 'did you mean "bf16"?'),
    "empty peak": Bad("accelerators", ("{bf16: 900 TFLOP/s}", "{}"), 4, 7, "S005", "must not be empty"),
    "unknown key beside a value": Bad("accelerators", ("80 GB", "{value: 80 GB, sorce: me}"), 2, 24, "S003", 'unknown key "sorce" beside "value"; did you mean "source"?'),
    "unknown nested key": Bad("clusters", ("source: test", "topology: {kind: rail, leafs: 3}"), 3, 24, "S003", 'unknown key "leafs" in topology'),
    "price without a price": Bad("prices", ("on_demand: 20 USD/h\n", ""), 1, 1, "S004", "no price given"),
    # types
    "list for a quantity": Bad("accelerators", ("80 GB", "[80 GB]"), 2, 9, "S005", "expected a quantity, got a list"),
    "nothing for a quantity": Bad("accelerators", ("80 GB", ""), 2, 1, "S005", "expected a quantity, got nothing"),
    "truth value for a quantity": Bad("accelerators", ("80 GB", "true"), 2, 9, "S006", "got true"),
    "text for a mapping": Bad("accelerators", ("{bf16: 900 TFLOP/s}", "900 TFLOP/s"), 4, 7, "S005", "expected a mapping"),
    "number for text": Bad("accelerators", ("source: test", "vendor: 3"), 5, 9, "S005", "expected text, got 3"),
    "list for text": Bad("accelerators", ("source: test", "notes: [a]"), 5, 8, "S005", "expected text, got a list"),
    "half an accelerator": Bad("nodes", ("per_node: 8\nscale_up", "per_node: 7.5\nscale_up"), 3, 24, "S005", "expected a whole number, got 7.5"),
    "words for a count": Bad("nodes", ("per_node: 8\nscale_up", "per_node: many\nscale_up"), 3, 24, "S005", 'expected a whole number, got "many"'),
    "truth value for a count": Bad("nodes", ("per_node: 8\nscale_up", "per_node: true\nscale_up"), 3, 24, "S005", "expected a whole number, got true"),
    "words for a truth value": Bad("links", ("source: test", "in_network_reduction: perhaps"), 4, 23, "S005", 'expected true or false, got "perhaps"'),
    "bad date": Bad("prices", ("source: test", "date: last week"), 4, 7, "S005", "not a date"),
    "bad confidence": Bad("links", ("source: test", "confidence: sure"), 4, 13, "S011", '"sure" is not a choice here'),
    "bad confidence of one value": Bad("links", ("2 us", "{value: 2 us, confidence: meassured}"), 2, 36, "S011", 'did you mean "measured"?'),
    "bad link kind": Bad("links", ("source: test", "kind: scaleup"), 4, 7, "S011", 'did you mean "scale-up"?'),
    "bad node topology": Bad("nodes", ("source: test", "topology: nvswich"), 7, 11, "S011", 'did you mean "nvswitch"?'),
    # YAML itself
    "syntax": Bad("accelerators", ("{bf16: 900 TFLOP/s}", "{bf16: 900 TFLOP/s"), 5, 7, "S001", "not valid YAML"),
    "tab": Bad("links", ("latency: 2 us", "latency:\n\tx: 2 us"), 3, 1, "S001", "not valid YAML"),
    "tag": Bad("links", ("source: test", "source: !!python/name:os.system x"), 4, 9, "S013", "tags are not allowed"),
    "undefined alias": Bad("links", ("source: test", "source: *nobody"), 4, 9, "S001", "not valid YAML"),
    "two documents": Bad("links", ("source: test", "---\na: 1"), 4, 1, "S001", "not valid YAML"),
    "complex key": Bad("links", ("source: test", "? [a, b]\n: c"), 4, 3, "S005", "a key must be plain text"),
    # references
    "unknown accelerator": Bad("nodes", ("h100-sxm5-80gb", "h100-sxm5-80bg"), 2, 14, "S008", 'did you mean "h100-sxm5-80gb"?'),
    "unknown link": Bad("nodes", ("nvswitch-3", "nvswitch-33"), 4, 11, "S008", 'no link named "nvswitch-33"'),
    "unknown node": Bad("clusters", ("dgx-h100", "dgx-h1000"), 2, 7, "S008", 'did you mean "dgx-h100"?'),
    "unknown parent": Bad("accelerators", ("source: test", "extends: h100-sxm5-80gbb"), 5, 10, "S008", 'no accelerator named "h100-sxm5-80gbb"'),
    "parent is a list": Bad("accelerators", ("source: test", "extends: [a, b]"), 5, 10, "S005", "extends takes the name of one entry"),
    "loop of one": Bad("accelerators", ("source: test", "extends: x"), 5, 10, "S009", "inheritance loop: x -> x"),
    "price key to nowhere": Bad("nodes", ("source: test", "price_key: p5.48xlarg"), 7, 12, "S008", 'did you mean "p5.48xlarge"?'),
    "price of an unknown accelerator": Bad("prices", ("source: test", "accelerator: h10"), 4, 14, "S008", 'no accelerator named "h10"'),
    "scale-up link to nowhere": Bad("accelerators", ("source: test", "scale_up: nvlnk-4"), 5, 11, "S008", 'did you mean "nvlink-4"?'),
    "name is not the file's": Bad("links", ("name: x", "name: y"), 1, 7, "S014", 'the name "y" is not the file\'s'),
    "inline node with a typo": Bad("clusters", ("node: dgx-h100", "node: {extends: dgx-h100, nics: 4}"), 2, 27, "S003", 'unknown key "nics" in node'),
    # workloads
    "generic without bytes": Bad("workloads", ("bytes_per_sample: 3 MB\n", ""), 1, 1, "S004", 'a generic workload needs "bytes_per_sample"'),
    "unknown workload kind": Bad("workloads", ("kind: generic", "kind: transformer"), 2, 7, "S011", '"transformer" is not a choice here'),
    "heads that do not divide": Bad("workloads", ("source: test", "heads: 12\nkv_heads: 5"), 7, 11, "S010", "kv_heads 5 does not divide heads 12"),
    "more logits than words": Bad("workloads", ("source: test", "vocab: 100\nprojected_vocab: 200"), 7, 18, "S010", "projected_vocab 200 exceeds vocab 100"),
    "logits of no words": Bad("workloads", ("source: test", "projected_vocab: 200"), 6, 18, "S010", "projected_vocab needs a vocab"),
    "memory of what has no segments": Bad("workloads", ("source: test", "memory_len: 192"), 6, 13, "S010", "memory_len is modelled for decoders"),
    "windows of no size": Bad("workloads", ("source: test", "window_layers: 2"), 6, 16, "S010", "window_layers needs an attention_window"),
    "more windows than layers": Bad("workloads", ("source: test", "layers: 4\nattention_window: 128\nwindow_layers: 5"), 8, 16, "S010", "window_layers 5 exceeds the 4 layers"),
    "documents of what has no attention": Bad("workloads", ("source: test", "document_len: 180"), 6, 15, "S010", "document_len is for attention that is counted from dimensions"),
    "scores of what has no attention": Bad("workloads", ("source: test", "scores_in_fp32: true"), 6, 17, "S010", "scores_in_fp32 is for attention that is counted from dimensions"),
    "a window over stated FLOP": Bad("workloads", ("kind: generic", "kind: decoder-transformer\nlayers: 4\nhidden: 64\nattention_window: 128"), 5, 19, "S010", "attention_window is for attention that is counted from dimensions"),
    "a window over two towers": Bad("workloads", ("kind: generic\nflop_per_sample: 10 GFLOP", "kind: encoder-decoder-transformer\nlayers: 4\nhidden: 64\nattention_window: 128"), 5, 19, "S010", "attention_window is modelled for one tower only"),
    "convolutions of counted FLOP": Bad("workloads", ("kind: generic\nflop_per_sample: 10 GFLOP", "kind: decoder-transformer\nlayers: 4\nhidden: 64\nconv3x3_share: 0.5"), 5, 16, "S010", "conv3x3_share is of stated FLOP"),
    "memory beyond a document": Bad("workloads", ("kind: generic\nflop_per_sample: 10 GFLOP", "kind: decoder-transformer\nlayers: 4\nhidden: 64\ndocument_len: 64\nmemory_len: 64"), 6, 13, "S010", "memory_len is modelled for decoders with plain attention"),
    "peer access that is neither": Bad("accelerators", ("source: test", "peer_access: some"), 5, 14, "S005", "expected true or false"),
    "more experts than there are": Bad("workloads", ("source: test", "experts: 4\ntop_k: 8"), 7, 8, "S010", "top_k 8 exceeds the 4 experts"),
    "negative layers": Bad("workloads", ("source: test", "layers: -3"), 6, 9, "S007", "must be at least 1, got -3"),
    # jobs
    "grid by its place": Bad("job", ("dgx-h100", "dgx-h100\ngrid: germany"), 3, 7, "S008", 'did you mean "DEU"?'),
    "unknown workload": Bad("job", ("llama3-8b", "lama3-8b"), 1, 11, "S008", 'did you mean "llama3-8b"?'),
    "unknown cluster": Bad("job", ("dgx-h100", "dxg-h100"), 2, 10, "S008", 'did you mean "dgx-h100"?'),
    "job without a cluster": Bad("job", ("cluster: dgx-h100\n", ""), 1, 1, "S004", 'missing key "cluster"'),
    "unknown job key": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nglobal_bach: 3\n"), 3, 1, "S003", 'did you mean "global_batch"?'),
    "both batches": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nglobal_batch: 8\nbatch_per_accelerator: 1\n"), 4, 24, "S010", "both global_batch and batch_per_accelerator"),
    "weak with a global batch": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nregime: weak\nglobal_batch: 8\n"), 4, 15, "S010", "weak scaling fixes batch_per_accelerator"),
    "strong with a batch per accelerator": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nregime: strong\nbatch_per_accelerator: 8\n"), 4, 24, "S010", "strong scaling fixes global_batch"),
    "tp does not divide the heads": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nlayout: {tp: 3}\n"), 3, 14, "S010", "tp 3 does not divide the 32 heads"),
    "a shard group that divides nothing": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nk: 8\nlayout: {sharding: zero1, shard_group: 3}\n"), 4, 40, "S010", "shard_group 3 does not divide the 8 ranks that share weights at K = 8"),
    "tp exceeds every K": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nk: 4\nlayout: {tp: 8}\n"), 4, 14, "S010", "tp*pp*cp = 8 does not fit K = 4"),
    "more stages than layers": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nlayout: {pp: 64}\n"), 3, 14, "S010", "exceeds the 32 layers"),
    "experts that are not there": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nlayout: {ep: 4}\n"), 3, 14, "S010", "has no experts to spread"),
    "interleaving without a pipeline": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nlayout: {vpp: 4}\n"), 3, 15, "S010", "vpp 4 needs a pipeline"),
    "layout word": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nlayout: best\n"), 3, 9, "S011", '"best" is not a layout'),
    "sharding word": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nlayout: {sharding: zero4}\n"), 3, 20, "S011", 'did you mean "zero3"?'),
    "k backwards": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nk: 64..8\n"), 3, 4, "S007", '"64..8" runs backwards'),
    "k of zero": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nk: 0\n"), 3, 4, "S007", "must be between 1 and"),
    "k in words": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nk: all\n"), 3, 4, "S007", 'cannot read "all" as worker counts'),
    "k beyond the cluster": Bad("job", ("cluster: dgx-h100\n", "cluster: {node: dgx-h100, max_nodes: 2}\nk: 8..64\n"), 3, 4, "S007", "has 16 accelerators, k reaches 64"),
    "precision that is not there": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-a100\nprecision: fp8\n"), 3, 12, "S010", "a100-sxm4-80gb has no fp8"),
    "unknown grid": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\ngrid: US-VAX\n"), 3, 7, "S008", 'did you mean "US-VA"?'),
    "two kinds of price": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nprice: {per_accelerator: 2 USD/h, purchase: 3 USD}\n"), 3, 45, "S010", '"purchase" belongs to regime owned'),
    "unknown provider": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nprice: {provider: acme}\n"), 3, 8, "S008", 'by provider "acme"'),
    "jitter without a spread": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\njitter: {distribution: normal}\n"), 3, 9, "S004", 'missing key "spread"'),
    "reliability in numbers": Bad("job", ("cluster: dgx-h100\n", "cluster: dgx-h100\nreliability: {checkpoint: 60}\n"), 3, 27, "S006", "a number without a unit: 60"),
    "file that is not there": Bad("job", ("llama3-8b", "{file: nowhere.yaml}"), 1, 18, "S012", "no file"),
    "inline link without latency": Bad("job", ("cluster: dgx-h100\n", "cluster: {node: dgx-h100, scale_out: {bandwidth: 3 GB/s}}\n"), 2, 27, "S004", 'missing key "latency" in cluster.scale_out'),
    # claims and policies
    "claim without numbers": Bad("claim", ("points:\n  - {k: 8, throughput: 16621}\n", "vendor: x\n"), 1, 1, "S004", "a claim needs points or a headline"),
    "claim point without k": Bad("claim", ("{k: 8, ", "{"), 4, 5, "S004", 'missing key "k" in points[0]'),
    "claim with a typo": Bad("claim", ("throughput", "troughput"), 4, 12, "S003", 'did you mean "throughput"?'),
    "claim with two accelerators": Bad("claim", ("points:", "accelerator: h100-sxm5-80gb\npoints:"), 3, 1, "S010", "is not that of cluster dgx-a100"),
    "policy for a job that is not there": Bad("policies", ("- knee >= 8", "- {expression: knee >= 8, jobs: b}"), 4, 18, "S008", 'no job named "b"'),
    "policy file without jobs": Bad("policies", ("jobs:\n  a: {workload: resnet50, cluster: dgx-a100}\n", ""), 1, 1, "S004", 'missing key "jobs"'),
    "policy job with a typo": Bad("policies", ("resnet50", "resnet5"), 2, 17, "S008", 'did you mean "resnet50"?'),
    "policy that is a number": Bad("policies", ("- knee >= 8", "- 8"), 4, 5, "S005", "expected a mapping (policy), got"),
}  # fmt: skip


def write(folder: Path, kind: str, text: str) -> Path:
    """Put a spec where its kind is known: by the folder, or, for jobs, claims and policies, by their keys."""
    place = folder / kind if kind not in ("job", "claim", "policies") else folder
    place.mkdir(exist_ok=True)
    path = place / "x.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", list(GOOD))
def test_the_good_files_are_good(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, kind, GOOD[kind])
    assert main(["catalog", "lint", str(path)]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("name", list(CASES))
def test_one_mistake_one_error(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = CASES[name]
    old, new = bad.change
    assert GOOD[bad.kind].count(old) == 1
    text = GOOD[bad.kind].replace(old, new)
    path = write(tmp_path, bad.kind, text)
    assert main(["catalog", "lint", str(path)]) == 2
    out = capsys.readouterr().out
    errors = re.findall(r"^(\S+?):(\d+):(\d+): error\[(\w+)\]: (.*)$", out, re.MULTILINE)
    assert len(errors) == 1, out
    file, line, column, code, message = errors[0]
    assert Path(file) == path
    assert (int(line), int(column), code) == (bad.line, bad.column, bad.code), out
    assert bad.message in message
    shown = text.splitlines()[bad.line - 1] if bad.line <= len(text.splitlines()) else ""
    assert f"{bad.line} | {shown}" in out


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 60


def test_all_errors_of_a_file_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "name: x\nmemory: 80\nmemory_bandwith: 3 TB/s\npeak: {bf16: 9 PFLOPS}\ntdp: -3 W\n"
    path = write(tmp_path, "accelerators", text)
    assert main(["catalog", "lint", str(path)]) == 2
    lines = re.findall(r":(\d+):\d+: error", capsys.readouterr().out)
    assert lines == ["2", "3", "4", "5"]


def test_a_loop_over_two_files_names_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "a.yaml").write_text("extends: b\n")
    (folder / "b.yaml").write_text("extends: a\n")
    assert main(["catalog", "lint", str(tmp_path)]) == 2
    assert "inheritance loop: " in (out := capsys.readouterr().out)
    assert "a -> b -> a" in out or "b -> a -> b" in out


def test_aliases_that_expand_without_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 9))
    path = write(tmp_path, "links", f"l0: &l0 [x]\n{levels}\n")
    assert main(["catalog", "lint", str(path)]) == 2
    assert "expand without end" in capsys.readouterr().out
