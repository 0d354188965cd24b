"""What Placement holds for a server that refuses to be rebuilt from another image: Nova gives it
up as if the server had been evacuated here (rebuild_instance in nova/compute/manager.py)."""

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from nova import exception
from nova.compute import task_states
from nova.context import get_admin_context
from nova.objects.instance import Instance
from nova.scheduler.client import report

LOG = logging.getLogger(__name__)

_SECONDS = 60
_PAUSE = 0.5


def keep_claim(uuid: str) -> None:
    """Nova calls nobody between giving it up and setting the server's state back, so that somebody
    has to wait for the one and put it back after the other."""
    try:
        held = report.report_client_singleton().get_allocs_for_consumer(get_admin_context(), uuid)
    except Exception:  # whatever keeps Placement from answering: the refusal is what matters
        LOG.exception("instance %s: what Placement holds for it is not known", uuid)
        return
    if held["allocations"]:
        threading.Thread(target=_put_back, args=(uuid, held), daemon=True).start()


def _put_back(uuid: str, held: Mapping[str, Any]) -> None:
    end = time.monotonic() + _SECONDS
    try:
        while time.monotonic() < end:
            step = Instance.get_by_uuid(get_admin_context(), uuid).task_state
            if step is None:
                _claim(uuid, held)
            if step in (None, task_states.DELETING):
                return
            time.sleep(_PAUSE)
        LOG.error("instance %s has no allocation: nova-manage placement heal_allocations", uuid)
    except exception.InstanceNotFound:
        LOG.debug("instance %s is deleted", uuid)
    except Exception:  # of a thread of its own
        LOG.exception("instance %s: its allocation is not put back", uuid)


def _claim(uuid: str, held: Mapping[str, Any]) -> None:
    admin, client = get_admin_context(), report.report_client_singleton()
    now = client.get_allocs_for_consumer(admin, uuid)
    if now["allocations"]:
        return
    amounts = {
        provider: {"resources": each["resources"]}
        for provider, each in held["allocations"].items()
    }
    kept = {key: held[key] for key in ("project_id", "user_id")}
    client.put_allocations(
        admin, uuid, {**kept, "allocations": amounts, "consumer_generation": None}
    )
    LOG.info("instance %s keeps what Placement held for it", uuid)
