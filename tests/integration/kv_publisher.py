#!/usr/bin/env python3
"""Publishes KV events as vLLM and SGLang do: PUB with [topic, number, MessagePack batch], ROUTER for replays. Needs pyzmq and msgpack. Reads
one JSON object a line: {"number": n, "events": [...], "silent": false} with events as lists (tag first) or objects with a "type"; byte
strings are {"hex": "..."}. Prints `ports PUB REPLAY` first, then `done` after each line. silent: kept for replays only."""
import json
import sys
import threading

import msgpack
import zmq


def unhex(value):
    if isinstance(value, dict) and set(value) == {"hex"}:
        return bytes.fromhex(value["hex"])
    if isinstance(value, dict):
        return {k: unhex(v) for k, v in value.items()}
    return [unhex(v) for v in value] if isinstance(value, list) else value


def main():
    context, kept, lock = zmq.Context(), [], threading.Lock()
    pub, replay = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
    ports = pub.bind_to_random_port("tcp://127.0.0.1"), replay.bind_to_random_port("tcp://127.0.0.1")

    def serve():
        while True:
            who, empty, start = replay.recv_multipart()
            with lock:
                send = [(n, b) for n, b in kept if n >= int.from_bytes(start, "big")]
            for n, batch in send:
                replay.send_multipart([who, empty, n.to_bytes(8, "big"), batch])
            replay.send_multipart([who, empty, (-1).to_bytes(8, "big", signed=True), b""])

    threading.Thread(target=serve, daemon=True).start()
    print("ports", *ports, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        batch = msgpack.packb([1.5, unhex(order["events"]), 0])
        with lock:
            kept.append((order["number"], batch))
        if not order.get("silent"):
            pub.send_multipart([b"kv@pod@m", order["number"].to_bytes(8, "big"), batch])
        print("done", flush=True)


if __name__ == "__main__":
    main()
