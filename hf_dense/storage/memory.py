"""Memory, main or a GPU's: what is free, and how much a piece of work takes at its highest."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import torch

_LOOKS: Final = 0.002  # seconds between two looks at the memory of this process
_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUPS: Final = Path("/proc/self/cgroup")
_FILES: Final = {  # by version: the limit, what is used, and what of that is files that may be dropped
    2: ("memory.max", "memory.current", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


class Memory(Protocol):
    """What work is measured in.

    Attributes:
        free: bytes at the beginning.
        share: of these, that may be planned with.
    """

    free: int
    share: float

    def peak(self, run: Callable[[], object]) -> int:
        """Bytes above those of the beginning while `run` runs, at the highest."""


class MainMemory:
    """Main memory that this process has to itself; more than there is would end the process, so much is left free."""

    share = 0.7

    def __init__(self) -> None:
        import psutil

        _clear()
        self.free = available_memory()
        self._process = psutil.Process()
        self._start = self._used()

    def peak(self, run: Callable[[], object]) -> int:
        """See `Memory`; looked at every two milliseconds."""
        _clear()
        highest, done = self._used(), threading.Event()

        def look() -> None:
            nonlocal highest
            while not done.wait(_LOOKS):
                highest = max(highest, self._used())

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            run()
        finally:
            done.set()
            watcher.join()
        return max(highest, self._used()) - self._start

    def _used(self) -> int:
        used: int = self._process.memory_info().rss
        return used


def _clear() -> None:
    """Give back what is not needed, which would hide as much of what work takes: garbage, and holes in the heap."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError, TypeError):  # the C library has no such call, or is not found
        ctypes.CDLL(None).malloc_trim(0)


class DeviceMemory:
    """Memory of a GPU; blocks of many sizes do not fill it wholly."""

    share = 0.9

    def __init__(self, device: torch.device) -> None:
        import torch

        self._device = device
        self._start = torch.cuda.memory_allocated(device)
        self.free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - self._start

    def peak(self, run: Callable[[], object]) -> int:
        """See `Memory`."""
        import torch

        torch.cuda.reset_peak_memory_stats(self._device)
        run()
        return torch.cuda.max_memory_allocated(self._device) - self._start


def available_memory() -> int:
    """Bytes of main memory that this process can still take: of the machine, and of the containers that it runs in."""
    import psutil

    free: int = psutil.virtual_memory().available
    return min([free, *rooms_of_groups()])


def rooms_of_groups(root: Path = _GROUPS, own: Path = _OWN_GROUPS) -> Iterator[int]:
    """Bytes that are left to each control group with a limit that holds this process (containers, jobs of a cluster).

    Args:
        root: where control groups are files.
        own: the file that names this process's, by hierarchy.
    """
    for line in own.read_text(encoding="utf-8").splitlines() if own.is_file() else ():
        _, controllers, name = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            version, top = (1, root / "memory") if controllers else (2, root)
            place = top / name.strip("/")
            for folder in (each for each in (place, *place.parents) if each == top or top in each.parents):
                yield from _room(folder, version)


def _room(folder: Path, version: int) -> Iterator[int]:
    """What one control group has left, where it has a limit."""
    limit, used, droppable = _FILES[version]
    try:
        most, now = ((folder / name).read_text(encoding="utf-8").strip() for name in (limit, used))
        facts = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="utf-8").splitlines())
    except OSError:  # in a container the groups outside of it are not there
        return
    if most != "max":
        yield int(most) - int(now) + int(facts.get(droppable, 0))
