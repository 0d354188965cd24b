"""What is started for a block of a test, and ends with it whatever happens."""

import abc
from typing import Self


class Running(abc.ABC):
    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abc.abstractmethod
    def start(self) -> None:
        """Return when it serves."""

    @abc.abstractmethod
    def close(self) -> None:
        """End it at once, also if it was started only in part."""
