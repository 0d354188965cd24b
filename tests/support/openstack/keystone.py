"""A real Keystone, whose catalogue names the services of one cloud."""

from collections.abc import Mapping
from pathlib import Path

import openstack
from openstack.connection import Connection

from tests.support.ini import ini
from tests.support.openstack.service import Api

_PASSWORD = "millpond"
_REGION = "RegionOne"
_ADMIN = "admin"  # the bootstrap's own, of the project of the same name
_SERVICES = "services"  # the user that the services are, and their project
_ANGLER = "angler"  # somebody with servers, and their project


class Keystone(Api):
    """With an administrator, one user for all services and one who is nothing but a user. Without
    another, its database is SQLite, which fails who writes at the same time as somebody else."""

    def __init__(self, directory: Path, *, database: str = "") -> None:
        super().__init__(directory)
        self._database = database

    @property
    def url(self) -> str:
        return f"{super().url}/v3"

    def admin(self) -> Connection:
        return self._connect(_ADMIN)

    def user(self) -> Connection:
        return self._connect(_ANGLER)

    def administrator(self) -> dict[str, object]:
        """In Tempest's words."""
        return {
            "admin_username": _ADMIN,
            "admin_password": _PASSWORD,
            "admin_project_name": _ADMIN,
        }

    def credentials(self) -> dict[str, object]:
        """With which a service asks others."""
        return {
            "auth_type": "password",
            "auth_url": self.url,
            "username": _SERVICES,
            "password": _PASSWORD,
            "project_name": _SERVICES,
            "user_domain_id": "default",
            "project_domain_id": "default",
            "region_name": _REGION,
        }

    def authtoken(self) -> dict[str, object]:
        """Section keystone_authtoken, by which a service knows who asks."""
        return {
            **self.credentials(),
            "www_authenticate_uri": self.url,
            "service_token_roles": "service",
            "service_token_roles_required": True,
        }

    def enter(self, urls: Mapping[str, str]) -> None:
        """Put services into the catalogue, by their type."""
        identity = self.admin().identity
        for kind, url in urls.items():
            service = identity.create_service(name=kind, type=kind)
            for interface in ("public", "internal"):
                identity.create_endpoint(
                    service_id=service.id, interface=interface, url=url, region_id=_REGION
                )

    def _configure(self) -> None:
        settings: dict[str, dict[str, object]] = {
            "DEFAULT": {"public_endpoint": super().url},
            "database": {
                "connection": self._database or f"sqlite:///{self.directory}/keystone.sqlite"
            },
            # Half a second for each password else; Tempest makes hundreds.
            "identity": {"password_hash_rounds": 4},
            "token": {"provider": "fernet"},
            "fernet_tokens": {"key_repository": self._make_directory("keys")},
            "credential": {"key_repository": self._make_directory("credential-keys")},
            "cache": {"enabled": True, "backend": "dogpile.cache.memory"},
        }
        self._conf.write_text(ini(settings))
        manage = ("--config-file", self._conf)
        as_root = ("--keystone-user", "root", "--keystone-group", "root")
        self._manage("keystone-manage", *manage, "db_sync")
        self._manage("keystone-manage", *manage, "fernet_setup", *as_root)
        self._manage("keystone-manage", *manage, "credential_setup", *as_root)
        self._manage(
            "keystone-manage",
            *(*manage, "bootstrap", "--bootstrap-password", _PASSWORD),
            *("--bootstrap-region-id", _REGION),
            *("--bootstrap-public-url", self.url, "--bootstrap-internal-url", self.url),
        )

    def _command(self) -> list[str]:
        return self._wsgi("keystone.wsgi.api", self._conf.parent)

    def _furnish(self) -> None:
        identity = self.admin().identity
        roles = {role.name: role.id for role in identity.roles()}
        for name, held in {_SERVICES: ("admin", "service"), _ANGLER: ("member",)}.items():
            if identity.find_user(name):
                continue
            project = identity.create_project(name=name, domain_id="default")
            user = identity.create_user(
                name=name, password=_PASSWORD, domain_id="default", default_project_id=project.id
            )
            for role in held:
                identity.assign_project_role_to_user(project.id, user.id, roles[role])

    def _connect(self, user: str) -> Connection:
        return openstack.connect(
            load_envvars=False,
            load_yaml_config=False,
            auth_type="password",
            auth={
                "auth_url": self.url,
                "username": user,
                "password": _PASSWORD,
                "project_name": user,
                "user_domain_id": "default",
                "project_domain_id": "default",
            },
            region_name=_REGION,
        )

    @property
    def _conf(self) -> Path:
        return self._make_directory("keystone") / "keystone.conf"
