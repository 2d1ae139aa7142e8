"""The measuring rules without torch: a fake clock, fake ranks, real files."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from perfmodel.errors import SpecError, UsageError
from perfmodel.readings.measure.collective import (
    CollectiveReport,
    fit_link,
    link_fields,
    link_yaml,
    nccl_tests_log,
    ring_steps,
    sizes_between,
)
from perfmodel.readings.measure.device import (
    DeviceReport,
    accelerator_fields,
    accelerator_yaml,
    device_result,
)
from perfmodel.readings.measure.journal import Journal
from perfmodel.readings.measure.machine import Machine
from perfmodel.readings.measure.step import StepContext, StepProgram, StepSettings, run_step
from perfmodel.readings.measure.timing import Sample, Settings, TooSlowError, time_call
from perfmodel.readings.measure.timings import (
    Recorded,
    add_run,
    check_may_add,
    check_same_workers,
    read_recorded,
)
from perfmodel.readings.nccl_tests import read_nccl_tests
from perfmodel.readings.sweeps import bus_factor, make_sweep
from perfmodel.specs.catalog import Catalog
from perfmodel.study.table import parse_timings

CONTEXT = StepContext(1, 0, 0, "cpu", False)
WORKLOAD = {"model": "mlp", "global_batch": 64}


class FakeClock:
    """Time passes only when something says so."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def take(self, seconds):
        self.now += seconds


def machine():
    torch = SimpleNamespace(__version__="2.13.0", get_num_threads=lambda: 2)
    return Machine(torch, "cpu", "cpu", "Example CPU @ 2.0GHz", None, 16e9, 2, None)


def test_warm_up_is_not_in_the_time():
    clock = FakeClock()
    calls = []

    def call():
        clock.take(1.0 if len(calls) < 3 else 0.004)
        calls.append(1)

    sample = time_call(call, Settings(warmup_calls=3, warmup_s=0.0, repeat_s=0.02, repeats=4), clock=clock)
    assert sample.time_s == pytest.approx(0.004)
    assert sample.calls == 5
    assert len(sample.times_s) == 4
    assert sample.spread == pytest.approx(0.0, abs=1e-9)


def test_the_slowest_rank_counts_and_every_rank_makes_the_same_calls():
    counts = []
    for own in (0.001, 0.004):
        clock = FakeClock()
        done = []
        sample = time_call(
            lambda own=own, clock=clock, done=done: (clock.take(own), done.append(1)),
            Settings(2, 0.0, 0.04, 3),
            clock=clock,
            agree=lambda value, own=own: value * 0.004 / own,
        )
        counts.append((len(done), sample.calls))
        assert sample.time_s == pytest.approx(0.004)
    assert counts[0] == counts[1]


def program(clock, setup=7.0, warm=2.0, steady=0.5, **extra):
    """Set-up of 7 s, two slow first steps, then half a second each."""

    def build(context):
        clock.take(setup)
        done = []

        def step():
            clock.take(warm if len(done) < 2 else steady)
            done.append(1)

        return StepProgram(step=step, workload=WORKLOAD, **extra)

    return build


def test_set_up_and_warm_up_stay_out_of_the_step():
    clock = FakeClock()
    run = run_step(program(clock, evaluate=lambda: 0.93), CONTEXT, StepSettings(3, 4, 5), clock=clock)
    assert run.times_s == pytest.approx((0.5,) * 5)
    assert run.setup_s == pytest.approx(7.0 + 2.0 + 2.0 + 0.5)
    assert run.quality == 0.93
    assert (run.global_batch, run.regime) == (64.0, "strong")


def test_finished_repeats_are_kept_and_not_timed_again(tmp_path):
    """Stopped in the third repeat: two are kept, the next run times three, and quality is that after all the steps."""
    clock, path, made = FakeClock(), tmp_path / "t.csv.k1.partial", []

    def build(context):
        made.append(0)

        def step():
            made[-1] += 1
            if len(made) == 1 and made[-1] > 1 + 2 * 4:
                raise KeyboardInterrupt
            clock.take(0.5 if len(made) == 1 else 0.25)

        return StepProgram(step=step, workload=WORKLOAD, evaluate=lambda: float(made[-1]))

    def run(settings):
        return run_step(
            build, CONTEXT, settings, clock=clock, book=lambda digest: Journal(path, {"hash": digest})
        )

    with pytest.raises(KeyboardInterrupt):
        run(StepSettings(1, 4, 5))
    assert len(path.read_text().splitlines()) == 3
    found = run(StepSettings(1, 4, 5))
    assert found.times_s == pytest.approx((0.5, 0.5, 0.25, 0.25, 0.25))
    assert found.quality == 1 + 4 * 5


