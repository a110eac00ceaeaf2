#!/usr/bin/env python3
"""Questions made from templates: the same question in other words, and questions that differ in one thing and need another answer.

    generate.py train N SEED    lines {"q","same","differ"} for the trainer (templates with an even number)
    generate.py test N SEED     pairs {"lang","kind","a","b"} that must never share an answer (the other templates)
    generate.py more N SEED     lines again, of templates.MORE
    generate.py kinds N SEED    pairs again, of templates.KINDS

A template is a list of wordings of one question with slots in braces, lists of near questions by kind, and the values of its slots.
A differing question changes one slot's value, changes two slots' places, or takes the wording of a near question. Training and
testing share no template. Standard library only."""
import json
import random
import sys

import templates

V = {
    "n": ("number", ["2", "3", "5", "7", "10", "12", "20", "25", "40", "60"]),
    "money": ("number", ["50", "80", "120", "200", "350", "500", "900", "1500"]),
    "cur": ("currency", ["dollars", "euros", "pounds", "yen", "francs"]),
    "币": ("currency", ["美元", "欧元", "英镑", "日元", "港币"]),
    "day": ("date", ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]),
    "星期": ("date", ["周一", "周二", "周三", "周四", "周五", "周六", "周日"]),
    "month": ("date", ["January", "March", "May", "June", "August", "October", "December"]),
    "月": ("date", ["1月", "3月", "5月", "6月", "8月", "10月", "12月"]),
    "clock": ("time", ["7 am", "9 am", "11 am", "2 pm", "4 pm", "6 pm", "9 pm"]),
    "点": ("time", ["早上7点", "上午9点", "上午11点", "下午2点", "下午4点", "晚上9点"]),
    "rel": ("relative time", ["today", "yesterday", "last week", "last month"]),
    "相": ("relative time", ["今天", "明天", "下周", "下个月"]),
    "city": ("entity", ["Lisbon", "Oslo", "Porto", "Ghent", "Turin", "Basel", "Cork", "Lyon", "Graz"]),
    "城": ("entity", ["成都", "苏州", "厦门", "昆明", "青岛", "宁波", "长沙", "贵阳", "洛阳"]),
    "brand": ("entity", ["Norvik", "Tellwood", "Arbex", "Quorra", "Pellby", "Sundale"]),
    "牌": ("entity", ["晨曦", "云帆", "北辰", "绿谷", "星河", "海拓"]),
    "item": ("entity", ["washing machine", "laptop", "bicycle", "guitar", "camera", "tent", "sofa"]),
    "物": ("entity", ["洗衣机", "笔记本电脑", "自行车", "吉他", "相机", "帐篷", "沙发"]),
    "doc": ("entity", ["passport", "driving licence", "birth certificate", "visa", "student card"]),
    "证": ("entity", ["护照", "驾驶证", "身份证", "居住证", "学生证"]),
    "fruit": ("entity", ["apples", "pears", "plums", "grapes", "cherries"]),
    "果": ("entity", ["苹果", "梨", "李子", "葡萄", "樱桃"]),
    "who": ("subject", ["my son", "my mother", "my tenant", "my colleague", "my neighbour"]),
    "人": ("subject", ["我儿子", "我妈", "我的租客", "我同事", "我邻居"]),
    "unit": ("unit", ["kilograms", "pounds of weight", "grams", "litres"]),
    "单位": ("unit", ["公斤", "斤", "克", "升"]),
    "code": ("identifier", ["E17", "E71", "K204", "K240", "X9", "X6"]),
}
EN = [
    ([["How do I send {money} {cur} from {city} to {city2}?", "What is the way to send {money} {cur} from {city} to {city2}?",
       "sending {money} {cur} out of {city} to {city2}, how is it done"]],
     {"question": ["How long does it take to send {money} {cur} from {city} to {city2}?", "What does it cost to send {money} {cur} from {city} to {city2}?"],
      "negation": ["Why can I not send {money} {cur} from {city} to {city2}?"], "verb": ["How do I call back {money} {cur} sent from {city} to {city2}?"]}),
    ([["Is the shop in {city} open on {day} at {clock}?", "Does the {city} store open its doors on {day} at {clock}?",
       "{day} {clock}, is your {city} shop open"]],
     {"antonym": ["Is the shop in {city} closed on {day} at {clock}?"], "question": ["Why is the shop in {city} open on {day} at {clock}?"],
      "verb": ["Is the shop in {city} busy on {day} at {clock}?"]}),
    ([["Can I return a {item} after {n} days?", "May a {item} be sent back after {n} days?", "had the {item} {n} days, can it still go back"]],
     {"modality": ["Do I have to return a {item} after {n} days?"], "antonym": ["Can I keep a {item} after {n} days?"],
      "question": ["How do I return a {item} after {n} days?"], "direction": ["Can I return a {item} before {n} days have passed?"]}),
    ([["What is the cheapest ticket from {city} to {city2} on {day}?", "Which {day} ticket from {city} to {city2} costs least?",
       "lowest fare {city} to {city2}, {day}"]],
     {"comparison": ["What is the dearest ticket from {city} to {city2} on {day}?", "What is the fastest train from {city} to {city2} on {day}?"],
      "quantifier": ["What do all tickets from {city} to {city2} on {day} cost?"]}),
    ([["How do I turn on the alarm of my {brand} {item}?", "Switching the alarm of a {brand} {item} on: what are the steps?",
       "need the alarm on my {brand} {item} to be active, how"]],
     {"antonym": ["How do I turn off the alarm of my {brand} {item}?"], "verb": ["How do I hear the alarm of my {brand} {item} better?"],
      "question": ["Why does the alarm of my {brand} {item} turn on?"]}),
    ([["Does {who} need a {doc} to enter the museum in {city}?", "Is a {doc} required for {who} at the {city} museum?",
       "museum in {city}: must {who} bring a {doc}"]],
     {"modality": ["May {who} use a {doc} to enter the museum in {city}?"], "question": ["Where does {who} get a {doc} for the museum in {city}?"],
      "condition": ["Does {who} need a {doc} to work at the museum in {city}?"]}),
    ([["Can all members borrow up to {n} books?", "Is every member allowed to take out up to {n} books?", "{n} books at most for each member, right?"]],
     {"quantifier": ["Can only some members borrow up to {n} books?", "Can new members alone borrow up to {n} books?"],
      "comparison": ["Can all members borrow at least {n} books?"], "direction": ["Can all members lend out up to {n} books?"]}),
    ([["What does error {code} on my {brand} {item} mean?", "My {brand} {item} shows {code}: what is the meaning of that error?",
       "{brand} {item} error {code}, explain"]],
     {"question": ["How do I clear error {code} on my {brand} {item}?", "Who repairs error {code} on my {brand} {item}?"]}),
    ([["How many {unit} of {fruit} may I bring into the country in {month}?", "In {month}, what number of {unit} of {fruit} can one take across the border?",
       "{fruit} in {month}: how many {unit} are allowed into the country"]],
     {"direction": ["How many {unit} of {fruit} may I take out of the country in {month}?"],
      "comparison": ["How many {unit} of {fruit} must I bring into the country at least in {month}?"]}),
    ([["Was my order of {fruit} delivered {rel}?", "Did the {fruit} I ordered arrive {rel}?", "{fruit} order, did it come {rel}"]],
     {"state": ["Was my order of {fruit} cancelled {rel}?", "Was my order of {fruit} paid {rel}?"], "tense": ["Will my order of {fruit} be delivered again?"]}),
    ([["Can {who} pick up the {item} for {who2}?", "Is {who} allowed to collect the {item} on behalf of {who2}?", "{who} fetching the {item} for {who2}, ok?"]],
     {"antonym": ["Can {who} drop off the {item} for {who2}?"], "modality": ["Does {who} have to pick up the {item} for {who2}?"]}),
    ([["Is it cheaper to rent a {item} for {n} days or to buy one?", "Renting a {item} for {n} days against buying one: which costs less?",
       "{item}, {n} days: rent or buy, what is cheaper"]],
     {"comparison": ["Is it safer to rent a {item} for {n} days or to buy one?"], "verb": ["Is it cheaper to repair a {item} after {n} days or to buy one?"]}),
    ([["How do I add {who} to my account before {day}?", "Adding {who} to my account before {day}: how does it work?", "want {who} on my account before {day}, steps please"]],
     {"antonym": ["How do I remove {who} from my account before {day}?"], "date": ["How do I add {who} to my account after {day}?"],
      "question": ["When did I add {who} to my account?"]}),
    ([["Does the warranty of the {brand} {item} cover water damage?", "Is damage by water part of the {brand} {item} warranty?",
       "{brand} {item} got wet, is that under warranty"]],
     {"negation": ["Which water damage does the warranty of the {brand} {item} not cover?"], "condition": ["Does the warranty of the {brand} {item} cover theft?"],
      "antonym": ["Does the warranty of the {brand} {item} exclude water damage?"]}),
    ([["What happened to the {money} {cur} I paid {rel}?", "I paid {money} {cur} {rel}: where did it go?"]],
     {"negation": ["Why did I not pay {money} {cur} {rel}?"]}),
    ([["How do I export {n} contacts to my {brand} phone?", "Exporting {n} contacts to a {brand} phone, how?", "get {n} contacts onto my {brand} phone by export"]],
     {"direction": ["How do I import {n} contacts from my {brand} phone?"], "verb": ["How do I delete {n} contacts on my {brand} phone?"],
      "question": ["Can I export {n} contacts to my {brand} phone?"]}),
    ([["Which bus goes from {city} to {city2} after {clock}?", "After {clock}, what bus can I take from {city} to {city2}?", "bus {city} to {city2} later than {clock}"]],
     {"direction": ["Which bus goes from {city} to {city2} before {clock}?"], "verb": ["Which bus does not stop between {city} and {city2} after {clock}?"],
      "question": ["How much is the bus from {city} to {city2} after {clock}?"]}),
    ([["Can I change the name on a {doc} online?", "Is it possible to have the name on a {doc} changed over the internet?", "{doc} name change, online possible?"]],
     {"antonym": ["Can I change the name on a {doc} offline?"], "modality": ["Must I change the name on a {doc} online?"],
      "question": ["How long does a name change on a {doc} take online?"], "verb": ["Can I hide the name on a {doc} online?"]}),
]
ZH = [
    ([["怎么从{城}往{城2}汇{money}{币}？", "从{城}汇{money}{币}到{城2}要怎么操作", "想把{money}{币}由{城}汇去{城2}，如何办理"]],
     {"question": ["从{城}往{城2}汇{money}{币}要多久？", "从{城}往{城2}汇{money}{币}手续费多少？"], "negation": ["为什么不能从{城}往{城2}汇{money}{币}？"],
      "verb": ["怎么撤回从{城}往{城2}汇的{money}{币}？"]}),
    ([["{城}的门店{星期}{点}开门吗？", "你们{城}那家店{星期}{点}营业吗", "{星期}{点}去{城}店有人吗，营不营业"]],
     {"antonym": ["{城}的门店{星期}{点}关门吗？"], "question": ["{城}的门店为什么{星期}{点}开门？"]}),
    ([["{物}买了{n}天还能退吗？", "买了{n}天的{物}可以退货吗", "{物}到手{n}天了，退得了吗"]],
     {"modality": ["{物}买了{n}天必须退吗？"], "question": ["{物}买了{n}天怎么退？"], "verb": ["{物}买了{n}天还能换吗？"]}),
    ([["{星期}从{城}到{城2}最便宜的票是哪趟？", "{城}去{城2}{星期}哪张票价格最低", "{星期} {城}到{城2} 最低票价"]],
     {"comparison": ["{星期}从{城}到{城2}最贵的票是哪趟？", "{星期}从{城}到{城2}最快的是哪趟？"]}),
    ([["怎么打开{牌}{物}的闹铃？", "{牌}{物}的闹铃在哪里开启", "我的{牌}{物}想开闹铃，怎么弄"]],
     {"antonym": ["怎么关闭{牌}{物}的闹铃？"], "question": ["{牌}{物}的闹铃为什么会打开？"], "verb": ["怎么调大{牌}{物}的闹铃？"]}),
    ([["{人}进{城}博物馆需要带{证}吗？", "去{城}博物馆，{人}是不是得带{证}", "{城}博物馆 {人} 要不要{证}"]],
     {"modality": ["{人}进{城}博物馆可以用{证}吗？"], "question": ["{人}去{城}博物馆用的{证}在哪办？"], "verb": ["{人}在{城}博物馆上班需要{证}吗？"]}),
    ([["所有会员都能借{n}本书吗？", "是不是每个会员都可以借{n}本书", "会员人人能借{n}本吗"]],
     {"quantifier": ["只有部分会员能借{n}本书吗？"], "comparison": ["所有会员都至少要借{n}本书吗？"], "direction": ["所有会员都能借出{n}本书给别人吗？"]}),
    ([["{牌}{物}显示{code}是什么意思？", "我的{牌}{物}报错{code}代表什么", "{code}，{牌}{物}上的，啥含义"]],
     {"question": ["{牌}{物}显示{code}怎么消除？", "{牌}{物}显示{code}谁来修？"]}),
    ([["{月}可以带多少{单位}{果}入境？", "{月}入境能携带几{单位}{果}", "{果}{月}带进来最多多少{单位}"]],
     {"direction": ["{月}可以带多少{单位}{果}出境？"], "comparison": ["{月}最少要带多少{单位}{果}入境？"]}),
    ([["我订的{果}{相}送到吗？", "{相}能收到我下单的{果}吗", "{果}的订单{相}到不到"]],
     {"state": ["我订的{果}{相}取消吗？"], "verb": ["我订的{果}{相}涨价吗？"]}),
    ([["{人}可以替{人2}取{物}吗？", "让{人}帮{人2}拿{物}行吗", "{人}代{人2}领{物}可不可以"]],
     {"antonym": ["{人}可以替{人2}寄{物}吗？"], "modality": ["{人}必须替{人2}取{物}吗？"]}),
    ([["租{物}{n}天和直接买哪个便宜？", "{物}用{n}天，租划算还是买划算", "{n}天 {物} 租和买 哪样省钱"]],
     {"comparison": ["租{物}{n}天和直接买哪个安全？"], "verb": ["修{物}和租{n}天哪个便宜？"]}),
    ([["{星期}之前怎么把{人}加到我的账户？", "想在{星期}前给账户添加{人}，怎么操作", "账户加{人}，{星期}以前要弄好，步骤是什么"]],
     {"antonym": ["{星期}之前怎么把{人}从我的账户移除？"], "date": ["{星期}之后怎么把{人}加到我的账户？"]}),
    ([["{牌}{物}进水了保修吗？", "{牌}的{物}进水在保修范围内吗", "{牌}{物}泡水了 能不能保修"]],
     {"condition": ["{牌}{物}被偷了保修吗？"], "question": ["{牌}{物}进水了去哪修？"], "negation": ["{牌}{物}没进水但是坏了保修吗？"]}),
    ([["{相}交{money}{币}会怎么样？", "如果{相}才付{money}{币}有什么影响"]], {"negation": ["{相}不交{money}{币}会怎么样？"]}),
    ([["怎么把{n}个联系人导出到{牌}手机？", "往{牌}手机导出{n}个联系人要怎么做", "{n}个联系人 导出去{牌}手机 咋弄"]],
     {"direction": ["怎么从{牌}手机导入{n}个联系人？"], "verb": ["怎么删除{牌}手机上的{n}个联系人？"], "question": ["能把{n}个联系人导出到{牌}手机吗？"]}),
    ([["{点}以后从{城}到{城2}坐哪路车？", "过了{点}，{城}去{城2}有什么车", "{城}到{城2} {点}之后的车"]],
     {"direction": ["{点}以前从{城}到{城2}坐哪路车？"], "question": ["{点}以后从{城}到{城2}车票多少钱？"]}),
    ([["{证}上的名字能在网上改吗？", "网上可以修改{证}的姓名吗", "改{证}名字，线上能办不"]],
     {"antonym": ["{证}上的名字能在线下改吗？"], "modality": ["{证}上的名字必须在网上改吗？"], "question": ["{证}上的名字在网上改要多久？"],
      "verb": ["{证}上的名字能在网上查吗？"]}),
]


