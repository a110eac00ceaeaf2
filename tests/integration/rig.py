"""The set-up of the integration tests: private redis-server, `deja engine`, `deja gateway` on free loopback ports, started and ended
by pid, each with its output in a file that is shown when something goes wrong. Standard library only."""
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("DEJA_BIN", os.path.join(ROOT, "build", "dev", "deja"))
CACHE = os.environ.get("DEJA_CACHE", os.path.join(os.path.expanduser("~"), ".cache", "deja"))
DATA = os.path.join(ROOT, "tests", "data")


def model(name):
    """Path of a real model when it is in the cache, else None."""
    path = os.path.join(CACHE, "models", name)
    return path if os.path.exists(path) else None


SMOLLM2, MINILM, E5 = "SmolLM2-135M-Instruct.Q4_1.gguf", "all-minilm-l6-v2.gguf", "multilingual-e5-small-q4.gguf"


MODEL_OF = {}                                         # port -> the model its server lists first


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


GATEWAY_KEY = "what engine and gateway know"


class Process:
    """One server. `ready` is polled until true or the time is over."""

    def __init__(self, name, argv, folder, env=None):
        self.name, self.argv, self.env = name, argv, dict(os.environ, **(env or {}))
        self.log_path = os.path.join(folder, name + ".log")
        self.popen = None

    def start(self):
        with open(self.log_path, "ab") as log:
            self.popen = subprocess.Popen(self.argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.env)
        return self

    def wait_for(self, ready, seconds=60):
        end = time.time() + seconds
        while time.time() < end:
            if self.popen.poll() is not None:
                raise AssertionError(f"{self.name} ended with status {self.popen.returncode}:\n{self.tail()}")
            try:
                if ready():
                    return self
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.05)
        raise AssertionError(f"{self.name} is not ready after {seconds} s:\n{self.tail()}")

    def tail(self, n=4000):
        with open(self.log_path, "rb") as f:
            return f.read()[-n:].decode("utf8", "replace")

    def kill(self, sig=signal.SIGKILL):
        if self.popen and self.popen.poll() is None:
            self.popen.send_signal(sig)

    def stop(self, seconds=20):
        """TERM, wait; the exit status (sanitizers report through it)."""
        if not self.popen:
            return 0
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
            self.popen.terminate()
            try:
                self.popen.wait(seconds)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
                return -9
        return self.popen.returncode


def call(port, method, path, body=None, headers=None, timeout=60):
    """(status, headers with lower-case names, body bytes)"""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        c.request(method, path, body=data, headers=dict({"Content-Type": "application/json"}, **(headers or {})))
        r = c.getresponse()
        return r.status, {k.lower(): v for k, v in r.getheaders()}, r.read()
    finally:
        c.close()


def unique(text=""):
    """A text that nobody has asked."""
    return f"{text} {uuid.uuid4().hex}"


def metric(port, name, part=""):
    """The sum over the series of that name whose line holds part."""
    return sum(float(x.rsplit(" ", 1)[1]) for x in call(port, "GET", "/metrics")[2].decode().splitlines()
               if x.split(" ")[0].split("{")[0] == name and part in x)


def block_tokens(engine_port, key=GATEWAY_KEY):
    """Tokens of one KV block of an engine: 2 in the rare build, whatever the options say."""
    status, _, raw = call(engine_port, "GET", "/deja/prefix", headers={"x-deja-key": key})
    assert status == 200, raw
    return json.loads(raw)["block_tokens"]


def first_true(check, seconds=15):
    """What check() gave once it was true."""
    end = time.time() + seconds
    while time.time() < end:
        value = check()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError("it never came true")


def said_of(reply):
    """The text of a whole chat answer, of what call() gave."""
    return json.loads(reply[2])["choices"][0]["message"]["content"]


def first_model(port):
    return json.loads(call(port, "GET", "/v1/models")[2])["data"][0]["id"]


def ask(port, text, headers=None, timeout=120, **fields):
    if "model" not in fields:
        fields["model"] = MODEL_OF.setdefault(port, None) or first_model(port)
        MODEL_OF[port] = fields["model"]
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0}
    body.update(fields)
    return call(port, "POST", "/v1/chat/completions", body, headers, timeout)


def is_ready(port):
    return call(port, "GET", "/ready", timeout=5)[0] == 200


class Rig:
    """Everything in one folder; `with Rig() as rig: rig.redis(); rig.engine(path); rig.gateway(...)`."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="deja-test-")
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        statuses = {p.name: p.stop() for p in reversed(self.processes)}
        reports = [f"{p.name} (status {statuses[p.name]}):\n{p.tail()}" for p in self.processes
                   if any(w in p.tail(200000) for w in ("AddressSanitizer", "runtime error:", "ThreadSanitizer", "LeakSanitizer"))]
        shutil.rmtree(self.folder, ignore_errors=True)
        if reports:
            raise AssertionError("a sanitizer reported:\n" + "\n".join(reports))

    def add(self, name, argv, env=None):
        p = Process(name, argv, self.folder, env)
        self.processes.append(p)
        return p.start()

    def redis(self, *extra):
        self.redis_socket = os.path.join(self.folder, "redis.sock")
        self.redis_url = "unix:" + self.redis_socket
        argv = ["redis-server", "--port", "0", "--unixsocket", self.redis_socket, "--dir", self.folder, "--appendonly", "yes",
                "--appendfsync", "everysec", "--save", "", "--daemonize", "no", *extra]
        return self.add("redis", argv).wait_for(lambda: os.path.exists(self.redis_socket), 10)

    def engine(self, chat, embed=None, extra=(), seconds=120):
        self.engine_port = free_port()
        argv = [BIN, "engine", "--port", str(self.engine_port), "--model", chat, *extra]
        if embed:
            argv += ["--embed-model", embed]
        return self.add("engine", argv, {"DEJA_GATEWAY_KEY": GATEWAY_KEY}).wait_for(lambda: is_ready(self.engine_port), seconds)

    def gateway(self, *extra, ready=True, seconds=60, name="gateway"):
        self.port = free_port()
        p = self.add(name, [BIN, "gateway", "--port", str(self.port), *extra], {"DEJA_GATEWAY_KEY": GATEWAY_KEY})
        check = (lambda: is_ready(self.port)) if ready else (lambda: call(self.port, "GET", "/health", timeout=5)[0] == 200)
        return p.wait_for(check, seconds)
