-- limits - what a tenant may use: requests, tokens, requests at work at a time, money. A request reserves at the door everything it may come to
-- cost, in every bucket it falls into, or nothing at all; at its end the reservation is put right by what it did cost. A bucket is a scope of
-- the settings: tenant:T, tenant:T/model:M, all, all/model:M. Rates are GCRA: one number a rate, the time at which the bucket is empty
-- again (us), so that a changed limit keeps the share that is used. What a gateway holds when it dies comes back: leases end.
--
-- Keys behind the tag, all with a time to live:
--   {ns}:limit:rate:<bucket>          hash    rm rd tm td: requests and tokens a minute and a day
--   {ns}:limit:leases:<bucket>        zset    reservations at work by the end of their lease (Unix ms)
--   {ns}:limit:day:<date>:<bucket>    hash    requests, tokens, spent, saved, refused, shadow, and "refused kind"
--   {ns}:limit:month:<month>:<bucket> hash    spent, saved
--   {ns}:limit:hold:<id>              string  what one request has reserved
--   {ns}:limit:buckets                zset    buckets by last use (Unix s);  {ns}:limit:gateways  zset  gateways by the end of their lease
--
-- deja_limit KEYS {ns}:config  ARGV reserve id mode lease_ms tokens cost n [bucket shadow rpm rpd tpm tpd concurrency day month]*n
--                              ARGV settle [id tokens cost saved]*   |   ARGV renew gateway lease_ms [id]*
--     reserve: a limit of 0 is none; shadow 1 counts what would be refused and refuses nothing; mode force counts what was used while
--     Redis was away (no hold, no lease, never refused), else -. Reply: allowed, kind that refused (1 requests a minute, 2 a day,
--     3 tokens a minute, 4 a day, 5 concurrency, 6 money a day, 7 a month), its bucket, its use (of money in millionths), ms
--     until it may fit (-1: never), kind and bucket that shadow would refuse; limit, remaining, ms to full of requests, then of tokens (-1: none); for each bucket
--     money left in millionths (-1: no budget). settle: puts reservations right; unknown ones are passed over; reply: how many were known.
--     renew: what is still at work, and that the gateway is alive; reply: how many gateways are.
-- deja_limit_status KEYS {ns}:config  ARGV [bucket] [JSON]
--     What is used of each limit, and today's counts; without a bucket the 100 used last.
-- deja_limit_reset KEYS {ns}:config  ARGV bucket [MONEY]
--     Empties a bucket: its rates and leases; with MONEY what it spent today and this month too.

do -- the names end with the file: a chunk has room for 200

local RATES = {{field = 'rm', period = 60e6}, {field = 'rd', period = 86400e6}, {field = 'tm', period = 60e6}, {field = 'td', period = 86400e6}}
local KINDS = {'requests/min', 'requests/day', 'tokens/min', 'tokens/day', 'concurrency', 'budget/day', 'budget/month'}
local KNOB_OF = {'limit_requests_per_min', 'limit_requests_per_day', 'limit_tokens_per_min', 'limit_tokens_per_day', 'limit_concurrency',
                 'limit_budget_day', 'limit_budget_month'}
local CONCURRENCY, DAY, MONTH = 5, 6, 7
local BUCKETS_MAX, ITEMS_MAX = 8, 2000
local KEEP_LEASES_S, KEEP_DAY_S, KEEP_MONTH_S = 3600, 3 * 86400, 40 * 86400

-- Rates count us since 2025: a double resolves 1/64 us of that, of Unix time a quarter. What sums up over thousands of small requests
-- must stay under half a unit.
local EPOCH_S = 1735689600

local function exact(v)
  return string.format('%.17g', v)
end

-- Rounding of a sum of steps must not refuse the last whole unit: 100 us is what ten thousand of them may come to. Half a unit lets no
-- further one through.
local function slack(step)
  return math.min(step / 2, 100)
end

local function keys_of(tag, name, date)
  local p = '{' .. tag .. '}:limit:'
  return {rate = p .. 'rate:' .. name, leases = p .. 'leases:' .. name, day = p .. 'day:' .. date .. ':' .. name,
          month = p .. 'month:' .. string.sub(date, 1, 7) .. ':' .. name}
