"""Limits of nested control groups, read from made-up folder trees."""
import os

import pytest

from hpgcn.kernels.host import cgroups
from hpgcn.runtime import machine

MIB = 1 << 20
TWO = "30 23 0:26 {top} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
ONE = ("32 31 0:29 {top} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
       "35 31 0:32 {top} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
HYBRID = ONE.format(top="/") + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
UNLIMITED = 9223372036854771712
V2 = "sys/fs/cgroup"
MEMORY = "sys/fs/cgroup/memory"
CPU = "sys/fs/cgroup/cpu,cpuacct"

CASES = {  # /proc/self/cgroup, mountinfo, files: bytes free, cores
    "v2, the own group": (
        "0::/job/step", TWO.format(top="/"),
        {f"{V2}/job/step/memory.max": 500, f"{V2}/job/step/cpu.max": "150000 100000",
         f"{V2}/job/memory.max": "max", f"{V2}/job/cpu.max": "max 100000"}, 500, 1.5),
    "v2, the group around it is tighter": (
        "0::/job/step", TWO.format(top="/"),
        {f"{V2}/job/step/memory.max": 900, f"{V2}/job/memory.max": 800,
         f"{V2}/job/memory.current": 300, f"{V2}/job/memory.stat": "anon 9\ninactive_file 100",
         f"{V2}/job/step/cpu.max": "800000 100000", f"{V2}/job/cpu.max": "50000 100000"}, 600, .5),
    "v2, memory.high": (
        "0::/a", TWO.format(top="/"),
        {f"{V2}/a/memory.max": "max", f"{V2}/a/memory.high": 700, f"{V2}/a/memory.current": 200},
        500, None),
    "v2, more used than allowed": (
        "0::/a", TWO.format(top="/"),
        {f"{V2}/a/memory.high": 700, f"{V2}/a/memory.current": 900}, 0, None),
    "v2, cgroup namespace": (
        "0::/", TWO.format(top="/"), {f"{V2}/memory.max": 512, f"{V2}/cpu.max": "200000 100000"},
        512, 2.0),
    "v2, container without a namespace": (
        "0::/docker/abc/init", TWO.format(top="/docker/abc"),
        {f"{V2}/init/memory.max": 400, f"{V2}/memory.max": 512, f"{V2}/memory.current": 200},
        312, None),
    "v2, the path is not shown": (
        "0::/kubepods/pod1/abc", TWO.format(top="/"), {f"{V2}/memory.max": 512}, 512, None),
    "v2, outside of its namespace": (
        "0::/../..", TWO.format(top="/"), {f"{V2}/memory.max": 512, "sys/memory.max": 1}, 512,
        None),
    "v2, a mount from above the namespace": (
        "0::/../other/job", TWO.format(top="/.."), {f"{V2}/other/job/memory.max": 512}, 512, None),
    "v2, below a mount from above": (
        "0::/", TWO.format(top="/../.."), {f"{V2}/memory.max": 512}, 512, None),
    "v1": (
        "11:memory:/slurm/job_1/step_0\n4:cpu,cpuacct:/slurm/job_1\n0::/x", ONE.format(top="/"),
        {f"{MEMORY}/memory.limit_in_bytes": UNLIMITED,
         f"{MEMORY}/slurm/job_1/memory.limit_in_bytes": 1000,
         f"{MEMORY}/slurm/job_1/memory.usage_in_bytes": 600,
         f"{MEMORY}/slurm/job_1/memory.stat": "inactive_file 5\ntotal_inactive_file 100",
         f"{MEMORY}/slurm/job_1/step_0/memory.limit_in_bytes": UNLIMITED,
         f"{CPU}/cpu.cfs_quota_us": -1, f"{CPU}/cpu.cfs_period_us": 100000,
         f"{CPU}/slurm/job_1/cpu.cfs_quota_us": 250000,
         f"{CPU}/slurm/job_1/cpu.cfs_period_us": 100000}, 500, 2.5),
    "v1, container without a namespace": (
        "11:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc", ONE.format(top="/docker/abc"),
        {f"{MEMORY}/memory.limit_in_bytes": 512, f"{CPU}/cpu.cfs_quota_us": 100000,
         f"{CPU}/cpu.cfs_period_us": 100000}, 512, 1.0),
    "v1, a limit of groups that are not shown": (
        "11:memory:/", ONE.format(top="/"),
        {f"{MEMORY}/memory.limit_in_bytes": UNLIMITED, f"{MEMORY}/memory.usage_in_bytes": 100,
         f"{MEMORY}/memory.stat": "hierarchical_memory_limit 600"}, 500, None),
    "hybrid": (
        "11:memory:/a\n4:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/b", HYBRID,
        {f"{MEMORY}/a/memory.limit_in_bytes": 700, f"{V2}/unified/b/memory.max": 600,
         f"{CPU}/a/cpu.cfs_quota_us": 300000, f"{CPU}/a/cpu.cfs_period_us": 100000}, 600, 3.0),
    "no group is named": ("", ONE.format(top="/"), {f"{MEMORY}/memory.limit_in_bytes": 7}, 7, None),
    "no /proc, v2": (None, None, {f"{V2}/memory.max": 512, f"{V2}/cpu.max": "1000 1000"}, 512, 1.0),
    "no /proc, v1": (None, None, {f"{MEMORY}/memory.limit_in_bytes": 512}, 512, None),
    "a folder with a blank": (
        "0::/a b", TWO.format(top="/").replace("/sys/fs/cgroup", "/my\\040groups"),
        {"my groups/a b/memory.max": 512}, 512, None),
    "no limit": ("0::/", TWO.format(top="/"), {f"{V2}/memory.current": 100}, None, None),
    "damaged": ("0:\n::\n0::/a", "x\n1 2 3 / /m - \n" + TWO.format(top="/"),
                {f"{V2}/a/memory.max": "many", f"{V2}/a/cpu.max": "100"}, None, None),
}


@pytest.mark.parametrize("name", CASES)
def test_the_tightest_limit_counts(tmp_path, name):
    group, mounts, files, memory, quota = CASES[name]
    if group is not None:
        files = {"proc/self/cgroup": group, "proc/self/mountinfo": mounts, **files}
    for file, text in files.items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    assert cgroups.free_memory(tmp_path) == memory
    assert cgroups.cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(("quota", "cores"), [(None, 12), (.2, 1), (2.5, 3), (4.0, 4), (64.0, 12)])
def test_cores_are_counted_up(monkeypatch, quota, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    monkeypatch.setattr(cgroups, "cpu_quota", lambda _: quota)
    assert cgroups.usable_cores() == cores


def test_memory_of_this_machine(monkeypatch):
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 1 << 20 < machine.available_memory() <= physical
    for free, expected in ((5 * MIB, 5 * MIB), (0, MIB), (1 << 60, machine.available_memory())):
        monkeypatch.setattr(machine, "free_memory", lambda free=free: free)
        assert abs(machine.available_memory() - expected) < 2 << 30
    monkeypatch.setattr(machine, "free_memory", lambda: 5 * MIB)
    assert machine.available_memory() == 5 * MIB


@pytest.mark.parametrize("lists, expected", [
    ((), []), (("0-3",), [{0, 1, 2, 3}]), (("0-1,4", "2-3,5-6", "9"), [{0, 1, 4}, {2, 3, 5}])])
def test_numa_domains_have_usable_cores(tmp_path, monkeypatch, lists, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4, 5})
    for number, text in enumerate(lists):
        folder = tmp_path / f"sys/devices/system/node/node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(text + "\n")
    assert cgroups.memory_domains(str(tmp_path)) == expected
