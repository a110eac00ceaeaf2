"""Goal: whatever breaks around the gateway, under load: every client gets an end, in bounded time, and never another one's answer; what is
broken costs the others nothing; it recovers by itself; nothing leaks. Method: the real binary and a real redis-server; each question carries a
word that its answer must hold. Each test prints one line of the table in docs/faults.md: outcome, time, recovery. Times are printed, not
asserted, but for bounds a hang would break."""
import collections
import concurrent.futures
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.rig import BIN, ROOT, Rig, call, free_port, metric

CLIENTS, REQUESTS, NO_HANG_S = 8, 32, 15


def row(name, outcome, ms, recovery):
    sys.stderr.write(f"\n| {name} | {outcome} | {ms} | {recovery} |\n")


class Load:
    """REQUESTS questions by CLIENTS at once; what came of each."""

    def __init__(self, port, stream=False, say="[[say:%s]]", tag="", requests=REQUESTS):
        self.port, self.stream, self.say, self.tag, self.wrong = port, stream, say, tag, []
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            self.done = list(pool.map(self.one, range(requests)))

    def one(self, _):
        word = uuid.uuid4().hex
        began = time.monotonic()
        s, h, body = call(self.port, "POST", "/v1/chat/completions",
                          {"model": "m", "messages": [{"role": "user", "content": self.tag + self.say % word}], "stream": self.stream}, timeout=NO_HANG_S)
        took = time.monotonic() - began
        text = body.decode("utf8", "replace")
        if s != 200:
            return str(s), took, h
        if not self.stream:
            if word not in json.loads(text)["choices"][0]["message"]["content"]:
                self.wrong.append(text)
            return "200", took, h
        pieces = "".join((c.get("delta") or {}).get("content") or "" for b in text.split("\n\n") if b.startswith("data: {")
                         for c in json.loads(b[6:]).get("choices", []))
        if not word.startswith(pieces):
            self.wrong.append(text)
        if "[DONE]" not in text:
            return "200 + error event" if '"error"' in text else "200 cut", took, h
        if pieces != word:
            self.wrong.append(text)
        return "200", took, h

    def outcomes(self):
        n = collections.Counter(x[0] for x in self.done)
        return ", ".join(f"{k} ({v})" for k, v in n.most_common())

    def kinds(self):
        return {x[0] for x in self.done}

    def ms(self):
        t = sorted(x[1] for x in self.done)
        return f"{t[len(t) // 2] * 1000:.0f} / {t[-1] * 1000:.0f}"


class Case(unittest.TestCase):
    options, redis = (), False
    gateway_env = None

    @classmethod
    def setUpClass(cls):
        cls.rig, cls.up = Rig(), FakeUpstream()
        try:
            more = []
            if cls.redis:
                cls.redis_process = cls.start_redis()
                more = ["--redis", cls.rig.redis_url]
            cls.gateway = cls.rig.gateway("--upstream", cls.up.url, "--probe-ms", "200", "--breaker-open-ms", "300", "--upstream-first-byte-ms", "500",
                                          "--upstream-idle-ms", "500", "--upstream-connect-ms", "300", "--stale-if-error-s", "0", *more, *cls.options)
        except BaseException:
            cls.rig.close()
            raise
        cls.port = cls.rig.port

    @classmethod
    def start_redis(cls):
        return cls.rig.redis()

    @classmethod
    def tearDownClass(cls):
        cls.up.close()
        cls.rig.close()

    def metric(self, name):
        return metric(self.port, name)

    def recovery(self):
        """Seconds until ten answers in a row are well."""
        began, well = time.monotonic(), 0
        while well < 10:
            self.assertLess(time.monotonic() - began, NO_HANG_S)
            load = Load(self.port, requests=1)
            well = well + 1 if load.kinds() == {"200"} else 0
            if not well:
                time.sleep(0.02)
        return f"{time.monotonic() - began:.2f} s"

    def nothing_is_left(self):
        end = time.time() + NO_HANG_S
        while self.metric("deja_inflight") > 1 or self.metric("deja_upstream_inflight") > 0:
            self.assertLess(time.time(), end, "requests are left")
            time.sleep(0.05)
        fds = len(os.listdir(f"/proc/{self.gateway.popen.pid}/fd"))
        self.assertLess(fds, 160, "descriptors are left")              # 64 kept-alive upstream connections and the clients' at most

    def check(self, name, kinds, breaks, heals, stream=False, load=None):
        breaks()
        try:
            load = load() if load else Load(self.port, stream)
        finally:
            heals()
        recovery = self.recovery()
        row(name, load.outcomes(), load.ms(), recovery)
        self.assertEqual(load.wrong, [])
        self.assertLessEqual(load.kinds(), kinds)
        self.nothing_is_left()
        return load


