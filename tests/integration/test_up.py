"""Goal: `deja up` brings up a whole system that answers, brings back each part that is killed while requests run, loses nothing that
was stored, says in one sentence what is in its way, and ends everything it started. Method: the real program with a tiny model
in a temporary data folder; parts are found as children of the supervisor and killed by pid."""
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from tests.integration.rig import BIN, DATA, ROOT, ask, call, free_port, is_ready

CHAT, EMBED = os.path.join(DATA, "tiny-llama-mixed.gguf"), os.path.join(DATA, "tiny-bert.gguf")


def children(pid):
    """{name: pid} of the supervisor's children"""
    found = {}
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{p}/stat", encoding="ascii", errors="replace") as f:
                if int(f.read().rsplit(")", 1)[1].split()[1]) != pid:
                    continue
            with open(f"/proc/{p}/cmdline", "rb") as f:
                words = f.read().decode("utf8", "replace").split("\0")
        except (OSError, IndexError, ValueError):
            continue
        name = "redis" if "redis-server" in words[0] else words[1] if len(words) > 1 else "?"
        found[name] = int(p)
    return found


class Up(unittest.TestCase):
    def setUp(self):
        self.data = tempfile.mkdtemp(prefix="deja-up-")
        self.port, self.said = free_port(), ""

    def tearDown(self):
        pidfile = os.path.join(self.data, "deja.pid")
        if os.path.exists(pidfile):
            with open(pidfile, encoding="ascii") as f:
                pid = int(f.read())
            os.kill(pid, signal.SIGTERM)
            self.wait(lambda: not os.path.exists(f"/proc/{pid}"), 20)
        shutil.rmtree(self.data, ignore_errors=True)

    def wait(self, condition, seconds):
        end = time.time() + seconds
        while time.time() < end:
            try:
                if condition():
                    return True
            except OSError:
                pass
            time.sleep(0.05)
        return False

    def command(self, *more):
        return [BIN, "up", "--data", self.data, "--port", str(self.port), "--model", CHAT, "--embed-model", EMBED, *more]

    def detached(self, *more):
        r = subprocess.run(self.command("--detach", *more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200, check=False)
        self.said = text = r.stdout.decode("utf8", "replace")
        self.assertEqual(r.returncode, 0, text)
        self.assertIn("It answers:", text)
        self.assertIn("curl -i http://127.0.0.1:%d/v1/chat/completions" % self.port, text)
        with open(os.path.join(self.data, "deja.pid"), encoding="ascii") as f:
            return int(f.read())

    def test_every_part_comes_back_after_a_kill_and_nothing_stored_is_lost(self):
        pid = self.detached()
        # the tiny model never ends by itself, and an answer cut by max_tokens is not kept: a stop string ends it
        stored = dict(text="How do I reset my password?", stop=["g"])
        status, headers, first = ask(self.port, **stored)
        self.assertEqual((status, headers["x-deja-cache"]), (200, "miss"), first)
        time.sleep(1.5)                                # appendfsync everysec
        for part in ("redis", "engine", "gateway"):
            with self.subTest(part=part):
                self.kill_under_load(pid, part)
                status, headers, again = ask(self.port, **stored)
                self.assertEqual((status, headers["x-deja-cache"]), (200, "exact"), again)
        self.assertEqual(len(children(pid)), 3)
        os.kill(pid, signal.SIGTERM)
        self.assertTrue(self.wait(lambda: not os.path.exists(f"/proc/{pid}"), 20), "did not end after TERM")
        self.assertEqual(children(pid), {})

    def kill_under_load(self, pid, part):
        """Requests run while the part dies; each gets an answer or a clear error quickly; then everything is ready again."""
        stop, slow, odd = threading.Event(), [], []

        def client(i):
            n = 0
            while not stop.is_set():
                n, t0 = n + 1, time.time()
                try:
                    status, _, body = ask(self.port, f"{part} {i} {n}", timeout=30, max_tokens=2)
                    if status not in (200, 502, 503):
                        odd.append((status, body[:200]))
                    if status != 200 and time.time() - t0 > 3:
                        slow.append(time.time() - t0)
                except OSError:
                    if part != "gateway":              # nobody answers while the gateway itself is away
                        odd.append("connection broken")
                    time.sleep(0.05)
                except Exception as e:                 # a reply cut by the kill of the gateway
                    if part != "gateway":
                        odd.append(repr(e))
        threads = [threading.Thread(target=client, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        time.sleep(0.5)
        victim = children(pid)[part]
        os.kill(victim, signal.SIGKILL)
        back = self.wait(lambda: children(pid).get(part, victim) != victim and is_ready(self.port), 60)
        stop.set()
        for t in threads:
            t.join(60)
        self.assertTrue(back, f"{part} did not come back")
        self.assertEqual((odd, slow), ([], []))

    def test_a_part_that_does_not_end_is_ended_at_the_second_asking_and_the_others_in_order(self):
        pid = self.detached()
        gateway = children(pid)["gateway"]
        os.kill(gateway, signal.SIGSTOP)                # hangs
        os.kill(pid, signal.SIGTERM)
        time.sleep(1)
        self.assertEqual(sorted(children(pid)), ["engine", "gateway", "redis"])
        os.kill(pid, signal.SIGTERM)
        self.assertTrue(self.wait(lambda: not os.path.exists(f"/proc/{pid}"), 8), "did not end")
        with open(os.path.join(self.data, "logs", "redis.log"), encoding="utf8") as f:
            self.assertIn("Received SIGTERM", f.read())
        with open(os.path.join(self.data, "logs", "up.log"), encoding="utf8") as f:
            self.assertIn("gateway has not ended by itself", f.read())

    def test_a_start_after_a_crash_waits_for_the_redis_that_still_writes(self):
        pid = self.detached()
        lock = os.path.join(self.data, "deja.lock")
        held = {name: [f for f in os.listdir(f"/proc/{p}/fd") if os.path.realpath(f"/proc/{p}/fd/{f}") == lock] for name, p in children(pid).items()}
        self.assertEqual({name for name in held if held[name]}, {"redis"})
        os.kill(pid, signal.SIGTERM)
        self.assertTrue(self.wait(lambda: not os.path.exists(f"/proc/{pid}"), 20))
        with open(os.path.join(self.data, "deja.pid"), "w", encoding="ascii") as f:
            f.write(f"{pid}\n")                          # as a crash leaves it
        began = time.time()
        with subprocess.Popen(["flock", lock, "sleep", "3"]) as redis:
            self.assertTrue(self.wait(lambda: subprocess.run(["flock", "-n", lock, "true"], check=False).returncode != 0, 5))
            self.detached()
            self.assertGreater(time.time() - began, 2.5)
            self.assertEqual(redis.wait(5), 0)

    def test_who_does_not_answer_in_time_is_ended_with_the_last_words_of_each_part(self):
        with socket.socket() as mute:                   # takes calls and never answers
            mute.bind(("127.0.0.1", 0))
            mute.listen(64)
            began = time.time()
            r = subprocess.run([BIN, "up", "--data", self.data, "--port", str(self.port), "--upstream", f"http://127.0.0.1:{mute.getsockname()[1]}/v1",
                                "--ready-s", "5"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
        text = r.stdout.decode("utf8", "replace")
        self.assertEqual(r.returncode, 1, text)
        self.assertIn("not ready after 5 s (--ready-s); the last words of each part:", text)
        self.assertIn("  gateway: ", text)
        self.assertLess(time.time() - began, 30)
        self.assertFalse(os.path.exists(os.path.join(self.data, "deja.pid")))

    def test_a_process_number_left_behind_by_a_crash_is_not_signalled(self):
        other = subprocess.Popen(["sleep", "60"])
        self.addCleanup(lambda: (other.kill(), other.wait()))
        for name, text in (("deja.pid", f"{other.pid}\n"), ("deja.lock", "")):
            with open(os.path.join(self.data, name), "w", encoding="ascii") as f:
                f.write(text)
        r = subprocess.run([os.path.join(ROOT, "dev"), "down", "--data", self.data], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False)
        self.assertEqual((r.returncode, b"not running any more" in r.stdout), (0, True), r.stdout)
        self.assertIsNone(other.poll())

    def test_one_of_two_engines_may_compute_prompts_for_the_other(self):
        self.refused("prefill_engines", *self.command("--engines", "2", "--prefill-engines", "2"))
        self.detached("--engines", "2", "--prefill-engines", "1")
        n = itertools.count()

        def routed():
            text = f"{next(n)} " + " ".join(f"w{k}x{k}" for k in range(40))
            status, headers, body = ask(self.port, text, max_tokens=2)
            self.assertEqual(status, 200, body)
            return "prefill=" in headers.get("x-deja-route", "")
        self.assertTrue(self.wait(routed, 60), "no prompt was computed by the prefill engine")

    def test_a_gateway_with_api_keys_is_asked_with_the_first_and_the_printed_command_works(self):
        keys, conf = os.path.join(self.data, "keys"), os.path.join(self.data, "gateway.conf")
        with open(keys, "w", encoding="utf8") as f:
            f.write("# who may ask\nsk-first a\nsk-b b\n")
        with open(conf, "w", encoding="utf8") as f:
            f.write(f"api_keys {keys}\nadmin_key boss\n")
        pid = self.detached("--gateway-config", conf)
        self.assertNotIn("sk-first", self.said)
        command = self.said[self.said.index("DEJA_API_KEY="):self.said.index("Ask twice")]
        r = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
        self.assertIn("HTTP/1.1 200", r.stdout, command + r.stderr)
        self.assertEqual(call(self.port, "GET", "/v1/models")[0], 401)
        self.assertEqual(call(self.port, "GET", "/admin/config", headers={"Authorization": "Bearer boss"})[0], 200)
        os.kill(pid, signal.SIGTERM)
        self.assertTrue(self.wait(lambda: not os.path.exists(f"/proc/{pid}"), 20))
        r = subprocess.run(self.command("--gateway-config", conf, "--api-key", "sk-none"), capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((r.returncode, (r.stdout + r.stderr).strip().splitlines()[-1]),
                         (1, "the gateway asks for an API key: give one of its table with --api-key"))
        self.detached("--gateway-config", conf, "--api-key", "sk-b")
        self.assertIn("DEJA_API_KEY=...", self.said)

    def test_a_gateway_that_refuses_its_configuration_is_not_started_again(self):
        conf = os.path.join(self.data, "gateway.conf")
        with open(conf, "w", encoding="utf8") as f:
            f.write("no_such_option 1\n")
        r = subprocess.run(self.command("--gateway-config", conf), capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(r.returncode, 1, r.stdout)
        self.assertRegex(r.stdout.strip().splitlines()[-1], "deja up: gateway does not start: .*no_such_option")
        self.assertNotIn("starting it again", r.stdout + r.stderr)
        with open(os.path.join(self.data, "logs", "gateway.log"), encoding="utf8") as f:
            self.assertEqual(f.read().count("no_such_option"), 1)

    def test_the_settings_command_it_prints_works_as_printed(self):
        self.detached()
        command = re.search(r"redis-cli -s \S+ FCALL deja_help 0", self.said).group(0)
        r = subprocess.run(command.split(), capture_output=True, text=True, timeout=30, check=False)
        self.assertIn("deja_config_set", r.stdout, r.stderr)

    def test_what_is_in_the_way_is_said_in_one_sentence(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", self.port))
            s.listen(1)
            self.refused(f"port {self.port} is in use", *self.command())
        self.refused("no-such.gguf", BIN, "up", "--data", self.data, "--model", "/no-such.gguf")
        self.refused("--data FOLDER is missing", BIN, "up", "--model", CHAT)
        self.refused("--upstream URL", BIN, "up", "--data", self.data)
        self.refused("nonsense", BIN, "up", "--nonsense", "1")
        self.refused("cannot make the folder", BIN, "up", "--data", "/proc/no/such", "--model", CHAT, "--port", str(self.port))

    def refused(self, words, *argv):
        r = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False)
        text = r.stdout.decode("utf8", "replace")
        self.assertNotEqual(r.returncode, 0, text)
        self.assertIn(words, text)
        self.assertEqual(len(text.strip().splitlines()), 1, text)

    def test_a_second_start_on_the_same_folder_names_the_first(self):
        pid = self.detached()
        other = self.port
        words = f"already running with the data folder {self.data} (process {pid}); `./dev down`"
        self.refused(words, *self.command())
        self.port = free_port()
        self.refused(words, *self.command())
        self.port = other
        self.assertTrue(is_ready(self.port))
        self.assertEqual(call(self.port, "GET", "/v1/models")[0], 200)


if __name__ == "__main__":
    unittest.main()
