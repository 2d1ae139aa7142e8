"""Writes docs/audit-power.md: false alarms of the audit on the measured corpus, and the power of each check.

python validation/audit_power.py [--families N] [--every N]
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from studies.audit_power import (
    Alarm,
    Power,
    alarms,
    by_code,
    held_out,
    honest_claims,
    powers,
    rate,
)

from perfmodel.specs.catalog import Catalog
from perfmodel.validate.corpus import read_corpus
from perfmodel.validate.resolve import resolve
from perfmodel.validate.validation import shipped_corpus

OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "audit-power.md"
HEAD = """# What the audit sees, and what it cannot

Every measured family of the corpus is told as its authors would tell it (the fastest point at each K, batch, layout
and regime where the source gives them) and audited with beliefs that were fitted without its group. Families whose
batch and layout were retuned at each K are told as one point, the largest. An honest family that comes out suspicious
or impossible is a false alarm.

This page is written by `python validation/audit_power.py`.

"""


def share_table(title: str, groups: dict[str, list[Alarm]]) -> list[str]:
    lines = [f"| {title} | families | false alarms | rate |", "| --- | ---: | ---: | ---: |"]
    for name, group in groups.items():
        raised = sum(1 for alarm in group if alarm.codes)
        lines.append(f"| {name} | {len(group)} | {raised} | {rate(group):.1%} |")
    return lines


def grouped(found: list[Alarm], key: str) -> dict[str, list[Alarm]]:
    groups: dict[str, list[Alarm]] = {"all": found}
    for alarm in sorted(found, key=lambda item: str(getattr(item, key))):
        groups.setdefault(str(getattr(alarm, key)), []).append(alarm)
    return groups


def size(value: float | None) -> str:
    return "-" if value is None else f"{value:g}x"


def power_table(found: list[Power]) -> list[str]:
    lines = [
        "| trick | caught by | families | half are caught from | 90 % from | ever |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for item in found:
        ever = sum(1 for value in item.sizes if value is not None)
        share = f"{ever / len(item.sizes):.0%}" if item.sizes else "-"
        lines.append(
            f"| {item.words} | `{item.code}` | {len(item.sizes)} | {size(item.quantile(0.5))} | {size(item.quantile(0.9))} | {share} |"
        )
    return lines


def page(found: list[Alarm], tricks: list[Power]) -> str:
    lines = [HEAD.rstrip(), "", "## False alarms", ""]
    lines += [f"{rate(found):.1%} of {len(found)} honest families raise an alarm (the limit is 5 %).", ""]
    lines += [*share_table("regime", grouped(found, "regime")), ""]
    lines += [*share_table("kind of workload", grouped(found, "kind")), ""]
    lines += ["| code | families |", "| --- | ---: |"]
    lines += [f"| `{code}` | {count} |" for code, count in by_code(found).items()]
    sources = Counter(alarm.source for alarm in found if alarm.codes)
    worst = ", ".join(
        f"{name} {count}" for name, count in sorted(sources.items(), key=lambda item: (-item[1], item[0]))
    )
    lines += ["", f"By source: {worst}.", "", "## Power", ""]
    lines += [
        "Each trick is played on honest families that raise no alarm by themselves, a little more each time, until the",
        "audit names it by its own code. Size 1 is honest; `2x` means that the number was doubled.",
        "",
        *power_table(tricks),
        "",
        "Tricks without a size are always caught: a regime that is left out, a headline with neither baseline nor batch,",
        "precision or recompute that changes between points, quality that moves by more than 0.5 %, numbers of one point",
        "that contradict each other by more than 5 %, memory, energy and links beyond their bounds.",
        "",
        "## How to read it",
        "",
        "- A rate that is too good (`mfu-above-band`) is hard to tell from good software: the band holds every stack that",
        "  the slide may have used, tuned or not. Ask for the log.",
        "- A ratio that is too good (`efficiency-above-band`, `weak-baseline`) is seen sooner: what nobody knows about the",
        "  machine cancels between two points of one chart.",
        "- What no check sees: a run that is really that fast and never learns, unless its quality is on the slide.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", type=int, default=60, help="families on which each trick is played")
    parser.add_argument("--every", type=int, default=1, help="audit every n-th family only")
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    corpus, catalog = read_corpus(shipped_corpus()), Catalog.default()
    beliefs_for = held_out(resolve(corpus, catalog))
    claims = honest_claims(corpus, catalog)
    chosen = list(claims.items())[:: arguments.every]
    honest = alarms(chosen, corpus, catalog, beliefs_for)
    print(f"{rate(honest):.2%} of {len(honest)} families raise an alarm: {by_code(honest)}")
    found = powers(claims, honest, corpus, catalog, beliefs_for, arguments.families)
    arguments.output.write_text(page(honest, found), encoding="utf-8")
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
