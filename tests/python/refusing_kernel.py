"""Makes the kernel refuse a system call of this process, as a file system does that lacks it."""

import ctypes
import errno
import platform
import struct

FSYNC_NUMBERS = {"x86_64": 74, "aarch64": 82}
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER = 22, 38, 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _FAIL_WITH = 0x7FFF0000, 0x00050000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def refuse_fsync():
    """From now on `fsync` fails with `EOPNOTSUPP`; there is no way back."""
    steps = b"".join(
        struct.pack("HBBI", *step)
        for step in (
            (_LOAD, 0, 0, 0),
            (_JUMP_IF_EQUAL, 0, 1, FSYNC_NUMBERS[platform.machine()]),
            (_RETURN, 0, 0, _FAIL_WITH | errno.EOPNOTSUPP),
            (_RETURN, 0, 0, _ALLOW),
        )
    )
    buffer = ctypes.create_string_buffer(steps)
    program = _Program(4, ctypes.cast(buffer, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    for option, *values in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(option, *values) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
