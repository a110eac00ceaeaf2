"""What the tests of live operation share: redis-cli as a person types it, a small Redis client for many calls, waiting."""
import socket
import subprocess
import time

from tests.integration.rig import BIN

KEY = "{deja}:config"


def cli(rig, *args):
    """One redis-cli command: its output."""
    r = subprocess.run(["redis-cli", "-s", rig.redis_socket, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                       timeout=10)
    return r.stdout.rstrip("\n")


def fcall(rig, name, *args, key=KEY):
    return cli(rig, "FCALL", name, "1", key, *args)


def load_library(rig):
    code = subprocess.run([BIN, "functions"], stdout=subprocess.PIPE, check=True).stdout
    r = subprocess.run(["redis-cli", "-s", rig.redis_socket, "-x", "FUNCTION", "LOAD", "REPLACE"], input=code, stdout=subprocess.PIPE, check=False)
    assert r.stdout.strip() == b"deja", r.stdout


def until(holds, seconds, what="it"):
    """Seconds until holds() was true: what must be sooner than it may be on a busy machine is for the caller to compare."""
    begin, seconds = time.time(), max(seconds, 15)
    while time.time() - begin < seconds:
        if holds():
            return time.time() - begin
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {seconds} s")


class Resp:
    """A client of the Redis protocol for calls by the hundred."""

    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.settimeout(10)
        self.s.connect(path)
        self.f = self.s.makefile("rb")

    def close(self):
        self.f.close()
        self.s.close()

    def _read(self):
        line = self.f.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return None if rest == b"-1" else self.f.read(int(rest) + 2)[:-2].decode()
        if kind == b"*":
            return [self._read() for _ in range(int(rest))]
        return int(rest) if kind == b":" else ("ERR " if kind == b"-" and not rest.startswith(b"ERR") else "") + rest.decode()

    def __call__(self, *args):
        data = [str(a).encode() for a in args]
        self.s.sendall(b"*%d\r\n" % len(data) + b"".join(b"$%d\r\n%s\r\n" % (len(a), a) for a in data))
        return self._read()

    def fcall(self, name, *args):
        return self("FCALL", name, 1, KEY, *args)
