"""``python -m selector serve``."""

from __future__ import annotations

import argparse
import gc
import importlib.util
import ipaddress
import logging
import math
import resource
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from selector.diagnostics import UserError
from selector.service import calls, sandbox
from selector.service.settings import MIB, Settings, default_store, default_workers

if TYPE_CHECKING:
    from fastapi import FastAPI

DEFAULT_PORT = 8080
_DEFAULTS = Settings(store=Path(), workers=1)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give the ``serve`` parser its options."""

    def option(name: str, kind: type, default: object, metavar: str, about: str) -> None:
        parser.add_argument(
            f"--{name}", type=kind, default=default, metavar=metavar, help=f"{about} (%(default)s)"
        )

    option("host", str, "127.0.0.1", "ADDRESS", "address to listen on")
    option("port", int, DEFAULT_PORT, "PORT", "0 for any free one")
    option("workers", int, default_workers(), "N", "worker processes")
    option("store", Path, default_store(), "DIR", "folder of artifacts and answers")
    option("store-limit", int, _DEFAULTS.store_limit // MIB, "MIB", "size of the store")
    option("body-limit", int, _DEFAULTS.body_limit // MIB, "MIB", "size of a request")
    option("bodies", int, _DEFAULTS.bodies // MIB, "MIB", "size of all requests at a time")
    option("connections", int, _DEFAULTS.connections, "N", "connections at a time")
    option("time-limit", float, _DEFAULTS.time_limit, "SECONDS", "time of a worker for a request")
    option("memory-limit", int, _DEFAULTS.memory_limit // MIB, "MIB", "memory of a worker")
    option("queue", int, _DEFAULTS.queue, "N", "requests that may wait for a worker")
    option("patience", float, _DEFAULTS.patience, "SECONDS", "how long one may wait")
    option("read-limit", float, _DEFAULTS.read_limit, "SECONDS", "time to send a request")
    parser.add_argument(
        "--token-file", type=Path, metavar="F", help="tokens, one a line; clients have to send one"
    )
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="a name that requests may be for (any number; the own address always is)",
    )  # fmt: skip
    parser.add_argument(
        "--proxy", action="append", default=[], metavar="ADDRESS",
        help="a reverse proxy, whose X-Forwarded-For is believed (any number)",
    )  # fmt: skip
    parser.add_argument(
        "--confined", action="store_true", help="do not start where workers cannot be confined"
    )
    parser.add_argument(
        "--python-input", action="store_true",
        help="take programs in Python, too, which run confined (implies --confined)",
    )  # fmt: skip
    parser.add_argument("--access-log", action="store_true", help="requests as JSON, on stderr")
    parser.add_argument("--json", action="store_true", help="errors as data")
    parser.set_defaults(command=serve)


def serve(options: argparse.Namespace) -> int:
    """Serve until a signal says stop."""
    for package in ("fastapi", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise UserError(
                "the service needs FastAPI and uvicorn",
                f"{package} is not installed",
                "pip install tensor-selector[service]",
            )
    settings = read_settings(options)
    from selector.service.app import make_app

    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    if options.access_log:
        _log_accesses()
    listener = _listen(options.host, options.port)
    app = make_app(settings)
    address = "[{}]:{}" if listener.family == socket.AF_INET6 else "{}:{}"
    print(f"serving on http://{address.format(*listener.getsockname()[:2])}", flush=True)
    if settings.token_file is None and not _is_local(options.host):
        print("warning: anyone who reaches this address can use it (--token-file)", file=sys.stderr)
    if sandbox.abi() < 1:
        print("warning: this kernel cannot confine workers (Landlock)", file=sys.stderr)
    _run(app, listener, settings)
    return 0


def _log_accesses() -> None:
    """Requests go to the error output, each a line that is JSON and nothing else."""
    log = logging.getLogger("selector.access")
    log.setLevel(logging.INFO)
    log.addHandler(logging.StreamHandler(sys.stderr))
    log.propagate = False


def _run(app: FastAPI, listener: socket.socket, settings: Settings) -> None:
    # The event loop and its kin are not what other commands wait for.
    import asyncio

    import uvicorn

    from selector.service.connection import connections
    from selector.service.fairness import Shares

    _allow_connections()
    # What is loaded stays: the collector need not go through it in the middle of requests, which
    # takes tens of milliseconds, in which nobody is answered.
    gc.collect()
    gc.freeze()
    shares = Shares(settings.connections)
    config = uvicorn.Config(
        app,
        http=connections(settings.read_limit, shares, settings.proxies),
        ws="none",
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=list(settings.proxies),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=30,
    )
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(uvicorn.Server(config).serve([listener]))


def read_settings(options: argparse.Namespace) -> Settings:
    """``UserError`` for an option that makes no sense."""
    for name in (
        "workers", "store_limit", "body_limit", "time_limit", "memory_limit", "queue", "patience",
        "read_limit", "bodies", "connections",
    ):  # fmt: skip
        if not 0 < getattr(options, name) < math.inf:
            raise UserError(f"--{name.replace('_', '-')} has to be positive, and finite")
    if options.memory_limit < 512:
        raise UserError(
            f"--memory-limit {options.memory_limit} is too small",
            "a worker takes about 200 MiB with the rules alone",
            "give it 512 MiB or more",
        )
    if options.bodies < options.body_limit:
        raise UserError("--bodies is less than --body-limit", "no request could have that size")
    _check_confinement(options)
    return Settings(
        store=options.store.expanduser().resolve(),
        workers=options.workers,
        token_file=options.token_file,
        store_limit=options.store_limit * MIB,
        body_limit=options.body_limit * MIB,
        time_limit=options.time_limit,
        memory_limit=options.memory_limit * MIB,
        queue=options.queue,
        patience=options.patience,
        read_limit=options.read_limit,
        bodies=options.bodies * MIB,
        connections=options.connections,
        hosts=_hosts(options.host, options.allow_host),
        proxies=frozenset(options.proxy),
        confined=options.confined or options.python_input,
        python=options.python_input,
    )


def _check_confinement(options: argparse.Namespace) -> None:
    """``UserError`` for a promise that this machine cannot keep."""
    landlock = "this kernel has no Landlock (Linux 5.13 and later, with `landlock` in its `lsm=`)"
    if options.confined and sandbox.abi() < 1:
        raise UserError(
            "workers cannot be confined here",
            landlock,
            "leave out --confined: requests are data all the same, and rules are checked",
        )
    if not options.python_input:
        return
    filters = "this kernel has no seccomp filters, or the machine is not x86-64"
    why = landlock if sandbox.abi() < 1 else "" if calls.are_filtered_here() else filters
    if why:
        hint = "leave out --python-input: without a wall, a program can do what this user can"
        raise UserError("programs in Python cannot be confined here", why, hint)
    if importlib.util.find_spec("halide") is None:
        hint = "pip install tensor-selector[compile]"
        raise UserError("programs in Python need Halide", "it is not installed", hint)


def _hosts(address: str, more: list[str]) -> frozenset[str]:
    """What requests may be for. A browser on the same machine must not be led to a local service by
    a name of somebody else's; at any other address, the names have to be given.
    """
    local = {"localhost", "127.0.0.1", "[::1]"} if _is_local(address) else set[str]()
    if not local and not more:
        return frozenset()
    own = f"[{address}]" if ":" in address else address
    return frozenset(name.lower() for name in (*local, own, *more))


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:  # the C library would take what is left modulo 65536
        raise UserError(f"--port {port} is none", hint="1 to 65535, or 0 for any free one")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=512)
    except (OSError, OverflowError) as error:
        raise UserError(
            f"cannot listen on {host}:{port}", str(error), "choose another --port, or 0"
        ) from None


def _allow_connections() -> None:
    """As many open files as this process may have: a connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
