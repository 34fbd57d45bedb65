"""Programs in Python that want more than to compute: what each tries, and how it gets there.

``MODULES`` goes around the import statement, which is no wall: it finds every module that the
process has loaded. ``escaped`` is called by a program that got what it wanted. ``{secret}`` is a
file that is there and ``{made}`` one that is not.
"""

from __future__ import annotations

MODULES = """
def modules():
    for found in ().__class__.__base__.__subclasses__():
        names = getattr(found.__init__, "__globals__", {{}})
        if "sys" in names:
            return names["sys"].modules
class Escaped(BaseException):
    pass
def escaped():
    raise Escaped
loaded = modules()
os, ctypes, socket, subprocess = (loaded[n] for n in ("os", "ctypes", "socket", "subprocess"))
threading, mmap, signal, resource = (loaded[n] for n in ("threading", "mmap", "signal", "resource"))
importlib, select, libc = loaded["importlib"], loaded["select"], ctypes.CDLL(None)
import halide as hl, numpy as np, numpy
def a_func():
    f, x = hl.Func("f"), hl.Var("x")
    f[x] = x
    return f
"""

# Each of them succeeds in a process that is not confined.
ATTEMPTS = {
    "a shell": "if os.system('exit 7') >> 8 == 7: escaped()",
    "a shell by the subclasses of object": """
for found in ().__class__.__base__.__subclasses__():
    if found.__name__ == "_wrap_close":
        if found.__init__.__globals__["system"]("exit 7") >> 8 == 7: escaped()
""",
    "a process": "subprocess.run(['/bin/true'], check=True); escaped()",
    "a fork": "if os.fork() == 0: os._exit(0)\nescaped()",
    "a thread": "threading.Thread(target=print, args=('here',)).start(); escaped()",
    "a file": "open('/etc/passwd').read(); escaped()",
    "the token file": "open('{secret}').read(); escaped()",
    "a file by its descriptor": "os.open('{secret}', os.O_RDONLY); escaped()",
    "a file by C": "if libc.open(b'{secret}', 0) >= 0: escaped()",
    "a file by its system call": "if libc.syscall(2, b'{secret}', 0) >= 0: escaped()",
    "a file beside a folder": "if libc.syscall(257, -100, b'{secret}', 0) >= 0: escaped()",
    "whether a file is there": "os.stat('{secret}'); escaped()",
    "whether a file may be read": "if os.access('{secret}', os.R_OK): escaped()",
    "a folder": "os.listdir('/'); escaped()",
    "the maps of its memory": "open('/proc/self/maps').read(); escaped()",
    "the environment of its parent": "open(f'/proc/{{os.getppid()}}/environ').read(); escaped()",
    "its own program": "os.readlink('/proc/self/exe'); escaped()",
    "a file of NumPy": """
real = {{"np": np, "__builtins__": loaded["builtins"]}}
eval("np.fromfile('{secret}', np.uint8)", real); escaped()
""",
    "a text of NumPy": "np.loadtxt('{secret}', dtype=str); escaped()",
    "a map of NumPy": "np.memmap('{secret}', np.uint8, 'r'); escaped()",
    "writing": "open('{made}', 'w').write('x'); escaped()",
    "writing by NumPy": "np.save('{made}', np.zeros(3)); escaped()",
    "writing by Halide": "a_func().compile_to_lowered_stmt('{made}', []); escaped()",
    "an object file of Halide": "a_func().compile_to_object('{made}', [], 'f'); escaped()",
    "a bitmap of Halide": "a_func().compile_to_bitcode('{made}', [], 'f'); escaped()",
    "machine code by Halide": "a_func().realize([4]); escaped()",
    "machine code of its own": """
mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC); escaped()
""",
    "memory that becomes machine code": """
page = mmap.mmap(-1, 4096)
place = ctypes.addressof(ctypes.c_char.from_buffer(page))
if libc.mprotect(ctypes.c_void_p(place), 4096, 5) == 0: escaped()
""",
    "a library": "ctypes.CDLL('libanl.so.1'); escaped()",
    "a module": "importlib.import_module('sqlite3'); escaped()",
    "a socket": "socket.socket(); escaped()",
    "a pair of sockets": "socket.socketpair(); escaped()",
    "a datagram": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM); escaped()",
    "a name": "if socket.getaddrinfo('localhost', 80): escaped()",
    "a pipe": "os.pipe(); escaped()",
    "a file in memory": "os.memfd_create('x'); escaped()",
    "a descriptor more": "os.dup(0); escaped()",
    # The last argument is on the stack, where an int would leave the upper half as it is.
    "memory of others": """
if libc.syscall(310, os.getpid(), 0, 0, 0, 0, ctypes.c_long(0)) >= 0: escaped()
""",
    "a signal": "os.kill(os.getpid(), 0); escaped()",
    "a signal to its parent": "os.kill(os.getppid(), 0); escaped()",
    "a signal to all": "os.killpg(os.getpgid(0), 0); escaped()",
    "a higher limit": "resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9)); escaped()",
    "another folder": "os.chdir('/usr'); escaped()",
    "another name": "if libc.prctl(15, b'other') == 0: escaped()",
    "a queue of calls": """
if libc.syscall(425, 4, ctypes.create_string_buffer(120)) >= 0: escaped()
""",
    "a timer": "signal.setitimer(signal.ITIMER_REAL, 100); escaped()",
    "what kernel this is": "os.uname(); escaped()",
}  # fmt: skip

