"""Puts the process that calls it into a sandbox: Landlock for files, ports and signals, seccomp for sockets.

It is called between `fork` and `exec`; as a program it applies a box to itself and runs a command. A box is
a list of texts: `r/path` and `w/path` grant reading, or everything; `network=off`, `network=443,5432` and
`sockets=off` restrict further. What is not granted is refused. An error is raised, never passed over: then
the server is not started. It imports nothing of dragoman, because the watchdog runs without `site`.
"""

from __future__ import annotations

import array
import sys

TYPE_CHECKING = False
# As in `watchdog_program`: the modules `os`, `ctypes` and `struct` take longer to import than all the rest.
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
else:
    try:
        import posix as os
    except ImportError:
        os = None

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVS, _SET_SECCOMP = 38, 22

_OF_FILES = 0b0111  # Execute, write and read.
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_KIND, _FOLDER = 0o170000, 0o040000
_READ = 0b1101  # Execute, and read files and folders.
_KNOWN = (0, 13, 14, 15, 15, 16)
"""How many rights on files each version knows, by its number; later ones have no more that we use."""
_CONNECT_TCP = 2
_SCOPES = 0b11
"""Abstract sockets and signals."""
TRUNCATES, PORTS, SCOPES = 3, 4, 6
"""The versions from which on truncating, ports, and signals can be refused."""

_SYSTEMS = {
    "x86_64": (0xC000003E, (41, 53, 50, 44, 46, 307)),
    "aarch64": (0xC00000B7, (198, 199, 201, 206, 211, 269)),
}
"""The number of the architecture, and those of the system calls in `_CALLS`."""
_CALLS = ("socket", "socketpair", "listen", "sendto", "sendmsg", "sendmmsg")
_IO_URING_SETUP = 425
_X32 = 0x40000000
_FAST_OPEN = 0x20000000
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _TCP = 1, 2, 6
_KIND_MASK = 0xF
_ALLOW, _REFUSE, _ABSENT = 0x7FFF0000, 0x00050000 | 13, 0x00050000 | 38


IS_LINUX = sys.platform.startswith("linux")


def _calls(name: str) -> Callable[..., int]:
    """Return a function of the C library that takes numbers and bytes."""
    from _ctypes import call_cdeclfunction, dlopen, dlsym

    address = dlsym(dlopen(None, 0), name)  # type: ignore[arg-type] -- `None` is this program
    return lambda *given: call_cdeclfunction(address, given)


_syscall, _prctl = (_calls("syscall"), _calls("prctl")) if IS_LINUX else (None, None)


def _call(*arguments: object) -> int:
    result = -1 if _syscall is None else _syscall(*arguments)
    if result < 0:
        msg = "the kernel refuses the sandbox"
        raise OSError(1, msg)
    return result


def abi() -> int:
    """Return the version of Landlock that this kernel has; 0 if it has none, or it is switched off."""
    try:
        return _call(_CREATE, None, 0, 1)
    except OSError:
        return 0


def has_filters() -> bool:
    """Return whether system calls can be filtered on this machine."""
    return IS_LINUX and os.uname().machine in _SYSTEMS


def apply(box: list[str]) -> None:
    """Put this process and all that it will start into a sandbox, for good.

    Raises:
        OSError: It cannot be done.
    """
    grants = [text for text in box if text[1:2] == "/"]
    said = dict(text.split("=", 1) for text in box if "=" in text and text[1:2] != "/")
    network, sockets = said.get("network", "on"), said.get("sockets", "on")
    ports = [int(port) for port in network.split(",")] if network not in ("on", "off") else []
    if _prctl is None or _prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(1, "PR_SET_NO_NEW_PRIVS")
    if grants or ports:
        _restrict(grants, ports, abi())
    if network != "on" or sockets != "on":
        _filter(network, sockets)


