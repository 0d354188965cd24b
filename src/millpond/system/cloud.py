"""Services of OpenStack: how to connect to one, and what its errors mean."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openstack
from keystoneauth1 import exceptions as keystone
from keystoneauth1.adapter import Adapter
from openstack.connection import Connection
from openstack.exceptions import HttpException, SDKException

from millpond.errors import FetchFailed, FetchInterrupted
from millpond.model.cloud import CloudAccess
from millpond.system.http import Reading


def connect(access: CloudAccess, service: str) -> Connection:
    """A client of one service, by the SDK's name of it, such as image."""
    # It tells of every try, and below that writes whole answers to the log: Cinder's hold
    # passwords of volumes. What came of it all is an error that we explain.
    logging.getLogger("keystoneauth").setLevel(logging.ERROR)
    limits: dict[str, Any] = {
        f"{service}_connect_retries": access.patience.retries,
        f"{service}_status_code_retries": access.patience.retries,
        "api_timeout": access.patience.read_seconds,
    }
    if not access.is_stated:
        if access.endpoint_override:
            limits[f"{service}_endpoint_override"] = access.endpoint_override
        return openstack.connect(cloud=access.cloud or None, **limits)
    stated: dict[str, Any] = {
        "auth_type": access.auth_type or "password",
        "auth": dict(access.auth),
        f"{service}_endpoint_override": access.endpoint_override,
        "region_name": access.region_name,
        "cacert": access.cafile,
    }
    return openstack.connect(
        load_yaml_config=False,
        load_envvars=False,
        verify=not access.insecure,
        **limits,
        **{name: value for name, value in stated.items() if value},
    )


def plain_client(access: CloudAccess, service: str) -> Adapter:
    """One that knows who asks and where the service is, and nothing of the service itself."""
    connection = connect(access, service)
    return Adapter(
        session=connection.session,
        service_type=service,
        region_name=connection.config.get_region_name(service),
        interface=list(access.interfaces),
        endpoint_override=connection.config.get_endpoint(service),
        connect_retries=access.patience.retries,
        status_code_retries=access.patience.retries,
    )


@contextmanager
def explaining(reading: Reading, service: str) -> Iterator[None]:
    """What the SDK and Keystone raise, in our words; ``service`` as people call it."""
    what = reading.shown
    try:
        yield
    except (keystone.ConnectFailure, keystone.DiscoveryFailure) as error:
        raise FetchInterrupted(what, f"{service}, or Keystone, cannot be reached") from error
    except (HttpException, keystone.HttpError) as error:
        code = error.http_status if isinstance(error, keystone.HttpError) else error.status_code
        raise reading.refusal(code or 0) from error
    except (SDKException, keystone.ClientException) as error:
        kind = type(error).__name__  # its text may hold what was sent, the password among it
        group = f"[{service.lower()}]"
        reason = f"{group}, clouds.yaml or the environment do not lead there ({kind})"
        raise FetchFailed(what, reason) from error
