"""A small process beside a local Ray instance that outlives its owner by a moment: nothing of the instance stays.

Ray ends its own processes when their driver leaves in order, but after `kill -9` its folder stays, and so may an actor
that is inside an environment. The warden waits for its standard input to close, which happens however the owner ends,
kills every process that has a file of the instance's folder open or names it in its command line, and removes it.
It is run as a script, without shoal, so it starts at once: `python ray_warden.py FOLDER`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time

GRACE_S, GIVE_UP_S = 0.3, 10.0


def processes_of(folder: str) -> list[int]:
    """Process ids that have something of the folder open, as their log or their socket's lock, or name it."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid() and _is_of(name, folder):
            found.append(int(name))
    return found


def _is_of(pid: str, folder: str) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if folder.encode() in file.read():
                return True
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{fd}").startswith(folder + "/"):
                    return True
    except OSError:  # it has ended, or is somebody else's
        pass
    return False


def clear(folder: str) -> None:
    """End what is left of the instance and remove its folder."""
    deadline, seen_none = time.monotonic() + GIVE_UP_S, 0
    while seen_none < 2 and time.monotonic() < deadline:
        left = [pid for pid in processes_of(folder) if pid != OWNER]
        seen_none = 0 if left else seen_none + 1
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


OWNER = os.getppid()

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    clear(sys.argv[1])
