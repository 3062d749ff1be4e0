"""The machine that figures are measured on, and its other work."""

import os
import pathlib
import platform
import time

# How long other work is watched, in seconds.
WATCHED = 3


def idle_governor(folder):
    """The policy by which idle processors sleep, like `idle_governor` of compare/src/environment.rs; None without one."""
    files = [folder / file for file in ("current_governor", "current_governor_ro")]
    named = next((file.read_text().strip() for file in files if file.exists()), "")
    return named if named not in ("", "none") else None


def name():
    """Kernel, processor, number of processors, and whether they are virtual, like `rpcrdma compare` says it."""
    described = pathlib.Path("/proc/cpuinfo").read_text()
    models = [line.partition(": ")[2] for line in described.splitlines() if line.startswith("model name")]
    count = len(os.sched_getaffinity(0))
    parts = [f"{platform.system()} {platform.release()}", platform.machine(), *models[:1]]
    flags = next((line.split() for line in described.splitlines() if line.startswith("flags")), [])
    virtual = ["virtual machine"] if "hypervisor" in flags else []
    governor = idle_governor(pathlib.Path("/sys/devices/system/cpu/cpuidle"))
    idle = [f"idle governor {governor}"] if governor else []
    return ", ".join([*parts, f"{count} processor{'' if count == 1 else 's'}", *idle, *virtual])


def times():
    """Time of all processors that was idle, and all time, in ticks."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)


def other_work():
    """How many processors are busy while this program waits; other guests of the host count."""
    before = times()
    time.sleep(WATCHED)
    idle, all_time = (now - then for now, then in zip(times(), before))
    return os.cpu_count() * (1 - idle / all_time)