end

local function next_month_s(date, day_s)
  for d = 1, 31 do
    if string.sub(date_text((day_s + d * 86400) * 1000), 1, 7) ~= string.sub(date, 1, 7) then return day_s + d * 86400 end
  end
end

local function clock()
  local now = redis.call('TIME')
  local s, us = tonumber(now[1]), tonumber(now[2])
  return {us = (s - EPOCH_S) * 1e6 + us, ms = s * 1000 + math.floor(us / 1000), s = s, date = string.sub(date_text(s * 1000), 1, 10),
          day_s = math.floor(s / 86400) * 86400}
end

-- --- reserve
local function fail(b, kind, used, wait_us)
  local f = b.failed
  if not f then
    b.failed = {kind = kind, used = used, wait = wait_us}
  elseif f.wait >= 0 then
    f.wait = wait_us < 0 and -1 or math.max(f.wait, wait_us)
  end
end

local function look_at_rates(b, t, amounts)
  local tats = redis.call('HMGET', b.keys.rate, 'rm', 'rd', 'tm', 'td')
  b.from, b.tat = {}, {}
  for i, r in ipairs(RATES) do
    local limit, n = b.limit[i], amounts[i]
    if limit > 0 then
      local step, from = r.period / limit, math.max(tonumber(tats[i] or 0) or 0, t.us)
      b.from[i], b.tat[i] = from, from + n * step
      local over = b.tat[i] - t.us - r.period
      if n > 0 and over > slack(step) then fail(b, i, math.max(0, math.ceil((from - t.us) / step - 0.01)), n > limit and -1 or over) end
    end
  end
end

local function look_at_money(b, t, cost)
  local left
  for kind = DAY, MONTH do
    local limit, key = b.limit[kind], kind == DAY and b.keys.day or b.keys.month
    if limit > 0 then
      local spent = tonumber(redis.call('HGET', key, 'spent') or 0) or 0
      left = math.min(left or limit - spent, limit - spent)
      local ends = kind == DAY and t.day_s + 86400 or next_month_s(t.date, t.day_s)
      if spent + cost > limit * (1 + 1e-12) then fail(b, kind, spent, cost > limit and -1 or (ends - t.s) * 1e6) end
    end
  end
  b.left = left and math.floor((left - (b.failed and 0 or cost)) * 1e6) or -1
end

local function look(b, t, amounts, cost)
  look_at_rates(b, t, amounts)
  if b.limit[CONCURRENCY] > 0 then
    redis.call('ZREMRANGEBYSCORE', b.keys.leases, '-inf', t.ms)
    local n = redis.call('ZCARD', b.keys.leases)
    if n >= b.limit[CONCURRENCY] then fail(b, CONCURRENCY, n, 1e6) end
  end
  look_at_money(b, t, cost)
end

local function note_day(b, field, n)
  if redis.call('HINCRBY', b.keys.day, field, n) == n then redis.call('EXPIRE', b.keys.day, KEEP_DAY_S) end
end

local function add_money(keys, field, amount)
  if amount == 0 then return end
  redis.call('HINCRBYFLOAT', keys.day, field, exact(amount))
  redis.call('HINCRBYFLOAT', keys.month, field, exact(amount))
  redis.call('EXPIRE', keys.day, KEEP_DAY_S)
  redis.call('EXPIRE', keys.month, KEEP_MONTH_S)
end

