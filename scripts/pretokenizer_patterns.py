"""The published regular expressions behind the names of tokenizer.ggml.pre: what the scanners of engine/text/pretokenize*.c are
compared with. A family is a list of passes; each splits every piece that the pass before has left into matches and gaps.
Needs the Python package regex."""
import regex


def set_of(ranges):
    """'4E00-9FA5 3040' -> a character class without its brackets"""
    ends = [r.split("-") for r in ranges.split()]
    return "".join("\\U%08X-\\U%08X" % (int(e[0], 16), int(e[-1], 16)) for e in ends)


# letters with case, as DeepSeek's first tokenizers list them
CASED = set_of(
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1 3A3-3F5 3F7-481 "
    "48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 "
    "1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 "
    "1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B "
    "2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A "
    "10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943 ")
KANA_HAN = set_of("4E00-9FA5 3040-309F 30A0-30FF")
HAN_HANGUL = set_of("4E00-9FA5 0800-4E00 AC00-D7FF")
ASIAN = set_of("4E00-9FFF 3400-4DBF F900-FAFF 3040-309F 30A0-30FF FF65-FF9F 2F00-2FDF E40-E7F E80-EFF 1780-17FF 1000-109F AA60-AA7F "
               "A9E0-A9FF AC00-D7AF 1100-11FF")

QUOTES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|" + SPACES
DEEPSEEK3 = (r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|" + SPACES)
BLOOM = " ?[^(" + r"\s|.,!?" + set_of("2026 3002 FF0C 3001 964 6D4 60C") + ")]+"


def llama3(numbers, quotes=QUOTES + "|", word=r"\p{L}", not_symbol=r"\s\p{L}\p{N}", spaces=SPACES):
    return rf"{quotes}[^\r\n\p{{L}}\p{{N}}]?[{word}]+|{numbers}| ?[^{not_symbol}]+[\r\n]*|\s*[\r\n]+|{spaces}"


def gpt4o(numbers, quotes):
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    head = r"[^\r\n\p{L}\p{N}]?"
    return rf"{head}{upper}*{lower}+{quotes}|{head}{upper}+{lower}*{quotes}|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|{SPACES}"


def from_right(piece):
    """numbers in groups of three from the right: not a regular expression"""
    out, at = [], 0
    for m in regex.finditer(r"\p{N}+", piece):
        out += [piece[at:m.start()]]
        cut = m.start() + (m.end() - m.start()) % 3
        out += [piece[m.start():cut]] + [piece[i:i + 3] for i in range(cut, m.end(), 3)]
        at = m.end()
    return [x for x in out + [piece[at:]] if x]


FAMILIES = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [llama3(r"\p{N}{1,3}")],
    "jais-2": [llama3(r"\p{N}{1,3}", spaces="".join(rf"\s{{{n}}}(?!\S)|" for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"\s{1,2}(?!\S)|\s")],
    "qwen2": [llama3(r"\p{N}")],
    "qwen35": [llama3(r"\p{N}", word=r"\p{L}\p{M}", not_symbol=r"\s\p{L}\p{M}\p{N}")],
    "ufakzeka": [llama3(r"\p{N}", quotes="")],
    "laguna": [r"[^\n]+|[\n]+", llama3(r"\p{N}")],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|" + SPACES],
    "seed-coder": [QUOTES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|" + SPACES],
    "minicpm5": [r"\p{N}{1,3}", llama3(r"\p{N}+")],
    "exaone-moe": [QUOTES + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|" + SPACES],
    "gpt-4o": [gpt4o(r"\p{N}{1,3}", QUOTES + "?")],
    "tiny_aya": [r"\p{Nd}{1,3}(?=(?:\p{Nd}{3})*(?![\p{L}\p{M}\p{Nd}\p{Pc}]))", gpt4o(r"\p{N}{1,3}", QUOTES + "?")],
    "tekken": [gpt4o(r"\p{N}", "")],
    "youtu": ["[" + set_of("AC00-D7A3 3131-318E") + "]+|[" + set_of("FF01 2026 201C-201D 2018-2019 2014 FF1A-FF1B FF0C 3001-303F FE30-FE4F") +
              "]+|[" + set_of("3105-312F") + "]+|[" + KANA_HAN + "]+", gpt4o(r"\p{N}", QUOTES + "?")],
    "deepseek-v3": [r"\p{N}{1,3}", "[" + KANA_HAN + "]+", DEEPSEEK3],
    "deepseek-llm": [r"[\r\n]", r"\s?[" + CASED + "]+", r"\s?[" + set_of("21-2F 3A-7E FF01-FF0F FF1A-FF5E 2018-201F 3000-3002") + "]+", r"\s+\Z",
                     "[" + HAN_HANGUL + "]+", r"\p{N}+"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[" + HAN_HANGUL + "]+", r"\p{N}"],
    "spark2_5": [r"\p{N}{1,3}", "[" + KANA_HAN + "]+", DEEPSEEK3.replace(r"[\r\n]*|\s*[\r\n]+", r"|[\r\n]"), r"\p{N}"],
    "afmoe": [from_right, "[" + ASIAN + "]+", DEEPSEEK3],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "bloom": [BLOOM],
    "viking": [BLOOM, r"\p{N}"],
}


def matches_and_gaps(expression, piece):
    out, at = [], 0
    for m in expression.finditer(piece):
        out += [piece[at:m.start()], m.group()]
        at = m.end()
    return [x for x in out + [piece[at:]] if x]


COMPILED = {name: [p if callable(p) else regex.compile(p) for p in passes] for name, passes in FAMILIES.items()}


def words_of(family, text):
    pieces = [text] if text else []
    for p in COMPILED[family]:
        pieces = [w for piece in pieces for w in (p(piece) if callable(p) else matches_and_gaps(p, piece))]
    return pieces