class Upstream(Case):
    def set(self, **kw):
        def do():
            for k, v in kw.items():
                setattr(self.up, k, v)
        return do

    def test_refused(self):
        port = self.up.port

        def back():
            Upstream.up = FakeUpstream(port)
        self.check("upstream refuses connections", {"503"}, self.up.close, back)

    def test_hang_before_headers(self):
        self.check("upstream hangs before its headers", {"504", "503"}, self.set(fault="hang"), self.set(fault=None))

    def test_hang_in_the_middle_of_a_stream(self):
        self.check("upstream hangs in the middle of a stream", {"200 + error event", "503"}, self.set(fault="hangmid"), self.set(fault=None), True)

    def test_hang_in_the_middle_of_a_body(self):
        self.check("upstream hangs in the middle of a body", {"504", "503"}, self.set(fault="hangmid"), self.set(fault=None))

    def test_reset_in_the_middle_of_a_stream(self):
        self.check("upstream resets in the middle of a stream", {"200 + error event", "503"}, self.set(fault="reset"), self.set(fault=None), True)

    def test_429(self):
        load = self.check("upstream answers 429, Retry-After: 7", {"429"}, self.set(fail="429"), self.set(fail=None))
        self.assertTrue(all(1 <= int(h["retry-after"]) <= 7 for _, _, h in load.done))

    def test_500(self):
        self.check("upstream answers 500", {"500", "503"}, self.set(fail="500"), self.set(fail=None))

    def test_garbage_instead_of_http(self):
        self.check("upstream talks something else than HTTP", {"502", "503"}, self.set(fault="garbage"), self.set(fault=None))

    def test_garbage_in_a_200(self):
        self.check("upstream answers 200 with half a JSON body", {"502", "503"}, self.set(fault="malformed"), self.set(fault=None))


class TwoUpstreams(Case):
    """With a second upstream of the same model the same faults are hardly seen."""
    @classmethod
    def setUpClass(cls):
        cls.second = FakeUpstream()
        cls.options = ("--upstream", cls.second.url)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.second.close()

    def test_one_of_two_fails(self):
        for fault, kw in (("answers 500", {"fail": "500"}), ("hangs before its headers", {"fault": "hang"}), ("talks garbage", {"fault": "garbage"})):
            self.up.fail, self.up.fault = kw.get("fail"), kw.get("fault")
            try:
                load = Load(self.port)
            finally:
                self.up.fail = self.up.fault = None
            recovery = self.recovery()
            end = time.time() + NO_HANG_S
            while self.metric("deja_upstream_breaker_open"):          # the next fault must be met anew
                self.assertLess(time.time(), end)
                time.sleep(0.05)
            row(f"one of two upstreams {fault}", load.outcomes(), load.ms(), recovery)
            self.assertEqual((load.wrong, load.kinds()), ([], {"200"}))
            self.nothing_is_left()


