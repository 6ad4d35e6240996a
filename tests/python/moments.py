"""What a kill would leave of a directory, before each write there; for a process of its own."""

import os
import shutil
import sys

CHANGING = {"os.rename", "os.remove", "os.mkdir", "os.truncate", "os.link"}


def copies_before_writes(directory, action):
    """Call `action`; return copies of the directory, one from before each change that it made.

    Changes are files opened for writing, renamed, linked and removed from Python.
    """
    directory, copies, is_watching = os.path.abspath(directory), [], True

    def copy(event, values):
        nonlocal is_watching
        if event == "open":
            path, mode, flags = values
            changes = set(mode) & set("wax+") if mode else flags & (os.O_WRONLY | os.O_RDWR)
        elif event in CHANGING:
            path, changes = values[0], True
        else:
            return
        if not is_watching or not changes or isinstance(path, int):
            return
        if os.path.dirname(os.path.abspath(os.fsdecode(path))) == directory:
            is_watching = False
            copies.append(shutil.copytree(directory, f"{directory}-{len(copies)}"))
            is_watching = True

    sys.addaudithook(copy)
    action()
    is_watching = False
    return copies
