"""Guests: whether they are up, and what they say of themselves."""

from dataclasses import dataclass

from millpond.errors.base import GuestProblem


@dataclass(eq=False)
class GuestNotUp(GuestProblem):
    server: str
    reason: str
    message = "the guest of server {self.server!r} is not up: {self.reason}"
    hint = (
        "the server stays; '{tool.SERVER} console {self.server} --log' shows what it printed, and "
        "'{tool.SERVER} start {self.server} --wait' waits again"
    )


@dataclass(eq=False)
class CloudInitFailed(GuestProblem):
    server: str
    errors: tuple[str, ...]
    message = "the guest of server {self.server!r} is up, and cloud-init reports: {self.listed}"
    hint = (
        "'cloud-init status --long' and /var/log/cloud-init.log in the guest tell more, and so "
        "does '{tool.SERVER} console {self.server} --log'"
    )

    @property
    def listed(self) -> str:
        return "; ".join(self.errors)


@dataclass(eq=False)
class AgentSilent(GuestProblem):
    server: str
    reason: str
    message = "the guest agent of server {self.server!r} does not answer: {self.reason}"
    hint = (
        "install qemu-guest-agent in the guest and start it; in a guest that is still booting it "
        "answers later"
    )