def _restrict(grants: list[str], ports: list[int], version: int) -> None:
    known = (1 << _KNOWN[min(version, len(_KNOWN) - 1)]) - 1
    scopes = _SCOPES if version >= SCOPES else 0
    handled = b"".join(map(_eight, (known if grants else 0, _CONNECT_TCP if ports else 0, scopes)))
    # An older kernel refuses fields that it does not know.
    size = 24 if version >= SCOPES else 16 if version >= PORTS else 8
    if not version or (ports and version < PORTS):
        msg = "this kernel has no Landlock, or one without ports"
        raise OSError(38, msg)
    rules = _call(_CREATE, handled[:size], size, 0)
    of_file = known & (_OF_FILES | _TRUNCATE | _IOCTL_DEV)
    for grant in grants:
        try:
            path = os.open(grant[1:], os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue  # It is gone, so it needs no grant.
        rights = _READ if grant[0] == "r" else known
        if os.fstat(path).st_mode & _KIND != _FOLDER:
            rights &= of_file
        _call(_ADD, rules, 1, _eight(rights) + path.to_bytes(4, sys.byteorder), 0)
        os.close(path)
    for port in ports:
        _call(_ADD, rules, 2, _eight(_CONNECT_TCP) + _eight(port), 0)
    _call(_RESTRICT, rules, 0)
    os.close(rules)


def _eight(number: int) -> bytes:
    return number.to_bytes(8, sys.byteorder)


def _filter(network: str, sockets: str) -> None:
    """Refuse system calls; how a filter is written is described in the kernel's `seccomp_filter.rst`."""
    if not has_filters():
        msg = "system calls cannot be filtered on this machine"
        raise OSError(38, msg)
    architecture, all_numbers = _SYSTEMS[os.uname().machine]
    numbers: dict[str, int] = dict(zip(_CALLS, all_numbers, strict=True))
    program = [
        *(_do(_LOAD, _ARCHITECTURE), _do(_EQUALS, architecture, 1), _do(_RETURN, _REFUSE)),
        *(_do(_LOAD, _NUMBER), _do(_AT_LEAST, _X32, 0, 1), _do(_RETURN, _REFUSE)),
        # It makes sockets too, by calls that no filter sees.
        *(_do(_EQUALS, _IO_URING_SETUP, 0, 1), _do(_RETURN, _ABSENT)),
        *_on(numbers["socket"], _socket_rules(network, sockets)),
    ]
    if sockets != "on":
        # A pair of datagram sockets can send to named ones, too.
        kind = [_do(_LOAD, 16 + 8), _do(_MASK, _KIND_MASK)]
        datagram = [*kind, _do(_EQUALS, _DATAGRAM, 0, 1), _do(_RETURN, _REFUSE)]
        program += _on(numbers["socketpair"], datagram)
    if network not in ("on", "off"):
        # Sending with this flag connects, and Landlock does not see it.
        for name, argument in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
            refused = [_do(_LOAD, 16 + 8 * argument), _do(_HAS, _FAST_OPEN, 0, 1), _do(_RETURN, _REFUSE)]
            program += _on(numbers[name], refused)
        program += _on(numbers["listen"], [_do(_RETURN, _REFUSE)])
    program.append(_do(_RETURN, _ALLOW))
    code = array.array("B", b"".join(program))
    count = len(program).to_bytes(2, sys.byteorder)
    if _prctl is None or _prctl(_SET_SECCOMP, 2, count + bytes(6) + _eight(code.buffer_info()[0]), 0, 0) != 0:
        raise OSError(1, "PR_SET_SECCOMP")


def _socket_rules(network: str, sockets: str) -> list[bytes]:
    """Return what decides about a new socket; it ends in every case."""
    domain, kind, protocol = (_do(_LOAD, 16 + 8 * at) for at in range(3))
    rules = [domain, _do(_EQUALS, _UNIX, 0, 1), _do(_RETURN, _ALLOW if sockets == "on" else _REFUSE)]
    if network == "on":
        return [*rules, _do(_RETURN, _ALLOW)]
    # Programs list the machine's addresses with this one; it leads nowhere.
    rules += [
        _do(_EQUALS, _NETLINK, 0, 4),
        protocol,
        _do(_EQUALS, 0, 0, 1),
        _do(_RETURN, _ALLOW),
        _do(_RETURN, _REFUSE),
    ]
    if network == "off":
        return [*rules, _do(_RETURN, _REFUSE)]
    # TCP only: Landlock sees no other protocol, and not even the other forms of TCP.
    tcp = [
        *(kind, _do(_MASK, _KIND_MASK, 0, 0), _do(_EQUALS, _STREAM, 0, 4), protocol),
        *(_do(_EQUALS, 0, 1), _do(_EQUALS, _TCP, 0, 1), _do(_RETURN, _ALLOW), _do(_RETURN, _REFUSE)),
    ]
    return [*rules, _do(_EQUALS, _INET, 1), _do(_EQUALS, _INET6, 0, len(tcp)), *tcp, _do(_RETURN, _REFUSE)]


def _on(number: int, rules: list[bytes]) -> list[bytes]:
    """Return rules for one system call; what they do not decide goes on, with its number loaded again."""
    return [_do(_EQUALS, number, 0, len(rules) + 1), *rules, _do(_LOAD, _NUMBER)]


_NUMBER, _ARCHITECTURE = 0, 4
"""Where the number of the call and the architecture are; the low halves of its arguments are behind."""
_LOAD, _RETURN, _EQUALS, _AT_LEAST, _HAS, _MASK = 0x20, 0x06, 0x15, 0x35, 0x45, 0x54


def _do(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    """Return an instruction; a comparison skips as many as `then` or `otherwise` says."""
    words = (code.to_bytes(2, sys.byteorder), bytes((then, otherwise)), value.to_bytes(4, sys.byteorder))
    return b"".join(words)


def main() -> None:
    """Apply the box in the arguments, then run the command behind it."""
    count = int(sys.argv[1])
    apply(sys.argv[2 : 2 + count])
    command = sys.argv[2 + count :]
    import os as whole

    whole.execvp(command[0], command)  # noqa: S606 -- the configured command


if __name__ == "__main__":
    main()