class Clients(Case):
    """The big answers come from an upstream in another process: making them is as much work as sending them, and would keep the one that
    answers the others from doing so."""

    @classmethod
    def setUpClass(cls):
        cls.big = subprocess.Popen([sys.executable, os.path.join(ROOT, "tests", "integration", "fake_upstream.py")], stdout=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.end_big)
        cls.options = ("--client-write-ms", "1000", "--keep-after-gone-ms", "0", "--upstream", cls.big.stdout.readline().strip() + " models=big")
        super().setUpClass()

    @classmethod
    def end_big(cls):
        cls.big.terminate()
        cls.big.wait(10)
        cls.big.stdout.close()

    def open_stream(self, text, model="m"):
        body = json.dumps({"model": model, "stream": True, "messages": [{"role": "user", "content": text}]}).encode()
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", self.port))
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return s

    def test_clients_that_do_not_read_cost_the_others_nothing_and_are_dropped(self):
        slow = [self.open_stream(f"[[pad:6000000]]{uuid.uuid4().hex}", "big") for _ in range(6)]
        try:
            load = Load(self.port)
            began = time.monotonic()
            while self.metric("deja_inflight") > 1:
                self.assertLess(time.monotonic() - began, NO_HANG_S)
                time.sleep(0.05)
            row("six clients do not read (`client_write_ms` 1000)", "others: " + load.outcomes() + "; these: dropped", load.ms(),
                f"{time.monotonic() - began:.2f} s until they are gone")
            self.assertEqual((load.wrong, load.kinds()), ([], {"200"}))
        finally:
            for s in slow:
                s.close()
        self.nothing_is_left()

    def test_clients_that_leave_in_the_middle_end_their_calls(self):
        gone = [self.open_stream(f"[[drip:50]][[chunks:200]]{uuid.uuid4().hex}") for _ in range(12)]
        for s in gone:
            self.assertTrue(s.recv(64))
        began = time.monotonic()
        for s in gone:
            s.close()
        load = Load(self.port)
        while self.metric("deja_upstream_inflight") > 0:
            self.assertLess(time.monotonic() - began, NO_HANG_S)
            time.sleep(0.02)
        row("twelve clients leave in the middle", "others: " + load.outcomes(), load.ms(), f"{time.monotonic() - began:.2f} s until their calls ended")
        self.assertEqual((load.wrong, load.kinds()), ([], {"200"}))
        self.nothing_is_left()


