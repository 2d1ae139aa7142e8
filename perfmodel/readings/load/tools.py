"""The JSON reports of load tools, each as `LoadPoint`s. Key names as the tools write them.

Formats and what tells them apart: `vllm bench serve --save-result` (flat keys, `total_output_tokens`, `request_rate`);
`sglang.bench_serving --output-file` (one such object a line, `mean_e2e_latency_ms`); GenAI-Perf and AIPerf
`profile_export_*.json` (metrics as `{unit, avg, p50, ...}`); GuideLLM (`benchmarks[].metrics.*.successful`); LLMPerf
`*_summary.json` (`results_*`); `trtllm-bench --report_json` (`performance`, `request_info`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from perfmodel.readings.load.point import STATISTICS, LoadPoint
from perfmodel.readings.load.values import Report, ratio


def _flat_names(quantity: str) -> dict[str, list[tuple[str, ...]]]:
    names: dict[str, list[tuple[str, ...]]] = {
        statistic: [(f"{statistic}_{quantity}_ms",)] for statistic in STATISTICS
    }
    names["p50"].append((f"median_{quantity}_ms",))
    return names


def flat_point(report: Report) -> LoadPoint:
    """`vllm bench serve` and `sglang.bench_serving`: the same keys but for the name of the end-to-end time."""
    is_sglang = report.has("mean_e2e_latency_ms") or report.has("total_output_tokens_retokenized")
    completed = report.number("completed", zero=False)
    duration = report.number("duration", zero=False)
    rate, cap = report.rate("request_rate"), report.number("max_concurrency")
    e2e = report.statistics(_flat_names("e2el")) or report.statistics(_flat_names("e2e_latency"))
    total_in, total_out = report.number("total_input_tokens"), report.number("total_output_tokens")
    out = report.number("output_throughput")
    total = report.number("total_token_throughput") or report.number("total_throughput")
    input_rate = report.number("input_throughput")
    if total is None and out is not None and input_rate is not None:
        total = out + input_rate
    return LoadPoint(
        source=_source(report),
        tool="sglang bench_serving" if is_sglang else "vllm bench serve",
        concurrency=cap or None,
        rate_per_s=rate,
        requests=completed,
        failed=report.number("failed"),
        duration_s=duration,
        input_tokens=ratio(total_in, completed),
        output_tokens=ratio(total_out, completed),
        requests_per_s=report.number("request_throughput") or ratio(completed, duration),
        throughput_out_tokens_per_s=out or ratio(total_out, duration),
        throughput_total_tokens_per_s=total,
        ttft_s=report.statistics(_flat_names("ttft")),
        tpot_s=report.statistics(_flat_names("tpot")),
        e2e_s=e2e,
        model=report.text("model_id"),
    )


_GENAI_NAMES: Final = {
    "mean": "avg",
    **{statistic: statistic for statistic in STATISTICS if statistic != "mean"},
}
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}


def genai_point(report: Report) -> LoadPoint:
    """GenAI-Perf and AIPerf: `inter_token_latency` is (end - first token)/(tokens - 1) of each request."""

    def times(metric: str) -> dict[str, float]:
        unit = report.text(metric, "unit") or "ms"
        if unit not in _UNITS:
            report.reject((metric, "unit"), f'unknown unit "{unit}"')
            return {}
        names = {statistic: [(metric, key)] for statistic, key in _GENAI_NAMES.items()}
        return report.statistics(names, _UNITS[unit])

    def average(metric: str) -> float | None:
        return report.number(metric, "avg") if report.has(metric, "avg") else report.number(metric)

    config = next((key for key in ("input_config", "config") if report.has(key)), "input_config")
    concurrency = rate = None
    for path in (
        (config, "loadgen", "concurrency"),
        (config, "perf_analyzer", "stimulus", "concurrency"),
        (config, "concurrency"),
    ):
        concurrency = concurrency or report.number(*path)
    for path in (
        (config, "loadgen", "request_rate"),
        (config, "perf_analyzer", "stimulus", "request_rate"),
        (config, "request_rate"),
    ):
        rate = rate or report.rate(*path)
    out, requests = average("output_token_throughput"), average("request_count")
    names = report.data.get(config)
    model = None
    if isinstance(names, Mapping):
        model = Report(names, report.file).text("model") or _first(names.get("model_names"))
    return LoadPoint(
        source=_source(report),
        tool="aiperf" if report.has("aiperf_version") or report.has("schema_version") else "genai-perf",
        concurrency=concurrency or None,
        rate_per_s=rate,
        requests=requests,
        duration_s=average("benchmark_duration"),
        input_tokens=average("input_sequence_length"),
        output_tokens=average("output_sequence_length"),
        requests_per_s=average("request_throughput"),
        throughput_out_tokens_per_s=out,
        throughput_total_tokens_per_s=average("total_token_throughput"),
        ttft_s=times("time_to_first_token"),
        tpot_s=times("inter_token_latency"),
        e2e_s=times("request_latency"),
        model=model,
    )


def _first(value: Any) -> str | None:
    return value[0] if isinstance(value, list) and value and isinstance(value[0], str) else None


def guidellm_points(report: Report) -> list[LoadPoint]:
    """GuideLLM: one point a benchmark. Its `inter_token_latency_ms` leaves the first token out, as TPOT does here."""
    points = []
    for index, item in enumerate(report.data.get("benchmarks") or ()):
        if not isinstance(item, Mapping):
            report.reject((f"benchmarks[{index}]",), "not a mapping")
            continue
        part = Report(item, report.file, report.line, f"benchmarks[{index}]", report.problems)

        def times(metric: str, scale: float, part: Report = part) -> dict[str, float]:
            base = ("metrics", metric, "successful")
            names: dict[str, list[tuple[str, ...]]] = {
                statistic: [(*base, "percentiles", statistic)] for statistic in STATISTICS
            }
            names["mean"] = [(*base, "mean")]
            names["p50"].append((*base, "median"))
            return part.statistics(names, scale)

        def mean(metric: str, part: Report = part) -> float | None:
            return part.number("metrics", metric, "successful", "mean")

        strategy: tuple[str, ...] = next(
            (path for path in (("config", "strategy"), ("args", "strategy")) if part.has(*path)),
            ("args", "strategy"),
        )
        kind = part.text(*strategy, "type_") or ""
        streams = part.number(*strategy, "streams") or part.number(*strategy, "max_concurrency")
        concurrency = 1.0 if kind == "synchronous" else streams if kind == "concurrent" else None
        points.append(
            LoadPoint(
                source=_source(part),
                tool="guidellm",
                concurrency=concurrency,
                rate_per_s=part.rate(*strategy, "rate") if kind in ("constant", "poisson", "async") else None,
                requests=part.number("metrics", "request_totals", "successful")
                or part.number("request_totals", "successful"),
                failed=part.number("metrics", "request_totals", "errored"),
                duration_s=part.number("duration"),
                input_tokens=mean("prompt_token_count"),
                output_tokens=mean("output_token_count"),
                requests_per_s=mean("requests_per_second"),
                throughput_out_tokens_per_s=mean("output_tokens_per_second"),
                throughput_total_tokens_per_s=mean("tokens_per_second"),
                ttft_s=times("time_to_first_token_ms", 1e-3),
                tpot_s=times("inter_token_latency_ms", 1e-3),
                e2e_s=times("request_latency", 1.0),
            )
        )
    return points


def llmperf_point(report: Report) -> LoadPoint:
    """LLMPerf summary. Its "inter-token latency" is the whole request over its tokens: TPOT is worked out from means."""

    def times(metric: str) -> dict[str, float]:
        names: dict[str, list[tuple[str, ...]]] = {}
        for statistic in STATISTICS:
            flat = "mean" if statistic == "mean" else f"quantiles_{statistic}"
            nested = ("mean",) if statistic == "mean" else ("quantiles", statistic)
            names[statistic] = [(f"results_{metric}_{flat}",), ("results", metric, *nested)]
        return report.statistics(names, 1.0)

    def mean(metric: str) -> float | None:
        return report.number(f"results_{metric}_mean") or report.number("results", metric, "mean")

    def single(name: str) -> float | None:
        return report.number(f"results_{name}") or report.number("results", name)

    ttft, e2e, out = times("ttft_s"), times("end_to_end_latency_s"), mean("number_output_tokens")
    tpot: dict[str, float] = {}
    notes: tuple[str, ...] = ()
    if "mean" in ttft and "mean" in e2e and out and out > 1.0 and e2e["mean"] > ttft["mean"]:
        tpot = {"mean": (e2e["mean"] - ttft["mean"]) / (out - 1.0)}
        notes = ("TPOT from the means of the end-to-end time, the first token and the output length",)
    per_minute = single("num_completed_requests_per_min")
    return LoadPoint(
        source=_source(report),
        tool="llmperf",
        concurrency=report.number("num_concurrent_requests", zero=False),
        requests=single("num_completed_requests"),
        failed=single("number_errors"),
        input_tokens=mean("number_input_tokens"),
        output_tokens=out,
        requests_per_s=None if per_minute is None else per_minute / 60.0,
        throughput_out_tokens_per_s=single("mean_output_throughput_token_per_s"),
        ttft_s=ttft,
        tpot_s=tpot,
        e2e_s=e2e,
        model=report.text("model"),
        notes=notes,
    )


def trtllm_point(report: Report) -> LoadPoint:
    """`trtllm-bench` report: the load is its mean number of open requests, every request at once where not streamed."""

    def times(*base: str) -> dict[str, float]:
        names = {statistic: [(*base, statistic)] for statistic in STATISTICS}
        names["mean"] = [(*base, "average")]
        return report.statistics(names)

    ttft = times("streaming_metrics", "ttft_percentiles")
    tpot = times("streaming_metrics", "tpot_percentiles")
    for found, key in ((ttft, "avg_ttft_ms"), (tpot, "avg_tpot_ms")):
        value = report.number("streaming_metrics", key, scale=1e-3)
        if "mean" not in found and value:
            found["mean"] = value
    return LoadPoint(
        source=_source(report),
        tool="trtllm-bench",
        concurrency=report.number("request_info", "avg_num_concurrent_requests") or None,
        requests=report.number("request_info", "num_requests"),
        duration_s=report.number("performance", "total_latency_ms", scale=1e-3),
        input_tokens=report.number("request_info", "avg_input_length"),
        output_tokens=report.number("request_info", "avg_output_length"),
        requests_per_s=report.number("performance", "request_throughput_req_s"),
        throughput_out_tokens_per_s=report.number("performance", "system_output_throughput_tok_s"),
        throughput_total_tokens_per_s=report.number("performance", "system_total_throughput_tok_s"),
        ttft_s=ttft,
        tpot_s=tpot,
        e2e_s=times("performance", "request_latency_percentiles_ms"),
        model=report.text("engine", "model"),
        notes=("concurrency is the mean number of open requests",),
    )


def _source(report: Report) -> str:
    line = "" if report.line is None else f":{report.line}"
    return f"{report.file}{line}" + (f" {report.where}" if report.where else "")


def points_of(report: Report) -> list[LoadPoint] | None:
    """The points of a JSON object, or None when no tool writes such a one."""
    data = report.data
    one: Callable[[Report], LoadPoint] | None = None
    if isinstance(data.get("benchmarks"), list):
        return guidellm_points(report)
    if "request_info" in data and "performance" in data:
        one = trtllm_point
    elif any(str(key).startswith("results_ttft_s") for key in data) or (
        isinstance(data.get("results"), Mapping) and "ttft_s" in data["results"]
    ):
        one = llmperf_point
    elif any(isinstance(data.get(key), Mapping) for key in ("time_to_first_token", "request_latency")):
        one = genai_point
    elif "completed" in data and ("mean_ttft_ms" in data or "output_throughput" in data):
        one = flat_point
    return None if one is None else [one(report)]
