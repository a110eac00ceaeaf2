-- budget - what the entries of a namespace take in Redis, and what each is worth keeping for: tokens x latency x uses by bytes, with a clock
-- that lets what is not used any more go in the end (as in cache/worth.h). Who enforces the knob redis_bytes_max: lua/entries_evict.lua.
--
-- Keys behind deja:{namespace}:  use  hash  b:<ns> bytes of what may go, p:<ns> of what people wrote, c:<ns> the clock
--                                w:<ns>  zset  <id>:<bytes> by rank

-- What an entry takes in Redis, estimated: each value as jemalloc rounds it up, and a hash of some 25 fields, its places in the sets by which
-- it is found and removed, their keys and its item in the log. Measured with Redis 7.0, 3000 entries of each of nine shapes: within 2 %.
local entry_bytes
do
  local OVERHEAD, IN_PARTITION, TAGGED = 2950, 195, 150

  -- a string of n bytes: its head, its end, and the size class above (four to each power of two)
  local function held(n)
    n = n + (n < 32 and 2 or n < 256 and 4 or n < 65536 and 6 or 10)
    if n <= 128 then return math.ceil(n / 16) * 16 end
    local step = 2 ^ (math.floor(math.log(n - 1) / math.log(2)) - 2)
    return math.ceil(n / step) * step
  end

  function entry_bytes(f, part)
    local bytes = OVERHEAD
    for _, value in pairs(f) do
      bytes = bytes + held(#value)
    end
    if part ~= '' then bytes = bytes + IN_PARTITION end
    for _ in string.gmatch(f.tags or '', '[^,]+') do
      bytes = bytes + TAGGED
    end
    return bytes
  end
end

local function saved_by(f)
  local tokens, latency = (tonumber(f.ptok) or 0) + (tonumber(f.ctok) or 0), tonumber(f.lat) or 0
  return math.min(math.max(tokens, 20), 100000) * math.min(math.max(latency, 200), 600000)
end

local function budget_rank(prefix, ns, uses, f, bytes)
  local clock = tonumber(redis.call('HGET', prefix .. 'use', 'c:' .. ns)) or 0
  return clock + math.min(uses, 1000) * saved_by(f) / bytes
end

-- kind: b or p. What has come to nothing is not kept, nor the clock of a namespace where nothing may go.
local function budget_count(prefix, kind, ns, bytes)
  local use = prefix .. 'use'
  if redis.call('HINCRBY', use, kind .. ':' .. ns, bytes) > 0 then return end
  redis.call('HDEL', use, kind .. ':' .. ns)
  if kind == 'b' then redis.call('HDEL', use, 'c:' .. ns) end
end

-- f: the entry's fields, sz (bytes) among them. One that ran out and comes again may be counted still.
local function budget_in(prefix, id, f)
  local ns = f.ns or ''
  if f.pin == '1' then
    budget_count(prefix, 'p', ns, f.sz)
  elseif redis.call('ZADD', prefix .. 'w:' .. ns, budget_rank(prefix, ns, 1, f, f.sz), id .. ':' .. f.sz) == 1 then
    budget_count(prefix, 'b', ns, f.sz)
  end
end

local function budget_out(prefix, id, f)
  local ns = f.ns or ''
  if not f.sz then return end
  if f.pin == '1' then
    budget_count(prefix, 'p', ns, -f.sz)
  elseif redis.call('ZREM', prefix .. 'w:' .. ns, id .. ':' .. f.sz) == 1 then
    budget_count(prefix, 'b', ns, -f.sz)
  end
end

local budget_enforce -- (prefix, ns, max): entries_evict.lua
