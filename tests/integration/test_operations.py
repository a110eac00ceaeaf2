"""Goal: every command of docs/operations.md works as it stands there and answers as it is shown. Method: its shell blocks run in order in one
bash, on a real redis-server and a gateway; the lines shown after a block must come, numbers and ids aside."""
import os
import re
import subprocess
import unittest

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.rig import BIN, DATA, ROOT, Rig

MARK = "=== block "


def blocks():
    """[(kind, text)] of the fenced blocks."""
    with open(os.path.join(ROOT, "docs", "operations.md"), encoding="utf8") as f:
        return re.findall(r"^```(\w+(?: \w+)?)\n(.*?)^```$", f.read(), re.M | re.S)


def pattern(line):
    """The line with ids, numbers and times left open."""
    text = re.sub(r"[0-9a-f]{12,32}", "\x00", line)
    text = re.sub(r"\d+(?:[.,]\d+)*", "\x01", text)
    return re.escape(text).replace("\x00", "[0-9a-f]+").replace("\x01", r"[\d.,]+")


class Operations(unittest.TestCase):
    def test_every_command_of_the_document_works_and_answers_as_shown(self):
        rig, fake = Rig(), FakeUpstream()
        self.addCleanup(fake.close)
        self.addCleanup(rig.close)
        rig.redis()
        rig.gateway("--upstream", fake.url, "--redis", rig.redis_url, "--embed-model", os.path.join(DATA, "tiny-bert.gguf"), "--admin-key", "k",
                    "--cache-redis-deadline-ms", "1000", "--cache-embed-deadline-ms", "5000")
        script = [f"R='redis-cli -s {rig.redis_socket}'", f"REDIS={rig.redis_url}", f"cd {rig.folder}", f"deja() {{ {BIN} \"$@\"; }}", f"G=http://127.0.0.1:{rig.port}", "ADMIN_KEY=k"]
        expected, n = {}, 0
        for kind, text in blocks():
            if kind.startswith("sh") and kind not in ("sh setup", "sh start"):
                n += 1
                commands = re.sub(r"\\\n *", "", text).splitlines()
                checks = [f"{c} || {{ echo 'FAILED: {n}'; exit 1; }}" if not re.match(r"\w+\(\)|    -d|for ", c) else c for c in commands]
                script += [f"echo '{MARK}{n} {kind}'"] + checks
            elif kind == "text":
                expected[n] = text.splitlines()
        r = subprocess.run(["bash", "-c", "\n".join(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
        self.assertEqual(r.returncode, 0, r.stdout)
        seen = dict(re.findall(rf"^{MARK}(\d+ [\w ]+)\n(.*?)(?=^{MARK}|\Z)", r.stdout, re.M | re.S))
        self.assertEqual(len(seen), n)
        for name, output in seen.items():
            if not name.endswith("refused"):
                self.assertNotRegex(output, r"(?m)^(\(error\) )?(ERR|WRONG|NOSCRIPT)|\"error\"", name)
            for line in expected.get(int(name.split()[0]), []):
                self.assertRegex(output, rf"(?m)^{pattern(line)}$", f"block {name}")
        self.assertGreater(len(expected), 5)
        self.assertTrue(all(c["json"].get("model") == "m" for c in fake.calls if c["path"].endswith("/chat/completions")), "the model the gateway lists was not taken")
        commands = " ".join(text for kind, text in blocks() if kind.startswith("sh"))
        for function in ("config_set", "config_get", "config_history", "config_rollback", "stats", "review", "feedback", "forget", "wording",
                         "experiment_start", "experiment_report", "experiment_stop", "limit_status", "limit_reset", "help"):
            self.assertIn("deja_" + function, commands)

    def test_ask_shows_a_status_that_is_not_200_and_sends_the_key_it_is_given(self):
        rig, fake = Rig(), FakeUpstream()
        self.addCleanup(fake.close)
        self.addCleanup(rig.close)
        start = next(text for kind, text in blocks() if kind == "sh start").replace("./dev", "true ./dev")
        define = next(text for kind, text in blocks() if kind == "sh")
        subprocess.run(["bash", "-ec", f"cd {rig.folder}\n{start}"], check=True, timeout=20)
        rig.gateway("--upstream", fake.url, "--config", os.path.join(rig.folder, "gateway.conf"), ready=False)
        for before, after, want in (("DEJA_API_KEY=sk-ana", "", r"\Ax-deja-cache: "), ("DEJA_API_KEY=", "", r"\AHTTP/1.1 401 "),
                                    ("DEJA_API_KEY=sk-ana", "MODEL=", r"\AHTTP/1.1 40[04] ")):
            script = f"G=http://127.0.0.1:{rig.port}\n{before}\n{define}\n{after}\nask 'Is anybody there?'"
            r = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=False)
            self.assertRegex(r.stdout, want, before + after + r.stderr)


if __name__ == "__main__":
    unittest.main()