def test_every_rank_makes_the_steps_that_rank_0_has_not_kept(tmp_path):
    """Only rank 0 has the journal; the others learn from it how many repeats are left."""
    path, counts = tmp_path / "j", []
    book = Journal(path, {})
    book.add("repeat/0", 0.5)
    book.add("repeat/1", 0.5)
    for journal in (Journal(path, {}), Journal(None, {})):
        clock, steps = FakeClock(), []
        run_step(
            lambda context, steps=steps, clock=clock: {
                "step": lambda: (clock.take(0.1), steps.append(1)),
                "workload": WORKLOAD,
            },
            StepContext(2, 0, 0, "cpu", True),
            StepSettings(1, 3, 5),
            clock=clock,
            largest=lambda value: 2.0 if value in (0.0, 2.0) else value,
            book=lambda digest, journal=journal: journal,
        )
        counts.append(len(steps))
    assert counts == [1 + 3 * 3] * 2


def test_workers_with_other_threads_are_another_machine():
    recorded = Recorded(runs=({"k": 1, "threads": "4"},))
    check_same_workers(recorded, {"torch": "2", "threads": "4"})
    check_same_workers(recorded, {"torch": "2", "cuda": "13"})
    with pytest.raises(UsageError, match="4 threads each, this run's have 1"):
        check_same_workers(recorded, {"threads": "1"})


def test_variance_is_kept():
    clock = FakeClock()
    rng = np.random.default_rng(0)
    build = lambda context: {"step": lambda: clock.take(rng.uniform(0.9, 1.1)), "workload": WORKLOAD}  # noqa: E731
    run = run_step(build, CONTEXT, StepSettings(1, 1, 8), clock=clock)
    assert len(set(run.times_s)) == 8
    assert 0.01 < run.spread < 0.2
    with pytest.raises(UsageError, match="2 repeats"):
        StepSettings(1, 1, 1)


def test_weak_scaling_declares_itself():
    build = lambda context: {"step": lambda: None, "workload": {"model": "mlp", "batch_per_worker": 16}}  # noqa: E731
    clock = iter(range(10_000)).__next__
    runs = [
        run_step(build, StepContext(k, 0, 0, "cpu", k > 1), StepSettings(1, 1, 2), clock=clock)
        for k in (1, 4)
    ]
    assert [(run.regime, run.global_batch) for run in runs] == [("weak", 16.0), ("weak", 64.0)]
    assert runs[0].workload_hash == runs[1].workload_hash


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "returns NoneType"),
        ({"stp": 1, "workload": WORKLOAD}, 'did you mean "step"'),
        ({"step": print}, "no step and workload"),
        ({"step": print, "workload": {"model": "mlp"}}, "either global_batch"),
        ({"step": print, "workload": {"global_batch": 4, "batch_per_worker": 2}}, "either global_batch"),
        ({"step": print, "workload": {"global_batch": 0}}, "above zero"),
        ({"step": print, "workload": {"global_batch": 4, "f": print}}, "not plain JSON"),
    ],
)
def test_what_the_function_returns_is_checked(returned, message):
    with pytest.raises(UsageError, match=message):
        run_step(lambda context: returned, CONTEXT, StepSettings())


def test_a_wrapped_baseline_is_refused():
    wrapper = type("DistributedDataParallel", (), {})

    def build(context):
        model = wrapper()
        model.parts = []  # containers are what the collector tracks
        return StepProgram(step=lambda: model, workload=WORKLOAD)

    with pytest.raises(UsageError, match="uses DistributedDataParallel"):
        run_step(build, CONTEXT, StepSettings(1, 1, 2))
    wrapped = StepContext(2, 0, 0, "cpu", True)
    assert run_step(build, wrapped, StepSettings(1, 1, 2)).k == 2


def test_ranks_with_different_workloads_are_refused():
    clock = FakeClock()
    with pytest.raises(UsageError, match="different workloads"):
        run_step(
            program(clock),
            StepContext(2, 0, 0, "cpu", True),
            StepSettings(1, 1, 2),
            clock=clock,
            largest=lambda value: value + 1.0,
        )


