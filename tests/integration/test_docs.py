"""Goal: what the documents say of the program is true. Method: ask the program."""
import os
import subprocess
import sys
import unittest

from tests.integration.rig import BIN, ROOT


class Docs(unittest.TestCase):
    def test_config_md_is_what_the_option_tables_say(self):
        r = subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "make_config_docs.py"), "--check"], check=False,
                           env=dict(os.environ, DEJA_BIN=BIN))
        self.assertEqual(r.returncode, 0, "docs/config.md is stale: run scripts/make_config_docs.py")

    def test_every_command_of_the_program_is_listed_and_says_what_it_does(self):
        text = subprocess.run([BIN, "help"], stdout=subprocess.PIPE, text=True, check=True).stdout
        for command in ("up", "gateway", "engine", "judge", "functions", "probe", "version"):
            self.assertRegex(text, rf"(?m)^  {command} +\w+")
        with open(os.path.join(ROOT, "VERSION"), encoding="ascii") as f:
            version = f.read().strip()
        self.assertEqual(subprocess.run([BIN, "version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip(), "deja " + version)

    def test_what_the_readme_tells_to_run_exists(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf8") as f:
            readme = f.read()
        text = subprocess.run([BIN, "gateway", "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
        for option in ("--upstream", "--redis", "--embed-model", "--api-keys", "--cache-threshold", "--cache-ttl-s"):
            self.assertIn(option, readme)
            self.assertIn(option, text)
        for path in ("docs/design.md", "docs/config.md", "docs/speed.md", "CONTRIBUTING.md"):
            self.assertTrue(os.path.exists(os.path.join(ROOT, path)), path)


if __name__ == "__main__":
    unittest.main()
