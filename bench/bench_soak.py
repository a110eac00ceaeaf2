#!/usr/bin/env python3
"""Half an hour of what happens to gateways: two of them on one Redis, two upstreams of fixed capacity, 70 % load of fresh, repeated, twin,
streamed and batch questions through every door (chat, responses, messages), conversations that go on from a kept answer, clients that read
slowly and clients that leave, and a fault about every half minute: Redis restarted, killed or frozen; one upstream or both killed, hanging,
resetting, answering 429, 500 or rubbish; a gateway restarted. Checks that every client gets exactly one reply, its own, whole or with an error
that says so; that between faults nobody sees one; that memory and descriptors stay flat.

  bench_soak.py [--minutes 30] [--rate 28] [--slots 10] [--service-ms 500] [--seed N] [--json]

rate: fresh upstream calls a second; slots and service-ms are of each of the two upstreams (defaults: 28 of 40 = 70 %). Exit status 1 when a must is not met."""
import asyncio
import collections
import itertools
import os
import random
import signal
import statistics
import sys
import time

from load_rig import Client, Programs, Upstream, answer_of, bench_main, door_question, get, percentile, question, until_ready
from machine import cpu_s, fds, free_port, rss_mb

PATIENCE_S, GRACE_S, QUIET_S, BACKLOG_S = 60, 4, 14, 20
# This program itself was late by so much: upstreams took longer than they should, for a while; and by so much in all: nothing got any CPU.
LATE_S, LATE_COUNTS_S, STALL_S = 0.1, 12, 3
KNOWN = 400                                                  # questions that are asked again and again
UPSTREAM_FAULTS = ("hang", "hangmid", "reset", "429", "500", "garbage")