def slots_of(text):
    return [s.split("}")[0] for s in text.split("{")[1:]]


def base(slot):
    return slot[:-1] if slot[-1] == "2" and slot != "2" else slot


def fill(text, values):
    for k, v in values.items():
        text = text.replace("{" + k + "}", v)
    return text[0].upper() + text[1:] if text[0].isascii() and values.get("_cap") else text


def draw(slots, r):
    """a value for every slot; city and city2 differ"""
    out, used = {}, {}
    for s in sorted(set(slots)):
        pool = [v for v in V[base(s)][1] if v not in used.setdefault(base(s), set())]
        out[s] = r.choice(pool)
        used[base(s)].add(out[s])
    return out


def make(template, r):
    """the wordings of one question, and (kind, text) of questions that differ"""
    wordings, near = template[0][0], template[1]
    values = draw([s for w in wordings for s in slots_of(w)] + [s for w in sum(near.values(), []) for s in slots_of(w)], r)
    same = [fill(w, values) for w in wordings]
    differ = [(kind, fill(w, values)) for kind, ws in near.items() for w in ws]
    for s in sorted(set(slots_of(wordings[0]))):
        kind, pool = V[base(s)]
        taken = {values[k] for k in values if base(k) == base(s)}
        other = dict(values, **{s: r.choice([v for v in pool if v not in taken])})
        differ.append((kind, fill(r.choice(wordings), other)))
        if s[-1] == "2" and "from" not in kind:
            swapped = dict(values, **{s: values[base(s)], base(s): values[s]})
            differ.append(("direction", fill(r.choice(wordings), swapped)))
    r.shuffle(differ)
    return same, differ


def main():
    what, n, r = sys.argv[1], int(sys.argv[2]), random.Random(int(sys.argv[3]))
    V.update(templates.VALUES)
    pick = [("en", t) for t in {"more": templates.MORE, "kinds": templates.KINDS}.get(what, [])] or \
        [(lang, t) for lang, ts in (("en", EN), ("zh", ZH)) for i, t in enumerate(ts) if i % 2 == (what == "test")]
    seen = 0
    while seen < n:
        for lang, template in pick:
            same, differ = make(template, r)
            if what in ("train", "more"):
                print(json.dumps({"lang": lang, "domain": "generated", "q": same[0], "same": same[1:], "differ": [{"q": t, "why": k} for k, t in differ[:6]]},
                                 ensure_ascii=False))
                seen += 1
                continue
            for kind, text in differ:
                print(json.dumps({"lang": lang, "kind": kind, "a": r.choice(same), "b": text}, ensure_ascii=False))
                seen += 1
            if seen >= n:
                break


if __name__ == "__main__":
    main()
