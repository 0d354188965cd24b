"""Somebody who uses a cloud through openstacksdk, and looks at consoles for the truth."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from openstack.compute.v2.server import Server
from openstack.connection import Connection
from openstack.exceptions import NotFoundException
from openstack.image.v2.image import Image

from tests.support.waiting import wait_for

# Two or three by itself; the machine may be busy.
_SECONDS = 120


class CloudUser:
    def __init__(self, connection: Connection, patience: float = _SECONDS) -> None:
        self.connection = connection
        self._patience = patience
        self._compute = connection.compute

    def create(self, image: str, flavor: str, status: str = "ACTIVE", **more: Any) -> Server:
        """A server without a network; it is in that state then."""
        return self.wait(self.begin_to_create(image, flavor, **more), status)

    def begin_to_create(self, image: str, flavor: str, **more: Any) -> Server:
        given = {"image_id": image} if image else {}
        return self._compute.create_server(
            name="pike", flavor_id=flavor, networks="none", **given, **more
        )

    def wait(self, server: Server, status: str) -> Server:
        """Until it is in that state and nothing is under way; an unwanted ERROR raises."""

        def settled() -> Server | None:
            found = self.look(server)
            if found.status == "ERROR" != status:
                raise AssertionError(f"the server is in ERROR: {found.fault}")
            return found if found.status == status and not found.task_state else None

        found = wait_for(settled, self._patience)
        assert found is not None
        return found

    def look(self, server: Server) -> Server:
        return self._compute.get_server(server)

    def await_console(self, server: Server, text: str) -> str:
        def shown() -> str:
            output = str(self._compute.get_server_console_output(server)["output"])
            return output if text in output else ""

        return wait_for(shown, self._patience)

    def reboot(self, server: Server, how: str) -> None:
        self._compute.reboot_server(server, how)
        self.wait(server, "ACTIVE")

    def stop(self, server: Server) -> None:
        self._compute.stop_server(server)
        self.wait(server, "SHUTOFF")

    def start(self, server: Server) -> None:
        self._compute.start_server(server)
        self.wait(server, "ACTIVE")

    def resize(self, server: Server, flavor: str) -> None:
        self._compute.resize_server(server, flavor)
        self.wait(server, "VERIFY_RESIZE")

    def confirm(self, server: Server, status: str = "ACTIVE") -> None:
        self._compute.confirm_server_resize(server)
        self.wait(server, status)

    def revert(self, server: Server, status: str = "ACTIVE") -> None:
        self._compute.revert_server_resize(server)
        self.wait(server, status)

    def rescue(self, server: Server, image: str) -> None:
        self.begin_to_rescue(server, image)
        self.wait(server, "RESCUE")

    def begin_to_rescue(self, server: Server, image: str) -> None:
        self._compute.rescue_server(server, image=image)

    def unrescue(self, server: Server) -> None:
        self._compute.unrescue_server(server)
        self.wait(server, "ACTIVE")

    def shelve(self, server: Server) -> None:
        self._compute.shelve_server(server)
        self.wait(server, "SHELVED_OFFLOADED")

    def unshelve(self, server: Server) -> None:
        self.begin_to_unshelve(server)
        self.wait(server, "ACTIVE")

    def begin_to_unshelve(self, server: Server) -> None:
        self._compute.unshelve_server(server)

    def snapshot(self, server: Server) -> Image:
        before = self.look(server).status
        image = self._compute.create_server_image(
            server, "roach", wait=True, timeout=self._patience
        )
        self.wait(server, before)
        return image

    def rebuild(self, server: Server, image: str) -> None:
        self._compute.rebuild_server(server, image=image)

    def await_end_of(self, server: Server, action: str) -> None:
        """Of what was asked for, also if it came to nothing: Nova tidies up after its state says
        that nothing is under way."""

        def is_over() -> bool:
            actions = self._compute.server_actions(server)
            (found,) = (each for each in actions if each.action == action)
            events = self._compute.get_server_action(found.request_id, server).events or []
            return any(each.finish_time for each in events)

        wait_for(is_over, self._patience)

    def make_volume(self) -> str:
        storage = self.connection.block_storage
        volume = storage.create_volume(size=1)
        storage.wait_for_status(volume, "available", ["error"], interval=0.2, wait=self._patience)
        return str(volume.id)

    def attach(self, server: Server, volume: str) -> None:
        self._compute.create_volume_attachment(server, volume_id=volume)
        self._await_volume(volume, "in-use")

    def detach(self, server: Server, volume: str) -> None:
        self._compute.delete_volume_attachment(server, volume)
        self._await_volume(volume, "available")

    def delete(self, *servers: Server) -> None:
        for server in servers:
            self._compute.delete_server(server)
        self.await_deletion(*servers)

    def await_deletion(self, *servers: Server) -> None:
        self.await_truth(lambda: not any(self._is_there(server) for server in servers))

    def await_truth(self, is_true: Callable[[], bool]) -> None:
        """Of anything that the cloud does by itself."""
        wait_for(is_true, self._patience)

    def clear(self) -> None:
        """Delete whatever a test left."""
        self.delete(*self._compute.servers())
        for image in self._own_images():
            self.connection.image.delete_image(image)
        for volume in self.connection.block_storage.volumes():
            self.connection.block_storage.delete_volume(volume)

    def _own_images(self) -> Iterator[Image]:
        return self.connection.image.images(owner=self.connection.current_project_id)

    def _is_there(self, server: Server) -> bool:
        with suppress(NotFoundException):
            self._compute.get_server(server)
            return True
        return False

    def _await_volume(self, volume: str, status: str) -> None:
        storage = self.connection.block_storage
        found = storage.get_volume(volume)
        storage.wait_for_status(found, status, ["error"], interval=0.2, wait=self._patience)