class Soak:
    def __init__(self, o, programs, ups, ports):
        self.o, self.programs, self.ups, self.ports = o, programs, ups, ports
        self.rng, self.numbers = random.Random(o.seed), itertools.count()
        self.clients = [Client(p) for p in ports]
        self.done, self.outcomes, self.problems = collections.Counter(), collections.Counter(), []
        self.doors, self.kept = collections.Counter(), 0
        self.tasks, self.took, self.split, self.split_busy = set(), [], [], []
        self.fault, self.last_fault, self.fault_end, self.faults = None, "the start", time.monotonic(), collections.Counter()
        self.down = None                                     # the gateway that is restarted now, by number
        self.samples, self.late_until, self.late_s, self.busy, self.stalled = [], 0.0, 0, 0, 0

    # --- clients
    def name(self):
        return f"{next(self.numbers):x}z"

    def in_fault(self, began):
        return self.fault is not None or began < self.fault_end + GRACE_S

    def problem(self, kind, text):
        when = f"in fault {self.fault}" if self.fault else f"{time.monotonic() - self.fault_end:.1f} s after {self.last_fault}"
        self.problems.append(f"{kind}, {when}: {text}")
        if len(self.problems) <= 25:
            print("# PROBLEM", self.problems[-1], file=sys.stderr, flush=True)

    def judge(self, kind, name, reply, began, late_then):
        """Counts what came of one request; a problem is what may never be."""
        self.done[kind] += 1
        if reply.status == 0:
            outcome = "no reply"
        elif reply.status == 200:
            said, end = reply.text()
            whole = "".join(answer_of(name))
            if end == "done" and said == whole:
                outcome = "whole"
                if not self.in_fault(began):
                    self.took.append(reply.took_s)
            elif end == "error" and whole.startswith(said):
                outcome = "begun, then an error event"
            else:
                outcome = "wrong"
                self.problem(kind, f"{name}: ended {end}, {said[:80]!r} (x-deja-cache {reply.headers.get('x-deja-cache')})")
        else:
            outcome = str(reply.status)
            if b'"error"' not in reply.body:
                self.problem(kind, f"{name}: {reply.status} {reply.body[:80]!r}")
        self.outcomes[outcome] += 1
        if outcome == "no reply" and self.late_s - late_then > STALL_S:
            self.stalled += 1                                # nobody here got any CPU for that long: time-outs of all kinds are over
        elif outcome == "no reply" and self.down is None:
            self.problem(kind, f"{name}: no reply: {reply.why}")
        elif outcome not in ("whole", "wrong", "no reply") and not self.in_fault(began) and time.monotonic() < self.late_until:
            self.busy += 1                                   # an honest refusal or time-out: the upstreams live in this program
        elif outcome not in ("whole", "wrong", "no reply") and not self.in_fault(began):
            self.problem(kind, f"{name}: {outcome} without a fault: {reply.body[:120]!r}")

    async def one(self, kind, name, stream=False, where=None, headers=(), read_pause_s=0, door=None, **more):
        door = door or self.rng.choices(("chat", "responses", "messages"), (6, 2, 2))[0]
        self.doors[door] += 1
        if where is None:
            where = self.rng.randrange(len(self.ports))
        if where == self.down:
            where = (where + 1) % len(self.ports)            # as a load balancer would
        began, late_then = time.monotonic(), self.late_s
        body = door_question(door, name, stream, **more)
        reply = await self.clients[where].ask(body, headers, PATIENCE_S, read_pause_s, door)
        if reply.status == 0 and self.restarted_since(where, began):
            reply = await self.clients[1 - where].ask(body, headers, PATIENCE_S, 0, door)
        self.judge(kind, name, reply, began, late_then)
        return reply

    def restarted_since(self, where, began):
        return self.down == where or began < getattr(self, "down_until", {}).get(where, 0)

    async def fresh(self):
        await self.one("fresh", self.name())

    async def stream(self):
        await self.one("stream", self.name(), True)

    async def known(self):
        await self.one("known", f"k{self.rng.randrange(KNOWN)}z", self.rng.random() < 0.4)

    async def twins(self):
        """The same question at the same time at both gateways: one call."""
        name = self.name().replace("z", "t")
        began = time.monotonic()
        await asyncio.gather(*(self.one("twins", name, self.rng.random() < 0.5, i % len(self.ports)) for i in range(4)))
        if sum(up.finished[name] for up in self.ups) > 1 and not self.in_fault(began):
            (self.split_busy if time.monotonic() < self.late_until else self.split).append(name)

    async def conversation(self):
        """An answer of /v1/responses is gone on from, at either gateway."""
        first = await self.one("conversation", self.name(), self.rng.random() < 0.5, door="responses")
        if first.status == 200 and first.text()[1] == "done" and (previous := first.response_id()):
            self.kept += 1
            await self.one("conversation", self.name(), self.rng.random() < 0.5, door="responses", previous_response_id=previous)

    async def slow(self):
        await self.one("slow reader", self.name(), True, read_pause_s=0.15)

    async def batch(self):
        await self.one("batch", self.name(), headers=[("x-deja-priority", "batch")])

    async def leaver(self):
        self.done["leaver"] += 1
        where = self.rng.randrange(len(self.ports))
        await self.clients[where].leave(question(self.name(), self.rng.random() < 0.6), self.rng.random() * 1.5 * self.o.service_ms / 1000)

    async def broken(self):
        where = self.rng.randrange(len(self.ports))
        if where == self.down:
            return
        began, late_then = time.monotonic(), self.late_s
        reply = await self.clients[where].ask(self.rng.choice([b"{", b"[]", b'{"model":"m"}', b"nonsense" * 20]))
        self.done["broken"] += 1
        self.outcomes[str(reply.status)] += 1
        if reply.status == 0 and self.late_s - late_then > STALL_S:
            self.stalled += 1
        elif reply.status != 400 and not self.restarted_since(where, began):
            self.problem("broken", f"{reply.status} {reply.why}")

    async def traffic(self, end):
        """Arrivals at random; the weights are upstream calls a round (a conversation makes two), and as many hits."""
        mix = [(self.fresh, 24), (self.stream, 26), (self.conversation, 5), (self.twins, 10), (self.slow, 10), (self.batch, 12), (self.leaver, 8), (self.known, 100), (self.broken, 4)]
        calls = sum(2 * n if f == self.conversation else n for f, n in mix if f not in (self.known, self.broken))
        rate, at = self.o.rate * sum(n for _, n in mix) / calls, time.monotonic()
        while at < end:
            at += self.rng.expovariate(rate)
            await asyncio.sleep(max(0, at - time.monotonic()))
            task = asyncio.create_task(self.rng.choices(*zip(*mix))[0]())
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    # --- faults
    async def redis_restart(self):
        self.programs.stop("redis")
        await asyncio.sleep(1)
        self.programs.redis()

    async def redis_kill(self):
        self.programs.stop("redis", signal.SIGKILL)
        await asyncio.sleep(2)
        self.programs.redis()

    async def redis_frozen(self):
        self.programs.children["redis"].send_signal(signal.SIGSTOP)
        await asyncio.sleep(3)
        self.programs.children["redis"].send_signal(signal.SIGCONT)

    async def upstream_killed(self):
        up = self.rng.choice(self.ups)
        up.kill()
        await asyncio.sleep(4)
        await up.start()

    async def upstream(self):
        up, fault = self.rng.choice(self.ups), self.rng.choice(UPSTREAM_FAULTS)
        self.fault += f" {fault} one"
        up.fault = fault
        await asyncio.sleep(5)
        up.fault = None

    async def upstreams(self):
        fault = self.rng.choice(UPSTREAM_FAULTS)
        self.fault += f" {fault} both"
        for up in self.ups:
            up.fault = fault
        await asyncio.sleep(3)
        for up in self.ups:
            up.fault = None

    async def gateway_restart(self):
        i = self.rng.randrange(len(self.ports))
        self.down = i
        await asyncio.sleep(0.2)
        p = self.programs.children.pop(f"gateway{i}")
        p.terminate()
        while p.poll() is None:
            await asyncio.sleep(0.05)
        if p.returncode:
            self.problem("gateway", f"ended with status {p.returncode}: {self.programs.log_tail(f'gateway{i}')}")
        self.clients[i].close()
        self.start_gateway(i)
        await until_ready(self.ports[i], "the restarted gateway")
        self.down_until = {**getattr(self, "down_until", {}), i: time.monotonic()}
        self.down = None

    async def disturb(self, end):
        """One fault after another, in rounds of all kinds; at the end of each the gateways must be ready again. A gateway is restarted in the first
        rounds only, so that what memory comes to is seen on old processes."""
        kinds = [self.redis_restart, self.redis_kill, self.redis_frozen, self.upstream_killed, self.upstream, self.upstreams, self.upstream]
        began, todo = time.monotonic(), []
        while time.monotonic() < end - 2 * QUIET_S:
            await asyncio.sleep(QUIET_S)
            if not todo:
                todo = kinds + ([self.gateway_restart] if time.monotonic() - began < 0.25 * (end - began) else [])
                self.rng.shuffle(todo)
            kind = todo.pop()
            self.fault = kind.__name__.replace("_", " ")
            await kind()
            self.faults[self.fault] += 1
            for port in self.ports:
                await until_ready(port, f"a gateway after {self.fault}")
            self.fault, self.last_fault, self.fault_end = None, self.fault, time.monotonic()
            if kind == self.gateway_restart:                 # the other one had more than it can bear alone, and works that off
                self.fault_end += BACKLOG_S

    # --- the programs
    def start_gateway(self, i):
        up = [x for u in self.ups for x in ("--upstream", f"http://127.0.0.1:{u.port}/v1 max_concurrency={u.slots // len(self.ports)}")]
        self.programs.gateway(f"gateway{i}", self.ports[i], "--redis", "unix:" + self.programs.socket, *up, "--embed-model", f"http://127.0.0.1:{self.ups[0].port}/v1#e",
                              "--upstream-first-byte-ms", "3000", "--upstream-idle-ms", "2000", "--upstream-connect-ms", "500", "--probe-ms", "500",
                              "--breaker-open-ms", "500", "--queue-wait-ms", "10000", "--keep-after-gone-ms", "2000",
                              "--cache-ttl-s", "60", "--stale-if-error-s", "0", "--cache-memory-bytes-max", "4194304", "--cache-entries-max", "4000")

    async def watch(self, end):
        while time.monotonic() < end:
            await asyncio.sleep(5)
            for i in range(len(self.ports)):
                p = self.programs.children.get(f"gateway{i}")
                if p is None or self.fault or self.down is not None:
                    continue
                if p.poll() is not None:
                    self.problem("gateway", f"ended by itself with {p.returncode}: {self.programs.log_tail(f'gateway{i}')}")
                    return
                self.samples.append((time.monotonic(), i, rss_mb(p.pid), os.getloadavg()[0]))

    async def lateness(self, end):
        while time.monotonic() < end:
            at = time.monotonic()
            await asyncio.sleep(0.05)
            late = time.monotonic() - at - 0.05
            if late > LATE_S:
                self.late_until = time.monotonic() + LATE_COUNTS_S
                self.late_s += late

    async def run(self):
        end = time.monotonic() + self.o.minutes * 60
        await asyncio.gather(self.traffic(end), self.disturb(end), self.watch(end), self.progress(end), self.lateness(end))
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=PATIENCE_S + 5)
        for c in self.clients:
            c.close()

    async def progress(self, end):
        while time.monotonic() < end - 60:
            await asyncio.sleep(60)
            print(f"# {(end - time.monotonic()) / 60:.0f} min left; {sum(self.done.values())} requests, {len(self.problems)} problems; "
                  f"memory {[round(s[2], 1) for s in self.samples[-2:]]} MB, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)

    async def rest(self):
        """Seconds until nothing is in flight any more."""
        began = time.monotonic()
        while time.monotonic() - began < 30:
            texts = [(await get(p, "/metrics"))[1].decode() for p in self.ports]
            left = sum(float(x.split()[-1]) for t in texts for x in t.splitlines() if x.startswith(("deja_upstream_inflight", "deja_queue_waiting", "deja_queue_working")))
            left += sum(float(x.split()[-1]) - 1 for t in texts for x in t.splitlines() if x.startswith("deja_inflight "))
            if left == 0:
                break
            await asyncio.sleep(0.2)
        return time.monotonic() - began


def flat(samples, i, column, first, last):
    """Medians of a gateway's samples in two parts of the run."""
    mine = [s for s in samples if s[1] == i]
    begin, span = samples[0][0], samples[-1][0] - samples[0][0]
    part = lambda a, b: [s[column] for s in mine if a <= (s[0] - begin) / span <= b] or [0]
    return statistics.median(part(*first)), statistics.median(part(*last))


def tell(rows, soak, rest_s, cpu, fds_then, fds_now):
    o = soak.o
    n = sum(soak.done.values())
    print(f"# {n} requests: {dict(soak.done)}; outcomes {dict(soak.outcomes)}; faults {dict(soak.faults)}", file=sys.stderr)
    finished = sum((u.finished for u in soak.ups), collections.Counter())
    again = sum(c - 1 for name, c in finished.items() if c > 1 and name.endswith("z") and not name.startswith("k"))
    rows.row("minutes", o.minutes)
    rows.row("requests", n)
    rows.row("faults", sum(soak.faults.values()))
    rows.row("replies lost, doubled, mixed up, or errors without a fault", len(soak.problems), "", "== 0")
    rows.row("bytes that belong to no reply", sum(c.stray for c in soak.clients), "", "== 0")
    rows.row("errors while this program, and its upstreams with it, got too little CPU", soak.busy)
    rows.row("no reply while nobody here got any for three seconds and more", soak.stalled)
    rows.row("time lost so", soak.late_s, "s")
    for door, seen in soak.doors.most_common():
        rows.row(f"requests through {door}", seen)
    rows.row("conversations gone on from a kept answer", soak.kept)
    rows.row("whole answers", soak.outcomes["whole"] / max(1, n - soak.done["leaver"] - soak.done["broken"]) * 100, "%")
    rows.row("fresh questions answered whole by an upstream twice", again / max(1, sum(finished.values())) * 100, "%", "<= 0.2")
    rows.row("twin questions that led to two calls, without a fault", len(soak.split), "", "== 0")
    rows.row("the same, for lack of CPU: Redis missed its deadline", len(soak.split_busy))
    rows.row("calls beyond what the upstreams take", sum(u.over for u in soak.ups))
    rows.row("without a fault: p50", percentile(soak.took, 0.5), "s")
    rows.row("without a fault: p99", percentile(soak.took, 0.99), "s")
    for i in range(len(soak.ports)):
        a, b = flat(soak.samples, i, 2, (0.4, 0.6), (0.8, 1))
        rows.row(f"gateway {i}: memory in the middle", a, "MB")
        rows.row(f"gateway {i}: memory at the end, of that", b / max(0.1, a), "", "<= 1.05")
        rows.row(f"gateway {i}: descriptors at the start", fds_then[i])
        rows.row(f"gateway {i}: at rest at the end, more", fds_now[i] - fds_then[i], "", f"<= {4 * o.slots}")
    rows.row("until nothing was in flight", rest_s, "s", "<= 10")
    rows.row("gateways' CPU time, of one core", cpu / (o.minutes * 60) * 100, "%")
    rows.row("load average, mean", statistics.mean(s[3] for s in soak.samples) if soak.samples else 0)


def all_fds(programs, ports):
    return [fds(programs.children[f"gateway{i}"].pid) for i in range(len(ports))]


async def measure(o, rows):
    ups = [Upstream(o.slots, o.service_ms / 1000) for _ in range(2)]
    programs, ports = Programs(), [free_port(), free_port()]
    soak = Soak(o, programs, ups, ports)
    try:
        for up in ups:
            await up.start()
        programs.redis()
        await asyncio.sleep(0.5)
        for i, port in enumerate(ports):
            soak.start_gateway(i)
            await until_ready(port, "a gateway")
        fds_then = all_fds(programs, ports)
        await soak.run()
        rest_s = await soak.rest()
        fds_now = all_fds(programs, ports)                   # no client is left; some connections to upstreams are kept
        cpu = sum(cpu_s(programs.children[f"gateway{i}"].pid) for i in range(len(ports)))
    finally:
        for up in ups:
            up.kill()
        ends = programs.close()
    for name, status in ends.items():
        if status and name != "redis":
            soak.problem(name, f"ended with status {status}")
    tell(rows, soak, rest_s, cpu, fds_then, fds_now)


if __name__ == "__main__":
    sys.exit(bench_main(measure, minutes=30.0, rate=28.0, slots=10, service_ms=500, seed=1))
