"""A real Neutron API without any agent: Nova asks it for networks that its servers do not have."""

import shutil
from pathlib import Path

from tests.support.ini import ini
from tests.support.openstack.environment import python
from tests.support.openstack.keystone import Keystone
from tests.support.openstack.mariadb import MariaDb
from tests.support.openstack.rabbitmq import RabbitMq
from tests.support.openstack.service import Api

DATABASE = "neutron"


class Neutron(Api):
    def __init__(
        self, directory: Path, *, keystone: Keystone, mariadb: MariaDb, rabbitmq: RabbitMq
    ) -> None:
        super().__init__(directory)
        self._keystone = keystone
        self._mariadb = mariadb
        self._rabbitmq = rabbitmq

    def _configure(self) -> None:
        paste = self._etc / "api-paste.ini"
        shutil.copy(python().parents[1] / "etc/neutron/api-paste.ini", paste)
        settings: dict[str, dict[str, object]] = {
            "DEFAULT": {
                "core_plugin": "ml2",
                "service_plugins": "router",
                "transport_url": self._rabbitmq.url,
                "api_paste_config": paste,
                "rpc_workers": 0,
                "state_path": self._make_directory("state"),
                "notify_nova_on_port_status_changes": False,
                "notify_nova_on_port_data_changes": False,
            },
            "database": {"connection": self._mariadb.url(DATABASE)},
            "oslo_concurrency": {"lock_path": self._make_directory("locks")},
            "keystone_authtoken": self._keystone.authtoken(),
        }
        self._conf.write_text(ini(settings))
        self._make_directory("neutron/plugins")
        plugin = self._make_directory("neutron/plugins/ml2") / "ml2_conf.ini"
        plugin.write_text(ini({"ml2": {"type_drivers": "local", "tenant_network_types": "local"}}))
        self._manage("neutron-db-manage", "--config-file", self._conf, "upgrade", "heads")

    def _command(self) -> list[str]:
        return self._wsgi("neutron.wsgi.api", self._etc)

    def _furnish(self) -> None:
        # Whoever lists ports before anything else was asked for makes it answer with an error.
        list(self._keystone.admin().network.networks())

    @property
    def _etc(self) -> Path:
        return self._make_directory("neutron")

    @property
    def _conf(self) -> Path:
        return self._etc / "neutron.conf"
