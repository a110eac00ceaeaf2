"""Goal: a remote embedder's reply counts only when every text got its own vector. Method: a server of this file that answers in order, out
of order, with an index twice or with one vector too few (a real one cannot be made to); the gateway's header says what came of it."""
import json
import os
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.integration.rig import DATA, Rig, ask

MODE = {"now": "right"}


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def do_POST(self):
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        rows = [{"index": i, "embedding": [3.0, 4.0]} for i in range(len(texts))]
        if MODE["now"] == "twice":
            rows.append(dict(rows[0]))
        if MODE["now"] == "few":
            rows.pop()
        if MODE["now"] == "beyond":
            rows[0]["index"] = len(texts)
        body = json.dumps({"object": "list", "data": rows[::-1]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class RemoteEmbedder(unittest.TestCase):
    def test_a_reply_without_one_vector_for_each_text_is_no_embedding(self):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with Rig() as rig:
                rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"))
                rig.gateway("--engine-url", f"http://127.0.0.1:{rig.engine_port}", "--embed-model",
                            f"http://127.0.0.1:{server.server_port}/v1#m", "--cache-embed-deadline-ms", "2000")
                self.assertEqual(ask(rig.port, "How do I reset my password?", stop=["g"])[0], 200)
                time.sleep(1)                          # its vector is on its way
                for mode in ("twice", "few", "beyond"):
                    MODE["now"] = mode
                    headers = ask(rig.port, f"How can I reset my {mode} password?", stop=["g"])[1]
                    self.assertEqual(headers["x-deja-reason"], "embedder_unavailable", mode)
                MODE["now"] = "right"
                headers = ask(rig.port, "How can I reset my password?", stop=["g"])[1]
                self.assertEqual(headers["x-deja-cache"], "semantic", headers)
        finally:
            server.shutdown()
            server.server_close()


if __name__ == "__main__":
    unittest.main()