# What would end or flood a process that is not confined, and what the confined one says of it.
FLOODS = {
    "a program that does not end": ("while True: pass", "longer than"),
    "a program that sleeps": ("loaded['time'].sleep(1000)", "longer than"),
    "a program that hides from signals": (
        "signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        "longer than",
    ),
    "a heap": ("many = []\nwhile True: many.append(bytearray(1 << 24))", "more memory|MemoryError"),
    "an array": ("np.ones(1 << 40)", "MemoryError|more memory"),
    "memory of C": ("while libc.malloc(1 << 20): pass\nlibc.abort()", "ends its process"),
    "a bomb of forks": ("while True: os.fork()", "PermissionError"),
    "a depth": ("def f(): f()\nf()", "RecursionError"),
    "a depth of C": ("x = []\nfor _ in range(10 ** 6): x = [x]\nrepr(x)", "RecursionError"),
    "prints": ("while True: print('x' * 100000)", "longer than"),
    "an answer that does not end": (
        "while True:\n    for n in range(3, 40):\n        try: os.write(n, bytes(65536))\n"
        "        except OSError: pass",
        "more than 4 MiB",
    ),
    "an answer that is none": (
        "for n in range(3, 40):\n    try: os.write(n, b'\\xff' * 4000)\n"
        "    except OSError: pass\nos._exit(0)",
        "ends its process",
    ),
    "an answer of half its length": (
        "for n in range(3, 40):\n    try: os.write(n, bytes(11))\n"
        "    except OSError: pass\nos._exit(0)",
        "ends its process",
    ),
    "an answer that is no object": (
        "for n in range(3, 40):\n    try: os.write(n, b'\\0\\0\\0\\2' + bytes(8) + b'[]')\n"
        "    except OSError: pass\nos._exit(0)",
        "ends its process",
    ),
    "a fault": ("ctypes.string_at(8)", "ends its process"),
    "an abort": ("libc.abort()", "ends its process"),
    "another program in its place": ("os.execv('/bin/true', ['true'])", "PermissionError"),
    "a kill of its parent": ("os.kill(os.getppid(), 9)", "PermissionError"),
    "a kill of all": ("os.kill(-1, 9)", "PermissionError"),
    "a number of another interface": (
        "if libc.syscall(0x40000002, b'/etc/passwd', 0) < 0: raise KeyError", "KeyError"
    ),
}  # fmt: skip


def program(text: str, secret: str = "", made: str = "") -> str:
    """An attempt, as a program."""
    return MODULES.format() + text.format(secret=secret, made=made)
