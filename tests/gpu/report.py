#!/usr/bin/env python3
"""What tests/gpu/run.sh found, as one JSON and as a table. Standard library.

  report.py add REPORT KIND NAME STATUS SECONDS OUT ERR   keeps one program's end: the JSON lines of OUT, or else its last line
  report.py write REPORT OUT.json GPU DRIVER COMMIT       writes the JSON, prints the table; exit status 1 where there is nothing
  report.py try                                           both, on made-up lines, checked (a dry run does this)
"""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from make_model import SHAPES  # noqa: E402

NO_TIME = -1
SAID_MAX, LINES_MAX = 300, 12


def lines_of(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf8", errors="replace") as f:
        return [line.rstrip("\n") for line in f if line.strip()]


def rows_of(lines):
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:  # cut in the middle, where the program was ended
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def add(report, kind, name, status, seconds, out, err):
    said = lines_of(out)
    record = {"kind": kind, "name": name, "status": status, "seconds": seconds, "rows": rows_of(said)}
    if not record["rows"] and said:
        record["last_line"] = said[-1][:SAID_MAX]
    if status:
        record["said"] = [line[:SAID_MAX] for line in (said + lines_of(err)) if not line.startswith("ok")][-LINES_MAX:]
    with open(report, "a", encoding="utf8") as f:
        f.write(json.dumps(record) + "\n")


def operations_a_token(shape):
    """Of a prompt's token in all matrices but the embedding and the head, which sees one token of a prompt; attention is left out."""
    embd, ff, layers, heads, kv, hd = shape[:6]
    used = shape[8] if len(shape) > 8 else 1
    return 2 * layers * (embd * hd * (2 * heads + 2 * kv) + 3 * embd * ff * used)


def peak_of(records):
    for r in records:
        for row in r["rows"]:
            if row.get("kernel") == "peak" and row.get("flops"):
                return row["flops"]
    return None


def copy_of(records):
    for r in records:
        for row in r["rows"]:
            if row.get("kernel") == "copy" and row.get("bytes_per_s"):
                return row["bytes_per_s"]
    return None


def weigh(records):
    """Shares of what the device could do, in each row of a model: prompts of its products, decoding of its memory."""
    peak, copy = peak_of(records), copy_of(records)
    for r in records:
        if r["kind"] != "model":
            continue
        shape = SHAPES.get(r["name"].split()[0])
        for row in r["rows"]:
            if peak and shape:
                row["prompt_share_of_peak"] = round(row["prompt_tokens_per_s"] * operations_a_token(shape) / peak, 4)
            if copy and row["step_ms"]:
                row["step_share_of_copy"] = round(row["weight_bytes"] / row["step_ms"] * 1e3 / copy, 4)


def rates(row):
    return "".join(f", {row[key] / per:.1f} {unit}" for key, per, unit in (("bytes_per_s", 1e9, "GB/s"), ("flops", 1e12, "TFLOP/s")) if key in row)


def shown(v, form, unit=""):
    return "" if v is None else format(v, form) + unit


def table(records):
    for r in records:
        rest = f": {r['last_line']}" if "last_line" in r else ""
        bad = "" if not r["status"] else ", no time left" if r["status"] == NO_TIME else f", FAILED with status {r['status']}"
        yield f"{r['kind']} {r['name']} ({r['seconds']} s{bad}){rest}"
        for row in r["rows"]:
            if "error" in row:
                yield f"    {row['kernel']}, {row['shape']}: {row['error']}"
            elif "us" not in row and "kernel" in row:
                yield f"    {row['kernel']}, {row['shape']}{rates(row)}"
            elif "kernel" in row:
                yield (f"    {row['kernel'] + ', ' + row['shape']:<84}{shown(row.get('us'), '10.2f', ' us')}"
                       f"{shown(row.get('share_of_copy'), '8.1%', ' of copy')}{shown(row.get('share_of_peak'), '8.1%', ' of peak')}")
            elif "decode_tokens_per_s" in row:
                yield (f"    {row['sequences']:4d} sequences, graphs {'on ' if row['graphs'] else 'off'}: prompts {row['prompt_tokens_per_s']:9.0f}/s"
                       f"{shown(row.get('prompt_share_of_peak'), '8.1%', ' of peak')}, decoding {row['decode_tokens_per_s']:8.0f}/s, step "
                       f"{row['step_ms']:.3f} ms{shown(row.get('step_share_of_copy'), '8.1%', ' of copy')}")
            else:
                yield "    " + json.dumps(row)


def write(report, out, gpu, driver, commit):
    records = rows_of(lines_of(report))
    weigh(records)
    with open(out, "w", encoding="utf8") as f:
        json.dump({"gpu": gpu, "driver": driver, "commit": commit, "ran": records}, f, indent=1)
        f.write("\n")
    print("\n".join(table(records)))
    return records


def try_all():
    with tempfile.TemporaryDirectory() as work:
        report, text, err = (os.path.join(work, n) for n in ("report", "text", "err"))

        def made(kind, name, status, lines, wrong=""):
            for path, what in ((text, lines), (err, wrong)):
                with open(path, "w", encoding="utf8") as f:
                    f.write(what)
            add(report, kind, name, status, 1, text, err)

        made("test", "layouts", 1, "ok   mma\nFAIL \"ldmatrix\"\n1 passed, 1 failed\n")
        made("kernel", "peak", 0, '{"kernel":"peak","shape":"f16","flops":1e15}\n')
        made("kernel", "copy", 0, '{"kernel":"copy","shape":"512 MiB","bytes_per_s":4e12}\n')
        made("kernel", "paging", 124, '{"kernel":"attention","shape":"x","us":3.5,"bytes_per_s":1e12,"share_of_copy":0.25}\n'
             '{"kernel":"attention","shape":"y","error":"an illegal memory access"}\n{"kernel":"atte', "kernels: \xe4 fault\n")
        made("model", "1b q4_0", 0, '{"model":"m","weight_bytes":1000000000,"graphs":true,"sequences":1,"prompt_tokens_per_s":100000.0,'
             '"decode_tokens_per_s":1000.0,"step_ms":1.0}\n')
        made("model", "8b bf16", NO_TIME, "")
        made("step", "1b q4_0 64", 0, '{"seqs":64,"host_us":80.5}\n')
        out = os.path.join(work, "out.json")
        write(report, out, "A \"GPU\", 9.0", "580", "")
        with open(out, encoding="utf8") as f:
            ran = json.load(f)["ran"]
    assert [len(r["rows"]) for r in ran] == [0, 1, 1, 2, 1, 0, 1], ran
    assert ran[0]["last_line"] == "1 passed, 1 failed" and ran[0]["said"][0] == 'FAIL "ldmatrix"', ran[0]
    assert ran[3]["said"][-1].startswith("kernels:"), ran[3]
    model = ran[4]["rows"][0]
    assert model["step_share_of_copy"] == 0.25 and 0.1 < model["prompt_share_of_peak"] < 0.25, model


def main():
    a = sys.argv[1:]
    if a[:1] == ["add"] and len(a) == 8:
        add(a[1], a[2], a[3], int(a[4]), int(a[5]), a[6], a[7])
    elif a[:1] == ["write"] and len(a) == 6:
        sys.exit(not write(*a[1:]))
    elif a == ["try"]:
        try_all()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
