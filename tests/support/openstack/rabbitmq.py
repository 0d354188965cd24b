"""A real RabbitMQ: how the processes of one cloud talk to each other."""

import secrets
from pathlib import Path

from tests.support.loopback import ADDRESS, free_port
from tests.support.loopfs import skip_unless_kernel_has
from tests.support.openstack.environment import rabbitmq
from tests.support.openstack.service import Service, isolated

_USER = "millpond"


class RabbitMq(Service):
    """Debian's is unpacked and not installed, so its host sees it laid over /usr."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._epmd_port = free_port()
        self._distribution_port = free_port()  # or two clouds on a machine would want the same

    @property
    def url(self) -> str:
        return f"rabbit://{_USER}:{_USER}@{ADDRESS}:{self.port}/"

    def _configure(self) -> None:
        skip_unless_kernel_has("overlay")
        layers = f"lowerdir={rabbitmq()}:/usr"
        self._host.run("mount", "-t", "overlay", "-o", layers, "millpond-usr", "/usr")
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = {ADDRESS}:{self.port}\n"
            f"distribution.listener.interface = {ADDRESS}\n"
            f"default_user = {_USER}\n"
            f"default_pass = {_USER}\n"
        )
        # It starts several Erlangs. One may find the cookie that another has only begun to write.
        cookie = self.directory / ".erlang.cookie"
        cookie.write_text(secrets.token_hex())
        cookie.chmod(0o400)

    def _command(self) -> list[str]:
        return isolated(
            self.directory,
            *("/bin/sh", "-c", "exec /usr/lib/rabbitmq/bin/rabbitmq-server"),
            RABBITMQ_NODENAME=f"{_USER}{self.port}@localhost",
            RABBITMQ_CONFIG_FILE=self.directory / "rabbitmq",
            RABBITMQ_CONF_ENV_FILE="/dev/null",
            RABBITMQ_ENABLED_PLUGINS_FILE=self.directory / "plugins",
            RABBITMQ_LOG_BASE=self._make_directory("log"),
            RABBITMQ_MNESIA_BASE=self._make_directory("mnesia"),
            RABBITMQ_DIST_PORT=self._distribution_port,
            RABBITMQ_PID_FILE=self.directory / "pid",
            ERL_EPMD_ADDRESS=ADDRESS,
            ERL_EPMD_PORT=self._epmd_port,
        )
