"""Training questions: reading, rewriting by rule, splitting, and the token states the product itself computes for them.

A line of a training file is {"lang", "domain", "q", "same": [..], "differ": [{"q", "why"} or text, ..]}: `same` may be answered with
q's answer, `differ` may not. A deployment's own judged pairs have the same form. Standard library and numpy."""
import json
import os
import random
import re
import subprocess

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
# Whole domains are held back for validation: thresholds and the final weights of the features come from them.
VALIDATION = {"hotels", "utilities & energy", "events & tickets", "second-hand marketplace", "public transport & bike sharing",
              "parcel delivery", "mobile apps & accounts", "HR", "smart home & appliances", "酒店", "水电燃气与物业", "演出与票务",
              "二手交易平台", "公交地铁与共享单车", "快递物流@zh6", "企业IT与手机App账号", "人事薪酬", "家电与智能家居"}
TOKENS_MAX = 47  # PAIR_TOKENS_MAX of engine/model/pair_net.h


def tidy(text):
    return " ".join(text.split())


def folded(text):
    return re.sub(r"\W", "", text.lower())


def read_lines(paths, refuse=()):
    """refuse: folded texts of evaluation sets; a line that holds one is left out."""
    out = []
    for path in paths:
        with open(path, encoding="utf8") as f:
            for row in map(json.loads, f):
                q = tidy(row["q"])
                same = [t for t in dict.fromkeys(map(tidy, row["same"])) if t != q]
                differ = dict.fromkeys(tidy(d["q"] if isinstance(d, dict) else d) for d in row["differ"])
                differ = [t for t in differ if t != q and t not in same]
                if any(folded(t) in refuse for t in [q] + same + differ):
                    continue
                domain, source = row.get("domain", ""), row.get("id", "").split("-")[0]
                out.append({"lang": row["lang"], "domain": source + ":" + domain, "q": q, "same": same, "differ": differ,
                            "validation": domain in VALIDATION or domain + "@" + source in VALIDATION})
    return out


def texts_to_refuse(paths):
    """Every text of evaluation files, folded: they must not be trained on."""
    out = set()

    def take(v):
        if isinstance(v, str):
            out.add(folded(v))
        elif isinstance(v, list):
            for x in v:
                take(x["content"] if isinstance(x, dict) else x)

    for path in paths:
        with open(path, encoding="utf8") as f:
            for row in map(json.loads, f):
                for key in ("q", "same", "near", "a", "b"):
                    take(row.get(key))
    return out


# ---- the same question in almost the same words, by rule: without these "close means different" is what the lines teach ----

EN_WORDS = [(r"^How do I\b", "How can I"), (r"^How can I\b", "How do I"), (r"^Can I\b", "Am I able to"), (r"^Can I\b", "May I"),
            (r"^Is it possible to\b", "Can I"), (r"\bcan't\b", "cannot"), (r"\bcannot\b", "can't"), (r"\bI'm\b", "I am"),
            (r"\bI am\b", "I'm"), (r"\bdon't\b", "do not"), (r"\bdo not\b", "don't"), (r"\bWhat's\b", "What is"),
            (r"^What is\b", "What's"), (r"\byou\b", "u"), (r" and ", " & "), (r"^How long does it take\b", "How much time does it take"),
            (r"^Where can I\b", "Where do I"), (r"^Where do I\b", "Where can I"), (r"^Do I need to\b", "Do I have to"),
            (r"^Do I have to\b", "Must I"), (r"^How much does (.+) cost\?", r"What does \1 cost?"), (r"\bmy\b", "the"), (r"\bthe ", ""),
            (r"\ba ", ""), (r"^Why is\b", "How come"), (r"\btwo\b", "2"), (r"\bthree\b", "3")]
EN_OPENINGS = ["Hi, ", "Hello there, ", "Quick question: ", "Could you tell me: ", "hey ", "Excuse me, ", "Sorry to bother you, ",
               "I was wondering, ", "Good morning! "]
EN_ENDINGS = [" Thanks!", " thx", " Thank you.", " please", " Cheers", " Any help appreciated."]
ZH_WORDS = [("怎么", "如何"), ("怎么", "咋"), ("如何", "怎么"), ("怎样", "怎么"), ("怎么办", "咋办"), ("可以", "能"), ("能不能", "可不可以"),
            ("多少钱", "什么价"), ("什么时候", "啥时候"), ("什么", "啥"), ("哪里", "哪儿"), ("哪儿", "哪里"), ("为什么", "为啥"), ("我的", ""),
            ("请问", ""), ("多久", "多长时间"), ("是否", "是不是"), ("没有", "没"), ("需要", "要"), ("的", "")]
ZH_OPENINGS = ["请问", "你好，", "您好，请问", "想问下", "麻烦问一下，", "在吗，", "咨询一下："]
ZH_ENDINGS = ["呢？", "呀", "啊？", "，谢谢", "哈", " 急", "，求解答"]
DIALECT = "咗嘅係唔乜佢冇啲哋喺嚟噉迴齣牠"  # read as standard characters, but nobody's traditional form of them


def traditional():
    path = os.path.join(HERE, "..", "cache", "guard_data", "zh_variants.inc")
    with open(path, encoding="utf8") as f:
        pairs = "".join(re.findall(r'"([^"]*)"', f.read()))
    out = {}
    for variant, plain in zip(pairs[::2], pairs[1::2]):
        if variant not in DIALECT:
            out.setdefault(plain, variant)
    return out


