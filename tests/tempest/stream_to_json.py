"""Run by Tempest's own Python: a stream of results (subunit) to one line of JSON for each test."""

import json
import sys
from typing import Any

from subunit import ByteStreamToStreamResult
from testtools import StreamToDict

_STATUSES = {"success": "passed", "skip": "skipped"}

# Of what a session that was over has not answered.
_NOT_RUN = ("exists", "inprogress")


def _show(test: dict[str, Any]) -> None:
    if test["status"] in _NOT_RUN:
        return
    begun, ended = test["timestamps"]
    details = {name: each.as_text() for name, each in test["details"].items()}
    found = {
        "name": test["id"],
        "status": _STATUSES.get(test["status"], "failed"),
        "seconds": (ended - begun).total_seconds() if begun and ended else 0,
        "text": details.get("reason") or details.get("traceback") or test["status"],
    }
    print(json.dumps(found))


def main() -> None:
    result = StreamToDict(_show)
    result.startTestRun()
    ByteStreamToStreamResult(sys.stdin.buffer, non_subunit_name="other").run(result)
    result.stopTestRun()


if __name__ == "__main__":
    main()
