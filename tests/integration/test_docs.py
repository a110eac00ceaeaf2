"""Goal: what the documents say of the program is true. Method: ask the program."""
import glob
import os
import re
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

    def test_every_option_the_documents_name_exists_and_no_help_says_a_thing_twice(self):
        with open(os.path.join(ROOT, "docs", "config.md"), encoding="utf8") as f:
            config = f.read()
        self.assertNotIn("may be given again (may be given again)", config)
        known = {"kv-events-config", "data-binary"}  # vLLM's and curl's
        for path in [os.path.join(ROOT, "dev"), *glob.glob(os.path.join(ROOT, "**", "*.*"), recursive=True)]:
            relative = os.path.relpath(path, ROOT)
            if not relative.startswith("build") and (relative == "dev" or path.endswith((".c", ".py", ".sh"))) and relative != "tests/integration/test_docs.py":
                with open(path, encoding="utf8") as f:
                    text = f.read()
                known |= set(re.findall(r"--([a-z][a-z0-9-]+)", text))
                known |= {name.replace("_", "-") for name in re.findall(r'\{"([a-z0-9_]+)",\s*CONF_', text)}
        known |= {"no-" + name for name in known}
        for path in [os.path.join(ROOT, "README.md"), *glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)]:
            if os.path.basename(path) == "config.md":  # made from the tables, aliases included
                continue
            with open(path, encoding="utf8") as f:
                named = set(re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", f.read()))
            self.assertEqual(named - known, set(), f"{os.path.relpath(path, ROOT)} names options that nothing has")


if __name__ == "__main__":
    unittest.main()
