#!/usr/bin/env python3
"""Twice what an upstream takes, for a minute, over the real gateway: three tenants of weight 1, 1 and 2 that each ask for far more than their
share (arrivals at random, whoever is refused does not come again), first alone, then beside a flood of batch work. Checks the shares, what the
flood costs the others, what the batch class gets, and that who is refused was refused before any work and told when to come back.

  bench_overload.py [--seconds 60] [--slots 20] [--service-ms 200] [--wait-ms 2000] [--json]

The upstream (load_rig.py) takes `slots` calls at a time and `service-ms` for each. Exit status 1 when a must is not met."""
import asyncio
import collections
import itertools
import os
import random
import statistics
import sys
import time

from load_rig import Client, Programs, Upstream, bench_main, percentile, question, until_ready
from machine import cpu_s, free_port

WEIGHTS = {"a": 1, "b": 1, "c": 2}
BATCH_PERCENT, SETTLE_S, WINDOW_S = 10, 8, 5


class Phase:
    """What came of the requests that began in one part of the run."""

    def __init__(self):
        self.served, self.took, self.ended, self.when = collections.Counter(), [], [], collections.defaultdict(list)
        self.refused, self.bad = [], collections.Counter()


class Load:
    def __init__(self, o, port, up):
        self.o, self.port, self.up = o, port, up
        self.clients = {t: Client(port) for t in "abcd"}
        self.rng, self.numbers, self.tasks = random.Random(7), itertools.count(), set()
        self.phase, self.counting = Phase(), False

    async def one(self, tenant):
        name = f"{next(self.numbers):x}q"
        reply = await self.clients[tenant].ask(question(name), [("Authorization", f"Bearer sk-{tenant}")], timeout_s=120)
        phase = self.phase
        if not self.counting:
            return reply
        if reply.status == 200 and reply.text()[0].startswith(name + ".0"):
            phase.served[tenant] += 1
            phase.when[tenant].append(time.monotonic())
            if tenant != "d":
                phase.took.append(reply.took_s)
                phase.ended.append((time.monotonic(), reply.took_s))
        elif reply.status in (429, 503):
            phase.refused.append((name, tenant, int(reply.headers.get("retry-after", 0)), reply.took_s))
        else:
            phase.bad[f"{tenant} {reply.status} {reply.why}"] += 1
        return reply

    async def arrivals(self, tenant, rate, end):
        at = time.monotonic()
        while at < end:
            at += self.rng.expovariate(rate)                 # by the clock, so that a busy machine does not ask less
            await asyncio.sleep(max(0, at - time.monotonic()))
            self.asked[tenant] += self.counting
            task = asyncio.create_task(self.one(tenant))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def flood(self, end):
        while time.monotonic() < end:
            if (await self.one("d")).status != 200:
                await asyncio.sleep(0.2)

    async def run(self, seconds, batch_clients):
        """The phase's numbers; the first seconds, before everybody waits, do not count."""
        capacity = self.o.slots / (self.o.service_ms / 1000)
        end = time.monotonic() + SETTLE_S + seconds
        work = [self.arrivals(t, 2 * capacity * w / sum(WEIGHTS.values()), end) for t, w in WEIGHTS.items()]
        work += [self.flood(end) for _ in range(batch_clients)]
        self.phase, self.counting, self.asked = Phase(), False, collections.Counter()
        running = asyncio.gather(*work)
        await asyncio.sleep(SETTLE_S)
        self.counting, began = True, time.monotonic()
        await asyncio.sleep(seconds)
        self.counting = False
        self.phase.span, self.phase.asked = (began, time.monotonic()), sum(self.asked.values()) / (time.monotonic() - began)
        await running
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=60)
        return self.phase


def least_share(phase):
    """The least share of the served that batch had in a window of WINDOW_S."""
    began, end = phase.span
    least, at = 1.0, began
    while at + WINDOW_S <= end:
        n = {t: sum(at <= x < at + WINDOW_S for x in phase.when[t]) for t in "abcd"}
        least = min(least, n["d"] / max(1, sum(n.values())))
        at += WINDOW_S
    return least


