#!lua name=deja
-- deja - changes to the cache that must be seen whole or not at all, as Redis Functions. This file comes first: the key layout and
-- helpers for the other files of lua/, which register the functions. All keys of a call share one hash tag ({namespace}), so that
-- they live on one node of a cluster; a function finds the others beside the one it is given.
--
-- Keys behind deja:{namespace}:
--   e:<id>       hash    an entry (cache/entry.h), or with role = w a judged wording (cache/wording.h)
--   p:<part>     zset    ids of a partition by expiry (unix s)
--   parts        zset    partitions by last change (unix s)
--   log          stream  every change (op, id, part, src, and what the op needs); each gateway tails it
--   epochs       hash    now = how many mass removals there were; all, tenant:T, model:M, ns:N, tag:G = the removal's number:
--                        what was asked for before it is void, wherever it is held
--   i:a i:t:<tenant> i:m:<model> i:n:<ns> i:g:<tag>   zset  ids of entries by expiry
--   i:q:<3 hex>  zset    sha1(question):id by expiry
--   x:<epoch>    zset    ids a mass removal has still to delete; sweeps (set) names them
--   use w:<ns>   what entries take and are worth (lua/budget.lua)
--   seeds        zset    sets of answers loaded with deja seed; seed:<set>  hash  (lua/wordings_seed.lua)
--   aside        hash    entries in quarantine (lua/quarantine.lua)
--   deny         hash    id:answer hash -> unix s: this answer is not taken for this entry until then

local function number(text, min, max)
  local n = tonumber(text)
  if not n or n ~= math.floor(n) or n < min or n > max then return nil end
  return n
end

local function bad(what)
  return redis.error_reply('ERR ' .. what)
end

local LOG_ITEMS_MAX = 100000

-- any key with the tag {ns} -> "deja:{ns}:", nil when there is no tag
local function prefix_of(key)
  local tag = string.match(key or '', '{([^{}]+)}')
  return tag and 'deja:{' .. tag .. '}:'
end

local function is_id(text)
  return text and #text == 32 and string.match(text, '^[0-9a-f]+$') ~= nil
end

local function now_s()
  return tonumber(redis.call('TIME')[1])
end

-- fields: name, value, ...
local function tell(prefix, items, ...)
  redis.call('XADD', prefix .. 'log', 'MAXLEN', '~', items or LOG_ITEMS_MAX, '*', ...)
end
