-- wordings_review - pairs of a question and a stored answer it nearly got: near misses that gateways report, what the judge model said of
-- them, what people say. Approved, the question gets that answer from now on; vetoed, it never does; revoked, neither. A pair is one
-- item whatever how often it is seen: its id is the first 12 hex digits of sha1(entry "\n" hash of the request).
--
-- Keys behind the tag: {ns}:r:<id>                       hash  ns entry hash q score threshold reason times state p by at wid part tenant model
--                      {ns}:review:<namespace>:<state>   zset  ids by last change, ms; states: open unsure approved vetoed
--                      {ns}:review:names                 zset  namespaces
--                      {ns}:review:of:<hash>             hash  id -> 1, the pairs of one question; approved -> id
-- A question gets one answer: when one of its pairs is approved, those nobody has judged leave the list, and none comes until that is revoked.
-- The question's text is kept only where the knob near_miss_text says so; else it is that of the stored entry of the same request, while
-- that is there.
--
-- deja_near KEYS {ns}:config  ARGV n [namespace max entry hash text score threshold reason]*n
--     Near misses of one gateway; at most max open ones are kept in a namespace, the latest. Reply: how many were taken.
-- deja_judged KEYS {ns}:config  ARGV namespace max entry hash text keep score threshold reason p verdict model
--     What the judge says of a pair (p: probability that it is the same; verdict: approve, veto or unsure; keep 1 = keep the text even
--     when unsure). Reply: the id.
-- deja_review KEYS {ns}:config  ARGV list [IN namespace] [COUNT n] [WHAT todo|open|unsure|approved|vetoed|quarantined|cleared] [JSON]
--             ARGV approve|veto|revoke id [BY who]
--             ARGV clear|quarantine entry [BY who]
--     list: newest first; todo (quarantined, unsure, then open) when left out. clear: an entry that many unlike questions hit is served again to
--     similar ones; quarantine: it is not. Reply: lines, or what was done. Errors: ERR deja_review ...
-- deja_feedback KEYS {ns}:config  ARGV entry wrong|right [text] [ARM experiment/arm] [BY who]
--     wrong: the entry is deleted. With the text that was asked the pair is vetoed, without (or when it is the entry's own question) the
--     answer itself is not taken again. right: counts as checked. What is told of an answer that was given for another wording counts
--     as false reuse or not, for the arm that was given it lately (or ARM), and teaches mode bound. Reply: deleted N, vetoed or denied N, counted N.

local ITEM_TTL_S = 30 * 86400
local DONE_MAX = 10000
local PAIRS_MAX = 64 -- of one question that are known together
local STATES = {'open', 'unsure', 'approved', 'vetoed'}

local function list_key(tag, ns, state)
  return '{' .. tag .. '}:review:' .. (ns == '' and '-' or ns) .. ':' .. state
end

local function trim_list(tag, key, max)
  local over = redis.call('ZCARD', key) - max
  if over <= 0 then return end
  for _, id in ipairs(redis.call('ZRANGE', key, 0, over - 1)) do
    redis.call('DEL', '{' .. tag .. '}:r:' .. id)
  end
  redis.call('ZREMRANGEBYRANK', key, 0, over - 1)
end

local function item_id(entry, hash)
  return string.sub(redis.sha1hex(entry .. '\n' .. hash), 1, 12)
end

local function item_of(tag, id)
  local flat = redis.call('HGETALL', '{' .. tag .. '}:r:' .. id)
  if #flat == 0 then return nil end
  return fields_of({id, flat})
end

-- Puts an item into a state and its list; state nil = into none.
local function item_move(tag, id, ns, state, max)
  for _, s in ipairs(STATES) do
    if s ~= state then redis.call('ZREM', list_key(tag, ns, s), id) end
  end
  if not state then return end
  redis.call('ZADD', list_key(tag, ns, state), now_ms(), id)
  trim_list(tag, list_key(tag, ns, state), max)
  redis.call('EXPIRE', list_key(tag, ns, state), JUDGED_TTL_S) -- no item lasts longer
  redis.call('ZADD', '{' .. tag .. '}:review:names', now_s(), ns == '' and '-' or ns)
  redis.call('ZREMRANGEBYRANK', '{' .. tag .. '}:review:names', 0, -NAMESPACES_MAX - 1)
end

-- --- the pairs of one question
local function of_key(tag, hash)
  return '{' .. tag .. '}:review:of:' .. hash
end

local function pairs_note(tag, hash, id)
  local key = of_key(tag, hash)
  if redis.call('HLEN', key) < PAIRS_MAX then redis.call('HSET', key, id, '1') end
  redis.call('EXPIRE', key, redis.call('HEXISTS', key, 'approved') == 1 and JUDGED_TTL_S or ITEM_TTL_S)
end

-- verb was carried out on the pair id.
local function pairs_settle(tag, hash, id, ns, verb)
  local key = of_key(tag, hash)
  if verb ~= 'approve' then
    if redis.call('HGET', key, 'approved') == id then redis.call('HDEL', key, 'approved') end
    return
  end
  redis.call('HSET', key, 'approved', id)
  redis.call('EXPIRE', key, JUDGED_TTL_S)
  for _, other in ipairs(redis.call('HKEYS', key)) do
    local item = '{' .. tag .. '}:r:' .. other
    local state = other ~= id and other ~= 'approved' and redis.call('HGET', item, 'state')
    if state == 'open' or state == 'unsure' then
      item_move(tag, other, ns, nil)
      redis.call('DEL', item)
      redis.call('HDEL', key, other)
    end
  end
end

-- Does the question get another entry's answer, by approval, and is that entry there?
local function is_settled(tag, entry, hash)
  local id = redis.call('HGET', of_key(tag, hash), 'approved')
  local of = id and id ~= item_id(entry, hash) and redis.call('HGET', '{' .. tag .. '}:r:' .. id, 'entry')
  return of and redis.call('EXISTS', 'deja:{' .. tag .. '}:e:' .. of) == 1
end

-- x: ns entry hash q score threshold reason. Makes or refreshes the item; returns its id and its state so far (nil = new).
local function item_note(tag, x)
  local id = item_id(x.entry, x.hash)
  local key = '{' .. tag .. '}:r:' .. id
  local state = redis.call('HGET', key, 'state') or nil
  local e = stored_fields('deja:{' .. tag .. '}:e:' .. x.entry)
  redis.call('HINCRBY', key, 'times', 1)
  redis.call('HSET', key, 'ns', x.ns, 'entry', x.entry, 'hash', x.hash, 'score', x.score, 'threshold', x.threshold, 'reason', x.reason)
  if x.q and x.q ~= '' then redis.call('HSET', key, 'q', x.q) end
  if e and e.part then redis.call('HSET', key, 'part', e.part, 'tenant', e.tenant or '', 'model', e.model or '') end
  redis.call('EXPIRE', key, (state == 'approved' or state == 'vetoed') and JUDGED_TTL_S or ITEM_TTL_S)
  pairs_note(tag, x.hash, id)
  return id, state
end

local function deja_near(keys, args)
  local tag, problem = space_of(keys, 'deja_near')
  if not tag then return bad(problem) end
  local n, taken = number(args[1] or '', 0, 1000), 0
  if not n or #args ~= 1 + 8 * n then return bad('deja_near: expected n and 8 arguments for each') end
  for i = 2, #args, 8 do
    local max, entry = number(args[i + 1], 0, 100000), args[i + 2]
    if max and max > 0 and is_id(entry) and is_id(args[i + 3]) and #args[i] <= 64 then
      if not is_settled(tag, entry, args[i + 3]) then
        local id, state = item_note(tag, {ns = args[i], entry = entry, hash = args[i + 3], q = clean(args[i + 4], TEXT_BYTES_MAX), score = args[i + 5],
                                          threshold = args[i + 6], reason = clean(args[i + 7], 64)})
        if not state or state == 'open' then
          redis.call('HSET', '{' .. tag .. '}:r:' .. id, 'state', 'open')
          item_move(tag, id, args[i], 'open', max)
        end
        taken = taken + 1
      end
    end
  end
  return taken
end

-- --- judging
local VERBS = {approve = 'approved', veto = 'vetoed'}

-- Carries out verb on the pair of an item whose question reads text; nil, or what is wrong.
local function item_judge(tag, id, item, verb, text, by)
  local prefix = 'deja:{' .. tag .. '}:'
  local e = stored_fields(prefix .. 'e:' .. item.entry) or {part = item.part, tenant = item.tenant, model = item.model, ns = item.ns}
  if not e.part or e.part == '' or e.part == string.rep('0', 32) then return 'the entry ' .. item.entry .. ' is not known any more' end
  if e.q == text then return 'this is the entry\'s own question' end
  local problem = text_problem(text)
  if problem then return problem end
  local wid = judge_text(prefix, verb, item.entry, e, text, by, {})
  redis.call('HSET', '{' .. tag .. '}:r:' .. id, 'state', VERBS[verb] or 'revoked', 'by', by, 'wid', wid, 'at', now_s())
  redis.call('EXPIRE', '{' .. tag .. '}:r:' .. id, JUDGED_TTL_S)
  item_move(tag, id, item.ns, VERBS[verb], DONE_MAX)
  pairs_settle(tag, item.hash, id, item.ns, verb)
end

local function item_text(tag, item)
  local prefix = 'deja:{' .. tag .. '}:e:'
  if item.q and item.q ~= '' then return item.q end
  local text = redis.call('TYPE', prefix .. item.hash).ok == 'hash' and redis.call('HGET', prefix .. item.hash, 'q')
  if not text and item.wid then text = redis.call('HGET', prefix .. item.wid, 'q') end
  return text or nil
end

local function deja_judged(keys, args)
  local tag, problem = space_of(keys, 'deja_judged')
  if not tag then return bad(problem) end
  local ns, max, entry, hash, text, keep, score, threshold, reason, p, verdict, model = unpack(args, 1, 12)
  if #args ~= 12 or not is_id(entry) or not is_id(hash) then return bad('deja_judged: expected 12 arguments, as its head says') end
  max = number(max, 0, 100000)
  if not max or not tonumber(p) or not (VERBS[verdict] or verdict == 'unsure') then
    return bad('deja_judged: max, p or verdict is wrong')
  end
  local id, state = item_note(tag, {ns = ns, entry = entry, hash = hash, q = keep == '1' and clean(text, TEXT_BYTES_MAX) or '', score = score,
                                    threshold = threshold, reason = reason})
  redis.call('HSET', '{' .. tag .. '}:r:' .. id, 'p', p, 'judge', clean(model, 64))
  -- what a person said stands
  if state == 'approved' or state == 'vetoed' or state == 'revoked' then return id end
  count(tag, ns, '', {judged = 1, approved = verdict == 'approve' and 1 or 0, vetoed = verdict == 'veto' and 1 or 0})
  if verdict == 'unsure' then
    redis.call('HSET', '{' .. tag .. '}:r:' .. id, 'state', 'unsure')
    item_move(tag, id, ns, 'unsure', math.max(max, 1))
    return id
  end
  problem = item_judge(tag, id, item_of(tag, id), verdict, text, 'judge')
  if problem then return bad('deja_judged: ' .. problem) end
  return id
end

-- --- what people see and say
local function item_line(tag, item)
  local stored = redis.call('TYPE', 'deja:{' .. tag .. '}:e:' .. item.entry).ok == 'hash' and
    redis.call('HGET', 'deja:{' .. tag .. '}:e:' .. item.entry, 'q')
  return item.id .. '  ' .. item.state .. (item.p and string.format(' (judge says yes with %.2f)', tonumber(item.p)) or '') ..
    (item.by and item.by ~= 'judge' and ' by ' .. item.by or '') .. '  "' .. (item_text(tag, item) or 'text not kept') .. '"  ~  "' ..
    (stored or 'gone') .. '"  ' .. string.format('%.3f', tonumber(item.score) or 0) .. ' ' .. item.reason .. '  seen ' .. (item.times or '1') ..
    ' times  entry ' .. item.entry
end

local function item_json(tag, item)
  local stored = redis.call('TYPE', 'deja:{' .. tag .. '}:e:' .. item.entry).ok == 'hash' and
    redis.call('HGET', 'deja:{' .. tag .. '}:e:' .. item.entry, 'q')
  return json_object({'id', item.id, 'state', item.state, 'namespace', item.ns, 'question', item_text(tag, item) or cjson.null, 'stored', stored or cjson.null,
                      'entry', item.entry, 'score', tonumber(item.score) or cjson.null, 'threshold', tonumber(item.threshold) or cjson.null,
                      'reason', item.reason, 'times', tonumber(item.times) or 1, 'p', tonumber(item.p) or cjson.null, 'by', item.by or cjson.null})
end

-- ids of one state, newest first, of one namespace or all
local function newest(tag, ns, state, n)
  local names, found, out = ns and {ns} or redis.call('ZRANGE', '{' .. tag .. '}:review:names', 0, -1), {}, {}
  for _, name in ipairs(names) do
    local flat = redis.call('ZREVRANGE', list_key(tag, name, state), 0, n - 1, 'WITHSCORES')
    for i = 1, #flat, 2 do
      found[#found + 1] = {flat[i], tonumber(flat[i + 1])}
    end
  end
  table.sort(found, function(a, b) return a[2] > b[2] or (a[2] == b[2] and a[1] < b[1]) end)
  for i = 1, math.min(n, #found) do out[i] = found[i][1] end
  return out
end

local function review_list(tag, args)
  local o, problem = options_of(args, 2, 'deja_review list', 'IN COUNT WHAT', 'JSON')
  if not o then return bad(problem) end
  local n, what = o.COUNT and number(o.COUNT, 1, 1000) or (not o.COUNT and 20), o.WHAT or 'todo'
  if not n then return bad('deja_review list: COUNT may be a whole number from 1 to 1000') end
  local states = what == 'todo' and {'quarantined', 'unsure', 'open'} or {what}
  if what ~= 'todo' and not string.find(' open unsure approved vetoed quarantined cleared ', ' ' .. what .. ' ', 1, true) then
    return bad('deja_review list: WHAT may be todo, open, unsure, approved, vetoed, quarantined or cleared')
  end
  local out = {}
  for _, state in ipairs(states) do
    if state == 'quarantined' or state == 'cleared' then ASIDE.list('deja:{' .. tag .. '}:', o.IN, state, n - #out, o.JSON, out) end
    for _, id in ipairs(newest(tag, o.IN, state, n - #out)) do
      local item = item_of(tag, id)
      if item then out[#out + 1] = o.JSON and item_json(tag, item) or item_line(tag, item) end
    end
  end
  if o.JSON then return json_list(out) end
  return #out > 0 and out or {'nothing to review'}
end

local function deja_review(keys, args)
  local tag, problem = space_of(keys, 'deja_review')
  if not tag then return bad(problem) end
  local verb = string.lower(args[1] or 'list')
  if verb == 'list' then return review_list(tag, args) end
  if not VERBS[verb] and verb ~= 'revoke' and verb ~= 'clear' and verb ~= 'quarantine' then
    return bad('deja_review: expected list, approve, veto, revoke, clear or quarantine, not "' .. clean(args[1], 40) .. '"')
  end
  local o
  o, problem = options_of(args, 3, 'deja_review', 'BY')
  if not o then return bad(problem) end
  if verb == 'clear' or verb == 'quarantine' then
    local done
    done, problem = ASIDE.judge('deja:{' .. tag .. '}:', verb, args[2], clean(o.BY or 'person', 64))
    return done or bad('deja_review: ' .. problem)
  end
  local item = args[2] and item_of(tag, args[2])
  if not item then return bad('deja_review: there is no pair ' .. clean(args[2] or '', 40) .. ' (deja_review ... list shows them)') end
  local text = item_text(tag, item)
  if not text then return bad('deja_review: the text of this question is not kept any more (see the knob near_miss_text)') end
  problem = item_judge(tag, item.id, item, verb, text, clean(o.BY or 'person', 64))
  if problem then return bad('deja_review: ' .. problem) end
  return item.id .. ': ' .. (VERBS[verb] or 'revoked') .. '  "' .. text .. '"'
end

-- --- feedback
-- Counts what is told of a reused answer. Returns 1 when it was one.
local function feedback_count(tag, e, entry, wrong, other_wording, arm)
  arm = arm or redis.call('GET', '{' .. tag .. '}:hit:' .. entry) or nil
  if not other_wording and not arm then return 0 end
  count(tag, e.ns or '', arm or '', {checked = 1, wrong = wrong and 1 or 0, feedback = 1})
  return 1
end

local function deja_feedback(keys, args)
  local tag, problem = space_of(keys, 'deja_feedback')
  if not tag then return bad(problem) end
  local prefix, entry, verdict, from, text = 'deja:{' .. tag .. '}:', args[1], args[2], 3, nil
  if entry == 'wrong' or entry == 'right' then entry, verdict = verdict, entry end
  if not is_id(entry) then return bad('deja_feedback: entry must be the 32 hex digits of x-deja-entry') end
  if verdict ~= 'wrong' and verdict ~= 'right' then return bad('deja_feedback: after the entry say wrong or right') end
  if #args % 2 == 1 then text, from = args[3], 4 end
  local o
  o, problem = options_of(args, from, 'deja_feedback', 'ARM BY')
  if not o then return bad(problem) end
  local key = prefix .. 'e:' .. entry
  local e = stored_fields(key)
  if not e or e.role == 'w' then return bad('deja_feedback: there is no entry ' .. entry) end
  local pair = text and text ~= '' and text ~= e.q
  problem = pair and text_problem(text)
  if problem then return bad('deja_feedback: ' .. problem) end
  local counted = feedback_count(tag, e, entry, verdict == 'wrong', pair, o.ARM)
  -- the gateway that gave the answer knows what was measured: it makes evidence of this
  tell(prefix, nil, 'op', 'feedback', 'id', entry, 'ns', e.ns or '', 'text', pair and text or '', 'right', verdict == 'right' and '1' or '0')
  if verdict == 'right' then return {'deleted', 0, 'vetoed', 0, 'counted', counted} end
  local answer, what, marked = redis.call('HGET', key, 'ah'), 'denied', 0
  if pair and e.part and e.part ~= string.rep('0', 32) then
    local by = clean(o.BY or 'feedback', 64)
    local id = item_note(tag, {ns = e.ns or '', entry = entry, hash = string.sub(redis.sha1hex(text), 1, 32), q = text, score = '0', threshold = '0',
                               reason = 'feedback'})
    judge_text(prefix, 'veto', entry, e, text, by, {})
    redis.call('HSET', '{' .. tag .. '}:r:' .. id, 'state', 'vetoed', 'by', by, 'at', now_s())
    item_move(tag, id, e.ns or '', 'vetoed', DONE_MAX)
    what, marked = 'vetoed', 1
  elseif answer and answer ~= '' then
    redis.call('HSET', prefix .. 'deny', entry .. ':' .. answer, now_s() + JUDGED_TTL_S)
    marked = 1
  end
  local n = remove_entry(prefix, entry)
  tell(prefix, nil, 'op', 'del', 'id', entry, 'part', e.part or '', 'src', '', 'deny', what == 'denied' and answer or '')
  return {'deleted', n, what, marked, 'counted', counted}
end

redis.register_function('deja_near', deja_near)
redis.register_function('deja_judged', deja_judged)
redis.register_function('deja_review', deja_review)
redis.register_function('deja_feedback', deja_feedback)
