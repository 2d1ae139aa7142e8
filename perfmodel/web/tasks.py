"""One question to one finished answer: what runs in a worker, be it a thread or a process.

An answer is a status and a body, packed by gzip: a third of the size to hand over, to keep and to send. A job that the
library refuses is an answer too, so that nothing but plain data crosses between processes.
"""

from __future__ import annotations

import gzip
import json

from perfmodel.errors import SpecError
from perfmodel.report.kinds import rendering_of
from perfmodel.web.answers import Answers
from perfmodel.web.guards import error_body
from perfmodel.web.jobtext import command, job_yaml
from perfmodel.web.requests import Pair, WhatIf
from perfmodel.web.service import ServiceIf

Outcome = tuple[int, bytes]


def perform(answers: Answers, task: str, payload: str) -> Outcome:
    """Run a task on a request in its JSON form."""
    status, body = _outcome(answers, task, payload)
    return status, pack(body)


def pack(body: bytes) -> bytes:
    """A body in gzip's form; the same bytes for the same body."""
    return gzip.compress(body, compresslevel=1, mtime=0)


def unpack(packed: bytes) -> bytes:
    """The body again."""
    return gzip.decompress(packed)


def _outcome(answers: Answers, task: str, payload: str) -> Outcome:
    try:
        return 200, _TASKS[task](answers, payload)
    except SpecError as error:
        return 422, _refusal(error)
    except Exception as error:
        return 500, error_body("fault", f"internal fault: {type(error).__name__}; this is our mistake")


def _catalogue(answers: Answers, payload: str) -> bytes:
    return dump(answers.catalogue())


def _predict(answers: Answers, payload: str) -> bytes:
    envelope = answers.predict(WhatIf.model_validate_json(payload))
    return dump({**envelope, "summary": summary(envelope)})


def _service(answers: Answers, payload: str) -> bytes:
    envelope = answers.service(ServiceIf.model_validate_json(payload))
    return dump({**envelope, "summary": summary(envelope)})


def _compare(answers: Answers, payload: str) -> bytes:
    pair = Pair.model_validate_json(payload)
    return dump(answers.compare(pair.a, pair.b))


def _report(answers: Answers, payload: str) -> bytes:
    from perfmodel.report import html

    request = WhatIf.model_validate_json(payload)
    return html.render(answers.predict(request), command=command(request)).encode()


def _job(answers: Answers, payload: str) -> bytes:
    request = WhatIf.model_validate_json(payload)
    return dump({"yaml": job_yaml(request, answers.scale_out(request)), "command": command(request)})


_TASKS = {
    "job": _job,
    "catalogue": _catalogue,
    "predict": _predict,
    "compare": _compare,
    "report": _report,
    "service": _service,
}


def summary(envelope: dict[str, object]) -> dict[str, object]:
    """The words for an envelope, so that a page need not find its own."""
    kind = rendering_of(envelope)
    return {
        "title": kind.title(envelope),
        "answer": kind.answer(envelope),
        "facts": [list(fact) for fact in kind.facts(envelope)],
        "notes": kind.notes(envelope),
    }


def dump(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _refusal(error: SpecError) -> bytes:
    """File positions mean nothing to a caller; the field does."""
    problems = []
    for problem in error.problems:
        field = (problem.file or "").removeprefix("--set ").removeprefix("--").replace("-", "_")
        problems.append(
            {"field": field, "message": problem.message} | ({"help": problem.help} if problem.help else {})
        )
    return error_body("bad_job", "the job cannot be predicted", problems)
