"""Goal: ten thousand mixed requests (hits, misses, streams, clients that leave in the middle, broken JSON) lose no reply and leave the
sanitizer build's memory flat. Method: soak_gateway.py, bounded in count and time."""
import os
import subprocess
import sys
import unittest

from tests.integration.rig import BIN, ROOT

# freed memory the sanitizer holds back would look like growth
SMALL_QUARANTINE = "quarantine_size_mb=8:detect_stack_use_after_return=0"


class Soak(unittest.TestCase):
    def test_ten_thousand_mixed_requests_lose_nothing(self):
        r = subprocess.run([sys.executable, "-m", "tests.integration.soak_gateway", "--requests", "10000", "--seconds", "300"], cwd=ROOT,
                           env=dict(os.environ, DEJA_BIN=BIN, ASAN_OPTIONS=SMALL_QUARANTINE), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=400, text=True,
                           check=False)
        self.assertEqual(r.returncode, 0, r.stdout[-3000:])


if __name__ == "__main__":
    unittest.main()