-- all: every rate of the bucket is among tats, so that none can end later
local function write_rates(key, t, tats, all)
  local set, last = {}, t.us
  for i, r in ipairs(RATES) do
    if tats[i] then
      set[#set + 1], set[#set + 2] = r.field, exact(tats[i])
      last = math.max(last, tats[i])
    end
  end
  if #set == 0 then return end
  redis.call('HSET', key, unpack(set))
  local left = all and 0 or redis.call('PTTL', key)
  redis.call('PEXPIRE', key, math.max(left, math.ceil((last - t.us) / 1000) + 1000))
end

local function take(tag, b, t, r)
  write_rates(b.keys.rate, t, b.tat, true)
  if b.limit[CONCURRENCY] > 0 and not r.force then
    redis.call('ZADD', b.keys.leases, t.ms + r.lease, r.id)
    redis.call('EXPIRE', b.keys.leases, KEEP_LEASES_S)
  end
  add_money(b.keys, 'spent', r.cost)
  note_day(b, 'requests', 1)
  if r.force then note_day(b, 'tokens', r.tokens) end
  local buckets = '{' .. tag .. '}:limit:buckets'
  if redis.call('ZADD', buckets, t.s, b.name) == 1 then redis.call('EXPIRE', buckets, KEEP_MONTH_S) end
end

-- 'tokens cost date', then a line a bucket: tpm, its tat, tpd, its tat, name
local function hold_text(r, t, taken)
  local lines = {exact(r.tokens) .. ' ' .. exact(r.cost) .. ' ' .. t.date}
  for _, b in ipairs(taken) do
    lines[#lines + 1] = table.concat({exact(b.limit[3]), exact(b.tat[3] or 0), exact(b.limit[4]), exact(b.tat[4] or 0), b.name}, ' ')
  end
  return table.concat(lines, '\n')
end

-- limit, remaining, ms to full of the rate of these two with the least left
local function view(buckets, t, first, allowed)
  local best
  for _, b in ipairs(buckets) do
    for i = first, first + 1 do
      local limit = b.limit[i]
      if limit > 0 and not b.shadow then
        local step, used = RATES[i].period / limit, (allowed and b.tat[i] or b.from[i]) - t.us
        local left = math.max(0, math.floor((RATES[i].period - used + slack(step)) / step))
        if not best or left < best[2] then best = {limit, left, math.ceil(used / 1000)} end
      end
    end
  end
  return best or {-1, -1, -1}
end

local function reserve_reply(buckets, t, refused, shadowed)
  local f, s = refused and buckets[refused].failed, shadowed and buckets[shadowed].failed
  local used = f and math.floor(f.kind >= DAY and f.used * 1e6 or f.used) or 0 -- of money, in millionths
  local out = {refused and 0 or 1, f and f.kind or 0, refused or 0, used,
               f and (f.wait < 0 and -1 or math.ceil(f.wait / 1000)) or 0, s and s.kind or 0, shadowed or 0}
  for _, first in ipairs({1, 3}) do
    for _, v in ipairs(view(buckets, t, first, not refused)) do
      out[#out + 1] = v
    end
  end
  for _, b in ipairs(buckets) do
    out[#out + 1] = b.left
  end
  return out
end

local function refuse(b, field)
  note_day(b, field, 1)
  note_day(b, field .. ' ' .. KINDS[b.failed.kind], 1)
end

local function reserve(tag, r, buckets)
  local t, refused, shadowed, taken = clock(), nil, nil, {}
  local amounts = {1, 1, r.tokens, r.tokens}
  for i, b in ipairs(buckets) do
    b.keys = keys_of(tag, b.name, t.date)
    look(b, t, amounts, r.cost)
    if r.force then b.failed = nil end
    if b.failed and b.shadow then
      shadowed = shadowed or i
    elseif b.failed then
      refused = refused or i
    end
  end
  if refused then
    refuse(buckets[refused], 'refused')
    return reserve_reply(buckets, t, refused, nil)
  end
  for _, b in ipairs(buckets) do
    if b.failed then
      refuse(b, 'shadow') -- a refused request would have used nothing of it
    else
      take(tag, b, t, r)
      taken[#taken + 1] = b
    end
  end
  if not r.force then redis.call('SET', '{' .. tag .. '}:limit:hold:' .. r.id, hold_text(r, t, taken), 'PX', r.lease) end
  return reserve_reply(buckets, t, nil, shadowed)
end

local function is_word(text)
  return text ~= nil and #text >= 1 and #text <= 64 and string.match(text, '^[%w-]+$') ~= nil
end

local function amount(text)
  local v = tonumber(text or '')
  return v and v == v and v >= 0 and v < 1e15 and v or nil
end

local function read_buckets(args, at, n)
  local out = {}
  for i = 1, n do
    local b = {name = args[at], shadow = args[at + 1] == '1', limit = {}}
    if not b.name or not limit_scope(b.name) then return nil, 'bucket ' .. i .. ' is none: ' .. clean(b.name or '', 80) end
    for k = 1, #KINDS do
      b.limit[k] = amount(args[at + 1 + k])
      if not b.limit[k] then return nil, 'bucket ' .. i .. ': ' .. KINDS[k] .. ' must be a number of at least 0' end
    end
    out[i] = b
    at = at + 2 + #KINDS
  end
  return out
end

local function call_reserve(tag, args)
  local r = {id = args[2], force = args[3] == 'force', lease = number(args[4] or '', 100, 600000), tokens = amount(args[5]),
             cost = amount(args[6])}
  local n = number(args[7] or '', 1, BUCKETS_MAX)
  if not is_word(r.id) or not r.lease or not r.tokens or not r.cost or not n then
    return bad('deja_limit: reserve needs id mode lease_ms tokens cost n and the buckets')
  end
  if #args ~= 7 + n * (2 + #KINDS) then return bad('deja_limit: expected ' .. (7 + n * (2 + #KINDS)) .. ' arguments, not ' .. #args) end
  local buckets, problem = read_buckets(args, 8, n)
  if not buckets then return bad('deja_limit: ' .. problem) end
  return reserve(tag, r, buckets)
end

-- --- settle
local function hold_of(tag, id)
  local text = redis.call('GET', '{' .. tag .. '}:limit:hold:' .. id)
  if not text then return nil end
  local hold = {buckets = {}}
  for line in string.gmatch(text, '[^\n]+') do
    if not hold.date then
      hold.tokens, hold.cost, hold.date = string.match(line, '^(%S+) (%S+) (%S+)$')
    else
      local tpm, tm, tpd, td, name = string.match(line, '^(%S+) (%S+) (%S+) (%S+) (.+)$')
      table.insert(hold.buckets, {name = name, limit = {[3] = tonumber(tpm), [4] = tonumber(tpd)},
                                  tat = {[3] = tonumber(tm), [4] = tonumber(td)}})
    end
  end
  return hold
end

-- More was used: it is owed. Less: it comes back, as far as time has not given it back already.
local function correct_rates(b, t, keys, more)
  local now, set = redis.call('HMGET', keys.rate, 'tm', 'td'), {}
  for i = 3, 4 do
    local tat = tonumber(now[i - 2] or 0) or 0
    if b.limit[i] > 0 and more > 0 then
      set[i] = math.max(tat, t.us) + more * RATES[i].period / b.limit[i]
    elseif b.limit[i] > 0 and tat > t.us then
      set[i] = tat - math.min(-more * RATES[i].period / b.limit[i], math.max(0, b.tat[i] - t.us))
    end
  end
  write_rates(keys.rate, t, set)
end

local function settle_one(tag, t, s)
  local hold = hold_of(tag, s.id)
  if not hold then return 0 end
  redis.call('DEL', '{' .. tag .. '}:limit:hold:' .. s.id)
  for _, b in ipairs(hold.buckets) do
    b.keys = keys_of(tag, b.name, hold.date)
    if s.tokens ~= tonumber(hold.tokens) then correct_rates(b, t, b.keys, s.tokens - tonumber(hold.tokens)) end
    redis.call('ZREM', b.keys.leases, s.id)
    add_money(b.keys, 'spent', s.cost - tonumber(hold.cost))
    add_money(b.keys, 'saved', s.saved)
    if s.tokens > 0 then note_day(b, 'tokens', s.tokens) end
  end
  return 1
end

local function call_settle(tag, args)
  local items, t, known = {}, clock(), 0
  if (#args - 1) % 4 ~= 0 or #args - 1 > 4 * ITEMS_MAX then
    return bad('deja_limit: settle needs id tokens cost saved, at most ' .. ITEMS_MAX .. ' times')
  end
  for at = 2, #args, 4 do
    local s = {id = args[at], tokens = amount(args[at + 1]), cost = amount(args[at + 2]), saved = amount(args[at + 3])}
    if not is_word(s.id) or not s.tokens or not s.cost or not s.saved then
      return bad('deja_limit: settle: argument ' .. at .. ' ff. must be id tokens cost saved')
    end
    items[#items + 1] = s
  end
  for _, s in ipairs(items) do
    known = known + settle_one(tag, t, s)
  end
  return known
end

-- --- renew
local function call_renew(tag, args)
  local t, lease, gateways = clock(), number(args[3] or '', 100, 600000), '{' .. tag .. '}:limit:gateways'
  if not is_word(args[2]) or not lease or #args > 3 + ITEMS_MAX then
    return bad('deja_limit: renew needs gateway lease_ms and at most ' .. ITEMS_MAX .. ' ids')
  end
  redis.call('ZADD', gateways, t.ms + lease, args[2])
  redis.call('ZREMRANGEBYSCORE', gateways, '-inf', t.ms)
  redis.call('EXPIRE', gateways, KEEP_LEASES_S)
  redis.call('ZREMRANGEBYSCORE', '{' .. tag .. '}:limit:buckets', '-inf', t.s - KEEP_MONTH_S)
  redis.call('EXPIRE', '{' .. tag .. '}:limit:buckets', KEEP_MONTH_S)
  for i = 4, #args do
    local hold = is_word(args[i]) and hold_of(tag, args[i])
    for _, b in ipairs(hold and hold.buckets or {}) do
      local leases = keys_of(tag, b.name, hold.date).leases
      if redis.call('ZADD', leases, 'XX', 'CH', t.ms + lease, args[i]) == 1 then redis.call('EXPIRE', leases, KEEP_LEASES_S) end
    end
    if hold then redis.call('PEXPIRE', '{' .. tag .. '}:limit:hold:' .. args[i], lease) end
  end
  return redis.call('ZCARD', gateways)
end

local function deja_limit(keys, args)
  local tag, problem = space_of(keys, 'deja_limit')
  if not tag then return bad(problem) end
  if args[1] == 'reserve' then return call_reserve(tag, args) end
  if args[1] == 'settle' then return call_settle(tag, args) end
  if args[1] == 'renew' then return call_renew(tag, args) end
  return bad('deja_limit is called by gateways: reserve, settle or renew; people want deja_limit_status')
end

-- --- for people
local function plain(v)
  return v == math.floor(v) and grouped(v) or string.format('%.4f', v)
end

-- {kind, limit, used, ms until empty} of every limit in force
local function uses_of(tag, name, t, keys)
  local config, out = '{' .. tag .. '}:config', {}
  local tats = redis.call('HMGET', keys.rate, 'rm', 'rd', 'tm', 'td')
  for kind, knob in ipairs(KNOB_OF) do
    local limit = tonumber(config_effective(config, name, knob) or 0) or 0
    if limit > 0 then
      local u = {kind = KINDS[kind], limit = limit, ms = 0}
      if kind < CONCURRENCY then
        local over = math.max(0, (tonumber(tats[kind] or 0) or 0) - t.us)
        u.used, u.ms = math.max(0, math.ceil(over / RATES[kind].period * limit - 0.01)), math.ceil(over / 1000)
      elseif kind == CONCURRENCY then
        u.used = redis.call('ZCOUNT', keys.leases, '(' .. t.ms, '+inf')
      else
        u.used = tonumber(redis.call('HGET', kind == DAY and keys.day or keys.month, 'spent') or 0) or 0
      end
      out[#out + 1] = u
    end
  end
  return out
end

local function counts_today(keys)
  local c, refusals = setmetatable({}, {__index = function() return 0 end}), {}
  local flat = redis.call('HGETALL', keys.day)
  for i = 1, #flat, 2 do
    c[flat[i]] = tonumber(flat[i + 1]) or 0
    if string.find(flat[i], ' ', 1, true) then refusals[#refusals + 1] = flat[i] .. ' ' .. flat[i + 1] end
  end
  table.sort(refusals)
  return c, refusals
end

local function status_lines(out, tag, name, t)
  local keys = keys_of(tag, name, t.date)
  local c, refusals = counts_today(keys)
  local shadow = config_effective('{' .. tag .. '}:config', name, 'limit_shadow') == 'yes'
  out[#out + 1] = name .. (shadow and ' (shadow: nothing is refused)' or '')
  for _, u in ipairs(uses_of(tag, name, t, keys)) do
    out[#out + 1] = '  ' .. u.kind .. ': ' .. plain(u.used) .. ' of ' .. plain(u.limit) ..
      (u.ms > 0 and string.format(', empty in %.1f s', u.ms / 1000) or '')
  end
  out[#out + 1] = '  today: ' .. grouped(c.requests) .. ' requests, ' .. grouped(c.tokens) .. ' tokens, ' .. grouped(c.refused) .. ' refused' ..
    (c.shadow > 0 and ', ' .. grouped(c.shadow) .. ' would be' or '') .. (#refusals > 0 and ' (' .. table.concat(refusals, ', ') .. ')' or '') ..
    ((c.spent > 0 or c.saved > 0) and string.format(', money %.4f, saved %.4f', c.spent, c.saved) or '')
end

local function status_json(tag, name, t)
  local keys = keys_of(tag, name, t.date)
  local c, uses = counts_today(keys), {}
  for _, u in ipairs(uses_of(tag, name, t, keys)) do
    uses[#uses + 1] = json_object({'kind', u.kind, 'limit', u.limit, 'used', u.used, 'empty_ms', u.ms})
  end
  return json_object({'bucket', name, 'limits', {json = json_list(uses)}, 'requests', c.requests, 'tokens', c.tokens, 'refused', c.refused,
                      'shadow', c.shadow, 'spent', c.spent, 'saved', c.saved})
end

local function deja_limit_status(keys, args)
  local tag, problem = space_of(keys, 'deja_limit_status')
  if not tag then return bad(problem) end
  local t, names, out, json = clock(), nil, {}, string.upper(args[#args] or '') == 'JSON'
  if args[1] and not (json and #args == 1) then
    if not limit_scope(args[1]) or #args > (json and 2 or 1) then
      return bad('deja_limit_status takes a bucket: tenant:T, tenant:T/model:M, all or all/model:M, not "' .. clean(args[1], 80) .. '"')
    end
    names = {args[1]}
  else
    names = redis.call('ZREVRANGE', '{' .. tag .. '}:limit:buckets', 0, 99)
  end
  for _, name in ipairs(names) do
    if json then out[#out + 1] = status_json(tag, name, t) else status_lines(out, tag, name, t) end
  end
  if json then return json_list(out) end
  if #out == 0 then out[1] = 'no limit was asked about yet; set one with deja_config_set, as in: limit_tokens_per_min 10000 IN tenant:T' end
  return out
end

local function deja_limit_reset(keys, args)
  local tag, problem = space_of(keys, 'deja_limit_reset')
  if not tag then return bad(problem) end
  local money = string.upper(args[2] or '') == 'MONEY'
  if not args[1] or not limit_scope(args[1]) or #args > (money and 2 or 1) then
    return bad('deja_limit_reset needs a bucket: tenant:T, tenant:T/model:M, all or all/model:M, and may be followed by MONEY')
  end
  local k = keys_of(tag, args[1], clock().date)
  local n = redis.call('DEL', k.rate, k.leases)
  if money then n = n + redis.call('HDEL', k.day, 'spent') + redis.call('HDEL', k.month, 'spent') end
  local said = args[1] .. (n > 0 and ' is empty' or ' was empty')
  local day, month = tonumber(redis.call('HGET', k.day, 'spent') or 0) or 0, tonumber(redis.call('HGET', k.month, 'spent') or 0) or 0
  if day <= 0 and month <= 0 then return said end
  return said .. string.format('; money spent is kept (%.4f today, %.4f this month): deja_limit_reset %s MONEY resets it', day, month, args[1])
end

redis.register_function('deja_limit', deja_limit)
redis.register_function({function_name = 'deja_limit_status', callback = deja_limit_status, flags = {'no-writes'}})
redis.register_function('deja_limit_reset', deja_limit_reset)

end