def measured(k, workload=None, seconds=1.0):
    clock = FakeClock()
    build = lambda context: {"step": lambda: clock.take(seconds), "workload": workload or WORKLOAD}  # noqa: E731
    return run_step(build, StepContext(k, 0, 0, "cpu", k > 1), StepSettings(1, 1, 3), clock=clock)


def test_the_file_grows_by_k_and_the_study_reads_it(tmp_path):
    path = tmp_path / "timings.csv"
    for k, seconds in ((1, 8.0), (2, 4.5), (2, 4.4), (4, 2.5)):
        add_run(path, read_recorded(path), measured(k, seconds=seconds))
    table = parse_timings(path.read_bytes())
    assert table.k.tolist() == [1, 1, 1, 2, 2, 2, 4, 4, 4]
    assert table.time_s.tolist() == pytest.approx([8.0] * 3 + [4.4] * 3 + [2.5] * 3)
    assert set(table.columns["global_batch"]) == {64.0}
    runs = read_recorded(path).runs
    assert [run["k"] for run in runs] == [1, 2, 4]
    assert {run["workload_hash"] for run in runs} == {measured(1).workload_hash}


def test_workloads_are_not_mixed_and_the_baseline_comes_first(tmp_path):
    path = tmp_path / "timings.csv"
    with pytest.raises(UsageError, match="no K=1 run"):
        add_run(path, read_recorded(path), measured(2))
    assert not path.exists()
    add_run(path, read_recorded(path), measured(1))
    before = path.read_bytes()
    with pytest.raises(UsageError, match="global_batch: 64 -> 128"):
        add_run(path, read_recorded(path), measured(2, {"model": "mlp", "global_batch": 128}))
    assert path.read_bytes() == before
    other = tmp_path / "large.csv"
    add_run(other, read_recorded(other), measured(2), "does not fit one device")
    assert read_recorded(other).runs[0]["no_baseline"] == "does not fit one device"
    check_may_add(read_recorded(path), 8, None, None, None)


def test_foreign_files_are_not_touched(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("k,time_s\n1,10\n")
    with pytest.raises(SpecError, match="not a timings file"):
        read_recorded(path)


def test_the_journal_resumes_and_never_mixes(tmp_path):
    path = tmp_path / "x.partial"
    first = Journal(path, {"device": "a"})
    first.add("one", {"times_s": [1.0]})
    with path.open("a") as file:
        file.write('{"key": "two", "val')  # stopped while writing
    again = Journal(path, {"device": "a"})
    assert again.resumed == 1
    assert again.get("one") == {"times_s": [1.0]}
    assert again.get("two") is None
    other = Journal(path, {"device": "b"})
    assert other.get("one") is None
    assert (tmp_path / "x.partial.old").exists()
    other.finish()
    assert not path.exists()


def test_after_a_torn_line_new_records_are_still_read(tmp_path):
    path = tmp_path / "x.partial"
    Journal(path, {}).add("one", 1)
    with path.open("a") as file:
        file.write('{"key": "two", "val')
    Journal(path, {}).add("three", 3)
    final = Journal(path, {})
    assert (final.get("one"), final.get("three")) == (1, 3)


def alpha_beta(op, ranks, alpha, bandwidth):
    points = [
        (s, ring_steps(op, ranks) * alpha + bus_factor(op, ranks) * s / bandwidth)
        for s in sizes_between(1024, 2**26, ranks)
    ]
    return make_sweep(op, ranks, points, nodes=1)


def report(alpha=2e-5, bandwidth=5e9, ranks=4):
    sweeps = tuple(
        alpha_beta(op, ranks, alpha, bandwidth)
        for op in ("all_reduce", "all_gather", "all_to_all", "broadcast")
    )
    return CollectiveReport(machine(), ranks, 1, sweeps, {}, ("send_recv: no",), "2026-01-01")


def test_the_link_is_found_again():
    alpha, bandwidth, error = fit_link(report().sweeps)
    assert alpha == pytest.approx(2e-5, rel=1e-6)
    assert bandwidth == pytest.approx(5e9, rel=1e-6)
    assert error < 1e-9


def test_the_log_is_one_that_our_reader_reads(tmp_path):
    path = tmp_path / "collectives.log"
    path.write_text(nccl_tests_log(report()))
    log = read_nccl_tests(path)
    assert log.rejected_count == 0
    assert [(s.op, s.ranks, s.nodes) for s in log.sweeps] == [(s.op, 4, 1) for s in report().sweeps]
    for found, meant in zip(log.sweeps, report().sweeps, strict=True):
        np.testing.assert_allclose(found.bytes, meant.bytes)
        np.testing.assert_allclose(found.time_s, meant.time_s, rtol=1e-4)


def test_specs_are_ones_that_the_catalogue_takes(tmp_path):
    fields, _ = link_fields(report(), name="my-link")
    work = {"matmul/fp32/1024": 2.0 * 1024**3, "memory/copy/1": 2e8, "launch": 64.0}
    samples = {
        "matmul/fp32/1024": Sample((0.05, 0.05), 1),
        "memory/copy/1": Sample((0.02, 0.02), 1),
        "launch": Sample((6.4e-5, 6.4e-5), 9),
    }
    found = DeviceReport(machine(), samples, work, ("matmul/fp8/128: no kernel",), "2026-01-01")
    device = accelerator_fields(found, name="my-cpu")
    for kind, text in (("links", link_yaml(fields)), ("accelerators", accelerator_yaml(device))):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / f"{text.split('name: ')[1].split()[0]}.yaml").write_text(text)
    catalog = Catalog.default([tmp_path])
    link, accelerator = catalog.get("links", "my-link"), catalog.get("accelerators", "my-cpu")
    assert link.bandwidth == pytest.approx(5e9, rel=1e-3)
    assert link.latency == pytest.approx(2e-5, rel=1e-3)
    assert accelerator.peak["fp32"] == pytest.approx(2.0 * 1024**3 / 0.05, rel=1e-3)
    assert accelerator.memory_bandwidth == pytest.approx(1e10, rel=1e-3)
    assert accelerator.launch_overhead == pytest.approx(1e-6, rel=1e-3)
    assert (link.confidence, accelerator.confidence) == ("measured", "measured")
    assert json.loads(device_result(found, device).to_json())["result"]["skipped"] == [
        "matmul/fp8/128: no kernel"
    ]


