"""What memory is free, within containers too, and what work takes of it."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import psutil
import pytest
import torch

from hf_dense.storage import memory
from hf_dense.storage.memory import DeviceMemory, MainMemory, available_memory, rooms_of_groups


def hold_100_megabytes() -> None:
    """For long enough to be seen by whoever looks every few milliseconds, on a busy machine too."""
    held = torch.ones(100_000_000, dtype=torch.uint8)
    time.sleep(0.3)
    del held


def test_the_highest_point_of_work_is_seen_and_so_is_what_stays() -> None:
    measured, kept = MainMemory(), list[torch.Tensor]()

    def work() -> None:
        hold_100_megabytes()
        kept.append(torch.ones(50_000_000, dtype=torch.uint8))

    assert 95e6 < measured.peak(work) < 250e6
    assert 45e6 < measured.peak(lambda: None) < 200e6, "above the beginning, not above what was kept since"


class Circle:
    """Something large that only the search for circles clears."""

    def __init__(self) -> None:
        self.own, self.data = self, torch.ones(300_000_000, dtype=torch.uint8)


def test_what_lay_around_before_does_not_hide_what_work_takes() -> None:
    Circle()
    measured = MainMemory()

    def work() -> None:
        gc.collect()
        hold_100_megabytes()

    assert 95e6 < measured.peak(work) < 250e6


def test_holes_in_the_heap_do_not_hide_what_work_takes() -> None:
    """Blocks that are freed below one that is kept stay with the process, for the next that fit in there."""
    torch.ones(31_000_000, dtype=torch.uint8)  # once freed, smaller ones are parts of the heap
    blocks = [torch.ones(10_000_000, dtype=torch.uint8) for _ in range(30)]
    above = torch.ones(1_000_000, dtype=torch.uint8)
    del blocks
    measured = MainMemory()
    assert 95e6 < measured.peak(hold_100_megabytes) < 250e6
    assert len(above)


def test_free_is_what_the_machine_has_or_a_container_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = psutil.virtual_memory().total
    assert 0 < available_memory() < machine
    monkeypatch.setattr(memory, "rooms_of_groups", lambda: iter([10**9, 10**6]))
    assert available_memory() == 10**6
    assert MainMemory().free == 10**6


def write_group(folder: Path, version: int, limit: str, used: int, files: int) -> None:
    names = {2: ("memory.max", "memory.current", "inactive_file"), 1: ("limit", "usage", "total_inactive_file")}[
        version
    ]
    folder.mkdir(parents=True, exist_ok=True)
    limit_file, used_file = (name if version == 2 else f"memory.{name}_in_bytes" for name in names[:2])
    (folder / limit_file).write_text(f"{limit}\n")
    (folder / used_file).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {files}\n")


def test_every_group_around_this_process_has_a_say(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/job/step\n")
    write_group(tmp_path / "groups" / "job" / "step", 2, "max", 70, 20)
    write_group(tmp_path / "groups" / "job", 2, "1000", 300, 100)
    write_group(tmp_path / "groups", 2, "5000", 300, 0)
    write_group(tmp_path, 2, "1", 0, 0)  # outside of the groups
    assert list(rooms_of_groups(tmp_path / "groups", own)) == [800, 4700]


def test_groups_of_the_first_version_and_those_that_are_not_shown(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("7:cpu,cpuacct:/docker/a\n5:memory:/docker/a\n")
    write_group(tmp_path / "groups" / "memory", 1, "1000", 300, 50)
    write_group(tmp_path / "groups" / "cpu", 1, "1", 0, 0)
    assert list(rooms_of_groups(tmp_path / "groups", own)) == [750]
    assert list(rooms_of_groups(tmp_path / "groups", tmp_path / "nowhere")) == []


def test_memory_of_a_gpu_is_counted_from_what_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls of torch are stood in for: 10 bytes are in use, 15 reserved, 100 free besides; work adds 30."""
    allocated = [10, 10]
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: allocated[0])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: max(allocated))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 15)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100, 200))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: allocated.__setitem__(1, allocated[0]))
    measured = DeviceMemory(torch.device("cuda"))
    assert measured.free == 105
    assert measured.peak(lambda: allocated.__setitem__(1, 40)) == 30
    assert measured.peak(lambda: None) == 0