def window_p99s(phase):
    """p99 of the online requests that ended in each window: a stall of the machine spoils one."""
    by_window = collections.defaultdict(list)
    for at, took in phase.ended:
        by_window[int((at - phase.span[0]) / WINDOW_S)].append(took)
    return [percentile(v, 0.99) for v in by_window.values()] or [0.0]


def tell(rows, alone, beside, up, o):
    online = sum(beside.served[t] for t in WEIGHTS)
    capacity = o.slots / (o.service_ms / 1000)
    for phase, what in ((alone, "no batch"), (beside, "batch flood")):
        n = sum(phase.served[t] for t in WEIGHTS)
        rows.row(f"{what}: asked online, of what the upstream takes", phase.asked / capacity, "", ">= 1.9")
        for t, w in WEIGHTS.items():
            share = phase.served[t] / max(1, n)
            rows.row(f"{what}: tenant {t} of weight {w}, share beside what is due", share / (w / 4), "", ">= 0.9")
            rows.row(f"{what}: the same", share / (w / 4), "", "<= 1.1")
    seconds = beside.span[1] - beside.span[0]
    total = online + beside.served["d"]
    rows.row("served, of what the upstream takes", total / seconds / capacity, "", ">= 0.9")
    rows.row("batch's share of what was served, least in 5 s", least_share(beside) * 100, "%", f">= {BATCH_PERCENT * 0.9:.1f}")
    rows.row("batch's share in all", beside.served["d"] / max(1, total) * 100, "%")
    p99 = [percentile(p.took, 0.99) for p in (alone, beside)]
    rows.row("online p99 without batch", p99[0], "s")
    rows.row("online p99 beside the flood, of that without", p99[1] / max(1e-9, p99[0]), "", "<= 1.1")
    windows = [statistics.median(window_p99s(p)) for p in (alone, beside)]
    rows.row("the same, median of windows of 5 s", windows[1] / max(1e-9, windows[0]))
    rows.row("online p50 beside the flood, of that without", percentile(beside.took, 0.5) / max(1e-9, percentile(alone.took, 0.5)))
    refused = alone.refused + beside.refused
    rows.row("refused", len(refused))
    rows.row("refused and yet asked of the upstream", sum(up.asked[name] > 0 for name, *_ in refused), "", "== 0")
    rows.row("refused without retry-after", sum(after < 1 for _, _, after, _ in refused), "", "== 0")
    rows.row("told so, p99", percentile([took for *_, took in refused], 0.99), "s")
    rows.row("neither served nor refused", sum((alone.bad + beside.bad).values()), "", "== 0")
    rows.row("calls beyond what the upstream takes", up.over, "", "== 0")
    for what, n in (alone.bad + beside.bad).items():
        print(f"# {n} x {what}", file=sys.stderr)


async def measure(o, rows):
    up, programs, port = Upstream(o.slots, o.service_ms / 1000), Programs(), free_port()
    try:
        await up.start()
        keys = os.path.join(programs.folder, "keys")
        with open(keys, "w", encoding="utf8") as f:
            f.write("".join(f"sk-{t} {t} weight={w}\n" for t, w in WEIGHTS.items()) + "sk-d d class=batch\n")
        gateway = programs.gateway("gateway", port, "--upstream", f"http://127.0.0.1:{up.port}/v1 max_concurrency={o.slots}", "--api-keys", keys,
                                   "--queue-wait-ms", str(o.wait_ms), "--queue-batch-percent", str(BATCH_PERCENT))
        await until_ready(port, "the gateway")
        load = Load(o, port, up)
        alone = await load.run(max(20, o.seconds // 2), 0)
        beside = await load.run(o.seconds, 8 * o.slots)
        rows.row("gateway's CPU time", cpu_s(gateway.pid), "s")
        rows.row("load average", os.getloadavg()[0])
        tell(rows, alone, beside, up, o)
    finally:
        up.kill()
        programs.close()


if __name__ == "__main__":
    sys.exit(bench_main(measure, seconds=60, slots=20, service_ms=200, wait_ms=2000))
