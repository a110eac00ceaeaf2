"""What benches ask of the machine they run on: a free port, what a process takes, whether a server is there."""
import http.client
import os
import socket


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def rss_mb(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(next(x for x in f if x.startswith("VmRSS")).split()[1]) / 1024


def fds(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ready(port):
    try:
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        c.request("GET", "/ready")
        return c.getresponse().status == 200
    except OSError:
        return False