class Names(unittest.TestCase):
    def run_against(self, name, url, *options):
        with Rig() as rig:
            rig.gateway("--upstream", url, "--probe-ms", "200", "--breaker-open-ms", "300", *options, ready=False)
            load = Load(rig.port)
            row(name, load.outcomes(), load.ms(), "-")
            self.assertEqual(load.kinds(), {"503"})
            s, _, body = call(rig.port, "GET", "/ready")
            self.assertEqual(s, 503)
            return body.decode()

    def test_name_that_is_not_known(self):
        self.run_against("the upstream's name is not known", "http://no-such-host.invalid/v1")

    def test_certificate_that_has_expired(self):
        if not shutil.which("openssl"):
            self.skipTest("no openssl to make a certificate with")
        with Rig() as rig:
            def path(x):
                return os.path.join(rig.folder, x)
            for f in ("index.txt", "serial"):
                with open(path(f), "w") as out:
                    out.write("01\n" if f == "serial" else "")
            with open(path("ca.cnf"), "w") as out:
                out.write(f"[ca]\ndefault_ca=d\n[d]\ndatabase={path('index.txt')}\nserial={path('serial')}\nnew_certs_dir={rig.folder}\n"
                          "default_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n[v]\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n")
            subprocess.run(["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", path("key.pem"), "-out", path("req.pem"), "-subj", "/CN=localhost"],
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            subprocess.run(["openssl", "ca", "-config", path("ca.cnf"), "-batch", "-selfsign", "-keyfile", path("key.pem"), "-in", path("req.pem"), "-out",
                            path("cert.pem"), "-startdate", "20200101000000Z", "-enddate", "20200201000000Z", "-extensions", "v", "-notext"],
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            up = FakeUpstream()
            ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            ctx.load_cert_chain(path("cert.pem"), path("key.pem"))
            plain = up.server.socket
            up.server.socket = ctx.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
            try:
                ready = self.run_against("the upstream's certificate has expired", f"https://localhost:{up.port}/v1", "--ca-file", path("cert.pem"))
                self.assertIn("expired", ready)
                self.assertEqual(up.count(), 0)
            finally:
                up.close()


class RedisCase(Case):
    redis = True

    def cli(self, *words):
        return subprocess.run(["redis-cli", "-s", self.rig.redis_socket, *words], stdout=subprocess.PIPE, text=True, check=True, timeout=10).stdout.strip()

    def whose_fault(self):
        return "\n".join((call(self.port, "GET", "/ready")[2].decode()[:300], self.gateway.tail(800), self.redis_process.tail(800)))

    def twice(self):
        """A question asked twice: is the second answered from the cache, and by which entry?"""
        q = {"model": "m", "messages": [{"role": "user", "content": uuid.uuid4().hex}]}
        call(self.port, "POST", "/v1/chat/completions", q)
        h = call(self.port, "POST", "/v1/chat/completions", q)[1]
        return h["x-deja-cache"], h["x-deja-entry"]

    def fault(self, name, breaks, heals):
        healthy = Load(self.port)
        breaks()
        try:
            load = Load(self.port)
            cache, entry = self.twice()
            self.assertEqual(cache, "exact")                     # in process, whatever Redis does
        finally:
            heals()
        began = time.monotonic()
        while '"redis"' in call(self.port, "GET", "/ready")[2].decode().split('"parts"')[0] or self.cli("EXISTS", f"deja:{{deja}}:e:{entry}") != "1":
            if time.monotonic() - began > NO_HANG_S:
                self.fail("no recovery: " + self.whose_fault())
            time.sleep(0.02)
        row(name, load.outcomes(), f"{load.ms()} (before: {healthy.ms()})", f"{time.monotonic() - began:.2f} s")
        self.assertEqual((load.wrong, load.kinds()), ([], {"200"}))
        self.nothing_is_left()


class Redis(RedisCase):
    def test_frozen(self):
        self.fault("Redis is frozen", lambda: self.redis_process.kill(signal.SIGSTOP), lambda: self.redis_process.kill(signal.SIGCONT))

    def test_killed(self):
        def back():
            self.redis_process.start().wait_for(lambda: subprocess.run(["redis-cli", "-s", self.rig.redis_socket, "PING"], stdout=subprocess.PIPE,
                                                                       stderr=subprocess.DEVNULL).stdout == b"PONG\n", 10)

        def kill():
            self.redis_process.kill()
            self.redis_process.popen.wait()
        self.fault("Redis is killed", kill, back)

    def test_slow(self):
        stop = threading.Event()

        def drag():                                               # frozen for 30 of every 60 ms
            while not stop.is_set():
                self.redis_process.kill(signal.SIGSTOP)
                time.sleep(0.03)
                self.redis_process.kill(signal.SIGCONT)
                time.sleep(0.03)
        thread = threading.Thread(target=drag, daemon=True)

        def heal():
            stop.set()
            thread.join()
        self.fault("Redis is slow (30 of every 60 ms frozen)", thread.start, heal)

    def test_out_of_memory(self):
        self.fault("Redis is out of memory", lambda: self.cli("CONFIG", "SET", "maxmemory", "1"), lambda: self.cli("CONFIG", "SET", "maxmemory", "0"))

    def test_read_only(self):
        port = str(free_port())
        self.fault("Redis is a read-only replica", lambda: self.cli("REPLICAOF", "127.0.0.1", port), lambda: self.cli("REPLICAOF", "NO", "ONE"))


class RedisDisk:
    """Its folder is a small file system of its own, which a file fills to the last byte."""
    save = ("--appendonly", "yes")

    @classmethod
    def setUpClass(cls):
        cls.disk = tempfile.mkdtemp(prefix="deja-disk-")
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", cls.disk], stderr=subprocess.DEVNULL, check=False).returncode:
            os.rmdir(cls.disk)
            raise unittest.SkipTest("file systems cannot be mounted here")
        cls.addClassCleanup(subprocess.run, ["umount", cls.disk], check=False)
        super().setUpClass()

    @classmethod
    def start_redis(cls):
        return cls.rig.redis("--dir", cls.disk, *cls.save)

    def fill(self):
        with open(os.path.join(self.disk, "filler"), "wb", buffering=0) as f:
            try:
                while True:
                    f.write(b"x" * 65536)
            except OSError:
                pass
            try:
                while True:
                    f.write(b"x")
            except OSError:
                pass

    def empty(self):
        os.unlink(os.path.join(self.disk, "filler"))

    def refuses(self):
        """Redis says so itself."""
        end = time.time() + NO_HANG_S
        while "MISCONF" not in self.cli("SET", "probe", "x" * 100000):
            self.assertLess(time.time(), end, "Redis writes on a full disk")
            time.sleep(0.05)

    def test_disk_is_full(self):
        def breaks():
            self.fill()
            self.refuses()
        self.fault(self.name, breaks, self.empty)


class RedisDiskLog(RedisDisk, RedisCase):
    name = "Redis' disk is full, its log (AOF) cannot be written"


class RedisDiskSnapshot(RedisDisk, RedisCase):
    name = "Redis' disk is full, its snapshot (RDB) cannot be written"
    save = ("--appendonly", "no", "--save", "1 1")


class Machine(unittest.TestCase):
    def test_disk_full_under_the_log(self):
        with Rig() as rig:
            up = FakeUpstream()
            port = free_port()
            with open("/dev/full", "wb") as full:
                p = subprocess.Popen([BIN, "gateway", "--port", str(port), "--upstream", up.url], stdout=full, stderr=full, stdin=subprocess.DEVNULL)
            try:
                end = time.time() + 30
                while time.time() < end:
                    try:
                        if call(port, "GET", "/ready")[0] == 200:
                            break
                    except OSError:
                        pass
                    time.sleep(0.05)
                load = Load(port)
                row("no room on the disk for the log", load.outcomes(), load.ms(), "-")
                self.assertEqual((load.wrong, load.kinds()), ([], {"200"}))
            finally:
                p.terminate()
                self.assertEqual(p.wait(20), 0)
                up.close()

    def test_clock_that_jumps(self):
        cc = shutil.which("cc") or shutil.which("gcc")
        if not cc:
            self.skipTest("no C compiler for the preloaded clock")
        with Rig() as rig:
            lib, clock = os.path.join(rig.folder, "clock.so"), os.path.join(rig.folder, "clock")
            subprocess.run([cc, "-shared", "-fPIC", "-o", lib, os.path.join(ROOT, "tests", "integration", "fault_preload.c")], check=True)

            def jump(seconds):
                with open(clock + ".new", "w") as f:
                    f.write(str(seconds))
                os.rename(clock + ".new", clock)
            jump(0)
            up = FakeUpstream()
            port = free_port()
            p = rig.add("gateway", [BIN, "gateway", "--port", str(port), "--upstream", up.url, "--upstream-first-byte-ms", "500", "--probe-ms", "200"],
                        {"LD_PRELOAD": lib, "DEJA_CLOCK_FILE": clock,
                         "ASAN_OPTIONS": "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")})
            p.wait_for(lambda: call(port, "GET", "/ready")[0] == 200, 60)
            q = {"model": "m", "messages": [{"role": "user", "content": "what time is it"}]}

            def asked():
                s, h, _ = call(port, "POST", "/v1/chat/completions", q)
                self.assertEqual(s, 200)
                return h["x-deja-cache"], int(h.get("age", -1))
            self.assertEqual(asked()[0], "miss")
            self.assertEqual(asked()[0], "exact")
            loads = []
            for seconds, expected in ((3600, "exact"), (-7200, "exact"), (3 * 86400, "miss"), (0, "exact")):
                jump(seconds)
                cache, age = asked()
                self.assertEqual(cache, expected, seconds)
                self.assertGreaterEqual(age, 0 if cache == "exact" else -1)
                loads.append(Load(port, requests=16))
                self.assertEqual(loads[-1].kinds(), {"200"})
                s, _, _ = call(port, "POST", "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": f"[[hang]]{seconds}"}]}, timeout=NO_HANG_S)
                self.assertEqual(s, 504)                           # time-outs go by the other clock
            row("the wall clock jumps by 1 h, -3 h, 3 days and back", "200", max((x.ms() for x in loads), key=len), "-")
            up.close()


if __name__ == "__main__":
    unittest.main()
