-- counters - what gateways count, added up in Redis in batches, by namespace and hour and by arm of an experiment.
--
-- Keys behind the tag: {ns}:stats:<namespace>:<hour>  hash  field -> count, for 8 days; namespace "all" = the sum, "-" = no namespace
--                      {ns}:stats:names               zset  namespaces by last hour
--                      {ns}:arm:<experiment>/<arm>    hash  field -> count
--                      {ns}:batch:<source>            string  number of the last batch of that gateway, for an hour
--                      {ns}:hit:<entry>               string  the arm that was last given this entry for another wording, for a day
--
-- deja_count KEYS {ns}:config  ARGV source number rows [namespace arm n [field count]*n]*rows hits [entry arm]*hits
--     Adds one batch. A number not above the last one from this source was added before and changes nothing (a batch whose reply was
--     lost is sent again). Reply: 1, or 0 when it was added before.
--     Errors: ERR deja_count ... (nothing has changed).

local STATS_TTL_S = 8 * 86400
local NAMESPACES_MAX = 256

-- Order of the lists people see. Every other field a gateway sends must be a latency bucket, l0 ... l95.
local COUNTED = {requests = true, exact = true, semantic = true, stale = true, coalesced = true, followed = true, miss = true, bypass = true, errors = true, near = true,
                 prompt_asked = true, completion_asked = true, prompt_saved = true, completion_saved = true, shadowed = true,
                 checked = true, wrong = true, feedback = true, judged = true, approved = true, vetoed = true}
local BUCKETS = 96

-- Upper end of latency bucket i in ms: four a doubling, from 0.05 ms.
local function bucket_ms(i)
  return 0.05 * 2 ^ (i / 4)
end

local function is_counter(name)
  if COUNTED[name] then return true end
  local i = string.match(name, '^l(%d+)$')
  return i ~= nil and tonumber(i) < BUCKETS
end

-- A namespace that is counted under its own name; once there are too many, the rest is counted as one.
local function counted_namespace(tag, ns, hour)
  local names = '{' .. tag .. '}:stats:names'
  if ns == '' then ns = '-' end
  redis.call('ZREMRANGEBYSCORE', names, '-inf', hour - 24 * 8)
  if not redis.call('ZSCORE', names, ns) and redis.call('ZCARD', names) >= NAMESPACES_MAX then return '(others)' end
  redis.call('ZADD', names, hour, ns)
  return ns
end

local function add_counts(key, counts, ttl)
  for field, n in pairs(counts) do
    redis.call('HINCRBY', key, field, n)
  end
  if ttl then redis.call('EXPIRE', key, ttl) end
end

-- Adds counts of one namespace (and arm, "" = none) to everything they belong to.
local function count(tag, ns, arm, counts)
  local hour = math.floor(now_ms() / 3600000)
  add_counts('{' .. tag .. '}:stats:all:' .. hour, counts, STATS_TTL_S)
  add_counts('{' .. tag .. '}:stats:' .. counted_namespace(tag, ns, hour) .. ':' .. hour, counts, STATS_TTL_S)
  -- an arm that is not known was stopped and removed, or never was
  if arm ~= '' and redis.call('EXISTS', '{' .. tag .. '}:arm:' .. arm) == 1 then
    add_counts('{' .. tag .. '}:arm:' .. arm, counts)
  end
end

-- args[at..] -> {ns, arm, counts}, next index; or nil and what is wrong
local function read_row(args, at)
  local ns, arm, n = args[at], args[at + 1], number(args[at + 2] or '', 0, 1000)
  if not n then return nil, 'row at argument ' .. at .. ' must be: namespace arm n [field count]...' end
  local counts = {}
  at = at + 3
  for _ = 1, n do
    local v = number(args[at + 1] or '', 0, 2 ^ 52)
    if not v then return nil, 'the count after argument ' .. at .. ' must be a whole number' end
    -- a newer gateway may count more: what is not known here is left out
    if is_counter(args[at]) then counts[args[at]] = v end
    at = at + 2
  end
  return {ns, arm, counts}, at
end

local function read_batch(args)
  local n, rows, hits, at = number(args[3] or '', 0, 1000), {}, {}, 4
  if not n then return nil, 'rows must be a whole number from 0 to 1000' end
  for i = 1, n do
    local row, next_or_problem = read_row(args, at)
    if not row then return nil, next_or_problem end
    rows[i], at = row, next_or_problem
  end
  n = number(args[at] or '', 0, 1000)
  if not n then return nil, 'hits must be a whole number from 0 to 1000' end
  if #args ~= at + 2 * n then return nil, 'expected ' .. (at + 2 * n) .. ' arguments, not ' .. #args end
  for i = 1, n do
    hits[i] = {args[at + 2 * i - 1], args[at + 2 * i]}
  end
  return rows, hits
end

local function deja_count(keys, args)
  local tag, problem = space_of(keys, 'deja_count')
  if not tag then return bad(problem) end
  local batch = number(args[2] or '', 1, 2 ^ 52)
  if not batch or not string.match(args[1], '^%w+$') then return bad('deja_count: expected a source and the number of the batch') end
  local rows, hits = read_batch(args)
  if not rows then return bad('deja_count: ' .. hits) end
  local last = '{' .. tag .. '}:batch:' .. args[1]
  if (tonumber(redis.call('GET', last) or 0) or 0) >= batch then return 0 end
  redis.call('SET', last, args[2], 'EX', 3600)
  for _, row in ipairs(rows) do
    count(tag, row[1], row[2], row[3])
  end
  for _, hit in ipairs(hits) do
    if is_id(hit[1]) then redis.call('SET', '{' .. tag .. '}:hit:' .. hit[1], hit[2], 'EX', 86400) end
  end
  return 1
end

redis.register_function('deja_count', deja_count)

-- --- reading them
local function counts_of(key, into)
  local flat = redis.call('HGETALL', key)
  for i = 1, #flat, 2 do
    local v = tonumber(flat[i + 1])
    if v and is_counter(flat[i]) then into[flat[i]] = (into[flat[i]] or 0) + v end
  end
  return into
end

-- The latency below which share of the requests stayed, ms; nil without requests. Within a bucket on a logarithmic line.
local function quantile_ms(c, share)
  local total, seen = 0, 0
  for i = 0, BUCKETS - 1 do total = total + (c['l' .. i] or 0) end
  if total == 0 then return nil end
  for i = 0, BUCKETS - 1 do
    local n = c['l' .. i] or 0
    if n > 0 and seen + n >= share * total then
      return bucket_ms(i - 1) * 2 ^ (0.25 * (share * total - seen) / n)
    end
    seen = seen + n
  end
end

local function ms_text(v)
  if not v then return '-' end
  return string.format(v < 10 and '%.2f' or v < 100 and '%.1f' or '%.0f', v)
end

local function percent_text(share)
  return string.format('%.1f %%', 100 * share)
end

-- 1234567 -> 1,234,567
local function grouped(n)
  local s, k = string.format('%.0f', n), nil
  repeat
    s, k = string.gsub(s, '^(%d+)(%d%d%d)', '%1,%2')
  until k == 0
  return s
end

local function of_text(k, n)
  return grouped(k) .. (n > 0 and ' (' .. percent_text(k / n) .. ')' or '')
end

-- Money that prompt and completion tokens cost at the prices set in scope; nil when there are none.
local function money(key, scope, prompt, completion)
  local pp = tonumber(config_effective(key, scope, 'price_prompt') or 0)
  local pc = tonumber(config_effective(key, scope, 'price_completion') or 0)
  if pp == 0 and pc == 0 then return nil end
  return (prompt * pp + completion * pc) / 1000000
end
