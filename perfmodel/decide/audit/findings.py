"""One thing that an audit found, and the closed list of codes with the question that goes with each."""

from __future__ import annotations

from dataclasses import dataclass

SEVERITIES = ("note", "suspicious", "impossible")

# Stable codes. A script may match on them, so none is ever renamed. The question is what to ask the vendor.
QUESTIONS: dict[str, str] = {
    # against physics
    "flop-above-peak": "Which kernels, which precision and which count of FLOP per sample give this rate?",
    "mfu-above-ceiling": "Against which peak is the utilisation computed, and does it count recomputed FLOP?",
    "links-too-slow": "How are gradients synchronised: which bytes cross the network in a step, and how often?",
    "memory-does-not-fit": "Where do weights, gradients and optimizer states live, and how many bytes each?",
    "energy-below-arithmetic": "What was metered: the chip, the board, the node or the rack, and over which time?",
    # against the rules of a chart
    "superlinear": "Why does an accelerator get faster in company? Show T(1) with the same batch per accelerator.",
    "too-straight": "Are these points measured or drawn? Please share the timings of the single runs.",
    "batch-grows-with-k": "What is T(K) when the global batch stays fixed, and what is the time to the same quality?",
    "regimes-mixed": "Please give one series with the global batch fixed and one with the batch per accelerator fixed.",
    "precision-changed": "What do all points show at one precision?",
    "recompute-changed": "What do all points show with the same activation recompute?",
    "quality-drops": "What is the time to the same quality at each K?",
    "numbers-disagree": "Which of these numbers was measured, and how were the others derived from it?",
    "memory-is-tight": "Which optimizer, and is any state offloaded or kept in fewer bits?",
    # against the beliefs
    "efficiency-above-band": "What makes communication cheaper than on machines measured in public? Share a trace at this K.",
    "mfu-above-band": "Which software and settings reach this rate? Share the command and the log.",
    "weak-baseline": "What is T at the baseline when it is tuned as carefully as the largest run?",
    "knee-before-range": "What is the efficiency at the knee, and what does the last doubling of accelerators buy?",
    # against another machine
    "versus-precision": "What is the ratio with both machines at the same precision?",
    "versus-above-hardware": "Which software, batch and layout ran on each machine, and what is the ratio with the same on both?",
    "versus-above-band": "What are the step times behind the ratio, on how many accelerators of each, at which batch?",
    # what is not said
    "regime-missing": "Is the global batch fixed (strong) or the batch per accelerator (weak)?",
    "baseline-and-batch-missing": "What is the baseline, in seconds per step, and what is the global batch at each K?",
    "baseline-missing": "What is the time of one step on the smallest machine, with the same software?",
    "batch-missing": "What is the global batch at each K?",
    "efficiency-not-stated": "What is the efficiency at the K of the headline?",
    "precision-missing": "Which precision do the matrix products run in?",
    "cluster-missing": "Which nodes and which network connect the accelerators?",
    "repeats-missing": "How many times was each point run?",
    "spread-missing": "What is the spread between repeated runs?",
    "quality-missing": "What quality does each run reach?",
    "price-missing": "What does one accelerator hour cost, and what does the same result cost at each K?",
    "not-checked": "Please add what is missing, so that this can be checked.",
}


@dataclass(frozen=True)
class Finding:
    """A code, what was claimed, what bounds it, and why. `weight` orders findings of one severity."""

    code: str
    severity: str
    claim: str
    bound: str
    evidence: str
    weight: float = 1.0  # claimed over allowed, or another number that grows with the offence
    k: int | None = None

    def mapping(self) -> dict[str, object]:
        """The documented JSON form, with `k` beside it."""
        return {
            "code": self.code,
            "severity": self.severity,
            "k": self.k,
            "claim": self.claim,
            "bound": self.bound,
            "evidence": self.evidence,
            "question": QUESTIONS[self.code],
        }


def ordered(findings: list[Finding]) -> list[Finding]:
    """Worst first: by severity, then by weight, then by code so that the order never depends on chance.

    >>> [f.code for f in ordered([Finding("price-missing", "note", "", "", ""),
    ...                           Finding("flop-above-peak", "impossible", "", "", "")])]
    ['flop-above-peak', 'price-missing']
    """
    return sorted(findings, key=lambda f: (-SEVERITIES.index(f.severity), -f.weight, f.code, f.k or 0))


def one_of_each(findings: list[Finding]) -> list[Finding]:
    """The heaviest finding of each code; how many more points share it is added to the evidence."""
    kept: dict[str, Finding] = {}
    others: dict[str, list[int]] = {}
    for finding in ordered(findings):
        if finding.code not in kept:
            kept[finding.code] = finding
        elif finding.k is not None and finding.k != kept[finding.code].k:
            others.setdefault(finding.code, []).append(finding.k)
    merged = []
    for code, finding in kept.items():
        more = sorted(set(others.get(code, [])))
        tail = f" Also at K = {', '.join(map(str, more))}." if more else ""
        merged.append(
            Finding(
                finding.code,
                finding.severity,
                finding.claim,
                finding.bound,
                finding.evidence + tail,
                finding.weight,
                finding.k,
            )
        )
    return ordered(merged)


def verdict(findings: list[Finding]) -> str:
    """The highest severity; notes alone are consistent.

    >>> verdict([]), verdict([Finding("superlinear", "suspicious", "", "", "")])
    ('consistent', 'suspicious')
    """
    worst = max((SEVERITIES.index(finding.severity) for finding in findings), default=0)
    return ("consistent", "suspicious", "impossible")[worst]