def slip(text, r):
    words = list(re.finditer(r"[A-Za-z]{5,}", text))
    if not words:
        return text
    m = r.choice(words)
    w, k = m.group(), r.randrange(1, len(m.group()) - 2)
    w = r.choice([w[:k] + w[k + 1] + w[k] + w[k + 2:], w[:k] + w[k + 1:], w[:k] + w[k] + w[k:]])
    return text[:m.start()] + w + text[m.end():]


def replace_one(text, rules, r):
    fits = [x for x in rules if re.search(x[0], text)]
    if not fits:
        return text
    pattern, instead = r.choice(fits)
    return re.sub(pattern, instead, text, count=1)


def reword_en(text, r):
    for rule in r.sample(range(7), r.choice([1, 1, 2])):
        if rule == 0:
            text = text.lower()
        elif rule == 1:
            text = text.rstrip("?.! ")
        elif rule == 2:
            text = slip(text, r)
        elif rule == 3:
            text = replace_one(text, EN_WORDS, r)
        elif rule == 4:
            text = r.choice(EN_OPENINGS) + (text if text.startswith("I ") else text[0].lower() + text[1:])
        elif rule == 5:
            text = text.rstrip() + r.choice(EN_ENDINGS)
        else:
            text = text.replace("'", "").replace(",", "") if r.random() < 0.7 else text.upper()
    return text


def reword_zh(text, r, variants):
    for rule in r.sample(range(7), r.choice([1, 1, 2])):
        if rule == 0:
            text = r.choice(ZH_OPENINGS) + text
        elif rule == 1:
            text = text.rstrip("？?。！! ")
        elif rule == 2:
            text = replace_one(text, ZH_WORDS, r)
        elif rule == 3:
            text = "".join(variants.get(c, c) for c in text)
        elif rule == 4:
            text = text.rstrip("？?。") + r.choice(ZH_ENDINGS)
        elif rule == 5:
            text = re.sub("[，,]", " ", text)
        else:
            m = re.match(r"^(.*?)(能|可以|会|是)(?!不)(.+)吗[？?]?$", text)
            if m:
                text = m[1] + {"能": "能不能", "可以": "可不可以", "会": "会不会", "是": "是不是"}[m[2]] + m[3] + "？"
    return text


def add_rewordings(lines, seed):
    """close: more wordings of q and of one `same`; close_differ: (a differing question, a wording of it). Those of a line do not depend
    on other lines, so that a file more changes nothing for the rest and their states are not computed again."""
    variants = traditional()

    def reword(text, lang):
        for _ in range(6):
            v = tidy(reword_en(text, r) if lang == "en" else reword_zh(text, r, variants))
            if v != text and len(v) > 3:
                return v
        return None

    for x in lines:
        r = random.Random("%s %s" % (seed, x["q"]))
        close = [reword(x["q"], x["lang"]), reword(x["q"], x["lang"])]
        if x["same"]:
            close.append(reword(r.choice(x["same"]), x["lang"]))
        x["close"] = [v for v in dict.fromkeys(close) if v and v not in x["differ"]]
        x["close_differ"] = None
        if x["differ"]:
            d = r.choice(x["differ"])
            v = reword(d, x["lang"])
            if v and v not in x["same"] and v not in x["close"]:
                x["close_differ"] = (d, v)


def texts_of(lines):
    out = {}
    for x in lines:
        more = x.get("close", []) + ([x["close_differ"][1]] if x.get("close_differ") else [])
        out.update(dict.fromkeys([x["q"]] + x["same"] + x["differ"] + more))
    return list(out)


# ---- token states ----

class States:
    """text -> token ids, states after one layer of the encoder f16[n][dim], vector f32[dim]; computed by verifier_states, kept on disk."""

    def __init__(self, tool, model, layer, folder, skip=3, dim=384):
        self.tool, self.model, self.layer, self.folder, self.skip, self.dim = tool, model, layer, folder, skip, dim
        self.ids, self.rows, self.vector = {}, {}, {}
        os.makedirs(folder, exist_ok=True)
        for name in sorted(os.listdir(folder)):
            if name.endswith(".txt") and os.path.exists(os.path.join(folder, name[:-4] + ".bin")):
                self.read(os.path.join(folder, name[:-4]))

    def read(self, stem):
        with open(stem + ".txt", encoding="utf8") as f:
            names = [x.rstrip("\n") for x in f]
        raw, at, dim = np.memmap(stem + ".bin", np.uint8, "r"), 0, self.dim
        for t in names:
            n = int(raw[at:at + 4].view(np.uint32)[0])
            at += 4
            if not n:
                continue
            ids, rows = raw[at:at + 4 * n], raw[at + 4 * n:at + 4 * n + 2 * n * dim]
            at += 4 * n + 2 * n * dim
            end = min(n - 1, self.skip + TOKENS_MAX)
            self.ids[t] = np.array(ids.view(np.int32)[self.skip:end])
            self.rows[t] = rows.view(np.float16).reshape(n, dim)[self.skip:end]
            self.vector[t] = np.array(raw[at:at + 4 * dim].view(np.float32))
            at += 4 * dim

    def add(self, texts):
        new = [t for t in dict.fromkeys(texts) if t not in self.ids]
        if not new:
            return
        number = sum(x.endswith(".bin") for x in os.listdir(self.folder))
        stem = os.path.join(self.folder, "%03d" % (2 * number))
        with open(stem + ".txt", "w", encoding="utf8") as f:
            f.write("".join(t + "\n" for t in new))
        with open(stem + ".txt", "rb") as i, open(stem + ".part", "wb") as o:
            subprocess.run([self.tool, self.model, str(self.layer)], stdin=i, stdout=o, check=True)
        os.rename(stem + ".part", stem + ".bin")
        self.read(stem)