def test_a_known_device_keeps_its_datasheet(tmp_path):
    parent = Catalog.default().get("accelerators", "h100-sxm5-80gb")
    samples = {
        "matmul/bf16/8192": Sample((2.0 * 8192**3 / 700e12,) * 2, 1),
        "memory/copy/1": Sample((1.0, 1.0), 1),
    }
    found = DeviceReport(
        machine(), samples, {"matmul/bf16/8192": 2.0 * 8192**3, "memory/copy/1": 2.9e12}, (), "2026-01-01"
    )
    fields = accelerator_fields(found, name="our-h100", extends=parent)
    (tmp_path / "accelerators").mkdir()
    (tmp_path / "accelerators" / "our-h100.yaml").write_text(accelerator_yaml(fields))
    child = Catalog.default([tmp_path]).get("accelerators", "our-h100")
    assert child.peak == parent.peak
    assert child.matmul_fraction == pytest.approx(700e12 / parent.peak["bf16"], abs=1e-3)
    assert child.memory_fraction == pytest.approx(2.9e12 / parent.memory_bandwidth, abs=1e-3)


def test_sizes_are_whole_elements_of_every_rank():
    for ranks in (2, 3, 8, 72):
        assert all(size % (4 * ranks) == 0 for size in sizes_between(8, 2**20, ranks))
    with pytest.raises(UsageError):
        sizes_between(0, 10, 2)


def test_another_workload_is_refused_before_any_step_is_run():
    steps = []
    build = lambda context: {"step": lambda: steps.append(1), "workload": WORKLOAD}  # noqa: E731

    def check(digest, workload):
        raise UsageError(f"not {workload['model']}")

    with pytest.raises(UsageError, match="not mlp"):
        run_step(build, CONTEXT, StepSettings(), check=check)
    assert steps == []


def test_an_emulated_precision_is_given_up():
    clock = FakeClock()
    calls = []

    def call():
        clock.take(3.0)
        calls.append(1)

    with pytest.raises(TooSlowError, match="one call takes 3 s"):
        time_call(call, Settings.quick(), clock=clock)
    assert len(calls) == 1
    samples = {"matmul/fp32/64": Sample((1e-6, 1e-6), 1), "matmul/fp8/64": Sample((1e-3, 1e-3), 1)}
    found = DeviceReport(machine(), samples, dict.fromkeys(samples, 2.0 * 64**3), (), "2026-01-01")
    assert list(found.peaks()) == ["fp32"]
